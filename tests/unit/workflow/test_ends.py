"""How a run of a workflow ends: parallel branches that wait, stores that fail, cancellations at every moment, odd definitions."""

import asyncio
import json
import threading
import time
from dataclasses import replace
from typing import TypedDict

import pytest

from callgate import (
    AbortController,
    AbortedError,
    Approve,
    Caller,
    ConflictError,
    Gate,
    NotFoundError,
    RunPausedError,
    RunStateError,
    StoreError,
    ToolCall,
    ToolRegistry,
    UsageError,
    WorkflowDefinitionError,
    WorkflowError,
    tool,
)
from callgate.agent import LLMClient
from callgate.policy import AllowAll
from callgate.profiles import Profile
from callgate.store import JournalFilter, MemoryStore, SQLStore
from callgate.testing import scripted_model
from callgate.workflow import Engine, Node, WorkflowLimits, agent_runner, define_workflow, route, tree

ALICE = Caller("alice")


class World:
    """Be tools behind a gate, and what ran."""

    def __init__(self, store):
        self.ran, self.store = [], store
        self.gate = self.rebuilt()

    def rebuilt(self):
        @tool(kind="read")
        async def look(number: int = 0) -> int:
            self.ran.append(("look", number))
            return number

        @tool(kind="write", needs_approval=True)
        async def pay(amount: int) -> str:
            self.ran.append(("pay", amount))
            return f"paid {amount}"

        @tool(kind="write")
        async def slow(text: str) -> str:
            await asyncio.sleep(0.05)
            self.ran.append(("slow", text))
            return text

        return Gate(ToolRegistry([look, pay, slow]), policy=AllowAll(), store=self.store)

    def engine(self, run, gate=None, state=None, **limits):
        only = Node(id="n", description="n", run=run, routes=(route.deliver("answer"),), starts_round=True)
        workflow = define_workflow("w", [only], state=state)
        return Engine(workflow, limits=WorkflowLimits(**limits)).bind_tool_runtime(gate or self.gate)

    async def status(self):
        return (await self.store.run("r")).status


@pytest.fixture(params=["memory", "sqlite"])
async def world(request, tmp_path):
    store = MemoryStore() if request.param == "memory" else SQLStore(f"sqlite:///{tmp_path / 'w.db'}")
    yield World(store)
    await store.aclose()


async def approve_all(world):
    for approval in await world.gate.approvals():
        await world.gate.record(approval.id, Approve(by="bob"))


async def gathered(state, runtime):
    calls = [("pay", {"amount": 1}), ("slow", {"text": "a"}), ("pay", {"amount": 2})]
    ends = await asyncio.gather(*[runtime.tools.invoke(*call) for call in calls])
    return {"answer": [end.value for end in ends]}


async def grouped(state, runtime):
    calls = [("pay", {"amount": 1}), ("slow", {"text": "a"}), ("pay", {"amount": 2})]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(runtime.tools.invoke(*call)) for call in calls]
    return {"answer": [task.result().value for task in tasks]}


@pytest.mark.parametrize("branches", [gathered, grouped])
async def test_parallel_branches_pause_together_and_each_that_waits_is_named(world, branches):
    engine = world.engine(branches)
    with pytest.raises(RunPausedError) as paused:
        await engine.run({}, run_id="r")
    assert await world.status() == "paused"
    assert sorted(paused.value.pending) == sorted(approval.id for approval in await world.gate.approvals())
    assert not world.ran or world.ran == [("slow", "a")]
    await approve_all(world)
    assert await world.engine(branches, world.rebuilt()).resume("r") == ["paid 1", "a", "paid 2"]
    assert sorted(world.ran) == [("pay", 1), ("pay", 2), ("slow", "a")]


async def test_the_calls_of_a_node_are_over_when_its_run_pauses(world):
    began = []

    async def two(state, runtime):
        async def other():
            began.append(1)
            await runtime.tools.invoke("slow", {"text": "a"})
            began.append(2)
            await runtime.tools.invoke("slow", {"text": "b"})

        began.append(asyncio.ensure_future(other()))
        await asyncio.sleep(0)
        await runtime.tools.invoke("pay", {"amount": 1})

    with pytest.raises(RunPausedError):
        await world.engine(two).run({}, run_id="r")
    assert world.ran == [("slow", "a")], "a call that was under way has ended, and no other one began"
    await asyncio.wait([began[0]])
    assert began[0].exception() is not None
    assert world.ran == [("slow", "a")]


async def test_a_plain_node_calls_nothing_more_when_its_run_was_cancelled(world):
    begun, ended = asyncio.Event(), []
    loop = asyncio.get_running_loop()

    def plain(state, runtime):
        loop.call_soon_threadsafe(begun.set)
        time.sleep(0.1)
        try:
            runtime.tools.invoke_blocking("look", {"number": 1})
        except BaseException as error:
            ended.append(error)
            raise

    going = asyncio.ensure_future(world.engine(plain).run({}, run_id="r"))
    await begun.wait()
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    assert await world.status() == "stopped"
    async with asyncio.timeout(10):
        while not ended:
            await asyncio.sleep(0.01)
    assert world.ran == []


async def test_a_decision_about_another_run_is_refused(world):
    async def paying(state, runtime):
        return {"answer": (await runtime.tools.invoke("pay", {"amount": 1})).value}

    engine = world.engine(paying)
    for run_id in ("r", "other"):
        with pytest.raises(RunPausedError):
            await engine.run({}, run_id=run_id)
    [other] = await world.gate.approvals(run_id="other")
    with pytest.raises(NotFoundError):
        await engine.resume("r", decisions={other.id: Approve(by="bob")})
    assert (await world.gate.approval(other.id)).state == "pending"
    [own] = await world.gate.approvals(run_id="r")
    assert await engine.resume("r", decisions={own.id: Approve(by="bob")}) == "paid 1"


async def test_a_node_waits_for_an_approved_call_that_somebody_else_runs_at_the_moment(world):
    begun, on = asyncio.Event(), asyncio.Event()

    @tool(kind="write", needs_approval=True)
    async def pay(amount: int) -> str:
        begun.set()
        await on.wait()
        return f"paid {amount}"

    async def paying(state, runtime):
        return {"answer": (await runtime.tools.invoke("pay", {"amount": 1})).value}

    gate = Gate(ToolRegistry([pay]), policy=AllowAll(), store=world.store)
    engine = world.engine(paying, gate)
    with pytest.raises(RunPausedError) as paused:
        await engine.run({}, run_id="r")
    deciding = asyncio.ensure_future(gate.decide(paused.value.pending[0], Approve(by="bob")))
    await begun.wait()
    resuming = asyncio.ensure_future(engine.resume("r"))
    await asyncio.sleep(0.1)
    assert not resuming.done()
    on.set()
    assert (await deciding).text == '"paid 1"'
    assert await resuming == "paid 1"


async def test_a_stopped_run_has_nothing_left_that_somebody_could_approve(world):
    async def paying(state, runtime):
        return {"answer": (await runtime.tools.invoke("pay", {"amount": 1})).value}

    engine = world.engine(paying)
    with pytest.raises(RunPausedError) as paused:
        await engine.run({}, run_id="r")
    await engine.stop("r")
    with pytest.raises(ConflictError):
        await world.gate.decide(paused.value.pending[0], Approve(by="bob"))
    assert world.ran == []


async def test_a_request_that_nobody_needs_any_more_cannot_be_approved_when_the_run_is_over(world):
    tries = []

    async def paying_once(state, runtime):
        tries.append(1)
        if len(tries) == 1:
            await runtime.tools.invoke("pay", {"amount": 1})
        return {"answer": "free"}

    engine = world.engine(paying_once)
    with pytest.raises(RunPausedError) as paused:
        await engine.run({}, run_id="r")
    assert await engine.resume("r") == "free"
    with pytest.raises(ConflictError):
        await world.gate.decide(paused.value.pending[0], Approve(by="bob"))
    assert world.ran == []


async def test_what_an_agent_of_a_stopped_workflow_waits_for_cannot_be_approved_any_more(world):
    client = LLMClient(scripted_model(ToolCall("pay", {"amount": 1}, "a"), "done"))

    async def asking(state, runtime):
        await runtime.agent().run("go")

    engine = world.engine(asking).bind_agent(agent_runner(client))
    with pytest.raises(RunPausedError) as paused:
        await engine.run({}, run_id="r")
    await engine.stop("r")
    with pytest.raises(ConflictError):
        await world.gate.decide(paused.value.pending[0], Approve(by="bob"))
    assert world.ran == []


async def test_two_gates_of_one_process_are_not_both_at_a_run(world):
    begun, on = asyncio.Event(), asyncio.Event()

    async def waiting(state, runtime):
        begun.set()
        await on.wait()
        return {"answer": 1}

    going = asyncio.ensure_future(world.engine(waiting).run({}, run_id="r"))
    await begun.wait()
    with pytest.raises(ConflictError, match="elsewhere"):
        await world.engine(waiting, world.rebuilt()).resume("r")
    on.set()
    assert await going == 1


@pytest.mark.parametrize("moment", range(1, 14))
async def test_a_run_that_is_cancelled_while_the_store_works_is_stopped_or_over(moment):
    seen, tasks, inner = [], [], MemoryStore()

    class Slow:
        def __getattr__(self, name):
            found = getattr(inner, name)
            if name not in {"create_run", "save_run", "forget", "run"}:
                return found

            async def slow(*args, **keywords):
                for when in ("before", "after"):
                    answer = await found(*args, **keywords) if when == "after" else None
                    seen.append(f"{when} {name}")
                    if len(seen) == moment:
                        tasks[0].cancel()
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
                return answer

            return slow

    async def done(state, runtime):
        return {"answer": (await runtime.tools.invoke("look")).value}

    world = World(Slow())
    tasks.append(asyncio.ensure_future(world.engine(done).run({}, run_id="r")))
    try:
        assert await tasks[0] == 0
        assert len(seen) < moment
    except asyncio.CancelledError:
        record = await inner.run("r")
        assert record is None or record.status in {"stopped", "completed"}, seen[moment - 1]


async def test_a_store_that_cannot_forget_leaves_a_completed_run_completed(world):
    async def unreachable(run_id):
        raise StoreError("gone")

    async def done(state, runtime):
        return {"answer": 1}

    world.store.forget = unreachable
    assert await world.engine(done).run({}, run_id="r") == 1
    assert await world.status() == "completed"


async def test_a_store_that_cannot_store_the_end_does_not_hide_a_cancellation(world):
    begun = asyncio.Event()

    async def hang(state, runtime):
        begun.set()
        await asyncio.Event().wait()

    async def unreachable(run):
        raise StoreError("the disk is full")

    going = asyncio.ensure_future(world.engine(hang).run({}, run_id="r"))
    await begun.wait()
    world.store.save_run = unreachable
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going


async def test_a_node_that_raises_what_is_no_exception_can_be_mended(world):
    class Odd(BaseException):
        pass

    async def odd(state, runtime):
        raise Odd

    async def done(state, runtime):
        return {"answer": 1}

    with pytest.raises(Odd):
        await world.engine(odd).run({}, run_id="r")
    assert await world.status() == "failed"
    assert await world.engine(done).resume("r") == 1


class Typed(TypedDict, total=False):
    answer: float


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", object(), [object()]])
@pytest.mark.parametrize("state", [None, Typed])
async def test_a_state_that_json_does_not_hold_fails_the_node_and_never_changes_on_the_way(world, state, value):
    async def odd(state, runtime):
        return {"answer": value}

    with pytest.raises(WorkflowError) as caught:
        await world.engine(odd, state=state).run({}, run_id="r")
    assert "a route's condition" not in str(caught.value)
    assert json.loads((await world.store.run("r")).state)["state"] == {}


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


async def test_a_state_that_is_too_deep_to_be_stored_fails_the_node(world):
    async def deep(state, runtime):
        return {"answer": nested(400)}

    with pytest.raises(WorkflowError):
        await world.engine(deep).run({}, run_id="r")
    assert await world.status() == "failed"


async def test_a_state_that_is_no_json_is_refused_before_a_run_is_stored(world):
    async def done(state, runtime):
        return {}

    for state in ({"answer": float("nan")}, {"answer": nested(400)}, {"answer": "\ud800"}):
        with pytest.raises(UsageError):
            await world.engine(done).run(state, run_id="r")
    assert await world.store.run("r") is None


DAMAGES = {
    "no node of it": lambda state: {**state, "node": "none"},
    "a state that does not fit": lambda state: {**state, "state": {"answer": "x"}},
    "another run": lambda state: {**state, "run_id": "other"},
    "no format": lambda state: {key: value for key, value in state.items() if key != "format"},
}


@pytest.mark.parametrize("damage", [*DAMAGES, "too deep"])
async def test_a_damaged_run_is_refused_and_stays_as_it_is(world, damage):
    async def paying(state, runtime):
        await runtime.tools.invoke("pay", {"amount": 1})

    engine = world.engine(paying, state=Typed)
    with pytest.raises(RunPausedError) as paused:
        await engine.run({}, run_id="r")
    record = await world.store.run("r")
    text = "[" * 100_000 if damage == "too deep" else json.dumps(DAMAGES[damage](json.loads(record.state)))
    assert await world.store.save_run(replace(record, state=text))
    with pytest.raises(RunStateError):
        await engine.resume("r", decisions={paused.value.pending[0]: Approve(by="bob")})
    assert await world.status() == "paused"
    assert (await world.gate.approval(paused.value.pending[0])).state == "pending"


async def test_the_same_call_written_in_another_order_is_the_same_call_after_a_crash(world):
    orders = [{"a": 1, "b": 2}, {"b": 2, "a": 1}]
    seen = []

    @tool(kind="write")
    async def add(a: int, b: int) -> int:
        seen.append((a, b))
        return a + b

    gate = Gate(ToolRegistry([add]), policy=AllowAll(), store=world.store)

    async def adding(state, runtime):
        value = (await runtime.tools.invoke("add", orders.pop(0))).value
        if orders:
            raise ValueError
        return {"answer": value}

    with pytest.raises(WorkflowError):
        await world.engine(adding, gate).run({}, run_id="r")
    assert await world.engine(adding, gate).resume("r") == 3
    assert seen == [(1, 2)]


async def test_agents_that_run_side_by_side_go_on_as_themselves_in_whatever_order_they_begin(world):
    client = LLMClient(scripted_model([ToolCall("pay", {"amount": 1}, "a")], "done"))
    orders = [["first", "second"], ["second", "first"]]

    async def both(state, runtime):
        prompts = orders.pop(0)
        runs = await asyncio.gather(*[runtime.agent().run(prompt) for prompt in prompts])
        said = {prompt: str(run.messages[0].parts[0].content) for prompt, run in zip(prompts, runs, strict=True)}
        return {"answer": said}

    engine = world.engine(both).bind_agent(agent_runner(client))
    with pytest.raises(RunPausedError):
        await engine.run({}, run_id="r")
    assert len(await world.gate.approvals()) == 2
    await approve_all(world)
    assert await engine.resume("r") == {"first": "first", "second": "second"}


@pytest.mark.parametrize("plain", [False, True])
async def test_an_abort_ends_a_node_that_waits_for_something_else_than_a_tool(world, plain):
    begun, on, controller = threading.Event(), threading.Event(), AbortController()

    async def waiting(state, runtime):
        begun.set()
        await asyncio.Event().wait()

    def blocked(state, runtime):
        begun.set()
        on.wait(10)
        runtime.tools.invoke_blocking("look", {})

    run = world.engine(blocked if plain else waiting).run({}, run_id="r", signal=controller.signal)
    going = asyncio.ensure_future(run)
    await asyncio.to_thread(begun.wait, 10)
    controller.abort(ZeroDivisionError("enough"))
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(going, 10)
    on.set()
    record = await world.store.run("r")
    assert (record.status, json.loads(record.state)["error"]) == ("stopped", "the run was aborted")
    assert world.ran == []


async def test_an_abort_ends_the_calls_of_a_node_as_aborted_ones(world):
    controller, begun = AbortController(), asyncio.Event()

    @tool(kind="read")
    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def hanging(state, runtime):
        try:
            await runtime.tools.invoke("hang")
        except BaseException:
            await runtime.tools.invoke("hang")

    gate = Gate(ToolRegistry([hang]), policy=AllowAll(), store=world.store)
    going = asyncio.ensure_future(world.engine(hanging, gate).run({}, run_id="r", signal=controller.signal))
    await begun.wait()
    controller.abort("enough")
    with pytest.raises(AbortedError, match="enough"):
        await asyncio.wait_for(going, 10)
    records, _ = await world.store.records(JournalFilter(run_id="r"))
    assert [record.status for record in records if record.event == "finished"] == ["aborted"]


@pytest.mark.parametrize("wrong", [{"run_id": 5}, {"thread_id": 5}, {"caller": "alice"}])
async def test_a_run_for_nobody_or_of_no_name_is_refused(world, wrong):
    async def done(state, runtime):
        return {"answer": 1}

    with pytest.raises(UsageError):
        await world.engine(done).run({}, **wrong)
    assert await world.store.runs() == []


def test_a_workflow_of_any_length_is_drawn():
    nodes = [
        Node(id=f"n{n}", description="", run=nothing, routes=[route.to(f"n{n + 1}")], starts_round=n == 0) for n in range(1500)
    ]
    nodes.append(Node(id="n1500", description="", run=nothing, routes=[route.deliver("answer")]))
    assert tree(define_workflow("w", nodes)).count("\n") > 1500


async def asks(state):
    return False


ODD = {
    "a condition that has to be awaited": lambda: [made(route.deliver("answer", when=asks))],
    "a condition that is no function": lambda: [made(route.deliver("answer", when="yes"))],
    "a route that is none": lambda: [made("answer")],
    "a node that is none": lambda: [lambda state, runtime: None],
    "an empty id": lambda: [replace(made(route.deliver("answer")), id="")],
}


async def nothing(state, runtime):
    return None


def made(*routes):
    return Node(id="n", description="n", run=nothing, routes=routes, starts_round=True)


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_definition_is_refused_when_it_is_made(odd):
    with pytest.raises(WorkflowDefinitionError):
        define_workflow("w", ODD[odd]())


def test_the_nodes_of_a_workflow_cannot_be_changed_afterwards():
    workflow = define_workflow("w", [made(route.deliver("answer"))])
    with pytest.raises(TypeError):
        workflow.nodes["n"] = None


async def test_the_profile_of_an_agent_may_be_any(world):
    asked = []

    async def runner(gate, run_id, beginning):
        asked.append((run_id, beginning["prompt"]))
        raise ZeroDivisionError

    async def twice(state, runtime):
        for profile in (None, "p", Profile(name="p")):
            try:
                await runtime.agent(profile).run("x")
            except ZeroDivisionError:
                continue
        return {"answer": len({run_id for run_id, _ in asked})}

    assert await world.engine(twice).bind_agent(runner).run({}) == 3
