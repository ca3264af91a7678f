"""What a call leaves when nobody holds its outcome any more: nothing for the collector, whatever its end."""

import asyncio
import gc

import pytest

from callgate import Caller, Gate, ToolCall, ToolError, ToolRegistry, tool
from callgate.policy import AllowAll, Decision, ToolPolicy
from callgate.store import MemoryStore

ALICE = Caller("alice")
CALLS = 50
ONE_FOR_EVER = ToolError("always the same", code="same")


@tool(kind="write")
async def at_once(number: int = 0) -> int:
    return number


@tool(kind="write")
async def later() -> None:
    await asyncio.sleep(0)


@tool(kind="write")
def threaded() -> None: ...


@tool(kind="write")
async def failing() -> None:
    raise ValueError("broken")


@tool(kind="write")
async def same() -> None:
    raise ONE_FOR_EVER


class Saying(ToolPolicy):
    def __init__(self, say):
        self.say = say

    def decide(self, call):
        return self.say()


def breaks():
    raise ValueError("broken")


async def soon():
    await asyncio.sleep(0)
    return Decision.allow()


POLICIES = {"deny": lambda: Decision.deny("no"), "ask": lambda: Decision.ask("?"), "breaks": breaks, "later": soon}
KINDS = {
    "at once": (ToolCall("at_once"), None),
    "later": (ToolCall("later"), None),
    "threaded": (ToolCall("threaded"), None),
    "failing": (ToolCall("failing"), None),
    "same": (ToolCall("same"), None),
    "404": (ToolCall("nothing"), None),
    "400": (ToolCall("at_once", {"number": "x", "other": 1}), None),
    "denied": (ToolCall("at_once"), "deny"),
    "asked": (ToolCall("at_once"), "ask"),
    "broken policy": (ToolCall("at_once"), "breaks"),
    "slow policy": (ToolCall("at_once"), "later"),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_no_end_of_a_call_leaves_a_cycle(kind):
    call, policy = KINDS[kind]
    tools = [at_once, later, threaded, failing, same]
    chosen = AllowAll() if policy is None else Saying(POLICIES[policy])
    gate = Gate(ToolRegistry(tools, kept_events=1), policy=chosen, store=MemoryStore(kept=4))
    assert await collected(lambda: gate.call(call, caller=ALICE)) < CALLS


@pytest.mark.parametrize("door", ["answer", "execute"])
async def test_no_failure_at_a_registrys_door_leaves_a_cycle(door):
    registry = ToolRegistry([failing])

    async def fail():
        try:
            await getattr(registry, door)("failing")
        except ToolError:
            return

    assert await collected(fail) < CALLS


async def test_a_tool_that_raises_one_error_for_ever_keeps_no_call_alive():
    gate = Gate(ToolRegistry([same]), policy=AllowAll())
    for _ in range(3):
        await gate.call(ToolCall("same"), caller=ALICE)
        await gate.registry.answer("same")
    assert ONE_FOR_EVER.__traceback__ is None


async def collected(make):
    """Make calls without the collector; give the number of objects that only it could free.

    It is the least of three: what other tests of the process have left to their threads may become free meanwhile.
    """
    for _ in range(10):
        await make()
    return min([await collected_once(make) for _ in range(3)])


async def collected_once(make):
    gc.collect()
    gc.disable()
    try:
        for _ in range(CALLS):
            await make()
        return gc.collect()
    finally:
        gc.enable()
