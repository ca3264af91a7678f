"""A stored run of a workflow that is damaged at any one place is refused, or is the run that it says to be."""

import copy
import json
from dataclasses import replace

import pytest
from pydantic import BaseModel

from callgate import CallgateError, Gate, RunPausedError, RunStateError, ToolRegistry, tool
from callgate.policy import AllowAll
from callgate.store import MemoryStore
from callgate.workflow import Engine, Node, define_workflow, route

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


class State(BaseModel):
    begun: int = 0
    answer: str | None = None


async def test_a_run_that_is_damaged_at_one_place_is_refused_or_runs_nothing_unapproved():
    ran, store = [], MemoryStore()

    @tool(kind="write", needs_approval=True)
    async def pay(amount: int) -> str:
        ran.append(amount)
        return "paid"

    async def begin(state, runtime):
        return {"begun": state.begun + 1}

    async def end(state, runtime):
        return {"answer": (await runtime.tools.invoke("pay", {"amount": 1})).value}

    nodes = [
        Node(id="begin", description="", run=begin, routes=[route.to("end")], starts_round=True),
        Node(id="end", description="", run=end, routes=[route.deliver("answer")]),
    ]
    gate = Gate(ToolRegistry([pay]), policy=AllowAll(), store=store)
    engine = Engine(define_workflow("w", nodes, state=State)).bind_tool_runtime(gate)
    with pytest.raises(RunPausedError):
        await engine.run({}, run_id="r")
    whole = json.loads((await store.run("r")).state)
    refused = 0
    for path in places(whole):
        for odd in (*ODD, *((...,) if path else ())):
            record = await store.run("r")
            text = json.dumps(put(whole, path, odd))
            assert await store.save_run(replace(record, status="paused", owner=None, state=text))
            try:
                await engine.resume("r")
            except RunStateError:
                refused += 1
            except CallgateError:
                continue
            except Exception as error:
                pytest.fail(f"{path} {odd!r}: {error!r}")
    assert ran == []
    assert refused > 100
