"""What the processes of the crash and race suites run: a gate whose tools leave marks in files, and runs of it."""

import asyncio
import os
from pathlib import Path

from callgate import Approve, Caller, ConflictError, Gate, ToolCall, ToolContext, ToolRegistry, tool
from callgate.agent import LLMClient, create_run_hooks, prepare_call
from callgate.policy import RulePolicy
from callgate.store import SQLStore
from callgate.testing import scripted_model

ALICE = Caller("alice")
RULES = """
default = "allow"
[[rule]]
id = "refunds"
decision = "ask"
tools = ["refund"]
"""
SCRIPT = [
    [ToolCall("look", {"n": 1}, "a"), ToolCall("pay", {"n": 2}, "b"), ToolCall("pay", {"n": 3}, "c")],
    [ToolCall("pay", {"n": 4}, "d"), ToolCall("refund", {"n": 5}, "e"), ToolCall("look", {"n": 6}, "f")],
    ToolCall("pay", {"n": 7}, "g"),
    "done",
]
WRITES = ("b", "c", "d", "e", "g")


def mark(folder: str, name: str) -> None:
    """Leave a mark that a kill cannot take back: one line in a file, in one write."""
    handle = os.open(Path(folder) / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, b"x\n")
    os.close(handle)


def marks(folder, name: str) -> int:
    """Count the marks of a name."""
    file = Path(folder) / name
    return len(file.read_bytes()) // 2 if file.exists() else 0


def gate_of(url: str, folder: str) -> Gate:
    """Make the gate, as every process does for itself."""

    @tool(kind="read")
    async def look(n: int) -> int:
        await asyncio.sleep(0.002)
        return n

    @tool(kind="write")
    async def pay(n: int) -> str:
        await asyncio.sleep(0.002)
        mark(folder, f"pay{n}")
        await asyncio.sleep(0.002)
        return f"paid {n}"

    @tool(kind="write")
    async def refund(n: int, context: ToolContext) -> str:
        mark(folder, f"refund-{context.call_context.run_id}")
        await asyncio.sleep(0.002)
        return f"refunded {n}"

    return Gate(ToolRegistry([look, pay, refund]), policy=RulePolicy.parse(RULES), store=SQLStore(url))


async def carry_on(gate: Gate, run_id: str):
    """Begin a run or go on with it, and approve whatever waits, until it is over."""
    client, hooks = LLMClient(scripted_model(*SCRIPT)), create_run_hooks(gate)
    if await gate.store.run(run_id) is None:
        run = await client.run(prepare_call(gate, prompt="go", caller=ALICE, run_id=run_id), hooks)
    else:
        run = await client.resume(run_id, hooks)
    while run.status == "paused":
        for pending in run.pending:
            try:
                await gate.record(pending.approval_id, Approve(by="bob"))
            except ConflictError:
                continue
        run = await client.resume(run_id, hooks)
    return run


def run_in_child(url: str, folder: str, run_id: str) -> None:
    """Run a run in a process of its own, which may be killed."""

    async def go():
        gate = gate_of(url, folder)
        await carry_on(gate, run_id)
        mark(folder, "over")
        await gate.aclose()

    asyncio.run(go())


def race(url: str, folder: str, number: int, barrier, rounds: list, answers) -> None:
    """Decide or resume each of some pauses, at the same moment as the other processes do."""

    async def go():
        gate = gate_of(url, folder)
        client = LLMClient(scripted_model(ToolCall("refund", {"n": 0}, "e"), "done"))
        ends = []
        for run_id, approval_id in rounds:
            barrier.wait(60)
            try:
                if number % 2:
                    await gate.decide(approval_id, Approve(by=f"p{number}"))
                else:
                    decisions = {approval_id: Approve(by=f"p{number}")}
                    await client.resume(run_id, create_run_hooks(gate), decisions=decisions)
                ends.append("done")
            except ConflictError as conflict:
                ends.append(conflict.decided_by or "conflict")
        answers.put((number, ends))
        await gate.aclose()

    asyncio.run(go())
