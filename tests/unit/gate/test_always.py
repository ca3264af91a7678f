"""What a policy says of every call of a tool is asked once, and believed only where nothing else could matter."""

import pytest

from callgate import Caller, Denied, Gate, Pending, Succeeded, ToolCall, ToolRegistry, tool
from callgate.gate.narrowing import Narrowed
from callgate.policy import (
    AllowAll,
    BudgetRule,
    CedarPolicy,
    Condition,
    Decision,
    Rule,
    RulePolicy,
    TimeWindow,
    ToolPolicy,
    Verdict,
)
from callgate.store import MemoryStore
from callgate.testing import check_policy

ALICE = Caller("alice", roles=("agent",))
CALL = ToolCall("pay", {"amount": 1}, "c")


@tool(kind="write")
async def pay(amount: int) -> int:
    return amount


def counted(policy):
    """Give a policy of the same mind that notes how often it was asked."""

    class Counted(type(policy)):
        asked = 0

        def decide(self, call, /):
            Counted.asked += 1
            return super().decide(call)

        def always(self, tool, /):
            return super().always(tool)

    policy.__class__ = Counted
    return policy


def rule(**further):
    return Rule(id="pays", decision=Verdict.ALLOW, **further)


CONSTANT = [AllowAll(), RulePolicy([rule(tools=("pay",))]), RulePolicy([rule(kinds=("write",))]), RulePolicy([], default="allow")]
DEPENDING = [
    RulePolicy([rule(callers=("alice",))]),
    RulePolicy([rule(roles=("agent",))]),
    RulePolicy([rule(when=(Condition(path="/amount", op="<", value=5),))]),
    RulePolicy([rule(time=TimeWindow(zone="UTC"))]),
    RulePolicy([rule()], budgets=[BudgetRule(id="b", limit=9, per="caller")]),
    RulePolicy([rule(), Rule(id="no", decision=Verdict.DENY, callers=("bob",))]),
]


@pytest.mark.parametrize("policy", CONSTANT, ids=range(len(CONSTANT)))
async def test_what_holds_for_every_call_is_asked_once(policy):
    policy = counted(policy)
    gate = Gate(ToolRegistry([pay]), policy=policy)
    gate.begin_run("r")
    for place in ({}, {"run_id": "r"}):
        assert isinstance(await gate.call(CALL, caller=ALICE, **place), Succeeded)
    assert type(policy).asked == 0


@pytest.mark.parametrize("policy", DEPENDING, ids=range(len(DEPENDING)))
async def test_what_depends_on_the_call_is_asked_each_time(policy):
    policy = counted(policy)
    gate = Gate(ToolRegistry([pay]), policy=policy)
    for _ in range(2):
        assert isinstance(await gate.call(CALL, caller=ALICE), Succeeded)
    assert type(policy).asked == 2


@pytest.mark.parametrize("base", [AllowAll, lambda: RulePolicy([], default="allow")], ids=["allow all", "rules"])
async def test_who_overrides_the_judgement_judges_every_call(base):
    policy = base()

    class Denying(type(policy)):
        def decide(self, _call, /):
            return Decision.deny("not by me")

    policy.__class__ = Denying
    assert isinstance(await Gate(ToolRegistry([pay]), policy=policy).call(CALL, caller=ALICE), Denied)
    other = base()
    other.decide = lambda _call: Decision.deny("not by me")
    assert isinstance(await Gate(ToolRegistry([pay]), policy=other).call(CALL, caller=ALICE), Denied)
    both = Narrowed(base(), policy)
    assert isinstance(await Gate(ToolRegistry([pay]), policy=both).call(CALL, caller=ALICE), Denied)


@pytest.mark.parametrize("policy", DEPENDING, ids=range(len(DEPENDING)))
async def test_what_a_narrower_policy_says_of_a_call_counts_though_the_first_allows_all(policy):
    policy = counted(policy)
    gate = Gate(ToolRegistry([pay]), policy=AllowAll()).narrowed(policy)
    assert isinstance(await gate.call(CALL, caller=ALICE), Succeeded)
    assert type(policy).asked == 1
    none = gate.narrowed(RulePolicy([], default="deny"))
    assert isinstance(await none.call(CALL, caller=ALICE), Denied)


@pytest.mark.parametrize("policy", CONSTANT, ids=range(len(CONSTANT)))
async def test_what_both_policies_of_a_narrowed_gate_always_allow_is_asked_once(policy):
    policy = counted(policy)
    gate = Gate(ToolRegistry([pay]), policy=AllowAll()).narrowed(policy)
    assert isinstance(await gate.call(CALL, caller=ALICE), Succeeded)
    assert type(policy).asked == 0


@pytest.mark.parametrize("said", [Decision.deny("no"), Decision.ask("?"), None, True, "allow"])
async def test_only_an_allow_is_believed(said):
    class Saying(ToolPolicy):
        def decide(self, _call, /):
            return Decision.deny("judged")

        def always(self, _tool, /):
            return said

    outcome = await Gate(ToolRegistry([pay]), policy=Saying()).call(CALL, caller=ALICE)
    assert "judged" in outcome.text


async def test_a_policy_that_only_looks_like_one_is_asked():
    class Matching:
        bind, resolve = ToolPolicy.bind, ToolPolicy.resolve
        assert_offered_in_step = ToolPolicy.assert_offered_in_step

        def decide(self, _call, /):
            return Decision.deny("judged")

    assert "judged" in (await Gate(ToolRegistry([pay]), policy=Matching()).call(CALL, caller=ALICE)).text


async def test_what_is_always_allowed_still_meets_everything_else():
    @tool(kind="write", needs_approval=True)
    async def wish() -> None: ...

    @tool(kind="write", name="pay")
    async def other(amount: int) -> str:
        return "another tool of the same name"

    gate = Gate(ToolRegistry([pay, wish]), policy=AllowAll(), store=MemoryStore(), dry_run=["wish"])
    assert isinstance(await gate.call(ToolCall("wish", {}, "c"), caller=ALICE), Succeeded)
    assert isinstance(await Gate(ToolRegistry([wish]), policy=AllowAll()).call(ToolCall("wish", {}, "c"), caller=ALICE), Pending)
    assert "Dry run" in (await gate.call(CALL, caller=ALICE, dry_run=True)).text
    dry = Gate(ToolRegistry([pay]), policy=AllowAll(), dry_run=["pay"])
    assert "Dry run" in (await dry.call(CALL, caller=ALICE)).text
    assert isinstance(await gate.call(CALL, caller=ALICE, tools=["wish"]), type(await gate.call(ToolCall("x"), caller=ALICE)))
    await gate.switch_off("tool:pay", by="bob", reason="broken")
    assert "broken" in (await gate.call(CALL, caller=ALICE)).text
    assert "another" in (await Gate(ToolRegistry([wish]), policy=AllowAll()).call(CALL, caller=ALICE, tools=[other])).text


async def test_a_policy_that_says_always_and_decides_otherwise_fails_the_suite():
    class Fickle(AllowAll):
        def decide(self, call, /):
            return Decision.deny("bob") if call.caller.subject == "bob" else super().decide(call)

        def always(self, _tool, /):
            return Decision.allow(rules=("allow-all",))

    await check_policy(Fickle(), [pay], caller=ALICE)
    with pytest.raises(AssertionError, match="holds for every call of pay"):
        await check_policy(Fickle(), [pay], caller=Caller("bob"))


async def test_cedar_is_asked_about_each_call():
    policy = CedarPolicy('permit(principal, action == Action::"call", resource);')
    assert policy.always(pay) is None
