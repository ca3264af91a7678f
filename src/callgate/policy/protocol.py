"""`ToolPolicy`: what every policy answers, and `AllowAll`, the one that has to be written out. Source: contract rows A1, A2."""

from collections.abc import Awaitable, Container, Sequence
from typing import Any, Protocol

from callgate.errors import ToolNotOfferedError
from callgate.policy.decision import Decision, OfferRequest, PolicyCall
from callgate.tools.tool import Tool

__all__ = ("AllowAll", "ToolPolicy")


class ToolPolicy(Protocol):
    """Decide what a model is offered and what may run; a policy never runs a tool. Subclass it, or match it.

    Whatever a policy raises denies the call: it fails closed.
    """

    def bind(self, _catalog: Sequence[Tool[Any, Any]], /) -> None:
        """Take note of the registry's tools, when a gate is made.

        Raises:
            PolicyError: the policy names what is not among them.
        """
        return  # with an empty body the method would count as abstract

    def resolve(self, catalog: Sequence[Tool[Any, Any]], _request: OfferRequest, /) -> Sequence[Tool[Any, Any]]:
        """Give the tools of the catalog that the model is offered, in the order of the catalog."""
        return catalog

    def decide(self, call: PolicyCall, /) -> Decision | Awaitable[Decision]:
        """Say ALLOW, ASK or DENY for one call."""
        ...

    def always(self, _tool: Tool[Any, Any], /) -> Decision | None:
        """Give the decision on a tool that holds for every call, caller, moment and run; None when it depends.

        A gate asks once, when it is made, and then only the class that has `decide`: who overrides that, overrides this.
        """
        return None

    def assert_offered_in_step(self, name: str, offered: Container[str], /) -> None:
        """Refuse a call to a tool that this step did not offer.

        Raises:
            ToolNotOfferedError: `name` is not among `offered`.
        """
        if name not in offered:
            raise ToolNotOfferedError(name)


class AllowAll(ToolPolicy):
    """Allow every call. Tools that say `needs_approval` are asked for all the same: the gate sees to it."""

    _allowed = Decision.allow(rules=("allow-all",))

    def decide(self, _call: PolicyCall, /) -> Decision:
        """Allow it."""
        return self._allowed

    def always(self, _tool: Tool[Any, Any], /) -> Decision:
        """Allow them all."""
        return self._allowed
