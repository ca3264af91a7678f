"""A stored run that is damaged at any one place is refused, or is the run that it says to be; nothing unapproved runs."""

import copy
import json
from dataclasses import replace

import pytest

from callgate import Caller, CallgateError, Gate, RunStateError, ToolCall, ToolRegistry, tool
from callgate.agent import LLMClient, create_run_hooks, prepare_call
from callgate.policy import AllowAll
from callgate.store import MemoryStore
from callgate.testing import Says, scripted_model

STEP = Says("let me", (ToolCall("look", {"number": 1}, "a"), ToolCall("pay", {"amount": 5}, "b")))
ODD = (None, 0, -1, "", "odd", [], {}, [None], {"kind": "odd"}, True, 1e308)


def places(value, path=()):
    """Give every place of a JSON value."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from places(item, (*path, key))


def put(value, path, odd):
    """Give a copy of a value with something else at a place; `...` takes it away."""
    if not path:
        return odd
    changed = copy.deepcopy(value)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    if odd is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = odd
    return changed


async def test_a_run_that_is_damaged_at_one_place_is_refused_or_runs_nothing_unapproved():
    ran, store = [], MemoryStore()

    @tool(kind="read")
    async def look(number: int) -> int:
        return number

    @tool(kind="write", needs_approval=True)
    async def pay(amount: int) -> None:
        ran.append(amount)

    gate = Gate(ToolRegistry([look, pay]), policy=AllowAll(), store=store)
    client = LLMClient(scripted_model(STEP, "done"))
    prepared = prepare_call(gate, prompt="go", caller=Caller("alice", ("agent",)), run_id="r", thread_id="t")
    assert (await client.run(prepared, create_run_hooks(gate))).status == "paused"
    whole = json.loads((await store.run("r")).state)
    refused = 0
    for path in places(whole):
        for odd in (*ODD, *((...,) if path else ())):
            record = await store.run("r")
            text = json.dumps(put(whole, path, odd))
            assert await store.save_run(replace(record, status="paused", owner=None, state=text))
            try:
                await client.resume("r", create_run_hooks(gate))
            except RunStateError:
                refused += 1
            except CallgateError:
                continue
            except Exception as error:
                pytest.fail(f"{path} {odd!r}: {error!r}")
    assert ran == []
    assert refused > 1000
