"""A workflow's run that is cancelled, aborted, or whose stream is left, at every moment: nothing runs twice or is lost."""

import asyncio
import json
from collections import Counter

import pytest

from callgate import AbortController, AbortedError, Approve, Caller, ConflictError, Gate, RunPausedError, ToolRegistry, tool
from callgate.policy import AllowAll
from callgate.store import MemoryStore
from callgate.workflow import Engine, Node, define_workflow, route

ALICE = Caller("alice")


class World:
    """Be a workflow of three nodes, the second with branches that ask, and what ran."""

    def __init__(self):
        self.ran, self.store = [], MemoryStore()

        @tool(kind="write")
        async def note(text: str) -> str:
            self.ran.append(text)
            await asyncio.sleep(0)
            return text

        @tool(kind="write", needs_approval=True)
        async def pay(amount: int) -> int:
            self.ran.append(amount)
            return amount

        async def begin(state, runtime):
            return {"begun": (await runtime.tools.invoke("note", {"text": "a"})).text}

        async def branch(state, runtime):
            calls = [("pay", {"amount": 1}), ("note", {"text": "b"}), ("pay", {"amount": 2})]
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(runtime.tools.invoke(*call)) for call in calls]
            return {"paid": sum(tasks[place].result().value for place in (0, 2))}

        def end(state, runtime):
            return {"answer": [state["paid"], runtime.tools.invoke_blocking("note", {"text": "c"}).value]}

        nodes = [
            Node(id="begin", description="", run=begin, routes=[route.to("branch")], starts_round=True),
            Node(id="branch", description="", run=branch, routes=[route.to("end")]),
            Node(id="end", description="", run=end, routes=[route.deliver("answer")]),
        ]
        self.gate = Gate(ToolRegistry([note, pay]), policy=AllowAll(), store=self.store)
        self.engine = Engine(define_workflow("w", nodes)).bind_tool_runtime(self.gate)

    async def work(self, **more):
        """Run it, approve what asks, and go on."""
        try:
            await self.engine.run({}, run_id="r", caller=ALICE, **more)
        except RunPausedError as paused:
            decisions = {each: Approve(by="bob") for each in paused.pending}
            return await self.engine.resume("r", decisions=decisions, **more)
        raise AssertionError("it asks")

    async def is_whole(self):
        record = await self.store.run("r")
        if record is None:
            return
        assert record.status in {"stopped", "completed", "paused"}
        if record.status == "paused":
            for approval in await self.gate.approvals():
                await self.gate.record(approval.id, Approve(by="bob"))
            assert await self.engine.resume("r") == [3, "c"]
        else:
            with pytest.raises(ConflictError, match="over"):
                await self.engine.resume("r")
            assert await self.gate.approvals() == []
        if (await self.store.run("r")).status == "completed":
            assert sorted(map(str, self.ran)) == ["1", "2", "a", "b", "c"]
        assert max(Counter(map(str, self.ran)).values(), default=1) == 1, self.ran
        assert json.loads((await self.store.run("r")).state)["path"] is not None


async def turned(turns, task):
    for _ in range(turns):
        await asyncio.sleep(0)
        if task.done():
            return


async def test_a_run_may_be_cancelled_at_any_turn_of_the_loop():
    for turns in range(1000):
        world = World()
        task = asyncio.ensure_future(world.work())
        await turned(turns, task)
        over = task.done()
        task.cancel()
        await asyncio.wait([task])
        await world.is_whole()
        if over:
            assert task.result() == [3, "c"]
            return
    raise AssertionError("it does not end")


async def test_a_run_may_be_aborted_at_any_turn_of_the_loop():
    for turns in range(1000):
        world, controller = World(), AbortController()
        task = asyncio.ensure_future(world.work(signal=controller.signal))
        await turned(turns, task)
        over = task.done()
        controller.abort("enough")
        await asyncio.wait([task])
        await world.is_whole()
        if over:
            assert task.result() == [3, "c"]
            return
        if task.exception() is not None:
            assert isinstance(task.exception(), AbortedError)
    raise AssertionError("it does not end")


async def test_a_stream_may_be_left_after_any_event():
    for events in range(100):
        world, left = World(), False
        stream = world.engine.stream({}, run_id="r", caller=ALICE)
        seen = 0
        async for _ in stream:
            if seen == events:
                left = True
                break
            seen += 1
        await stream.aclose()
        await world.is_whole()
        if not left:
            return
    raise AssertionError("it does not end")
