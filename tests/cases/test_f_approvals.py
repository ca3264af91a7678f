"""Cases f1 to f28: approvals that others lost, doubled, or let slip."""

import json
import logging

import pytest
from pydantic import BaseModel, field_validator
from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart

from callgate import (
    Approve,
    Caller,
    Denied,
    Deny,
    Edit,
    Failed,
    Gate,
    Pending,
    RunStateError,
    Succeeded,
    Tool,
    ToolCall,
    ToolContext,
    ToolRegistry,
    UsageError,
    require_approval,
    tool,
)
from callgate.agent import LLMClient, RunState, create_run_hooks, prepare_call
from callgate.policy import AllowAll, Decision, RulePolicy, ToolPolicy
from callgate.store import SQLStore
from callgate.testing import calls, gate_for, scripted_model
from tests.contract.test_loop import STEP, World, results

ALICE = Caller("alice")


@pytest.fixture
async def world(tmp_path):
    store = SQLStore(f"sqlite:///{tmp_path / 'runs.db'}")
    yield World(store)
    await store.aclose()


async def resume(world, run, *turns, gate=None, **more):
    gate = gate or world.rebuilt()
    return await LLMClient(scripted_model(*turns)).resume(run.run_id, create_run_hooks(gate), **more)


def approve_all(run):
    return {pending.approval_id: Approve(by="bob") for pending in run.pending}


async def test_f1_the_options_of_a_resume_do_not_matter_for_the_decision(world):
    run = await world.run(STEP, "done")
    hooks = create_run_hooks(world.rebuilt(), user_context={"anything": 1})
    run = await LLMClient(scripted_model(STEP, "done")).resume(run.run_id, hooks, decisions=approve_all(run))
    assert run.status == "completed"
    assert world.ran.count(("pay", 5)) == 1


async def test_f2_a_run_inside_of_a_tool_waits_under_an_id_of_its_own_and_finishes_after_everything_was_dropped(world):
    def gate():
        base = world.rebuilt()

        @tool(kind="read")
        async def delegate(context: ToolContext) -> str:
            inner_id = f"{context.call_context.run_id}:inner"
            client, hooks = LLMClient(scripted_model(ToolCall("pay", {"amount": 9}, "p"), "inner done")), create_run_hooks(base)
            if await base.store.run(inner_id) is None:
                inner = await client.run(prepare_call(base, prompt="pay", caller=ALICE, run_id=inner_id), hooks)
            else:
                inner = await client.resume(inner_id, hooks)
            return f"{inner.status}: {inner.output}"

        return Gate(ToolRegistry([delegate, *base.registry.list()]), policy=world.policy, store=world.store)

    script = (ToolCall("delegate", {}, "d1"), "outer done")
    outer = gate()
    client = LLMClient(scripted_model(*script))
    run = await client.run(prepare_call(outer, prompt="go", caller=ALICE, run_id="outer"), create_run_hooks(outer))
    assert results(run)["d1"] == '"paused: "'
    [waiting] = await world.rebuilt().approvals(run_id="outer:inner")
    await world.rebuilt().record(waiting.id, Approve(by="bob"))
    inner = await LLMClient(scripted_model(ToolCall("pay", {"amount": 9}, "p"), "inner done")).resume(
        "outer:inner", create_run_hooks(world.rebuilt())
    )
    assert (inner.status, inner.output) == ("completed", "inner done")
    assert world.ran == [("pay", 9)]


async def test_f4_a_stored_run_with_a_wrong_shape_is_refused_and_nothing_runs(world):
    run = await world.run(STEP, "done")
    state = json.loads((await world.store.run(run.run_id)).state)
    for damage in ({"calls": "c2"}, {"calls": [{**state["calls"][1], "result": "approved"}]}, {"decisions": {"rejected": "c2"}}):
        with pytest.raises(RunStateError):
            RunState.load(json.dumps({**state, **damage}))


async def test_f5_the_reviewers_reason_survives_and_reaches_the_model_verbatim(world):
    run = await world.run(STEP, "done")
    await world.gate.record(run.pending[0].approval_id, Deny(by="eve", reason="needs manager — “№7”"))
    run = await resume(world, run, STEP, "done")
    assert "needs manager — “№7”" in results(run)["b"]


async def test_f6_a_policy_that_asks_for_another_reason_meanwhile_asks_again(world):
    run = await world.run(STEP, "done")
    stricter = """
    default = "allow"
    [[rule]]
    id = "writes"
    decision = "ask"
    kinds = ["write"]
    [[rule]]
    id = "freeze"
    decision = "ask"
    tools = ["pay"]
    reason = "we are in a freeze"
    """
    world.policy = RulePolicy.parse(stricter)
    run = await resume(world, run, STEP, "done", decisions=approve_all(run))
    assert run.status == "paused"
    assert world.ran.count(("pay", 5)) == 0
    assert "freeze" in run.pending[0].reason
    run = await resume(world, run, STEP, "done", decisions=approve_all(run))
    assert run.status == "completed"
    assert world.ran.count(("pay", 5)) == 1


async def test_f7_the_question_whether_to_ask_is_put_once_in_the_life_of_a_call():
    asked = []

    def large(arguments):
        asked.append(arguments)
        return len(asked) == 1  # it would answer otherwise the second time

    @tool(kind="write", needs_approval=large)
    async def pay(amount: int) -> str:
        return f"paid {amount}"

    gate = gate_for(pay)
    pending = await gate.call(ToolCall("pay", {"amount": "5"}, "c"), caller=ALICE, run_id="r")
    outcome = await gate.decide(pending.approval_id, Approve(by="bob"))
    assert outcome.text == '"paid 5"'
    assert asked == [{"amount": 5}]


async def test_f7_a_question_that_fails_asks_a_person():
    @tool(kind="write", needs_approval=lambda arguments: arguments["none"])
    async def pay(amount: int) -> str:
        return "paid"

    assert isinstance(await gate_for(pay).call(ToolCall("pay", {"amount": 5}), caller=ALICE), Pending)


async def test_f10_only_the_gated_call_of_a_batch_asks(world):
    run = await world.run(STEP, "done")
    assert [pending.call_id for pending in run.pending] == ["b"]
    assert world.ran == [("look", 1), ("look", 2)]


async def test_f11_f18_the_results_of_siblings_are_kept_and_nothing_of_them_runs_again(world):
    run = await world.run(STEP, "done")
    run = await resume(world, run, STEP, "done", decisions=approve_all(run))
    assert results(run) == {"a": "1", "b": '"paid 5"', "c": "2"}
    assert world.ran == [("look", 1), ("look", 2), ("pay", 5)]


async def test_f12_an_approval_executes_whatever_hooks_there_are():
    async def nothing(seen, go_on):
        return await go_on(seen.call)

    ran = []

    @tool(kind="write", needs_approval=True)
    async def pay(amount: int) -> str:
        ran.append(amount)
        return "paid"

    gate = Gate(ToolRegistry([pay]), policy=AllowAll(), hooks=[nothing, nothing])
    pending = await gate.call(ToolCall("pay", {"amount": 1}, "c"), caller=ALICE, run_id="r")
    assert isinstance(await gate.decide(pending.approval_id, Approve(by="bob")), Succeeded)
    assert ran == [1]


async def test_f13_every_way_through_the_gate_asks(world):
    place = {"caller": ALICE, "run_id": "r"}
    direct = await world.gate.call(ToolCall("pay", {"amount": 1}, "1"), **place)
    [batch] = await world.gate.call_many([ToolCall("pay", {"amount": 1}, "2")], **place)
    extra = await world.gate.call(ToolCall("pay", {"amount": 1}, "3"), tools=["pay"], **place)
    loose = await world.gate.call(ToolCall("functions.pay", {"amount": 1}, "4"), **place)
    assert [type(each) for each in (direct, batch, extra, loose)] == [Pending] * 4
    assert world.ran == []


async def test_f13_a_blocking_door_asks_too():
    @tool(kind="write", needs_approval=True)
    def pay(amount: int) -> str:
        return "paid"

    gate = gate_for(pay)
    assert isinstance(gate.call_blocking(ToolCall("pay", {"amount": 1}), caller=ALICE), Pending)


async def test_f14_a_rejected_call_is_not_run_by_whoever_feeds_it_again(world):
    pending = await world.gate.call(ToolCall("pay", {"amount": 1}, "c"), caller=ALICE, run_id="r")
    await world.gate.decide(pending.approval_id, Deny(by="bob"))
    for gate in (world.gate, world.rebuilt()):
        assert isinstance(await gate.call(ToolCall("pay", {"amount": 1}, "c"), caller=ALICE, run_id="r"), Denied)
    assert world.ran == []


async def test_f15_to_reject_one_call_skips_no_other(world):
    run = await world.run(STEP, "done")
    run = await resume(world, run, STEP, "done", decisions={run.pending[0].approval_id: Deny(by="bob")})
    assert list(results(run)) == ["a", "b", "c"]
    assert world.ran == [("look", 1), ("look", 2)]


async def test_f16_a_denial_says_what_to_do_and_the_same_call_is_not_asked_about_again(world):
    again = calls(("pay", {"amount": 5}), prefix="again")
    run = await world.run(STEP, again, "done")
    run = await resume(world, run, STEP, again, "done", decisions={run.pending[0].approval_id: Deny(by="bob")})
    assert run.status == "completed", "nobody was asked twice"
    text = results(run)["b"]
    assert "not executed" in text
    assert "bob" in text
    assert "Do not repeat" in text
    assert results(run)["again1"].startswith("The call of tool 'pay' was denied")
    assert world.ran == [("look", 1), ("look", 2)]


async def test_f16_the_same_arguments_written_otherwise_are_not_asked_about_again_either():
    tool = Tool(
        name="pay",
        kind="write",
        input_schema={"type": "object", "properties": {"amount": {"type": "integer"}}},
        execute=lambda arguments: "paid",
    )
    gate = Gate(ToolRegistry([tool]), policy=RulePolicy([], default="ask"))
    pending = await gate.call(ToolCall("pay", {"amount": 5}, "1"), caller=ALICE, run_id="r")
    await gate.decide(pending.approval_id, Deny(by="bob"))
    assert isinstance(await gate.call(ToolCall("pay", '{"amount": 5.0}', "2"), caller=ALICE, run_id="r"), Denied)
    assert isinstance(await gate.call(ToolCall("pay", {"amount": 6}, "3"), caller=ALICE, run_id="r"), Pending)


async def test_f19_a_history_that_ends_with_a_gated_call_is_pending(world):
    history = [
        ModelRequest(parts=[UserPromptPart(content="pay")]),
        ModelResponse(parts=[ToolCallPart("pay", {"amount": 3}, "x")]),
    ]
    client = LLMClient(scripted_model("never", "done"))
    run = await client.run(prepare_call(world.gate, messages=history, caller=ALICE), create_run_hooks(world.gate))
    assert run.status == "paused"
    assert world.ran == []


async def test_f20_what_the_person_saw_is_what_runs():
    ran, halve = [], True

    async def hook(seen, go_on):
        amount = (
            seen.call.arguments["amount"] if isinstance(seen.call.arguments, dict) else json.loads(seen.call.arguments)["amount"]
        )
        if seen.approval is None:
            amount = amount // 2
        elif not halve:
            amount = amount * 100
        return await go_on(ToolCall(seen.call.name, {"amount": amount}, seen.call.id))

    @tool(kind="write", needs_approval=True)
    async def pay(amount: int) -> str:
        ran.append(amount)
        return f"paid {amount}"

    gate = Gate(ToolRegistry([pay]), policy=AllowAll(), hooks=[hook])
    first, second = [await gate.call(ToolCall("pay", {"amount": 100}, f"c{n}"), caller=ALICE, run_id="r") for n in range(2)]
    assert json.loads(first.approval.shown) == {"amount": 50}
    assert isinstance(await gate.decide(first.approval_id, Approve(by="bob")), Succeeded)
    halve = False
    changed = await gate.decide(second.approval_id, Approve(by="bob"))
    assert isinstance(changed, Denied)
    assert "approved" in changed.text
    assert ran == [50]


async def test_f21_an_input_parser_can_ask_for_a_person():
    ran = []

    class Write(BaseModel):
        path: str

        @field_validator("path")
        @classmethod
        def careful(cls, path):
            if path.startswith("/etc"):
                require_approval(f"{path} belongs to the system")
            return path.lower()

    async def write(value: Write) -> str:
        ran.append(value.path)
        return "written"

    def parse(arguments):
        if arguments.get("path") == "/etc":
            require_approval("the system's folder")
        return arguments["path"]

    async def write_parsed(path: str) -> str:
        ran.append(path)
        return "written"

    explicit = Tool("write", write, input=Write, kind="write")
    parsed = Tool("write_parsed", write_parsed, parse_input=parse, kind="write")
    for made in (explicit, parsed):
        gate = gate_for(made)
        place = {"caller": ALICE, "run_id": "r"}
        assert isinstance(await gate.call(ToolCall(made.name, {"path": "/tmp"}, "1"), **place), Succeeded)
        pending = await gate.call(ToolCall(made.name, {"path": "/etc"}, "2"), **place)
        assert isinstance(pending, Pending)
        assert "system" in pending.approval.reason
        assert isinstance(await gate.decide(pending.approval_id, Approve(by="bob")), Succeeded)
        direct = await gate.registry.answer(made.name, {"path": "/etc"})
        assert direct.is_error, "without a gate it is refused"
    assert ran == ["/tmp", "/etc", "/tmp", "/etc"]


async def test_f21_a_tool_that_has_begun_can_not_ask_any_more():
    @tool(kind="write")
    async def late() -> None:
        require_approval("too late")

    outcome = await gate_for(late).call(ToolCall("late"), caller=ALICE)
    assert isinstance(outcome, Failed)


async def test_f22_what_waits_is_stored_although_a_sibling_breaks_the_run(world):
    class Breaking(ToolPolicy):
        def decide(self, call):
            return Decision.ask() if call.tool.name == "pay" else {"allow": True}

    world.policy = Breaking()
    gate = world.rebuilt()
    client = LLMClient(scripted_model([ToolCall("pay", {"amount": 1}, "a"), ToolCall("look", {}, "b")]))
    with pytest.raises(UsageError):
        await client.run(prepare_call(gate, prompt="go", caller=ALICE, run_id="r"), create_run_hooks(gate))
    assert [approval.tool for approval in await gate.approvals(run_id="r")] == ["pay"]
    assert (await gate.store.run("r")).status == "failed"


async def test_f23_any_number_of_pauses_in_one_run_each_with_its_own_decision(world):
    script = (ToolCall("pay", {"amount": 1}, "a"), ToolCall("pay", {"amount": 2}, "b"), "done")
    run = await world.run(*script)
    for amount in (1, 2):
        assert [json.loads(pending.arguments)["amount"] for pending in run.pending] == [amount]
        run = await resume(world, run, *script, decisions=approve_all(run))
    assert run.status == "completed"
    assert world.ran == [("pay", 1), ("pay", 2)]


async def test_f24_everything_built_anew_from_configuration_does_not_ask_again(world):
    run = await world.run(STEP, "done")
    world.policy = RulePolicy.parse('default = "allow"\n[[rule]]\nid = "writes"\ndecision = "ask"\nkinds = ["write"]\n')
    run = await resume(world, run, STEP, "done", gate=world.rebuilt(), decisions=approve_all(run))
    assert run.status == "completed"


async def test_f25_a_denial_is_a_result_like_any_other_and_a_message_behind_it_does_no_harm(world):
    run = await world.run(STEP, "ok")
    run = await resume(world, run, STEP, "ok", decisions={run.pending[0].approval_id: Deny(by="bob")}, message="then tell me why")
    last = [message for message in run.messages if isinstance(message, ModelRequest)][-1]
    assert [type(part) for part in last.parts] == [ToolReturnPart] * 3 + [UserPromptPart]
    assert run.status == "completed"


async def test_f26_a_policy_that_cannot_be_applied_keeps_the_gate_from_being_made(world):
    class Refusing(AllowAll):
        def bind(self, catalog):
            raise UsageError("it cannot be applied here")

    with pytest.raises(UsageError):
        Gate(ToolRegistry([]), policy=Refusing())
    with pytest.raises(UsageError):
        world.gate.narrowed(Refusing())


async def test_f27_a_decision_of_another_shape_is_refused_at_once_and_a_denial_is_marked_as_a_reviewers(world):
    pending = await world.gate.call(ToolCall("pay", {"amount": 1}, "c"), caller=ALICE, run_id="r")
    with pytest.raises(UsageError, match=r"Approve\(by=…\)"):
        await world.gate.decide(pending.approval_id, {"allow": True})
    outcome = await world.gate.decide(pending.approval_id, Deny(by="bob", reason="no"))
    assert "by the reviewer bob" in outcome.text
    assert "error" not in outcome.text


async def test_f28_decisions_and_a_message_come_in_one_step(world):
    run = await world.run(STEP, "ok")
    run = await resume(world, run, STEP, "ok", decisions=approve_all(run), message="and be brief")
    last = [message for message in run.messages if isinstance(message, ModelRequest)][-1]
    assert last.parts[-1].content == "and be brief"
    assert world.ran.count(("pay", 5)) == 1


async def test_f20_an_edit_that_is_made_of_other_text_runs_as_it_was_validated(world, caplog):
    caplog.set_level(logging.CRITICAL)
    pending = await world.gate.call(ToolCall("pay", {"amount": 1}, "c"), caller=ALICE, run_id="r")
    outcome = await world.gate.decide(pending.approval_id, Edit(by="bob", arguments='{"amount": "7"}'))
    assert outcome.text == '"paid 7"'
