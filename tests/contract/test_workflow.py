"""Rows W1 to W3: what a workflow is, how it runs with its tools, and what holds it within bounds and over crashes."""

import asyncio
from dataclasses import dataclass, replace
from typing import TypedDict

import pytest
from pydantic import BaseModel

from callgate import (
    AbortController,
    Approve,
    Caller,
    ConflictError,
    Deny,
    Gate,
    NotFoundError,
    RunPausedError,
    RunStateError,
    ToolContext,
    ToolDeniedError,
    ToolError,
    ToolRegistry,
    UsageError,
    WorkflowDefinitionError,
    WorkflowError,
    tool,
)
from callgate.policy import AllowAll
from callgate.profiles import Profile
from callgate.store import JournalFilter, MemoryStore, SQLStore
from callgate.testing import scripted_model
from callgate.workflow import (
    Delivered,
    Engine,
    Node,
    NodeFinished,
    NodeStarted,
    Paused,
    RoundStarted,
    ToolCalled,
    WorkflowLimits,
    agent_runner,
    define_workflow,
    mermaid,
    node,
    route,
    tree,
)

ALICE = Caller("alice")


async def nothing(state, runtime):
    return None


def made(name, *routes, run=nothing, starts=False):
    return Node(id=name, description=name, run=run, routes=routes, starts_round=starts)


# ── W1: the definition ───────────────────────────────────────────────────────────────────────────────────────────────────


class Model(BaseModel):
    answer: str = ""


@dataclass
class Data:
    answer: str = ""


class Typed(TypedDict, total=False):
    answer: str


WRONG = {
    "unknown target": ([made("a", route.to("b"), starts=True)], "node 'a', route 1: there is no node 'b'"),
    "unreachable": (
        [made("a", route.deliver("answer"), starts=True), made("b", route.deliver("answer"))],
        "node 'b': no way leads to it",
    ),
    "no delivery": (
        [made("a", route.deliver("answer", when=bool), route.to("b"), starts=True), made("b", route.to("b"))],
        "node 'b': no way leads from it to a delivery",
    ),
    "no start": ([made("a", route.deliver("answer"))], "and none does"),
    "two starts": ([made("a", route.to("b"), starts=True), made("b", route.deliver("answer"), starts=True)], "a and b do"),
    "hidden route": (
        [made("a", route.deliver("answer"), route.to("a"), starts=True)],
        "route 1: it has no condition, and hides those behind it",
    ),
    "no routes": ([made("a", starts=True)], "node 'a': it has no routes"),
    "two of one id": ([made("a", route.deliver("answer"), starts=True), made("a", route.deliver("answer"))], "same id"),
    "unknown field": ([made("a", route.deliver("other"), starts=True)], "the state has no field 'other'"),
    "no function": ([made("a", route.deliver("answer"), run=5, starts=True)], "run must be a function"),
}


@pytest.mark.parametrize("state", [Model, Data, Typed])
@pytest.mark.parametrize("wrong", WRONG)
def test_w1_a_broken_graph_is_refused_at_definition_and_says_where(wrong, state):
    nodes, says = WRONG[wrong]
    with pytest.raises(WorkflowDefinitionError) as caught:
        define_workflow("w", nodes, state=state)
    assert says in str(caught.value)
    assert str(caught.value).startswith("workflow 'w'")


def test_w1_a_state_that_is_no_type_is_refused():
    with pytest.raises(WorkflowDefinitionError):
        define_workflow("w", [made("a", route.deliver("x"), starts=True)], state=object())


def test_w1_a_definition_is_frozen_and_has_a_digest_of_its_shape():
    nodes = [made("a", route.deliver("answer"), starts=True)]
    workflow = define_workflow("w", nodes, state=Model)
    with pytest.raises(AttributeError):
        workflow.id = "other"
    assert workflow.digest == define_workflow("w", nodes, state=Model).digest
    others = [
        define_workflow("v", nodes, state=Model),
        define_workflow("w", nodes, state=Data),
        define_workflow("w", [replace(nodes[0], description="other")], state=Model),
        define_workflow("w", [made("a", route.deliver("answer", when=bool), starts=True)], state=Model),
    ]
    assert workflow.digest not in {each.digest for each in others}


async def test_w1_a_node_can_be_made_of_a_function():
    @node(routes=[route.deliver("answer")], starts_round=True)
    async def read(state, runtime):
        """Read the status."""
        return {"answer": "fine"}

    assert (read.id, read.description) == ("read", "Read the status.")
    assert await Engine(define_workflow("w", [read])).bind_tool_runtime(ToolRegistry([])).run({}) == "fine"


@pytest.mark.parametrize("state", [Model, Data, Typed, None])
async def test_w1_the_first_route_that_fits_is_taken(state):
    def answered(state):
        return (state.get("answer") if isinstance(state, dict) or hasattr(state, "get") else state.answer) == "yes"

    async def answer(state, runtime):
        return {"answer": "yes" if runtime.round > 1 else "no"}

    nodes = [made("ask", route.deliver("answer", when=answered), route.to("ask"), run=answer, starts=True)]
    engine = Engine(define_workflow("w", nodes, state=state)).bind_tool_runtime(ToolRegistry([]))
    assert await engine.run({}) == "yes"


# ── W2: the engine ───────────────────────────────────────────────────────────────────────────────────────────────────────


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
        async def note(text: str, context: ToolContext) -> str:
            self.ran.append(("note", text))
            return text

        @tool(kind="read")
        async def refuse() -> None:
            raise ToolError("no")

        return Gate(ToolRegistry([look, pay, note, refuse]), policy=AllowAll(), store=self.store)

    def engine(self, *nodes, gate=None, state=None, **limits):
        workflow = define_workflow("w", nodes, state=state)
        return Engine(workflow, limits=WorkflowLimits(**limits)).bind_tool_runtime(gate or self.gate)


@pytest.fixture(params=["memory", "sqlite"])
async def world(request, tmp_path):
    store = MemoryStore() if request.param == "memory" else SQLStore(f"sqlite:///{tmp_path / 'w.db'}")
    yield World(store)
    await store.aclose()


async def test_w2_nodes_reach_tools_and_every_call_leaves_a_receipt_that_names_where_it_was(world):
    async def read(state, runtime):
        assert "look" in runtime.tools.ids()
        assert runtime.tools.require("look").kind == "read"
        result = await runtime.tools.invoke("look", {"number": 7})
        assert result.receipt.status == "succeeded"
        return {"answer": result.value}

    engine = world.engine(made("read", route.deliver("answer"), run=read, starts=True))
    assert await engine.run({}, run_id="r", caller=ALICE) == 7
    [start, end] = (await world.store.records(JournalFilter(run_id="r")))[0]
    assert (start.where, end.where, start.caller) == ("w/1/read", "w/1/read", "alice")
    assert (await world.store.run("r")).status == "completed"


async def test_w2_a_registry_alone_is_enough():
    @tool(kind="read")
    async def get_status() -> str:
        return "fine"

    async def read(state, runtime):
        return {"answer": (await runtime.tools.invoke("get_status", {})).value}

    workflow = define_workflow("status", [made("read", route.deliver("answer"), run=read, starts=True)])
    assert await Engine(workflow).bind_tool_runtime(ToolRegistry([get_status])).run({}) == "fine"
    with pytest.raises(UsageError, match="bind tools first"):
        await Engine(workflow).run({})


async def test_w2_a_plain_function_is_a_node_too(world):
    def read(state, runtime):
        return {"answer": runtime.tools.invoke_blocking("look", {"number": 3}).value}

    assert await world.engine(made("read", route.deliver("answer"), run=read, starts=True)).run({}) == 3


async def test_w2_what_a_tool_refuses_is_raised_in_the_node_and_can_be_caught(world):
    async def read(state, runtime):
        try:
            await runtime.tools.invoke("refuse")
        except ToolError as error:
            return {"answer": error.user_message}

    assert await world.engine(made("read", route.deliver("answer"), run=read, starts=True)).run({}) == "no"


async def test_w2_a_node_sees_a_state_of_its_own(world):
    async def spoil(state, runtime):
        state.lines.append("spoilt")
        return {}

    class Lines(BaseModel):
        lines: list[str] = []

    engine = world.engine(made("a", route.to("b"), run=spoil, starts=True), made("b", route.deliver("lines")), state=Lines)
    assert await engine.run({"lines": ["x"]}) == ["x"]
    assert await engine.run(Lines(lines=["y"])) == ["y"]


async def test_w2_a_run_is_followed_live(world):
    async def again(state, runtime):
        await runtime.tools.invoke("look", {"number": runtime.round})
        return {"answer": runtime.round}

    engine = world.engine(
        made("a", route.deliver("answer", when=lambda state: state["answer"] == 2), route.to("a"), run=again, starts=True)
    )
    seen = [event async for event in engine.stream({})]
    one = [RoundStarted, NodeStarted, ToolCalled, NodeFinished]
    assert [type(event) for event in seen] == [*one, *one, Delivered]
    assert seen[-1].value == 2
    assert seen[3].patch == {"answer": 1}


SECRET = "hunter2"


@pytest.mark.parametrize("blocking", [False, True])
async def test_w2_an_exception_of_a_node_ends_the_run_and_its_text_stays_here(world, blocking):
    async def fail(state, runtime):
        raise ZeroDivisionError(SECRET)

    def fail_blocking(state, runtime):
        raise ZeroDivisionError(SECRET)

    engine = world.engine(made("a", route.deliver("x"), run=fail_blocking if blocking else fail, starts=True))
    with pytest.raises(WorkflowError) as caught:
        await engine.run({}, run_id="r")
    assert (caught.value.node, caught.value.round) == ("a", 1)
    assert SECRET not in str(caught.value)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    stored = await world.store.run("r")
    assert stored.status == "failed"
    assert SECRET not in stored.state


@pytest.mark.parametrize("patch", [{"other": 1}, 5, {"answer": object()}, {"answer": {"a": float}}])
async def test_w2_a_patch_that_does_not_fit_fails_the_node(world, patch):
    async def wrong(state, runtime):
        return patch

    engine = world.engine(made("a", route.deliver("answer"), run=wrong, starts=True), state=Model)
    with pytest.raises(WorkflowError) as caught:
        await engine.run({})
    assert caught.value.node == "a"


async def test_w2_a_beginning_that_does_not_fit_runs_nothing(world):
    engine = world.engine(made("a", route.deliver("answer"), starts=True), state=Model)
    with pytest.raises(UsageError, match="answr"):
        await engine.run({"answr": 1}, run_id="r")
    assert await world.store.run("r") is None


async def test_w2_an_agent_is_a_step_of_a_node(world):
    from callgate import ToolCall  # noqa: PLC0415
    from callgate.agent import LLMClient  # noqa: PLC0415

    script = scripted_model([ToolCall("look", {"number": 1}, "a"), ToolCall("pay", {"amount": 5}, "b")], "all done")

    async def work(state, runtime):
        run = await runtime.agent(Profile(name="p", instructions="Be kind.")).run("do it")
        return {"answer": run.output}

    engine = world.engine(made("a", route.deliver("answer"), run=work, starts=True)).bind_agent(agent_runner(LLMClient(script)))
    with pytest.raises(RunPausedError) as paused:
        await engine.run({}, run_id="r", caller=ALICE)
    [approval] = paused.value.pending
    assert await engine.resume("r", decisions={approval: Approve(by="bob")}) == "all done"
    assert world.ran == [("look", 1), ("pay", 5)]


# ── W3: bounds, pauses, crashes ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("limits", "says"), [({"rounds": 3}, "3 rounds"), ({"steps": 4}, "4 steps"), ({"time_s": 0.05, "rounds": None}, "time")]
)
async def test_w3_rounds_steps_and_time_are_bounded(world, limits, says):
    async def again(state, runtime):
        await asyncio.sleep(0.01)

    engine = world.engine(
        made("a", route.deliver("x", when=lambda state: False), route.to("a"), run=again, starts=True), **limits
    )
    with pytest.raises(WorkflowError, match=says):
        await engine.run({}, run_id="r")
    assert (await world.store.run("r")).status == "stopped"


async def test_w3_the_time_of_a_run_bounds_a_node_that_hangs(world):
    async def hang(state, runtime):
        await asyncio.Event().wait()

    engine = world.engine(made("a", route.deliver("x"), run=hang, starts=True), time_s=0.05)
    with pytest.raises(WorkflowError, match="time"):
        await asyncio.wait_for(engine.run({}), 20)


async def pay_twice(state, runtime):
    first = await runtime.tools.invoke("note", {"text": "before"})
    second = await runtime.tools.invoke("pay", {"amount": 5})
    third = await runtime.tools.invoke("note", {"text": "after"})
    return {"answer": [first.value, second.value, third.value]}


PAYING = [made("pay", route.deliver("answer"), run=pay_twice, starts=True)]


async def test_w3_a_call_that_asks_pauses_the_run_and_the_decision_resumes_it_there(world):
    engine = world.engine(*PAYING)
    with pytest.raises(RunPausedError) as paused:
        await engine.run({}, run_id="r")
    assert world.ran == [("note", "before")]
    other = world.engine(*PAYING, gate=world.rebuilt())
    value = await other.resume("r", decisions={paused.value.pending[0]: Approve(by="bob")})
    assert value == ["before", "paid 5", "after"]
    assert world.ran == [("note", "before"), ("pay", 5), ("note", "after")]
    with pytest.raises(ConflictError, match="over"):
        await other.resume("r")


async def test_w3_a_denied_call_is_an_error_in_the_node(world):
    async def pay(state, runtime):
        try:
            await runtime.tools.invoke("pay", {"amount": 5})
        except ToolDeniedError as error:
            return {"answer": error.words}

    engine = world.engine(made("pay", route.deliver("answer"), run=pay, starts=True))
    with pytest.raises(RunPausedError) as paused:
        await engine.run({}, run_id="r")
    assert await engine.resume("r", decisions={paused.value.pending[0]: Deny(by="bob", reason="not today")}) == "not today"
    assert world.ran == []


async def test_w3_a_pause_is_the_last_event_of_a_stream(world):
    seen = [event async for event in world.engine(*PAYING).stream({})]
    assert isinstance(seen[-1], Paused)
    assert len(seen[-1].pending) == 1


async def test_w3_a_node_cannot_swallow_a_pause(world):
    async def careless(state, runtime):
        try:
            await runtime.tools.invoke("pay", {"amount": 5})
        except BaseException:
            return {"answer": "swallowed"}

    with pytest.raises(RunPausedError):
        await world.engine(made("a", route.deliver("answer"), run=careless, starts=True)).run({})


async def test_w3_a_node_that_failed_is_tried_again_by_a_resume_and_its_finished_calls_do_not_run_again(world):
    broken = [True]

    async def flaky(state, runtime):
        await runtime.tools.invoke("note", {"text": "same"})
        await runtime.tools.invoke("note", {"text": "same"})
        if broken.pop():
            raise ConnectionError
        return {"answer": "ok"}

    broken.insert(0, False)
    engine = world.engine(made("a", route.deliver("answer"), run=flaky, starts=True))
    with pytest.raises(WorkflowError):
        await engine.run({}, run_id="r")
    assert await engine.resume("r") == "ok"
    assert world.ran == [("note", "same"), ("note", "same")], "two equal calls of a node are two calls, each once"


async def test_w3_two_resumes_are_one_run_and_a_conflict(world):
    engine = world.engine(*PAYING)
    with pytest.raises(RunPausedError) as paused:
        await engine.run({}, run_id="r")
    await world.gate.record(paused.value.pending[0], Approve(by="bob"))
    ends = await asyncio.gather(*[world.engine(*PAYING).resume("r") for _ in range(4)], return_exceptions=True)
    assert sum(isinstance(end, ConflictError) for end in ends) == 3
    assert world.ran.count(("pay", 5)) == 1


async def test_w3_a_run_is_stopped_for_good(world):
    engine = world.engine(*PAYING)
    with pytest.raises(RunPausedError):
        await engine.run({}, run_id="r")
    await engine.stop("r")
    for again in (engine.resume("r"), engine.stop("r")):
        with pytest.raises(ConflictError):
            await again
    with pytest.raises(NotFoundError):
        await engine.resume("none")


async def test_w3_an_abort_and_a_cancellation_stop_the_run(world):
    begun, controller = asyncio.Event(), AbortController()

    async def hang(state, runtime):
        assert runtime.signal is controller.signal
        begun.set()
        await asyncio.Event().wait()

    engine = world.engine(made("a", route.deliver("x"), run=hang, starts=True))
    going = asyncio.ensure_future(engine.run({}, run_id="r", signal=controller.signal))
    await begun.wait()
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    assert (await world.store.run("r")).status == "stopped"
    controller.abort(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        await engine.run({}, run_id="s", signal=controller.signal)
    assert (await world.store.run("s")).status == "stopped"


async def test_w3_a_changed_workflow_is_refused_unless_a_migration_is_given(world):
    with pytest.raises(RunPausedError) as paused:
        await world.engine(*PAYING).run({}, run_id="r")
    changed = [made("pay2", route.deliver("answer"), run=pay_twice, starts=True)]
    decisions = {paused.value.pending[0]: Approve(by="bob")}
    with pytest.raises(RunStateError, match="migration"):
        await world.engine(*changed).resume("r", decisions=decisions)
    assert (await world.gate.approval(paused.value.pending[0])).state == "pending", "nothing was decided"
    with pytest.raises(RunStateError, match="none"):
        await world.engine(*changed).resume("r", migration=lambda state, node: (state, "none"))
    with pytest.raises(RunPausedError):
        await world.engine(*changed).resume("r", migration=lambda state, node: (state, "pay2"))


async def test_w3_a_stored_run_that_is_damaged_or_newer_is_refused(world):
    with pytest.raises(RunPausedError):
        await world.engine(*PAYING).run({}, run_id="r")
    stored = await world.store.run("r")
    for number, damage in enumerate(("{", '{"format": "x"}', stored.state.replace('"version":1', '"version":2'))):
        assert await world.store.save_run(replace(stored, state=damage, version=stored.version + number))
        with pytest.raises(RunStateError):
            await world.engine(*PAYING).resume("r")


# ── W: seen ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_w1_a_workflow_is_drawn_with_the_way_of_a_run():
    def is_done(state):
        return True

    workflow = define_workflow(
        "w", [made("a", route.deliver("answer", when=is_done), route.to("b"), starts=True), made("b", route.to("a"))]
    )
    drawn = mermaid(workflow, ["a"])
    assert 'n0 -->|"is done"| d0(["answer"])' in drawn
    assert "n0 --> n1" in drawn
    assert "class n0 passed" in drawn
    assert tree(workflow, ["a"]).splitlines() == [
        "w",
        "-> a *: a",
        "    [is done] => answer",
        "    -> b: b",
        "        -> a * (above)",
    ]
