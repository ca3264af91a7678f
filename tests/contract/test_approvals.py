"""Rows A3 and A5: a call that asks is stored, decided by a person, and run once."""

import asyncio
import json
from dataclasses import replace

import pytest
from pydantic import BaseModel, Field, SecretStr, field_validator

from callgate import (
    Approve,
    Backoff,
    Caller,
    ConflictError,
    Denied,
    Deny,
    Edit,
    Failed,
    Gate,
    InvalidInputError,
    KeepContent,
    NotFoundError,
    Pending,
    Succeeded,
    ToolCall,
    ToolContext,
    ToolDeniedError,
    ToolRegistry,
    UsageError,
    tool,
)
from callgate.policy import Decision, RulePolicy, ToolPolicy
from callgate.store import MemoryStore, SQLStore
from callgate.testing import ManualClock

ALICE = Caller("alice")


class Asking(ToolPolicy):
    """Ask about everything; say otherwise by `decision`."""

    def __init__(self):
        self.decision = Decision.ask("it is large", rules=("large",))
        self.judged = 0

    def decide(self, call):
        self.judged += 1
        return self.decision


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    return MemoryStore() if request.param == "memory" else SQLStore(f"sqlite:///{tmp_path / 'gate.db'}")


class World:
    """Be a gate with one tool that asks, and what ran."""

    def __init__(self, store, **settings):
        self.ran = []
        self.policy = settings.pop("policy", None) or Asking()
        self.clock = ManualClock()
        self.store = store
        self.settings = settings
        self.gate = self.rebuilt()

    def rebuilt(self, description=None, **settings):
        """Build everything again, as another process would."""

        @tool(kind="write", description=description)
        async def refund(order_id: int, amount: float, context: ToolContext) -> str:
            self.ran.append((order_id, amount, context.idempotency_key))
            return f"refunded {amount:g}"

        settings = {"policy": self.policy, **self.settings, **settings}
        return Gate(ToolRegistry([refund]), store=self.store, clock=self.clock, **settings)

    async def ask(self, gate=None, amount=250, call_id="c1", run_id="r1"):
        call = ToolCall("refund", {"order_id": 7, "amount": amount}, call_id)
        return await (gate or self.gate).call(call, caller=ALICE, run_id=run_id)


@pytest.fixture
async def world(store):
    yield World(store)
    await store.aclose()


async def test_a3_a_call_that_asks_does_not_run_and_is_stored_as_the_person_will_see_it(world):
    pending = await world.ask()
    assert isinstance(pending, Pending)
    stored = await world.gate.approval(pending.approval_id)
    assert json.loads(stored.shown) == {"order_id": 7, "amount": 250.0}
    assert (stored.tool, stored.caller, stored.reason, stored.state) == ("refund", "alice", "it is large", "pending")
    assert await world.gate.approvals() == [stored]
    assert world.ran == []


async def test_a3_arguments_are_validated_before_a_person_sees_them(world):
    outcome = await world.gate.call(ToolCall("refund", {"order_id": "x"}), caller=ALICE)
    assert isinstance(outcome, Failed)
    assert await world.gate.approvals() == []


async def test_a3_an_approved_call_runs_in_another_process_and_says_who_approved(world):
    pending = await world.ask()
    outcome = await world.rebuilt().decide(pending.approval_id, Approve(by="bob"))
    assert isinstance(outcome, Succeeded)
    assert outcome.text == '"refunded 250"'
    assert outcome.receipt.approved_by == "bob"
    assert len(world.ran) == 1


async def test_a3_a_denied_call_does_not_run_and_the_model_reads_the_reviewers_words(world):
    pending = await world.ask()
    outcome = await world.gate.decide(pending.approval_id, Deny(by="bob", reason="ask the manager first"))
    assert isinstance(outcome, Denied)
    assert (outcome.by, outcome.reason) == ("bob", "ask the manager first")
    assert "ask the manager first" in outcome.text
    assert (await world.ask()).text == outcome.text
    assert world.ran == []


async def test_a3_edited_arguments_are_validated_judged_and_run_instead(world):
    pending = await world.ask()
    with pytest.raises(InvalidInputError):
        await world.gate.decide(pending.approval_id, Edit(by="bob", arguments={"order_id": "x", "amount": 1}))
    assert (await world.gate.approval(pending.approval_id)).state == "pending", "nothing was decided"
    outcome = await world.gate.decide(pending.approval_id, Edit(by="bob", arguments={"order_id": 7, "amount": 50}))
    assert outcome.text == '"refunded 50"'
    assert [(order, amount) for order, amount, _ in world.ran] == [(7, 50.0)]


async def test_a3_an_edit_that_the_policy_denies_decides_nothing(store):
    rules = """
    default = "ask"
    [[rule]]
    id = "never"
    decision = "deny"
    tools = ["refund"]
    when = [{ path = "/amount", op = ">", value = 1000 }]
    """
    world = World(store, policy=RulePolicy.parse(rules))
    pending = await world.ask()
    with pytest.raises(ToolDeniedError):
        await world.gate.decide(pending.approval_id, Edit(by="bob", arguments={"order_id": 7, "amount": 5000}))
    assert isinstance(await world.gate.decide(pending.approval_id, Approve(by="bob")), Succeeded)
    await store.aclose()


async def test_a3_a_request_expires(store):
    world = World(store, approval_ttl_s=60)
    pending = await world.ask()
    world.clock.advance(60)
    with pytest.raises(ConflictError, match="expired"):
        await world.gate.decide(pending.approval_id, Approve(by="bob"))
    outcome = await world.ask()
    assert isinstance(outcome, Denied)
    assert "in time" in outcome.text
    assert world.ran == []
    await store.aclose()


async def test_a3_an_approval_that_expires_before_it_is_used_is_none(store):
    world = World(store, approval_ttl_s=60)
    pending = await world.ask()
    await world.gate.record(pending.approval_id, Approve(by="bob"))
    world.clock.advance(61)
    assert isinstance(await world.gate.proceed(pending.approval_id), Denied)
    assert world.ran == []
    await store.aclose()


async def test_a3_a_tool_that_was_changed_meanwhile_does_not_run(world):
    pending = await world.ask()
    outcome = await world.rebuilt(description="Refund and close the account.").decide(pending.approval_id, Approve(by="bob"))
    assert isinstance(outcome, Denied)
    assert "approved" in outcome.text
    assert world.ran == []


async def test_a3_a_new_deny_wins_over_an_approval(world):
    pending = await world.ask()
    world.policy.decision = Decision.deny("no more refunds today")
    outcome = await world.gate.decide(pending.approval_id, Approve(by="bob"))
    assert isinstance(outcome, Denied)
    assert "no more refunds today" in outcome.text
    assert world.ran == []


async def test_a3_a_switch_thrown_meanwhile_wins_over_an_approval(world):
    pending = await world.ask()
    await world.gate.switch_off(by="ops", reason="incident")
    assert isinstance(await world.gate.decide(pending.approval_id, Approve(by="bob")), Denied)
    assert world.ran == []


async def test_a3_the_asker_can_be_barred_from_approving(store):
    world = World(store, asker_may_approve=False)
    pending = await world.ask()
    with pytest.raises(UsageError, match="somebody else"):
        await world.gate.decide(pending.approval_id, Approve(by="alice"))
    assert isinstance(await world.gate.decide(pending.approval_id, Approve(by="bob")), Succeeded)
    await store.aclose()


async def test_a3_a_decision_is_a_decision_or_a_mistake(world):
    pending = await world.ask()
    for wrong in ({"allow": True}, True, None, Approve(by="")):
        with pytest.raises(UsageError):
            await world.gate.decide(pending.approval_id, wrong)
    with pytest.raises(NotFoundError):
        await world.gate.decide("apr_none", Approve(by="bob"))


async def test_a5_the_second_decision_is_a_conflict_that_says_who_decided(world):
    pending = await world.ask()
    await world.gate.decide(pending.approval_id, Approve(by="bob"))
    with pytest.raises(ConflictError, match="bob") as caught:
        await world.gate.decide(pending.approval_id, Deny(by="eve"))
    assert (caught.value.status, caught.value.decided_by) == (409, "bob")
    assert len(world.ran) == 1


async def test_a5_of_many_decisions_and_resumes_at_once_exactly_one_runs_the_tool(world):
    pending = await world.ask()
    gates = [world.rebuilt() for _ in range(6)]
    decisions = [gate.decide(pending.approval_id, Approve(by=f"p{n}")) for n, gate in enumerate(gates)]
    resumes = [gate.proceed(pending.approval_id) for gate in gates]
    again = [world.ask(gate) for gate in gates]
    outcomes = await asyncio.gather(*decisions, *resumes, *again, return_exceptions=True)
    assert len(world.ran) == 1
    assert sum(isinstance(each, ConflictError) for each in outcomes[:6]) >= 5
    assert (await world.ask()).text == '"refunded 250"'


async def test_a5_a_decision_that_was_only_recorded_is_found_by_whoever_goes_on(world):
    pending = await world.ask()
    await world.gate.record(pending.approval_id, Approve(by="bob"))
    assert world.ran == []
    outcome = await world.ask(world.rebuilt())
    assert outcome.text == '"refunded 250"'
    assert (await world.ask()).replayed
    assert (await world.gate.proceed(pending.approval_id)).replayed
    assert len(world.ran) == 1


async def test_a5_a_grant_covers_what_would_be_asked_and_only_that(world):
    grant = await world.gate.grant(
        "ref*", by="bob", caller="alice", when=[{"path": "/amount", "op": "<", "value": 300}], max_uses=2
    )
    outcome = await world.ask(call_id="1")
    assert isinstance(outcome, Succeeded)
    assert outcome.receipt.approved_by == "bob"
    assert isinstance(await world.ask(call_id="2", amount=300), Pending), "the condition does not hold"
    assert isinstance(await world.ask(call_id="3"), Succeeded)
    assert isinstance(await world.ask(call_id="4"), Pending), "it was used up"
    assert (await world.gate.grants(active=False))[0].uses == 2
    second = await world.gate.grant("refund", by="bob")
    world.policy.decision = Decision.deny()
    assert isinstance(await world.ask(call_id="5"), Denied), "a denial beats a grant"
    world.policy.decision = Decision.ask()
    await world.gate.revoke_grant(second.id, by="bob")
    assert isinstance(await world.ask(call_id="6"), Pending)
    with pytest.raises(NotFoundError):
        await world.gate.revoke_grant(second.id, by="bob")
    assert grant.max_uses == 2


async def test_a5_a_grant_expires_and_is_for_its_run_and_caller(world):
    await world.gate.grant("refund", by="bob", expires_at=world.clock() + 10, run_id="r1")
    assert isinstance(await world.ask(call_id="1", run_id="r2"), Pending)
    world.clock.advance(10)
    assert isinstance(await world.ask(call_id="2"), Pending)
    await world.gate.grant("refund", by="bob", caller="somebody")
    assert isinstance(await world.ask(call_id="3"), Pending)


@pytest.mark.parametrize(
    "facts",
    [
        {"tool": ""},
        {"tool": 5},
        {"by": ""},
        {"by": None},
        {"caller": ""},
        {"caller": ALICE},
        {"run_id": 7},
        {"expires_at": float("nan")},
        {"expires_at": "tomorrow"},
        {"max_uses": 0},
        {"when": "all"},
        {"when": [1]},
        {"when": [{"path": "/amount", "op": "<"}]},
    ],
)
async def test_a5_a_grant_that_cannot_be_is_refused_and_breaks_no_call(world, facts):
    with pytest.raises(UsageError):
        await world.gate.grant(**{"tool": "refund", "by": "bob", **facts})
    assert isinstance(await world.ask(), Pending)


async def test_a5_an_approval_can_be_remembered_for_the_run(world):
    pending = await world.ask(call_id="1")
    await world.gate.decide(pending.approval_id, Approve(by="bob", remember="run"))
    assert isinstance(await world.ask(call_id="2", amount=9), Succeeded)
    assert isinstance(await world.ask(call_id="2", run_id="other"), Pending)


async def test_a5_a_call_of_a_run_is_started_once_and_answered_from_the_journal(world):
    world.policy.decision = Decision.allow()
    first, second = await world.ask(), await world.ask(world.rebuilt())
    assert (first.text, first.replayed, second.text, second.replayed) == ('"refunded 250"', False, '"refunded 250"', True)
    assert second.value == "refunded 250"
    other = await world.ask(amount=9)
    assert isinstance(other, Failed), "another call with the same id is not that call"
    assert other.error.status == 409
    assert len(world.ran) == 1


async def test_a5_an_idempotency_key_is_the_same_for_the_same_call_and_another_for_other_arguments(world):
    pending = await world.ask()
    await world.gate.decide(pending.approval_id, Approve(by="bob"))
    edited = await world.ask(call_id="c2")
    await world.gate.decide(edited.approval_id, Edit(by="bob", arguments={"order_id": 7, "amount": 1}))
    keys = [key for _, _, key in world.ran]
    assert len(set(keys)) == 2
    assert all(len(key) >= 32 for key in keys)


# ── what is judged is what runs, in each attempt ─────────────────────────────────────────────────────────────────────────


def counting(ran, fails=1):
    """Make a tool whose argument is another one each time that the call is parsed, and which fails so often before it runs."""
    numbers = iter(range(1, 100))

    class Order(BaseModel):
        number: int = Field(default_factory=lambda: next(numbers))

    @tool(kind="read", idempotent=True, retries=3)
    async def book(order: Order) -> str:
        ran.append(order.number)
        if len(ran) <= fails:
            raise ConnectionError
        return "booked"

    return book


NO_WAIT = Backoff(first_s=0.001, most_s=0.001)


async def test_a3_each_attempt_is_judged_with_the_arguments_that_it_runs_with(store):
    class Small(ToolPolicy):
        def decide(self, call):
            return Decision.allow() if call.arguments["order"]["number"] <= 1 else Decision.deny("too many")

    ran = []
    gate = Gate(ToolRegistry([counting(ran)]), policy=Small(), store=store, backoff=NO_WAIT)
    outcome = await gate.call(ToolCall("book", {"order": {}}, "c1"), caller=ALICE, run_id="r1")
    assert (ran, type(outcome), outcome.reason) == ([1], Denied, "too many")
    assert [attempt.status for attempt in outcome.attempts] == ["failed", "denied"]
    await gate.aclose()


@pytest.mark.parametrize("revoked", [False, True])
async def test_a5_a_grant_is_used_once_for_all_attempts_and_a_revoked_one_ends_them(store, revoked):
    ran = []

    @tool(kind="read", idempotent=True, retries=3)
    async def book() -> str:
        ran.append(len(ran))
        if len(ran) < 3:
            if revoked and len(ran) == 1:
                await gate.revoke_grant(grant.id, by="bob")
            raise ConnectionError
        return "booked"

    gate = Gate(ToolRegistry([book]), policy=Asking(), store=store, backoff=NO_WAIT)
    grant = await gate.grant("book", by="bob", max_uses=1)
    outcome = await gate.call(ToolCall("book", {}, "c1"), caller=ALICE, run_id="r1")
    if revoked:
        assert (type(outcome), ran) == (Pending, [0])
    else:
        assert (type(outcome), ran) == (Succeeded, [0, 1, 2])
        assert [each.approved_by for each in outcome.attempts] == ["bob"] * 3
        assert [each.uses for each in await gate.grants(active=False)] == [1]
    await gate.aclose()


async def test_a3_an_approval_covers_a_secret_that_nobody_was_shown():
    ran = []

    @tool
    async def pay(card: SecretStr) -> str:
        ran.append(card.get_secret_value())
        return "paid"

    store = MemoryStore()
    gate = Gate(ToolRegistry([pay]), policy=Asking(), store=store)
    pending = await gate.call(ToolCall("pay", {"card": "4711"}, "c1"), caller=ALICE, run_id="r1")
    assert "4711" not in pending.approval.shown
    store._approvals[pending.approval_id] = replace(pending.approval, arguments='{"card": "0815"}')
    outcome = await gate.decide(pending.approval_id, Approve(by="bob"))
    assert (type(outcome), ran) == (Denied, [])


class Long(BaseModel):
    """Be a number that its own type makes too long to be written."""

    number: int

    @field_validator("number")
    @classmethod
    def lengthen(cls, number):
        return 10**5000 + number


async def test_a3_what_cannot_be_shown_to_a_person_is_denied(store):
    @tool
    async def pay(amount: Long) -> str:
        raise AssertionError("it must not run")

    gate = Gate(ToolRegistry([pay]), policy=Asking(), store=store, content=KeepContent(arguments=True))
    outcome = await gate.call(ToolCall("pay", {"amount": {"number": 1}}, "c1"), caller=ALICE, run_id="r1")
    assert (type(outcome), outcome.reason) == (Denied, "its arguments cannot be shown to a person")
    await gate.aclose()
