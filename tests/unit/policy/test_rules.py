"""What a rule and a budget may say, and which calls fit them."""

import dataclasses

import pytest

from callgate import Caller, PolicyError, Tool
from callgate.policy import BudgetRule, Condition, OfferRequest, PolicyCall, Rule, TimeWindow, Verdict

ALLOW, ASK, DENY = Verdict.ALLOW, Verdict.ASK, Verdict.DENY
ALICE = Caller("team:alice", ("agent", "boss"))


def pay(amount: float = 0, to: str = "") -> None: ...


TOOL = Tool.of(pay, kind="write", tags=["money", "slow"])


def call(arguments=None, caller=ALICE, now=0.0, labels=(), run_id=None):
    return PolicyCall(TOOL, arguments or {}, caller, now, run_id, labels=frozenset(labels))


@pytest.mark.parametrize(
    ("facts", "is_about"),
    [
        ({}, True),
        ({"tools": ["pay"]}, True),
        ({"tools": ["pa"]}, False),
        ({"tools": ["x", "p*"]}, True),
        ({"kinds": ["read", "write"]}, True),
        ({"kinds": ["read"]}, False),
        ({"tags": ["slow", "x"]}, True),
        ({"tags": ["x"]}, False),
        ({"tools": ["pay"], "kinds": ["read"]}, False),
    ],
)
def test_a_rule_is_about_tools_that_have_one_of_each(facts, is_about):
    assert Rule(id="r", decision=ALLOW, **facts).is_about(TOOL) is is_about


@pytest.mark.parametrize(
    ("facts", "fits"),
    [
        ({}, True),
        ({"callers": ["team:alice"]}, True),
        ({"callers": ["team:*"]}, True),
        ({"callers": ["alice"]}, False),
        ({"roles": ["boss", "x"]}, True),
        ({"roles": ["age*"]}, False),
        ({"labels": ["untrusted", "x"]}, True),
        ({"labels": ["confidential"]}, False),
        ({"time": TimeWindow(start="00:00", end="01:00")}, True),
        ({"time": TimeWindow(start="01:00", end="02:00")}, False),
        ({"when": [Condition("/amount", ">", 1)]}, True),
        ({"when": [Condition("/amount", ">", 1), Condition("/amount", ">", 9)]}, False),
        ({"callers": ["team:*"], "roles": ["x"]}, False),
    ],
)
@pytest.mark.parametrize("decision", list(Verdict))
def test_a_rule_fits_calls_that_have_everything(facts, fits, decision):
    rule = Rule(id="r", decision=decision, **facts)
    judged = call({"amount": 5}, labels=["untrusted"])
    assert rule.fits(judged) is fits
    request = OfferRequest(caller=ALICE, now=0.0, labels=frozenset(["untrusted"]))
    assert rule.is_for(request) or not fits


@pytest.mark.parametrize(("decision", "fits"), [(ALLOW, False), (ASK, True), (DENY, True)])
def test_what_cannot_be_judged_never_loosens(decision, fits):
    rule = Rule(id="r", decision=decision, when=[Condition("/amount", ">", 1)])
    assert rule.fits(call({"amount": "a lot"})) is fits
    assert not rule.fits(call({"amount": None}))
    assert not rule.fits(call({}))
    unlike = Rule(id="r", decision=decision, when=[Condition("/to", "not-in", ["us"])])
    assert unlike.fits(call({})) is fits


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"decision": "allow"}, "a rule needs 'id'"),
        ({"id": "r"}, "a rule needs 'decision'"),
        ({"id": "", "decision": "allow"}, "needs an id"),
        ({"id": 1, "decision": "allow"}, "id must be a text"),
        ({"id": "r", "decision": "permit"}, 'must be "allow", "ask" or "deny"'),
        ({"id": "r", "decision": ["allow"]}, 'must be "allow", "ask" or "deny"'),
        ({"id": "r", "decision": "allow", "tool": ["x"]}, "unknown key 'tool' in a rule; known are callers"),
        ({"id": "r", "decision": "allow", "tools": "x"}, "tools must be a list of texts"),
        ({"id": "r", "decision": "allow", "tools": [""]}, "not empty"),
        ({"id": "r", "decision": "allow", "tools": [1]}, "texts"),
        ({"id": "r", "decision": "allow", "roles": []}, "roles must not be empty; leave it out"),
        ({"id": "r", "decision": "allow", "when": {"path": "/a"}}, "list of conditions"),
        ({"id": "r", "decision": "allow", "when": []}, "when must not be empty; leave it out"),
        ({"id": "r", "decision": "allow", "when": ["/a > 1"]}, "a condition is a table"),
        ({"id": "r", "decision": "allow", "reason": 1}, "reason must be a text"),
        ({"id": "r", "decision": "allow", "time": "09:00"}, "time must be a table"),
        ("r", "a rule must be a table"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(facts, reason):
    with pytest.raises(PolicyError, match=reason):
        Rule.of(facts)


@pytest.mark.parametrize(
    "facts",
    [
        {"decision": "allow"},
        {"roles": []},
        {"roles": set()},
        {"tools": "pay"},
        {"when": ["x"]},
        {"when": []},
        {"when": Condition("/a", "exists")},
        {"time": "now"},
        {"reason": None},
        {"id": ""},
    ],
)
def test_a_rule_made_in_python_is_checked_as_well(facts):
    with pytest.raises(PolicyError):
        Rule(**{"id": "r", "decision": ALLOW, **facts})


def test_a_rule_is_a_value():
    facts = {"id": "r", "decision": "ask", "roles": ["b", "a"], "when": [{"path": "/a", "op": "in", "value": [1]}]}
    rule = Rule.of(facts)
    made = Rule(id="r", decision=ASK, roles=("b", "a"), when=(Condition("/a", "in", [1]),))
    assert rule == made
    assert hash(rule) == hash(made)
    assert dataclasses.replace(rule, roles={"b", "a"}).roles == ("a", "b"), "a set has no order of its own"
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule.reason = "x"


# ── budgets ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"id": "b", "limit": 1}, "needs 'per'"),
        ({"id": "", "limit": 1, "per": "run"}, "needs an id"),
        ({"id": "b", "limit": -1, "per": "run"}, "whole number from 0"),
        ({"id": "b", "limit": True, "per": "run"}, "whole number from 0"),
        ({"id": "b", "limit": 1.5, "per": "run"}, "whole number from 0"),
        ({"id": "b", "limit": 1, "per": "day"}, "per must be one of"),
        ({"id": "b", "limit": 1, "per": "caller", "window_s": 0}, "above 0"),
        ({"id": "b", "limit": 1, "per": "caller", "window_s": float("nan")}, "above 0"),
        ({"id": "b", "limit": 1, "per": "caller", "window_s": float("inf")}, "above 0"),
        ({"id": "b", "limit": 1, "per": "run", "window_s": 60}, "per caller"),
        ({"id": "b", "limit": 1, "per": "run", "tools": []}, "must not be empty"),
        ({"id": "b", "limit": 1, "per": "run", "tools": "x"}, "list of texts"),
        ({"id": "b", "limit": 1, "per": "run", "text": 1}, "text must be a text"),
        ({"id": "b", "limit": 1, "per": "run", "texts": "x"}, "unknown key 'texts' in a budget"),
    ],
)
def test_a_budget_that_cannot_be_is_refused(facts, reason):
    with pytest.raises(PolicyError, match=reason):
        BudgetRule.of(facts)


def counter(per, **facts):
    place = {key: facts.pop(key) for key in ("caller", "now", "run_id", "arguments") if key in facts}
    budget = BudgetRule(id="b", limit=2, per=per, **facts).budget_of(call(**place))
    return budget and budget.counter


def test_a_counter_is_that_of_a_run_a_tool_a_caller_or_a_call():
    for per in ("run", "tool", "same-call"):
        assert counter(per) is None, "without a run there is nothing to count in"
        assert counter(per, run_id="r") != counter(per, run_id="s")
    same = counter("same-call", run_id="r", arguments={"a": 1, "b": 2})
    assert same == counter("same-call", run_id="r", arguments={"b": 2, "a": 1})
    assert same != counter("same-call", run_id="r", arguments={"a": 1})
    assert same != counter("same-call", run_id="r", arguments={"a": True, "b": 2}), "a boolean is no number"
    written = counter("same-call", run_id="r", arguments={"a": [1, {"b": -0.0}], "c": 2**60})
    assert written == counter("same-call", run_id="r", arguments={"a": [1.0, {"b": 0}], "c": float(2**60)})
    assert counter("caller", now=59.0, window_s=60) == counter("caller", now=0.0, window_s=60)
    assert counter("caller", now=60.0, window_s=60) != counter("caller", now=59.0, window_s=60)
    assert counter("caller", now=60.0, window_s=60) != counter("caller", now=30.0, window_s=30)
    assert counter("caller") != counter("caller", caller=Caller("bob"))


def test_no_name_can_reach_the_counter_of_another():
    named = BudgetRule(id="b/run/r", limit=1, per="run").budget_of(call(run_id="x"))
    assert named.counter != BudgetRule(id="b", limit=1, per="run").budget_of(call(run_id="r/run/x")).counter
    assert counter("run", run_id="r/pay") != counter("tool", run_id="r")
    assert counter("run", run_id="\ud800") != counter("run", run_id="?"), "no text breaks a counter"


def test_a_model_reads_what_is_used_up_and_what_to_do():
    budgets = {per: BudgetRule(id="b", limit=2, per=per).budget_of(call(run_id="r")) for per in ("run", "tool", "same-call")}
    assert budgets["tool"].hides
    assert not budgets["run"].hides
    assert "'pay'" in budgets["tool"].text
    assert "use what it answered, or do something else" in budgets["same-call"].text
    assert BudgetRule(id="b", limit=2, per="run", text="stop").budget_of(call(run_id="r")).text == "stop"


def test_a_budget_is_about_some_tools():
    assert BudgetRule(id="b", limit=1, per="run").is_about("pay")
    assert BudgetRule(id="b", limit=1, per="run", tools=["p*"]).is_about("pay")
    assert not BudgetRule(id="b", limit=1, per="run", tools=["pa"]).is_about("pay")
