"""How a run ends when the store, the model, the program or whoever waits for it gives up, at every moment of it."""

import asyncio
import contextlib
import json
from dataclasses import replace
from functools import partial

import pytest
from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel

from callgate import (
    AbortController,
    AbortedError,
    Approve,
    Caller,
    ConflictError,
    Deny,
    Edit,
    Gate,
    InvalidInputError,
    NotFoundError,
    PolicyError,
    RunStateError,
    StoreError,
    ToolCall,
    ToolRegistry,
    UsageError,
    tool,
)
from callgate.agent import LLMClient, RunState, create_run_hooks, prepare_call
from callgate.policy import RulePolicy
from callgate.profiles import Limits, Profile, ProfileStore
from callgate.store import MemoryStore, SQLStore
from callgate.testing import ManualClock, scripted_model

ALICE = Caller("alice")
RULES = 'default = "allow"\n[[rule]]\nid = "w"\ndecision = "ask"\nkinds = ["write"]\n'
STEP = [ToolCall("look", {"number": 1}, "a"), ToolCall("pay", {"amount": 5}, "b")]


class World:
    """Be a store, gates over it, and what ran."""

    def __init__(self, store):
        self.ran, self.store = [], store
        self.gate = self.rebuilt()

    def rebuilt(self, **more):
        @tool(kind="read")
        async def look(number: int = 0) -> int:
            self.ran.append(("look", number))
            return number

        @tool(kind="write")
        async def pay(amount: int) -> str:
            self.ran.append(("pay", amount))
            return f"paid {amount}"

        return Gate(ToolRegistry([look, pay]), policy=RulePolicy.parse(RULES), store=self.store, **more)

    def prepared(self, gate=None, **more):
        return prepare_call(gate or self.gate, **{"prompt": "go", "caller": ALICE, "run_id": "r", **more})

    async def run(self, *turns, gate=None, **more):
        gate = gate or self.gate
        return await LLMClient(scripted_model(*turns)).run(self.prepared(gate, **more), create_run_hooks(gate))

    async def resume(self, *turns, gate=None, **more):
        return await LLMClient(scripted_model(*turns)).resume("r", create_run_hooks(gate or self.gate), **more)

    async def stored(self):
        record = await self.store.run("r")
        return record, RunState.load(record.state)


@pytest.fixture(params=["memory", "sqlite"])
async def world(request, tmp_path):
    store = MemoryStore() if request.param == "memory" else SQLStore(f"sqlite:///{tmp_path / 'runs.db'}")
    yield World(store)
    await store.aclose()


def results(state):
    """Give how many results each call of a stored history has."""
    found = {}
    for message in state.messages:
        for part in message["parts"]:
            if part["part_kind"] == "tool-call":
                found[part["tool_call_id"]] = found.get(part["tool_call_id"], 0)
            elif part["part_kind"] == "tool-return":
                found[part["tool_call_id"]] += 1
    return found


class CountingStore:
    """Be a store that tells of each save, before or after it."""

    def __init__(self, store, moments):
        self._store, self._moments = store, moments

    def __getattr__(self, name):
        found = getattr(self._store, name)
        if name not in {"create_run", "save_run", "forget", "run"}:
            return found

        async def slow(*args, **keywords):
            await self._moments(name, "before")
            answer = await found(*args, **keywords)
            await self._moments(name, "after")
            return answer

        return slow


class Moments:
    """Cancel a task at the n-th moment at which it waits for the store."""

    def __init__(self, wanted):
        self.wanted, self.seen, self.task, self.place = wanted, 0, None, None

    async def __call__(self, name, when):
        self.seen += 1
        if self.seen == self.wanted:
            self.place = f"{when} {name}"
            self.task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


@pytest.mark.parametrize("moment", range(1, 18))
async def test_a_run_that_is_cancelled_while_the_store_works_is_stored_as_stopped_or_as_over(moment):
    moments, store = Moments(moment), MemoryStore()
    world = World(CountingStore(store, moments))
    moments.task = asyncio.ensure_future(world.run([STEP[0], ToolCall("look", {"number": 2}, "c")], "done"))
    try:
        await moments.task
    except asyncio.CancelledError:
        record = await store.run("r")
        if record is None:
            return
        assert record.status in {"stopped", "completed"}, moments.place
        state = RunState.load(record.state)
        assert state.calls == []
        assert set(results(state).values()) <= {1}
        with pytest.raises(ConflictError, match="over"):
            await world.resume()
    else:
        assert moments.seen < moment


@pytest.mark.parametrize("moment", range(1, 20))
async def test_a_resume_that_is_cancelled_while_the_store_works_leaves_a_run_that_is_over_or_goes_on(moment):
    store = MemoryStore()
    paused = await World(store).run(STEP, "done")
    moments = Moments(moment)
    world = World(CountingStore(store, moments))
    decisions = {paused.pending[0].approval_id: Approve(by="bob")}
    moments.task = asyncio.ensure_future(world.resume(STEP, "done", decisions=decisions))
    try:
        await moments.task
    except asyncio.CancelledError:
        record = await store.run("r")
        assert record.status in {"stopped", "completed", "paused"}, moments.place
        if record.status == "paused":
            assert (await World(store).resume(STEP, "done")).status in {"completed", "paused"}
        else:
            assert set(results(RunState.load(record.state)).values()) == {1}
        assert world.ran.count(("pay", 5)) <= 1
    else:
        assert moments.seen < moment


async def test_a_store_that_cannot_store_the_end_does_not_hide_why_the_run_ended(world):
    begun = asyncio.Event()

    @tool(kind="read")
    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def unreachable(run):
        raise StoreError("the disk is full")

    going = asyncio.ensure_future(world.run(ToolCall("hang", {}, "a"), tools=[hang]))
    await begun.wait()
    world.store.save_run = unreachable
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going


async def test_a_store_that_cannot_forget_leaves_a_completed_run_completed(world):
    async def unreachable(run_id):
        raise StoreError("gone")

    world.store.forget = unreachable
    assert (await world.run("done")).status == "completed"
    assert (await world.stored())[0].status == "completed"


async def test_a_fault_of_the_program_leaves_a_run_that_a_resume_finishes(world):
    async def broken(seen, proceed):
        raise BaseExceptionGroup("no hook of ours", [KeyboardInterrupt()])

    with pytest.raises(BaseExceptionGroup):
        await world.run(STEP, "done", gate=world.rebuilt(hooks=[broken]))
    record, state = await world.stored()
    assert (record.status, state.error) == ("failed", "the program failed: BaseExceptionGroup")
    run = await world.resume(STEP, "done")
    assert run.status in {"completed", "paused"}


async def test_what_waits_when_the_program_fails_still_waits_when_it_was_mended(world):
    run = await world.run(STEP, "done")
    gate = world.rebuilt()

    async def broken(*_, **__):
        raise ZeroDivisionError

    gate.call_many = broken
    with pytest.raises(ZeroDivisionError):
        await world.resume(STEP, "done", gate=gate)
    assert (await world.stored())[0].status == "failed"
    run = await world.resume(STEP, "done", decisions={run.pending[0].approval_id: Approve(by="bob")})
    assert (run.status, run.error) == ("completed", None)
    assert world.ran == [("look", 1), ("pay", 5)]


async def test_two_gates_of_one_process_are_not_both_at_a_run(world):
    begun, on = asyncio.Event(), asyncio.Event()

    @tool(kind="read")
    async def wait() -> str:
        begun.set()
        await on.wait()
        return "waited"

    going = asyncio.ensure_future(world.run(ToolCall("wait", {}, "a"), "done", tools=[wait]))
    await begun.wait()
    with pytest.raises(ConflictError, match="elsewhere"):
        await world.resume("done", gate=world.rebuilt())
    on.set()
    assert (await going).status == "completed"


async def test_of_two_resumes_at_any_distance_one_goes_on():
    for distance in range(40):
        store = MemoryStore()
        paused = await World(store).run(STEP, "done")
        world = World(CountingStore(store, Moments(0)))
        await world.gate.record(paused.pending[0].approval_id, Approve(by="bob"))

        async def later(world=world, distance=distance):
            for _ in range(distance):
                await asyncio.sleep(0)
            return await world.resume(STEP, "done")

        ends = await asyncio.gather(world.resume(STEP, "done"), later(), return_exceptions=True)
        assert sorted(type(end).__name__ for end in ends) == ["ConflictError", "Run"], distance
        assert world.ran == [("pay", 5)]


async def test_a_stopped_run_has_nothing_left_that_somebody_could_approve(world):
    run = await world.run(STEP, "done")
    await LLMClient(scripted_model()).stop("r", create_run_hooks(world.gate))
    assert await world.gate.approvals() == []
    with pytest.raises(ConflictError):
        await world.gate.decide(run.pending[0].approval_id, Approve(by="bob"))
    assert world.ran == [("look", 1)]


async def test_a_run_is_stopped_although_its_loop_stores_meanwhile(world):
    await world.run(STEP, "done")
    load, raced = world.store.run, []

    async def raced_run(run_id):
        found = await load(run_id)
        if not raced:
            raced.append(found)
            await world.store.save_run(found)
        return found

    world.store.run = raced_run
    stopped = await LLMClient(scripted_model()).stop("r", create_run_hooks(world.gate))
    assert (stopped.status, stopped.error) == ("stopped", "it was stopped")


async def test_a_decision_about_another_run_decides_nothing_of_this_one(world):
    run = await world.run(STEP, "done")
    decisions = {run.pending[0].approval_id: Approve(by="bob"), "apr_none": Approve(by="bob")}
    with pytest.raises(Exception, match="apr_none"):
        await world.resume(STEP, "done", decisions=decisions)
    assert (await world.gate.approval(run.pending[0].approval_id)).state == "pending"
    assert (await world.stored())[0].status == "paused"


def without_message(state):
    return {**state, "messages": state["messages"][:-1]}


DAMAGES = {
    "messages of no kind": lambda state: {**state, "messages": [{"kind": "nonsense"}]},
    "no messages": lambda state: {**state, "messages": [], "calls": []},
    "calls that the history does not have": without_message,
    "a history with calls that nobody answers": lambda state: {**state, "calls": []},
    "another run": lambda state: {**state, "run_id": "other"},
    "tokens below nothing": lambda state: {**state, "input_tokens": -1},
    "blocks that are none": lambda state: {
        **state,
        "calls": [{**state["calls"][0], "result": {"text": "", "outcome": "success", "blocks": [{"type": "image"}]}}],
    },
    "a limit that is no number": lambda state: {**state, "limits": {**state["limits"], "cost": float("nan")}},
}


@pytest.mark.parametrize("damage", [*DAMAGES, "too deep"])
async def test_a_damaged_run_is_refused_before_anything_is_decided_or_changed(world, damage):
    run = await world.run(STEP[1], "done")
    record = await world.store.run("r")
    text = "[" * 100_000 if damage == "too deep" else json.dumps(DAMAGES[damage](json.loads(record.state)))
    assert await world.store.save_run(replace(record, state=text))
    client, hooks = LLMClient(scripted_model()), create_run_hooks(world.gate)
    decisions = {run.pending[0].approval_id: Approve(by="bob")}
    for doing in (partial(client.resume, decisions=decisions), client.report, client.stop):
        with pytest.raises(RunStateError, match="damaged"):
            await doing("r", hooks)
    assert (await world.store.run("r")).status == "paused"
    assert (await world.gate.approval(run.pending[0].approval_id)).state == "pending"


async def test_a_policy_file_that_is_gone_leaves_the_paused_run_paused(world, tmp_path):
    file = tmp_path / "narrow.toml"
    file.write_text('default = "allow"\n')
    await world.run(STEP, "done", profile=Profile(name="p", policy=str(file)))
    file.unlink()
    with pytest.raises(UsageError):
        await world.resume(STEP, "done")
    assert (await world.stored())[0].status == "paused"
    file.write_text('default = "deny"\n')
    run = await world.resume(STEP, "done")
    assert run.status == "paused", "what waits still waits; it is judged when it is to run"


async def test_a_policy_of_cedar_narrows_a_profile_as_one_of_rules_does(world, tmp_path):
    file = tmp_path / "narrow.cedar"
    file.write_text('permit (principal, action == Action::"call", resource == Tool::"look");')
    run = await world.run(STEP, "done", profile=Profile(name="p", policy=str(file)))
    assert run.status == "completed"
    assert world.ran == [("look", 1)]
    file.write_text("permit (")
    with pytest.raises(PolicyError):
        await world.run(STEP, "done", run_id="other", profile=Profile(name="p", policy=str(file)))


async def test_a_model_that_cannot_be_made_leaves_the_paused_run_paused(world):
    await world.run(STEP, "done")
    for model in ("nobody:none", "", 5):
        with pytest.raises(UsageError, match="model"):
            await LLMClient(model).resume("r", create_run_hooks(world.gate))
    assert (await world.stored())[0].status == "paused"


async def test_what_the_user_says_at_a_resume_is_stored_before_the_model_is_asked(world):
    def raising(messages, info):
        raise ZeroDivisionError

    async def failing(messages, info):
        raise ZeroDivisionError
        yield ""

    with pytest.raises(ZeroDivisionError):
        await LLMClient(FunctionModel(stream_function=failing)).run(world.prepared(), create_run_hooks(world.gate))
    saved, save = [], world.store.save_run

    async def noting(run):
        saved.append(run)
        return await save(run)

    world.store.save_run = noting
    run = await world.resume("fine", message="be brief")
    assert run.status == "completed"
    assert "be brief" in saved[0].state


async def test_tools_that_are_handed_in_twice_are_offered_once(world):
    seen = []

    @tool(kind="read")
    async def extra() -> int:
        return 1

    async def model(messages, info):
        seen.append([each.name for each in info.function_tools])
        yield "ok"

    hooks = create_run_hooks(world.gate, tools=[extra])
    await LLMClient(FunctionModel(stream_function=model)).run(world.prepared(tools=[extra]), hooks)
    assert seen == [["look", "pay", "extra"]]


def test_an_additional_tool_of_a_resume_may_not_take_the_name_of_a_registered_one(world):
    @tool(kind="read", name="pay")
    async def other() -> int:
        return 1

    with pytest.raises(UsageError):
        create_run_hooks(world.gate, tools=[other])


async def test_a_registered_tool_does_not_stand_in_for_one_that_the_run_had_brought_along(world):
    begun = asyncio.Event()

    @tool(kind="read")
    async def extra() -> str:
        begun.set()
        return await asyncio.Event().wait()

    @tool(kind="read", name="extra")
    async def other() -> None:
        world.ran.append("other")

    async def die(run):
        raise StoreError("gone")

    save = world.store.save_run
    going = asyncio.ensure_future(world.run([ToolCall("extra", {}, "a"), ToolCall("extra", {}, "b")], "done", tools=[extra]))
    await begun.wait()
    world.store.save_run = die
    going.cancel()
    await asyncio.wait([going])
    world.store.save_run = save
    state = json.loads((await world.store.run("r")).state)
    calls = [{**call, "id": f"{call['id']}~new"} for call in state["calls"]]
    messages = json.loads(json.dumps(state["messages"]).replace('"a"', '"a~new"').replace('"b"', '"b~new"'))
    record = await world.store.run("r")
    await save(replace(record, state=json.dumps({**state, "calls": calls, "messages": messages})))
    gate = Gate(ToolRegistry([other]), policy=RulePolicy.parse('default = "allow"'), store=world.store)
    run = await world.resume("never", "done", gate=gate)
    assert (run.status, world.ran) == ("completed", [])


def test_settings_that_cannot_be_stored_are_refused_before_anything_runs(world):
    async def go():
        with pytest.raises(UsageError, match="JSON"):
            await world.run("done", settings={"x": object()})
        assert await world.store.run("r") is None

    asyncio.run(go())


async def test_a_limit_that_is_reached_exactly_ends_the_run(world):
    run = await world.run(STEP[0], "never", limits=Limits(steps=1))
    assert (run.status, run.steps) == ("stopped", 1)
    assert world.ran == [("look", 1)]


async def test_an_abort_before_the_first_step_ends_the_run_without_a_request(world):
    controller = AbortController()
    controller.abort("no more")
    asked = []

    async def model(messages, info):
        asked.append(1)
        yield "ok"

    with pytest.raises(Exception, match="no more"):
        await LLMClient(FunctionModel(stream_function=model)).run(
            world.prepared(signal=controller.signal), create_run_hooks(world.gate)
        )
    assert asked == []
    assert (await world.stored())[0].status == "stopped"


@pytest.mark.parametrize(
    "wrong",
    [
        {"prompt": 5},
        {"prompt": b"go"},
        {"run_id": 5},
        {"thread_id": 5},
        {"caller": "alice"},
        {"instructions": 5},
        {"settings": {"x": object()}},
        {"settings": {5: 1}},
        {"profile": 5},
        {"profile": Profile(name="p", settings={"x": object()})},
    ],
    ids=[
        "prompt",
        "prompt of bytes",
        "run_id",
        "thread_id",
        "caller",
        "instructions",
        "settings",
        "settings without names",
        "profile",
        "settings of the profile",
    ],
)
async def test_a_run_that_cannot_be_is_refused_before_anything_is_stored(world, wrong):
    with pytest.raises(UsageError):
        await world.run("done", **wrong)
    assert await world.store.runs() == []


@pytest.mark.parametrize("message", [5, b"x"])
async def test_a_message_that_is_no_text_is_refused_and_the_run_waits_on(world, message):
    await world.run(STEP, "done")
    with pytest.raises(UsageError):
        await world.resume(STEP, "done", message=message)
    assert (await world.stored())[0].status == "paused"


async def test_a_time_out_of_the_models_own_is_no_deadline_of_the_run(world, caplog):
    async def slow(messages, info):
        raise TimeoutError("secret")
        yield ""

    run = await LLMClient(FunctionModel(stream_function=slow)).run(world.prepared(), create_run_hooks(world.gate))
    assert (run.status, run.error) == ("failed", "the model did not answer: TimeoutError")
    assert "secret" in caplog.text, "what the provider said is for whoever runs the program"


@pytest.mark.parametrize("kept", ["{", "[]", '{"name": "p", "unknown": 1}', '{"name": "other"}', "[" * 100_000])
async def test_a_kept_profile_that_is_damaged_is_refused_by_its_name(world, kept):
    await world.store.put_profile("p", kept)
    with pytest.raises(UsageError, match="'p'"):
        await world.run("done", profile="p")


@pytest.mark.parametrize("name", ["\0", "..", "../p", "a/b", "", "folder", "unreadable", "q"])
async def test_a_profile_of_a_folder_with_an_odd_name_is_not_found_or_refused(world, tmp_path, name):
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "q.toml").write_text('name = "other"')
    (tmp_path / "unreadable.toml").symlink_to(tmp_path / "unreadable.toml")
    with pytest.raises((NotFoundError, UsageError)):
        await ProfileStore(world.gate.registry, folder=tmp_path).get(name)


@pytest.mark.parametrize("wrong", [{"limits": {"steps": 1}}, {"settings": {"x": object()}}, {"settings": {"x": float("nan")}}])
async def test_a_profile_that_cannot_be_kept_is_refused(world, wrong):
    with pytest.raises(UsageError):
        await ProfileStore(world.gate.registry, store=world.store).put(Profile(name="p", **wrong))
    assert await world.store.profiles() == {}


@pytest.mark.parametrize(
    "decision",
    [Edit(by="bob", arguments=None), Edit(by="bob", arguments=5), Deny(by="bob", reason=5), Deny(by="bob", reason=None)],
)
async def test_a_decision_with_parts_that_are_none_decides_nothing(world, decision):
    run = await world.run(STEP, "done")
    with pytest.raises(UsageError):
        await world.resume(STEP, "done", decisions={run.pending[0].approval_id: decision})
    assert (await world.gate.approval(run.pending[0].approval_id)).state == "pending"


async def test_what_nobody_approved_in_time_is_told_to_the_model_when_the_run_goes_on(world):
    clock = ManualClock()
    gate = world.rebuilt(clock=clock, approval_ttl_s=60)
    run = await world.run(STEP, "done", gate=gate)
    clock.advance(61)
    with pytest.raises(ConflictError, match="expired"):
        await world.resume(STEP, "done", gate=gate, decisions={run.pending[0].approval_id: Approve(by="bob")})
    assert (await world.stored())[0].status == "paused"
    run = await world.resume(STEP, "done", gate=gate)
    assert run.status == "completed"
    assert "nobody approved it in time" in json.dumps((await world.stored())[1].messages)
    assert world.ran == [("look", 1)]


@pytest.mark.parametrize("arguments", ['{"amount": "x"}', "{", {"amount": 5, "other": 1}, "[]"])
async def test_an_edit_that_does_not_fit_leaves_the_run_as_it_was(world, arguments):
    run = await world.run(STEP, "done")
    edit = {run.pending[0].approval_id: Edit(by="bob", arguments=arguments)}
    with pytest.raises(InvalidInputError):
        await world.resume(STEP, "done", decisions=edit)
    assert (await world.stored())[0].status == "paused"
    edit = {run.pending[0].approval_id: Edit(by="bob", arguments={"amount": 7})}
    assert (await world.resume(STEP, "done", decisions=edit)).status == "completed"
    assert world.ran == [("look", 1), ("pay", 7)]


async def test_of_many_runs_of_one_id_one_runs(world):
    gates = [world.rebuilt() for _ in range(8)]
    ends = await asyncio.gather(*[world.run(STEP[0], "done", gate=gate) for gate in gates], return_exceptions=True)
    assert sum(isinstance(end, ConflictError) for end in ends) == 7
    assert world.ran == [("look", 1)]


async def test_a_resume_waits_for_an_approved_call_that_somebody_else_runs_at_the_moment(world):
    begun, on = asyncio.Event(), asyncio.Event()

    @tool(kind="write")
    async def pay(amount: int) -> str:
        begun.set()
        await on.wait()
        world.ran.append(("pay", amount))
        return f"paid {amount}"

    gate = Gate(ToolRegistry([pay]), policy=RulePolicy.parse(RULES), store=world.store)
    run = await world.run(STEP[1], "done", gate=gate)
    deciding = asyncio.ensure_future(gate.decide(run.pending[0].approval_id, Approve(by="bob")))
    await begun.wait()
    resuming = asyncio.ensure_future(world.resume(STEP[1], "done", gate=gate))
    await asyncio.sleep(0.1)
    assert not resuming.done()
    on.set()
    assert (await deciding).text == '"paid 5"'
    assert (await resuming).status == "completed"
    assert world.ran == [("pay", 5)]
    assert '"paid 5"' in json.dumps((await world.stored())[1].messages).replace("\\", "")


async def test_a_resume_that_waits_for_somebody_else_hears_an_abort_and_a_deadline(world):
    begun, on, controller = asyncio.Event(), asyncio.Event(), AbortController()

    @tool(kind="write")
    async def pay(amount: int) -> str:
        begun.set()
        await on.wait()
        return f"paid {amount}"

    gate = Gate(ToolRegistry([pay]), policy=RulePolicy.parse(RULES), store=world.store)
    run = await world.run(STEP[1], "done", gate=gate)
    deciding = asyncio.ensure_future(gate.decide(run.pending[0].approval_id, Approve(by="bob")))
    await begun.wait()
    client = LLMClient(scripted_model(STEP[1], "done"))
    resuming = asyncio.ensure_future(client.resume("r", create_run_hooks(gate, signal=controller.signal)))
    await asyncio.sleep(0.1)
    controller.abort("enough")
    with pytest.raises(AbortedError, match="enough"):
        await asyncio.wait_for(resuming, 10)
    on.set()
    await deciding
    assert (await world.stored())[0].status == "stopped"


async def test_decisions_of_many_clients_in_any_order_run_each_call_once(world):
    step = [ToolCall("pay", {"amount": n}, f"p{n}") for n in range(6)]
    run = await world.run(step, "done")
    ids = [pending.approval_id for pending in run.pending]

    async def client(order):
        for approval_id in order:
            with contextlib.suppress(ConflictError):
                await world.resume(step, "done", gate=world.rebuilt(), decisions={approval_id: Approve(by="bob")})

    await asyncio.gather(client(ids), client(ids[::-1]), client(ids[3:] + ids[:3]))
    record, _ = await world.stored()
    if record.status == "paused":  # the last decisions came while another client was at it
        await world.resume(step, "done")
    record, state = await world.stored()
    assert record.status == "completed"
    assert sorted(amount for _, amount in world.ran) == list(range(6))
    assert set(results(state).values()) == {1}


# ── histories that are handed in ─────────────────────────────────────────────────────────────────────────────────────────


def said(*parts):
    return ModelResponse(parts=list(parts))


def asked(*parts):
    return ModelRequest(parts=list(parts))


USER = UserPromptPart(content="pay")


async def history_of(world, history, **more):
    run = await world.run("never", "never", "never", "done", messages=history, **more)
    assert run.status == "completed"
    return results((await world.stored())[1])


async def test_calls_of_a_history_that_share_an_id_get_ids_of_their_own(world):
    history = [
        asked(USER),
        said(ToolCallPart("look", {}, "a")),
        asked(ToolReturnPart("look", "1", "a")),
        said(ToolCallPart("look", {"number": 1}, "a"), ToolCallPart("look", {"number": 2}, "b"), ToolCallPart("look", {}, "b")),
    ]
    found = await history_of(world, history, prompt=None)
    assert list(found.values()) == [1, 1, 1, 1]
    assert [number for _, number in world.ran] == [1, 2, 0]


async def test_a_history_with_calls_that_were_never_answered_gets_a_result_for_each(world):
    history = [
        asked(USER),
        said(ToolCallPart("look", {}, "a"), ToolCallPart("look", {}, "b")),
        asked(ToolReturnPart("look", "1", "a"), UserPromptPart(content="and?")),
        said(ToolCallPart("look", {}, "c")),
        asked(UserPromptPart(content="well?")),
    ]
    assert await history_of(world, history) == {"a": 1, "b": 1, "c": 1}
    assert world.ran == []


@pytest.mark.parametrize(
    "history",
    [
        [asked(USER), said(ToolCallPart("look", {"x": object()}, "a")), asked(ToolReturnPart("look", object(), "a"))],
        [asked(USER, "text")],
        [asked(USER), said(object())],
    ],
    ids=["a result", "a text", "a part"],
)
def test_a_history_that_cannot_be_stored_is_refused(world, history):
    with pytest.raises(UsageError, match="message"):
        world.prepared(prompt="go", messages=history)


def test_a_history_that_ends_with_an_answer_needs_a_prompt(world):
    with pytest.raises(UsageError, match="prompt"):
        world.prepared(prompt=None, messages=[asked(USER), ModelResponse(parts=[])])
    with pytest.raises(UsageError, match="message"):
        world.prepared(messages=["a text"])
