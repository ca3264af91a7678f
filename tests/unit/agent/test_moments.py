"""A run that is cancelled, or whose stream is left, at every moment: what is stored is whole, and nothing is lost."""

import asyncio

import pytest

from callgate import AbortController, Approve, Caller, ConflictError, Gate, ToolCall, ToolContext, ToolRegistry, tool
from callgate.agent import LLMClient, RunState, create_run_hooks, prepare_call
from callgate.policy import RulePolicy
from callgate.store import MemoryStore, SQLStore
from callgate.testing import Says, scripted_model

ALICE = Caller("alice")
RULES = 'default = "allow"\n[[rule]]\nid = "w"\ndecision = "ask"\nkinds = ["write"]\n'
STEP = Says("let me", (ToolCall("look", {"number": 1}, "a"), ToolCall("pay", {"amount": 5}, "b"), ToolCall("slow", {}, "c")))


class World:
    """Be a store, a gate over it, and what ran."""

    def __init__(self, store):
        self.ran, self.store = [], store

        @tool(kind="read")
        def look(number: int, context: ToolContext) -> int:
            context.progress("looking")
            return number

        @tool(kind="write")
        async def pay(amount: int) -> str:
            self.ran.append(amount)
            return f"paid {amount}"

        @tool(kind="read")
        async def slow() -> None:
            for _ in range(3):
                await asyncio.sleep(0)

        self.gate = Gate(ToolRegistry([look, pay, slow]), policy=RulePolicy.parse(RULES), store=store)
        self.client = LLMClient(scripted_model(STEP, "done"))

    def begun(self, hooks=None):
        prepared = prepare_call(self.gate, prompt="go", caller=ALICE, run_id="r")
        return self.client.run(prepared, hooks or create_run_hooks(self.gate))

    async def resumed(self, hooks=None):
        [waiting] = await self.gate.approvals(run_id="r")
        decisions = {waiting.id: Approve(by="bob")}
        return await self.client.resume("r", hooks or create_run_hooks(self.gate), decisions=decisions)

    async def is_whole(self):
        """Check what is stored, and that the run is over or can be gone on with."""
        record = await self.store.run("r")
        if record is None:
            return
        state = RunState.load(record.state)
        asked = [part["tool_call_id"] for each in state.messages for part in each["parts"] if part["part_kind"] == "tool-call"]
        answered = [
            part["tool_call_id"] for each in state.messages for part in each["parts"] if part["part_kind"] == "tool-return"
        ]
        assert record.status in {"stopped", "completed", "paused"}
        if record.status == "paused":
            assert [call.id for call in state.calls] == asked
            if await self.gate.approvals(run_id="r"):
                assert (await self.resumed()).status == "completed"
        else:
            assert asked == answered
            assert await self.gate.approvals(run_id="r") == []
            with pytest.raises(ConflictError, match="over"):
                await self.client.resume("r", create_run_hooks(self.gate))
        assert self.ran in ([], [5])


async def cancelled_after(turns, work):
    """Cancel some work after so many turns of the event loop; tell whether it was still at it."""
    task = asyncio.ensure_future(work)
    for _ in range(turns):
        await asyncio.sleep(0)
        if task.done():
            break
    return await cancelled(task)


async def cancelled(task):
    was_at_work = not task.done()
    task.cancel()
    await asyncio.wait([task])
    return task.cancelled() or (was_at_work and task.result() is not None)


def with_sqlite(path):
    return World(SQLStore(f"sqlite:///{path}"))


@pytest.mark.parametrize("resumed", [False, True])
async def test_a_run_may_be_cancelled_at_any_turn_of_the_loop(resumed):
    for turns in range(1000):
        world = World(MemoryStore())
        if resumed:
            assert (await world.begun()).status == "paused"
        was_at_work = await cancelled_after(turns, world.resumed() if resumed else world.begun())
        await world.is_whole()
        if not was_at_work:
            return
    raise AssertionError("it does not end")


@pytest.mark.parametrize("resumed", [False, True])
async def test_a_run_may_be_cancelled_while_a_database_writes(tmp_path, resumed):
    for turn in range(30):
        world = with_sqlite(tmp_path / f"{turn}.db")
        if resumed:
            assert (await world.begun()).status == "paused"
        task = asyncio.ensure_future(world.resumed() if resumed else world.begun())
        await asyncio.sleep(turn * 0.001)  # no synchronisation: each moment is as good as any other
        await cancelled(task)
        await world.is_whole()
        await world.store.aclose()


async def test_a_stream_may_be_left_after_any_event(tmp_path):
    for events in range(100):
        world, left = with_sqlite(tmp_path / f"{events}.db"), False
        prepared = prepare_call(world.gate, prompt="go", caller=ALICE, run_id="r")
        stream = world.client.stream(prepared, create_run_hooks(world.gate))
        seen = 0
        async for _ in stream:
            if seen == events:
                left = True
                break
            seen += 1
        await stream.aclose()
        await world.is_whole()
        await world.store.aclose()
        if not left:
            return
    raise AssertionError("it does not end")


@pytest.mark.parametrize("resumed", [False, True])
async def test_a_run_may_be_aborted_at_any_turn_of_the_loop(resumed):
    for turns in range(1000):
        world, controller = World(MemoryStore()), AbortController()
        if resumed:
            assert (await world.begun()).status == "paused"
        hooks = create_run_hooks(world.gate, signal=controller.signal)
        task = asyncio.ensure_future(world.resumed(hooks) if resumed else world.begun(hooks))
        for _ in range(turns):
            await asyncio.sleep(0)
        over = task.done()
        controller.abort(ZeroDivisionError("enough"))
        await asyncio.wait([task])
        await world.is_whole()
        if over:
            return
        if task.exception() is not None:
            assert isinstance(task.exception(), ZeroDivisionError)
    raise AssertionError("it does not end")
