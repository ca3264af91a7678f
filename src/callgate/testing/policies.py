"""What every policy has to keep, as a suite for own ones."""

import copy
import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from callgate.errors import ToolNotOfferedError
from callgate.policy import Decision, OfferRequest, PolicyCall, ToolPolicy, Verdict
from callgate.tools.tool import Tool, as_tool
from callgate.values import Caller

__all__ = ("check_policy",)

_NOBODY = Caller("nobody")


@dataclass(frozen=True, slots=True)
class _Place:
    """Say who calls, when, and after what the run has read."""

    caller: Caller
    now: float
    labels: frozenset[str]


async def check_policy(  # noqa: PLR0913 - everything after the tools says for whom, and may be left out
    policy: ToolPolicy,
    tools: Iterable[object],
    calls: Sequence[tuple[str, Mapping[str, Any]]] | None = None,
    *,
    caller: Caller = _NOBODY,
    now: float = 0.0,
    labels: Iterable[str] = (),
) -> None:
    """Check a policy against some tools and calls of them, as (name, arguments) each; None: a call of each without arguments.

    Raises:
        AssertionError: it answers with something that is no decision, says something else the second time, changes the arguments
            that it is shown, offers tools that the catalog does not have, hides a tool whose call it lets through, lets a call
            pass that its step did not offer, gives budgets that cannot be counted, or decides otherwise than it says it always
            does.
    """
    catalog = [as_tool(tool) for tool in tools]
    policy.bind(catalog)
    place = _Place(caller, now, frozenset(labels))
    names = _check_offer(policy, catalog, place)
    by_name = {tool.name: tool for tool in catalog}
    bare: list[tuple[str, Mapping[str, Any]]] = [(tool.name, {}) for tool in catalog]
    for name, arguments in bare if calls is None else calls:
        await _check_call(policy, by_name[name], arguments, place, is_offered=name in names)
    for tool in catalog:
        _check_refusal(policy, tool.name)


def _nothing(_tool: Tool[Any, Any]) -> None:
    return None


def _check_offer(policy: ToolPolicy, catalog: Sequence[Tool[Any, Any]], place: _Place) -> set[str]:
    request = OfferRequest(caller=place.caller, now=place.now, run_id="r", labels=place.labels)
    offered = list(policy.resolve(catalog, request))
    names = {tool.name for tool in offered}
    assert [tool for tool in catalog if tool.name in names] == offered, "it offers tools of the catalog, in their order"
    assert list(policy.resolve(catalog, request)) == offered, "it makes one offer in two ways"
    alone = [tool for tool in catalog if policy.resolve([tool], request)]
    assert alone == offered, "it offers a tool, or hides it, because of the others"
    return names


async def _check_call(
    policy: ToolPolicy, tool: Tool[Any, Any], arguments: Mapping[str, Any], place: _Place, *, is_offered: bool
) -> None:
    first = await _decide(policy, tool, arguments, place)
    again = await _decide(policy, tool, dict(reversed(list(arguments.items()))), place)
    assert first == again, f"it judges one call of {tool.name} in two ways"
    always = getattr(policy, "always", _nothing)(tool)
    assert always in {None, first}, f"it says that one decision holds for every call of {tool.name}, and another one holds here"
    assert first.verdict is Verdict.DENY or is_offered, f"it hides {tool.name}, and lets a call of it through"
    counters = [budget.counter for budget in first.budgets]
    assert len(counters) == len(set(counters)), f"it counts a call of {tool.name} twice with one counter"
    assert all(budget.limit >= 0 and budget.text for budget in first.budgets), "a budget has a limit, and a text for the model"
    assert first.verdict is not Verdict.DENY or not first.budgets, f"it denies a call of {tool.name}, and counts it"


async def _decide(policy: ToolPolicy, tool: Tool[Any, Any], arguments: Mapping[str, Any], place: _Place) -> Decision:
    shown = copy.deepcopy(dict(arguments))
    decision: object = policy.decide(PolicyCall(tool, shown, place.caller, place.now, "r", labels=place.labels))
    decision = await decision if inspect.isawaitable(decision) else decision
    assert isinstance(decision, Decision), f"it answers a call of {tool.name} with {type(decision).__name__}"
    assert json.dumps(shown) == json.dumps(arguments), f"it changes the arguments of a call of {tool.name}"
    return decision


def _check_refusal(policy: ToolPolicy, name: str) -> None:
    policy.assert_offered_in_step(name, {name})
    try:
        policy.assert_offered_in_step(name, frozenset[str]())
    except ToolNotOfferedError:
        return
    raise AssertionError(f"it lets a call of {name} pass in a step that did not offer it")
