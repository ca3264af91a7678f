"""What the processes of the workflow's crash suite run: three nodes in rounds, whose writes leave marks in files."""

import asyncio
import contextlib
import os
from pathlib import Path

from callgate import Approve, ConflictError, Gate, RunPausedError, ToolContext, ToolError, ToolRegistry, tool
from callgate.policy import AllowAll
from callgate.store import SQLStore
from callgate.workflow import Engine, Node, define_workflow, route
from tests.suites.killed_runs import mark

WRITES = tuple(f"{kind}{number}" for number in (1, 2, 3) for kind in ("pay", "refund"))
VALUE = ["1", "paid 1", "refunded 1", "2", "paid 2", "refunded 2", "3", "paid 3", "refunded 3"]


def mark_once(folder: str, name: str, key: str) -> None:
    """Leave a mark once for a key, as a system does that knows idempotency keys."""
    written = f"{key}-{os.getpid()}"
    mark(folder, written)
    with contextlib.suppress(FileExistsError):
        (Path(folder) / name).hardlink_to(Path(folder) / written)  # in one step, so that a kill leaves it done or not done


def gate_of(url: str, folder: str, *, idempotent: bool) -> Gate:
    """Make the gate, as every process does for itself. Writes that are idempotent are done once by their key, however often."""

    def leave(name: str, context: ToolContext) -> None:
        if idempotent:
            mark_once(folder, name, context.idempotency_key)
        else:
            mark(folder, name)

    @tool(kind="read")
    async def look(n: int) -> str:
        await asyncio.sleep(0.001)
        return str(n)

    @tool(kind="write", idempotent=idempotent)
    async def pay(n: int, context: ToolContext) -> str:
        await asyncio.sleep(0.001)
        leave(f"pay{n}", context)
        await asyncio.sleep(0.001)
        return f"paid {n}"

    @tool(kind="write", needs_approval=True, idempotent=idempotent)
    async def refund(n: int, context: ToolContext) -> str:
        leave(f"refund{n}", context)
        await asyncio.sleep(0.001)
        return f"refunded {n}"

    return Gate(ToolRegistry([look, pay, refund]), policy=AllowAll(), store=SQLStore(url))


async def _told(runtime, name: str, arguments: dict) -> str:
    try:
        return (await runtime.tools.invoke(name, arguments)).value
    except ToolError as error:
        if error.code == "outcome_unknown":
            return f"unknown {name}{arguments['n']}"
        raise


async def read(state, runtime):
    return {"lines": [*state["lines"], await _told(runtime, "look", {"n": runtime.round})]}


async def settle(state, runtime):
    return {"lines": [*state["lines"], await _told(runtime, "pay", {"n": runtime.round})]}


async def give_back(state, runtime):
    return {"lines": [*state["lines"], await _told(runtime, "refund", {"n": runtime.round})]}


WORKFLOW = define_workflow(
    "rounds",
    [
        Node(id="read", description="Look", run=read, starts_round=True, routes=[route.to("settle")]),
        Node(id="settle", description="Pay", run=settle, routes=[route.to("give back")]),
        Node(
            id="give back",
            description="Refund",
            run=give_back,
            routes=[route.deliver("lines", when=lambda state: len(state["lines"]) >= 9), route.to("read")],
        ),
    ],
)


async def carry_on(gate: Gate, run_id: str):
    """Begin a run or go on with it, and approve whatever waits, until it has delivered."""
    engine = Engine(WORKFLOW).bind_tool_runtime(gate)
    stored = await gate.store.run(run_id)
    while True:
        try:
            if stored is None:
                return await engine.run({"lines": []}, run_id=run_id)
            return await engine.resume(run_id)
        except RunPausedError as paused:
            for approval_id in paused.pending:
                try:
                    await gate.record(approval_id, Approve(by="bob"))
                except ConflictError:
                    continue
        stored = await gate.store.run(run_id)


def run_in_child(url: str, folder: str, run_id: str, idempotent: bool) -> None:
    """Run a run in a process of its own, which may be killed."""

    async def go():
        gate = gate_of(url, folder, idempotent=idempotent)
        if (stored := await gate.store.run(run_id)) is None or stored.status != "completed":
            await carry_on(gate, run_id)
        await gate.aclose()

    asyncio.run(go())
