"""Rows L1 to L4 and A4: the one loop over a model, its hooks, what is prepared, and runs that pause, end and go on."""

import asyncio
import json
from dataclasses import replace

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel

from callgate import (
    AbortController,
    Approve,
    Caller,
    ConflictError,
    Deny,
    Gate,
    NotFoundError,
    RunStateError,
    StoreError,
    ToolCall,
    ToolContext,
    ToolDeniedError,
    ToolRegistry,
    UsageError,
    format_tool_error,
    tool,
)
from callgate.agent import (
    CallFinished,
    CallPending,
    CallProgress,
    CallStarted,
    LLMClient,
    ModelAnswered,
    RunEnded,
    RunPaused,
    RunState,
    StepStarted,
    TextDelta,
    create_run_hooks,
    prepare_call,
    split_run_tools,
)
from callgate.policy import AllowAll, RulePolicy
from callgate.profiles import Limits, Profile, ProfileStore
from callgate.store import MemoryStore, SQLStore
from callgate.testing import Says, calls, scripted_model

ALICE = Caller("alice")
RULES = """
default = "allow"
[[rule]]
id = "writes"
decision = "ask"
kinds = ["write"]
"""


class World:
    """Be a gate whose writes ask, a store, and what ran."""

    def __init__(self, store, *, policy=None, on_tool_error=None):
        self.ran, self.store, self.reports = [], store, []
        self.policy = policy or RulePolicy.parse(RULES)
        self.gate = self.rebuilt()

    def rebuilt(self, *without):
        @tool(kind="read")
        async def look(number: int = 0) -> int:
            self.ran.append(("look", number))
            return number

        @tool(kind="write")
        async def pay(amount: int) -> str:
            self.ran.append(("pay", amount))
            return f"paid {amount}"

        @tool(kind="write")
        async def note(text: str) -> None:
            self.ran.append(("note", text))

        tools = [each for each in (look, pay, note) if each.__name__ not in without]
        return Gate(ToolRegistry(tools, on_tool_error=self.reports.append), policy=self.policy, store=self.store)

    def prepared(self, prompt="go", gate=None, **more):
        return prepare_call(gate or self.gate, prompt=prompt, caller=ALICE, **more)

    async def run(self, *turns, **more):
        return await LLMClient(scripted_model(*turns)).run(self.prepared(**more), create_run_hooks(self.gate))


@pytest.fixture(params=["memory", "sqlite"])
async def world(request, tmp_path):
    store = MemoryStore() if request.param == "memory" else SQLStore(f"sqlite:///{tmp_path / 'runs.db'}")
    yield World(store)
    await store.aclose()


def results(run):
    """Give the results in a history, by the id of their call, and check that every call has exactly one."""
    asked, answered = [], {}
    for message in run.messages:
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                asked.append(part.tool_call_id)
            elif isinstance(part, ToolReturnPart):
                assert part.tool_call_id not in answered
                answered[part.tool_call_id] = part.content
    waiting = [pending.call_id for pending in run.pending]
    if not waiting:
        assert asked == list(answered), "each call has one result, in the order of the calls"
    return answered


async def test_l1_the_loop_goes_on_until_the_model_makes_no_calls(world):
    run = await world.run(calls(("look", {"number": 1}), ("look", {"number": 2})), ToolCall("look", {}, "x"), "all done")
    assert (run.status, run.output, run.steps) == ("completed", "all done", 3)
    assert results(run) == {"c1": "1", "c2": "2", "x": "0"}
    assert (await world.store.run(run.run_id)).status == "completed"


async def test_l1_events_are_a_view_on_the_same_loop(world):
    client = LLMClient(scripted_model(Says("let me look", (ToolCall("look", {"number": 1}, "a"),)), "done"))
    seen = [event async for event in client.stream(world.prepared(), create_run_hooks(world.gate))]
    kinds = [type(event) for event in seen]
    assert kinds[0] is StepStarted
    assert kinds[-1] is RunEnded
    assert kinds.index(ModelAnswered) < kinds.index(CallStarted) < kinds.index(CallFinished)
    assert "".join(event.text for event in seen if isinstance(event, TextDelta)) == "let me lookdone"
    assert seen[-1].run.output == "done"


async def test_l1_the_progress_of_a_tool_is_an_event(world):
    @tool(kind="read")
    def slow(context: ToolContext) -> str:
        for number in range(3):
            context.progress(number)
        return "ok"

    client = LLMClient(scripted_model(ToolCall("slow", {}, "a"), "done"))
    seen = [event async for event in client.stream(world.prepared(tools=[slow]), create_run_hooks(world.gate))]
    progress = [event for event in seen if isinstance(event, CallProgress)]
    assert [(event.call_id, event.item) for event in progress] == [("a", 0), ("a", 1), ("a", 2)]
    assert seen.index(progress[-1]) < next(n for n, event in enumerate(seen) if isinstance(event, CallFinished))


@pytest.mark.parametrize(
    ("limits", "reason"),
    [(Limits(steps=2), "2 steps"), (Limits(tokens=1), "tokens"), (Limits(time_s=0.0001), "time")],
)
async def test_l1_a_limit_ends_the_run_with_a_whole_history(world, limits, reason):
    run = await world.run(*[ToolCall("look", {"number": n}, f"c{n}") for n in range(10)], limits=limits)
    assert run.status in {"stopped", "failed"}
    assert reason in run.error
    results(run)


async def test_l1_the_deadline_of_a_run_bounds_every_call(world):
    @tool(kind="read", timeout_s=60)
    async def hang() -> None:
        await asyncio.Event().wait()

    run = await asyncio.wait_for(world.run(ToolCall("hang", {}, "a"), tools=[hang], limits=Limits(time_s=0.3)), 20)
    assert run.status == "stopped"
    assert "deadline" in results(run)["a"]


async def test_l1_ids_that_are_missing_or_come_again_are_repaired_for_the_whole_run(world):
    run = await world.run(
        [ToolCall("look", {"number": 1}, "a"), ToolCall("look", {"number": 2}, "a")], ToolCall("look", {"number": 3}, "a")
    )
    assert list(results(run).values()) == ["1", "2", "3"]
    assert world.ran == [("look", 1), ("look", 2), ("look", 3)]


async def test_l1_arguments_that_are_no_json_are_answered_and_the_history_stays_valid(world):
    run = await world.run(ToolCall("look", '{"number": ', "a"), "sorry")
    assert "cut off" in results(run)["a"]
    part = next(part for message in run.messages for part in message.parts if isinstance(part, ToolCallPart))
    assert isinstance(part.args_as_dict(raise_if_invalid=True), dict)
    assert world.ran == []


async def test_l1_a_provider_that_fails_fails_the_run_which_can_be_gone_on_with(world):
    answers = ["fail", "ok"]

    async def flaky(messages, info):
        if answers.pop(0) == "fail":
            raise ModelHTTPError(status_code=500, model_name="m", body="secret")
        yield "fine"

    client = LLMClient(FunctionModel(stream_function=flaky))
    run = await client.run(world.prepared(), create_run_hooks(world.gate))
    assert run.status == "failed"
    assert "secret" not in run.error
    run = await client.resume(run.run_id, create_run_hooks(world.gate), message="again, please")
    assert (run.status, run.output) == ("completed", "fine")


async def test_l1_names_that_no_provider_takes_are_mapped_there_and_back(world):
    seen = []

    @tool(kind="read", name="shop.order/get")
    async def get(number: int) -> int:
        return number

    async def model(messages, info):
        seen.append([each.name for each in info.function_tools])
        if len(messages) == 1:
            yield {0: DeltaToolCall(seen[0][-1], '{"number": 7}', tool_call_id="a")}
        else:
            yield "ok"

    run = await LLMClient(FunctionModel(stream_function=model)).run(world.prepared(tools=[get]), create_run_hooks(world.gate))
    assert seen[0][-1] == "shop_order_get"
    assert results(run) == {"a": "7"}
    returned = next(part for message in run.messages for part in message.parts if isinstance(part, ToolReturnPart))
    assert returned.tool_name == "shop_order_get"


async def test_a5_a_run_that_a_fault_of_the_store_left_can_be_gone_on_with_in_the_same_process(world):
    async def unreachable(run):
        raise StoreError("the disk is full")

    client, prepared = LLMClient(scripted_model(ToolCall("look", {}, "a"), "done")), world.prepared()
    save = world.store.save_run
    world.store.save_run = unreachable
    with pytest.raises(StoreError):
        await client.run(prepared, create_run_hooks(world.gate))
    world.store.save_run = save
    run = await client.resume(prepared.run_id, create_run_hooks(world.gate))
    assert (run.status, run.output) == ("completed", "done")


async def test_l2_the_offer_is_checked_before_the_gate_and_the_refusal_is_reported(world):
    run = await world.run(ToolCall("pay", {"amount": 1}, "a"), "ok", profile=Profile(name="p", tools=("look",)))
    assert run.status == "completed"
    assert "not offered" in results(run)["a"]
    assert await world.gate.registry.aflush(5)
    assert [(report.tool, report.error.status) for report in world.reports] == [("pay", 403)]
    assert world.ran == []


async def test_l2_errors_are_the_tools_result_and_the_abort_ends_the_run(world):
    controller, begun = AbortController(), asyncio.Event()

    @tool(kind="read")
    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    client = LLMClient(scripted_model([ToolCall("none", {}, "a"), ToolCall("hang", {}, "b"), ToolCall("look", {}, "c")]))
    prepared = world.prepared(tools=[hang], signal=controller.signal)
    going = asyncio.ensure_future(client.run(prepared, create_run_hooks(world.gate)))
    await begun.wait()
    controller.abort(ZeroDivisionError("enough"))
    with pytest.raises(ZeroDivisionError):
        await going
    stored = await world.store.run(prepared.run_id)
    assert stored.status == "stopped"
    state = RunState.load(stored.state)
    assert state.calls == []
    returned = {part["tool_call_id"]: part["content"] for part in state.messages[-1]["parts"]}
    assert list(returned) == ["a", "b", "c"]
    assert "stopped" in returned["b"]


async def test_l2_a_cancelled_run_is_stored_as_stopped_with_a_whole_history(world):
    begun = asyncio.Event()

    @tool(kind="read")
    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    prepared = world.prepared(tools=[hang])
    client = LLMClient(scripted_model([ToolCall("hang", {}, "a"), ToolCall("look", {}, "b")]))
    stream = client.stream(prepared, create_run_hooks(world.gate))
    async for event in stream:
        if isinstance(event, CallStarted) and event.call.name == "hang":
            await begun.wait()
            break
    await stream.aclose()
    stored = await world.store.run(prepared.run_id)
    assert stored.status == "stopped"
    assert len(RunState.load(stored.state).messages[-1]["parts"]) == 2


async def test_l3_a_run_is_prepared_from_policy_profile_and_additional_tools(world):
    offered = []

    async def look_at(messages, info):
        offered.append([each.name for each in info.function_tools])
        assert messages[-1].instructions == "Be kind."
        yield "ok"

    @tool(kind="read")
    async def extra() -> int:
        return 1

    profiles = ProfileStore(world.gate.registry, store=world.store)
    await profiles.put(Profile(name="support", tools=("look",), instructions="Be kind.", limits=Limits(steps=1)))
    client = LLMClient(FunctionModel(stream_function=look_at))
    run = await client.run(world.prepared(profile="support", tools=[extra]), create_run_hooks(world.gate))
    assert run.status == "completed"
    assert offered == [["look", "extra"]]
    with pytest.raises(NotFoundError):
        await client.run(world.prepared(profile="none"), create_run_hooks(world.gate))


async def test_l3_a_policy_of_the_profile_narrows_the_gates(world, tmp_path):
    (tmp_path / "narrow.toml").write_text('default = "allow"\n[[rule]]\nid = "n"\ndecision = "deny"\ntools = ["look"]\n')
    profile = Profile(name="p", policy=str(tmp_path / "narrow.toml"))
    run = await world.run([ToolCall("look", {}, "a"), ToolCall("pay", {"amount": 1}, "b")], profile=profile)
    assert run.status == "paused", "the gate's own policy asks as before"
    assert [pending.tool for pending in run.pending] == ["pay"]
    assert world.ran == []


def test_l3_a_run_needs_something_to_say(world):
    with pytest.raises(UsageError):
        prepare_call(world.gate, caller=ALICE)


def test_l4_the_text_of_an_error_is_made_in_one_place():
    assert "not allowed: no" in format_tool_error(ToolDeniedError("pay", "no"))


# ── A3 to A5: pauses ─────────────────────────────────────────────────────────────────────────────────────────────────────

STEP = [ToolCall("look", {"number": 1}, "a"), ToolCall("pay", {"amount": 5}, "b"), ToolCall("look", {"number": 2}, "c")]


async def test_a3_only_calls_that_need_approval_wait_and_the_run_goes_on_in_another_process(world):
    run = await world.run(STEP, "done")
    assert run.status == "paused"
    assert world.ran == [("look", 1), ("look", 2)]
    [pending] = run.pending
    assert (pending.tool, pending.call_id, json.loads(pending.arguments)) == ("pay", "b", {"amount": 5})
    other = LLMClient(scripted_model(STEP, "done"))
    run = await other.resume(run.run_id, create_run_hooks(world.rebuilt()), decisions={pending.approval_id: Approve(by="bob")})
    assert (run.status, run.output) == ("completed", "done")
    assert results(run) == {"a": "1", "b": '"paid 5"', "c": "2"}
    assert world.ran == [("look", 1), ("look", 2), ("pay", 5)]


async def test_a3_a_pause_is_the_last_event_of_a_stream(world):
    client = LLMClient(scripted_model(STEP))
    seen = [event async for event in client.stream(world.prepared(), create_run_hooks(world.gate))]
    assert isinstance(seen[-1], RunPaused)
    [pending] = [event for event in seen if isinstance(event, CallPending)]
    assert pending.outcome.approval_id == seen[-1].run.pending[0].approval_id


async def test_a3_decisions_come_one_by_one_in_any_order_from_anywhere(world):
    step = [ToolCall("pay", {"amount": n}, f"p{n}") for n in range(3)]
    client = LLMClient(scripted_model(step, "done"))
    run = await client.run(world.prepared(), create_run_hooks(world.gate))
    first, second, third = run.pending
    run = await client.resume(run.run_id, create_run_hooks(world.gate), decisions={third.approval_id: Approve(by="bob")})
    assert run.status == "paused"
    assert world.ran == [("pay", 2)]
    await world.rebuilt().record(first.approval_id, Deny(by="eve", reason="not this one"))
    run = await client.resume(run.run_id, create_run_hooks(world.rebuilt()))
    assert [pending.approval_id for pending in run.pending] == [second.approval_id]
    run = await client.resume(
        run.run_id, create_run_hooks(world.gate), decisions={second.approval_id: Approve(by="bob")}, message="and be brief"
    )
    assert run.status == "completed"
    assert "not this one" in results(run)["p0"]
    assert world.ran == [("pay", 2), ("pay", 1)]
    last = [message for message in run.messages if isinstance(message, ModelRequest)][-1]
    assert [type(part) for part in last.parts] == [ToolReturnPart] * 3 + [UserPromptPart]


async def test_a4_a_tool_that_is_gone_fails_that_call_alone(world):
    run = await world.run(STEP, "done")
    client = LLMClient(scripted_model(STEP, "done"))
    decisions = {run.pending[0].approval_id: Approve(by="bob")}
    run = await client.resume(run.run_id, create_run_hooks(world.rebuilt("pay")), decisions=decisions)
    assert run.status == "completed"
    assert "There is no tool 'pay'" in results(run)["b"]
    assert world.ran == [("look", 1), ("look", 2)]


async def test_a4_additional_tools_are_handed_in_again(world):
    @tool(kind="write", needs_approval=True)
    async def extra(amount: int) -> str:
        return f"extra {amount}"

    step = [ToolCall("extra", {"amount": 1}, "a")]
    run = await world.run(step, "done", tools=[extra])
    decisions = {run.pending[0].approval_id: Approve(by="bob")}
    gate = world.rebuilt()
    run = await LLMClient(scripted_model(step, "done")).resume(
        run.run_id, create_run_hooks(gate, tools=[extra]), decisions=decisions
    )
    assert results(run) == {"a": '"extra 1"'}


def test_a4_tools_of_a_run_are_split_by_name(world):
    @tool(kind="read")
    async def extra() -> int:
        return 1

    split = split_run_tools(["look", "extra", "gone"], world.gate.registry, [extra])
    assert [each.name for each in split.registered] == ["look"]
    assert [each.name for each in split.additional] == ["extra"]
    assert split.missing == ("gone",)


async def test_a5_of_two_resumes_the_second_is_a_conflict(world):
    run = await world.run(STEP, "done")
    await world.gate.record(run.pending[0].approval_id, Approve(by="bob"))
    clients = [LLMClient(scripted_model(STEP, "done")) for _ in range(4)]
    ends = await asyncio.gather(
        *[client.resume(run.run_id, create_run_hooks(world.rebuilt())) for client in clients], return_exceptions=True
    )
    assert sum(isinstance(end, ConflictError) for end in ends) == 3
    assert world.ran.count(("pay", 5)) == 1
    with pytest.raises(ConflictError, match="over"):
        await clients[0].resume(run.run_id, create_run_hooks(world.gate))


async def test_a5_a_run_can_be_stopped_for_good_while_it_waits(world):
    run = await world.run(STEP, "done")
    client = LLMClient(scripted_model(STEP, "done"))
    stopped = await client.stop(run.run_id, create_run_hooks(world.gate))
    assert stopped.status == "stopped"
    assert len(results(stopped)) == 3
    with pytest.raises(ConflictError):
        await client.resume(run.run_id, create_run_hooks(world.gate), decisions={run.pending[0].approval_id: Approve(by="b")})
    with pytest.raises(NotFoundError):
        await client.stop("none", create_run_hooks(world.gate))


DAMAGES = {
    "no json": lambda state: "{",
    "another thing": lambda state: "[]",
    "newer": lambda state: json.dumps({**state, "version": 2}),
    "unknown key": lambda state: json.dumps({**state, "extra": 1}),
    "missing": lambda state: json.dumps({key: value for key, value in state.items() if key != "messages"}),
    "wrong shape": lambda state: json.dumps({**state, "calls": "c2"}),
    "a text for a number": lambda state: json.dumps({**state, "step": "1"}),
    "one call twice": lambda state: json.dumps({**state, "calls": state["calls"] * 2}),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a3_a_damaged_or_newer_run_is_refused_and_nothing_runs(world, damage):
    run = await world.run(STEP, "done")
    stored = await world.store.run(run.run_id)
    assert await world.store.save_run(replace(stored, state=DAMAGES[damage](json.loads(stored.state))))
    world.ran.clear()
    with pytest.raises(RunStateError):
        await LLMClient(scripted_model(STEP)).resume(
            run.run_id, create_run_hooks(world.gate), decisions={run.pending[0].approval_id: Approve(by="bob")}
        )
    assert world.ran == []
    assert (await world.gate.approval(run.pending[0].approval_id)).state == "pending"


async def test_a3_a_history_that_ends_with_calls_has_them_pending_and_not_approved(world):
    history = [
        ModelRequest(parts=[UserPromptPart(content="pay")]),
        ModelResponse(parts=[ToolCallPart("pay", {"amount": 3}, "x")]),
    ]
    client = LLMClient(scripted_model("never", "done"))
    run = await client.run(prepare_call(world.gate, messages=history, prompt="well?", caller=ALICE), create_run_hooks(world.gate))
    assert run.status == "paused"
    assert world.ran == []


async def test_a3_a_call_in_an_answer_that_was_cut_off_does_not_run(world):
    cut = ModelResponse(parts=[ToolCallPart("look", "{}", "a"), ToolCallPart("look", "", "b")], finish_reason="length")
    history = [ModelRequest(parts=[UserPromptPart(content="look")]), cut]
    client = LLMClient(scripted_model("never", "done"))
    run = await client.run(prepare_call(world.gate, messages=history, caller=ALICE), create_run_hooks(world.gate))
    assert world.ran == [("look", 0)]
    assert "cut off" in results(run)["b"]


def test_a3_hooks_of_another_gate_are_refused(world):
    async def go():
        with pytest.raises(UsageError, match="one gate"):
            await LLMClient(scripted_model()).run(world.prepared(), create_run_hooks(Gate(ToolRegistry([]), policy=AllowAll())))

    asyncio.run(go())
