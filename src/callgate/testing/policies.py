"""What every policy has to keep, as a suite for own ones."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from callgate.errors import ToolNotOfferedError
from callgate.policy import Decision, OfferRequest, PolicyCall, ToolPolicy, Verdict
from callgate.tools.tool import Tool, as_tool
from callgate.values import Caller

__all__ = ("check_policy",)


async def check_policy(
    policy: ToolPolicy, tools: Iterable[object], calls: Sequence[tuple[str, Mapping[str, Any]]], *, caller: Caller, now: float
) -> None:
    """Check a policy against some tools and calls of them, as (name, arguments) each.

    Raises:
        AssertionError: it answers with something that is no decision, says something else the second time, offers tools that the
            catalog does not have, hides a tool whose call it lets through, or lets a call pass that its step did not offer.
    """
    catalog = [as_tool(tool) for tool in tools]
    policy.bind(catalog)
    offered = policy.resolve(catalog, OfferRequest(caller=caller, now=now))
    names = {tool.name for tool in offered}
    assert [tool for tool in catalog if tool.name in names] == list(offered), "it offers tools of the catalog, in their order"
    by_name = {tool.name: tool for tool in catalog}
    for name, arguments in calls:
        first = await _decide(policy, by_name[name], arguments, caller, now)
        again = await _decide(policy, by_name[name], dict(reversed(list(arguments.items()))), caller, now)
        assert first.verdict == again.verdict, f"it judges one call of {name} in two ways"
        assert first.verdict is Verdict.DENY or name in names, f"it hides {name}, and lets a call of it through"
    for tool in catalog:
        _check_refusal(policy, tool.name)


async def _decide(policy: ToolPolicy, tool: Tool[Any, Any], arguments: Mapping[str, Any], caller: Caller, now: float) -> Decision:
    decision: object = policy.decide(PolicyCall(tool, arguments, caller, now))
    decision = await decision if inspect.isawaitable(decision) else decision
    assert isinstance(decision, Decision), f"it answers a call of {tool.name} with {type(decision).__name__}"
    return decision


def _check_refusal(policy: ToolPolicy, name: str) -> None:
    policy.assert_offered_in_step(name, {name})
    try:
        policy.assert_offered_in_step(name, frozenset[str]())
    except ToolNotOfferedError:
        return
    raise AssertionError(f"it lets a call of {name} pass in a step that did not offer it")
