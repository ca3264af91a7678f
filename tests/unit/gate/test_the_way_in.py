"""What stands between a call and its tool: nothing that a policy, a hook or a caller does at the wrong moment lets it through."""

import asyncio
import time
from dataclasses import replace

import pytest

from callgate import (
    AbortController,
    Approve,
    Caller,
    Denied,
    Edit,
    ExecutionOptions,
    Failed,
    Gate,
    Pending,
    Succeeded,
    ToolCall,
    ToolRegistry,
    UsageError,
    tool,
)
from callgate.errors import ApprovalRequiredError, ToolNotOfferedError
from callgate.policy import AllowAll, Budget, Decision, ToolPolicy, Verdict
from callgate.store import MemoryStore, SQLStore

ALICE = Caller("alice")
PATIENCE_S = 20.0


class Stop(Exception):
    """Be a caller's reason."""


class Saying(ToolPolicy):
    """Decide by a function of the call."""

    def __init__(self, say):
        self.say = say

    def decide(self, call):
        return self.say(call)


@pytest.fixture
def ran():
    return []


@pytest.fixture
def refund(ran):
    @tool(kind="write", name="refund")
    async def refund(amount: int) -> str:
        ran.append(amount)
        return f"refunded {amount}"

    return refund


def call(amount=1, call_id=None):
    return ToolCall("refund", {"amount": amount}, call_id)


@pytest.mark.parametrize("verdict", ["deny", "allow", 2, 0, None, True])
async def test_what_is_no_verdict_denies(refund, ran, verdict):
    with pytest.raises(UsageError, match=r"Verdict\.ALLOW, ASK or DENY"):
        Decision(verdict)
    gate = Gate(ToolRegistry([refund]), policy=Saying(lambda _: Decision(verdict)))
    assert (type(await gate.call(call(), caller=ALICE)), ran) == (Denied, [])


def test_what_is_no_budget_is_refused():
    assert Decision.allow(budgets=(Budget("c", 1, "no"),)).verdict is Verdict.ALLOW
    with pytest.raises(UsageError, match="Budget"):
        Decision.allow(budgets=("c",))
    for facts in ((1, 1, "no"), ("c", "1", "no"), ("c", 1.5, "no"), ("c", True, "no"), ("c", 1, None)):
        with pytest.raises(UsageError, match="a whole number"):
            Budget(*facts)


async def test_a_person_sees_what_runs_whatever_the_policy_makes_of_its_own_copy(refund, ran):
    def meddle(asked):
        asked.arguments["amount"] = 999
        return Decision.ask("large")

    gate = Gate(ToolRegistry([refund]), policy=Saying(meddle))
    pending = await gate.call(call(5), caller=ALICE)
    assert pending.approval.shown == '{"amount": 5}'
    assert isinstance(await gate.decide(pending.approval_id, Approve(by="bob")), Succeeded)
    assert ran == [5]


async def test_a_check_of_the_offer_that_fails_denies_and_one_that_would_have_to_be_awaited_runs_nothing(refund, ran):
    class Failing(AllowAll):
        def assert_offered_in_step(self, name, offered):
            raise KeyError("secret")

    class Async(AllowAll):
        async def assert_offered_in_step(self, name, offered):
            raise AssertionError("nobody waits for it")

    outcome = await Gate(ToolRegistry([refund]), policy=Failing()).call(call(), caller=ALICE, tools=["refund"])
    assert (type(outcome), "secret" in outcome.text) == (Denied, False)
    with pytest.raises(UsageError, match="must not be async"):
        await Gate(ToolRegistry([refund]), policy=Async()).call(call(), caller=ALICE, tools=["refund"])
    assert ran == []


async def test_a_check_of_the_tools_that_would_have_to_be_awaited_makes_no_gate(refund):
    class Async(AllowAll):
        async def bind(self, catalog):
            raise AssertionError("nobody waits for it")

    registry = ToolRegistry([refund])
    with pytest.raises(UsageError, match="must not be async"):
        Gate(registry, policy=Async())
    with pytest.raises(UsageError, match="must not be async"):
        Gate(registry, policy=AllowAll()).narrowed(Async())


async def ask_late(_call):
    raise ApprovalRequiredError("refund", "large")


def ask_at_once(_call):
    raise ApprovalRequiredError("refund", "large")


def meddle(asked):
    asked.arguments["amount"], asked.tool, asked.caller = 0, None, None
    return Decision.allow()


@pytest.mark.parametrize("first", [ask_at_once, ask_late, meddle])
@pytest.mark.parametrize("turned", [False, True])
async def test_of_two_policies_the_stricter_holds_whatever_the_other_does(refund, ran, first, turned):
    policies = Saying(first), Saying(lambda asked: Decision.deny("no") if asked.arguments["amount"] else Decision.allow())
    one, other = reversed(policies) if turned else policies
    gate = Gate(ToolRegistry([refund]), policy=one).narrowed(other)
    assert (type(await gate.call(call(), caller=ALICE)), ran) == (Denied, [])


async def test_what_a_narrower_policy_refuses_to_offer_is_refused(refund, ran):
    class Refusing(AllowAll):
        def assert_offered_in_step(self, name, offered):
            raise ToolNotOfferedError(name)

    class Async(AllowAll):
        async def assert_offered_in_step(self, name, offered):
            raise AssertionError("nobody waits for it")

    for policy in (Refusing(), Async()):
        gate = Gate(ToolRegistry([refund]), policy=AllowAll()).narrowed(policy)
        assert (await gate.call(call(), caller=ALICE, tools=["refund"])).is_error
    assert ran == []


async def test_what_a_policy_makes_of_the_tool_it_is_asked_about_spares_no_approval(ran):
    @tool(kind="write", needs_approval=True)
    async def refund(amount: int) -> None:
        ran.append(amount)

    @tool(kind="read", name="refund")
    async def harmless(amount: int) -> None:
        raise AssertionError("it is never called")

    def exchange(asked):
        asked.tool = harmless
        return Decision.allow()

    outcome = await Gate(ToolRegistry([refund]), policy=Saying(exchange)).call(call(), caller=ALICE)
    assert (type(outcome), ran) == (Pending, [])


async def test_an_edit_is_judged_by_what_the_policy_sees_and_runs_as_it_was_written(refund, ran):
    def judge(asked):
        asked.arguments["amount"] += 1
        return Decision.ask("large")

    gate = Gate(ToolRegistry([refund]), policy=Saying(judge))
    pending = await gate.call(call(), caller=ALICE)
    assert isinstance(await gate.decide(pending.approval_id, Edit(by="bob", arguments={"amount": 7})), Succeeded)
    assert ran == [7]


async def test_an_offer_may_be_an_iterator(refund, ran):
    gate = Gate(ToolRegistry([refund]), policy=AllowAll())
    assert isinstance(await gate.call(call(1), caller=ALICE, tools=iter(["refund"])), Succeeded)
    outcomes = await gate.call_many([call(2), call(3)], caller=ALICE, tools=iter(["refund"]))
    assert [type(outcome) for outcome in outcomes] == [Succeeded, Succeeded]
    assert sorted(ran) == [1, 2, 3]


async def test_an_approval_for_the_rest_of_a_run_needs_a_run(refund, ran):
    gate = Gate(ToolRegistry([refund]), policy=Saying(lambda _: Decision.ask("large")))
    pending = await gate.call(call(), caller=ALICE)
    with pytest.raises(UsageError, match="belongs to no run"):
        await gate.decide(pending.approval_id, Approve(by="bob", remember="run"))
    assert (await gate.grants(), ran) == ([], [])
    assert isinstance(await gate.call(call(2), caller=ALICE), Pending)
    assert isinstance(await gate.decide(pending.approval_id, Approve(by="bob")), Succeeded)


@pytest.mark.parametrize("run_id", [None, "r"])
async def test_a_hook_that_goes_on_twice_at_once_lets_nothing_run_that_was_not_judged(refund, ran, run_id):
    async def judge(amount):
        await asyncio.sleep(0.01 if amount == 1 else 0.05)
        return Decision.allow() if amount == 1 else Decision.deny("too much")

    async def twice(seen, go_on):
        other = replace(seen.call, arguments={"amount": 5000})
        return (await asyncio.gather(go_on(seen.call), go_on(other)))[0]

    policy = Saying(lambda asked: judge(asked.arguments["amount"]))
    gate = Gate(ToolRegistry([refund]), policy=policy, hooks=[twice])
    outcome = await gate.call(call(1, "c"), caller=ALICE, run_id=run_id)
    assert (type(outcome), ran) == (Succeeded, [1])


async def test_a_hook_that_goes_on_twice_runs_the_tool_once(refund, ran):
    async def twice(seen, go_on):
        await go_on(seen.call)
        return await go_on(seen.call)

    gate = Gate(ToolRegistry([refund]), policy=AllowAll(), hooks=[twice])
    outcome = await gate.call(call(1, "c"), caller=ALICE, run_id="r")
    assert (type(outcome), outcome.replayed, ran) == (Succeeded, True, [1])


def deciding(kind, controller):
    """Make a policy that is at work when the caller aborts."""

    async def later():
        controller.abort(Stop())
        await asyncio.sleep(PATIENCE_S if kind == "hangs" else 0)
        return Decision.allow()

    def at_once(_):
        controller.abort(Stop())
        return Decision.allow()

    return Saying(at_once if kind == "at once" else lambda _: later())


@pytest.mark.parametrize("kind", ["at once", "later", "hangs"])
async def test_a_call_that_is_aborted_while_it_is_judged_does_not_run(refund, ran, kind):
    controller, store = AbortController(), MemoryStore()
    gate = Gate(ToolRegistry([refund]), policy=deciding(kind, controller), store=store)
    async with asyncio.timeout(PATIENCE_S / 2):
        with pytest.raises(Stop):
            await gate.call(call(1, "c"), caller=ALICE, run_id="r", signal=controller.signal)
    assert (ran, await store.call("r/c")) == ([], ())


async def test_a_call_that_is_aborted_while_its_start_is_written_does_not_run_and_has_its_end(refund, ran, tmp_path):
    controller = AbortController()

    class Slow(SQLStore):
        async def start(self, entry):
            answer = await super().start(entry)
            controller.abort(Stop())
            return answer

    store = Slow(f"sqlite:///{tmp_path / 'gate.db'}")
    gate = Gate(ToolRegistry([refund]), policy=AllowAll(), store=store)
    with pytest.raises(Stop):
        await gate.call(call(1, "c"), caller=ALICE, run_id="r", signal=controller.signal)
    assert ran == []
    assert [(record.event, record.status) for record in await store.call("r/c")] == [("started", None), ("finished", "aborted")]
    await gate.aclose()


async def test_a_policy_that_hangs_holds_a_call_no_longer_than_its_deadline(refund, ran):
    async def never(_):
        await asyncio.sleep(PATIENCE_S)

    gate = Gate(ToolRegistry([refund]), policy=Saying(never))
    options = ExecutionOptions(deadline=time.monotonic() + 0.05)
    async with asyncio.timeout(PATIENCE_S / 2):
        outcome = await gate.call(call(), caller=ALICE, options=options)
    assert (type(outcome), outcome.error.status, ran) == (Failed, 504, [])
