"""`Narrowed`: two policies as one, the gate's own and that of a profile; and what a policy always allows. Source: A1, A6."""

from collections.abc import Container, Sequence
from typing import Any, cast

from callgate.gate.judge import check_bound, check_offered, decided
from callgate.policy.decision import Decision, OfferRequest, PolicyCall, Verdict, strictest
from callgate.policy.protocol import ToolPolicy
from callgate.tools.tool import Tool

__all__ = ("Narrowed", "always_allowed")


class Narrowed(ToolPolicy):
    """Put two policies one behind the other: offered is what both offer, and of two decisions the stricter holds."""

    def __init__(self, first: ToolPolicy, second: ToolPolicy) -> None:
        self.policies = (first, second)

    def bind(self, catalog: Sequence[Tool[Any, Any]], /) -> None:
        """Let both take note of the tools."""
        for policy in self.policies:
            check_bound(policy, catalog)

    def resolve(self, catalog: Sequence[Tool[Any, Any]], request: OfferRequest, /) -> Sequence[Tool[Any, Any]]:
        """Offer what both offer."""
        first, second = self.policies
        return second.resolve(first.resolve(catalog, request), request)

    async def decide(self, call: PolicyCall, /) -> Decision:
        """Give the stricter of the two decisions."""
        return strictest(*[await decided(policy, call) for policy in self.policies])

    def assert_offered_in_step(self, name: str, offered: Container[str], /) -> None:
        """Let both refuse."""
        for policy in self.policies:
            check_offered(policy, name, offered)


def always_allowed(policy: ToolPolicy, tool: Tool[Any, Any]) -> bool:
    """Tell whether a policy allows every call of a tool, and the tool wishes for no approval.

    The word of a class counts for what that class decides: one that overrides `decide` alone judges every call.
    """
    if type(policy) is Narrowed:
        return all(always_allowed(each, tool) for each in policy.policies)
    decides = next((each for each in type(policy).__mro__ if "decide" in vars(each)), object)
    if "always" not in vars(decides) or "decide" in getattr(policy, "__dict__", ()) or tool.options.needs_approval is not False:
        return False
    decision = cast("object", policy.always(tool))
    return type(decision) is Decision and decision.verdict is Verdict.ALLOW and not decision.budgets
