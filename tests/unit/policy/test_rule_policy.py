"""The strictest rule wins, the world is closed, and an error says where."""

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from callgate import Caller, PolicyError, Tool, ToolRegistry, tool
from callgate.policy import BudgetRule, Condition, OfferRequest, PolicyCall, Rule, RulePolicy, TimeWindow, Verdict
from callgate.testing import check_policy

ALLOW, ASK, DENY = Verdict.ALLOW, Verdict.ASK, Verdict.DENY
ALICE = Caller("alice", ("agent",))


def pay(amount: float = 0, to: str = "") -> None: ...


def made(name, kind="write", tags=(), emits=()):
    return Tool.of(pay, name=name, kind=kind, tags=tags, emits=emits)


TOOLS = [made("pay"), made("pay_later", tags=["money"]), made("look", "read", emits=["untrusted"]), made("look_up", "read")]


def call(name="pay", arguments=None, caller=ALICE, now=0.0, labels=(), run_id="r"):
    found = next(each for each in TOOLS if each.name == name)
    return PolicyCall(found, arguments or {}, caller, now, run_id, labels=frozenset(labels))


def names(tools):
    return [each.name for each in tools]


def request(caller=ALICE, now=0.0, labels=()):
    return OfferRequest(caller=caller, now=now, labels=frozenset(labels))


def test_the_strictest_of_the_rules_that_fit_speaks():
    rules = [
        Rule(id="all", decision=ALLOW),
        Rule(id="much", decision=ASK, when=[Condition("/amount", ">", 10)], reason="much"),
        Rule(id="mallory", decision=DENY, when=[Condition("/to", "==", "mallory")], reason="not to mallory"),
    ]
    policy = RulePolicy(rules)
    assert policy.decide(call()).rules == ("all",)
    assert policy.decide(call(arguments={"amount": 11})).reason == "much"
    denied = policy.decide(call(arguments={"amount": 11, "to": "mallory"}))
    assert (denied.verdict, denied.reason, denied.rules) == (DENY, "not to mallory", ("mallory",))


def test_an_ask_names_every_rule_that_asked():
    ask = [Rule(id=each, decision=ASK, reason=each.upper()) for each in ("a", "b")]
    constant = RulePolicy([Rule(id="all", decision=ALLOW), *ask]).decide(call())
    assert (constant.verdict, constant.rules, constant.reason) == (ASK, ("a", "b"), "A; B")
    more = Rule(id="c", decision=ASK, when=[Condition("/amount", ">", 1)])
    policy = RulePolicy([*ask, more])
    assert policy.decide(call(arguments={"amount": 2})).rules == ("a", "b", "c")
    assert policy.decide(call(arguments={"amount": 1})).rules == ("a", "b")


@pytest.mark.parametrize(("default", "verdict"), [("deny", DENY), ("ask", ASK), ("allow", ALLOW)])
def test_what_no_rule_fits_is_as_the_default_says(default, verdict):
    for rules in ([], [Rule(id="r", decision=ALLOW, roles=["boss"])]):
        policy = RulePolicy(rules, default=default)
        assert policy.decide(call()).verdict is verdict
        assert names(policy.resolve(TOOLS, request())) == ([] if verdict is DENY else names(TOOLS))
    assert RulePolicy([]).decide(call()).verdict is DENY


def test_a_decision_for_every_call_is_made_once():
    policy = RulePolicy([Rule(id="all", decision=ALLOW), Rule(id="never", decision=DENY, tools=["look"])])
    assert policy.decide(call()) is policy.decide(call(arguments={"amount": 5}))
    assert policy.decide(call("look")) is policy.decide(call("look"))


def test_budgets_come_with_what_is_not_denied():
    budgets = [
        BudgetRule(id="run", limit=9, per="run"),
        BudgetRule(id="pay", limit=2, per="tool", tools=["pay*"]),
        BudgetRule(id="hour", limit=9, per="caller"),
    ]
    policy = RulePolicy([Rule(id="no", decision=DENY, tools=["look_up"])], default="allow", budgets=budgets)
    assert len(policy.decide(call()).budgets) == 3
    assert len(policy.decide(call("look")).budgets) == 2
    assert len(policy.decide(call("look", run_id=None)).budgets) == 1
    assert policy.decide(call("look_up")).budgets == ()


def test_offers_follow_caller_labels_and_time_though_they_are_kept():
    rules = [
        Rule(id="agents", decision=ALLOW, roles=["agent"], tools=["pay*"]),
        Rule(id="eve", decision=DENY, callers=["eve*"]),
        Rule(id="read", decision=ASK, kinds=["read"]),
        Rule(id="tainted", decision=DENY, tags=["money"], labels=["untrusted"]),
        Rule(id="night", decision=DENY, tools=["look"], time=TimeWindow(start="00:00", end="06:00")),
        Rule(id="big", decision=DENY, tools=["pay"], when=[Condition("/amount", ">", 1)]),
    ]
    policy = RulePolicy(rules)
    for _ in range(2):
        assert names(policy.resolve(TOOLS, request(now=40_000))) == names(TOOLS)
        assert names(policy.resolve(TOOLS, request())) == ["pay", "pay_later", "look_up"]
        assert names(policy.resolve(TOOLS, request(labels=["untrusted"]))) == ["pay", "look_up"]
        assert names(policy.resolve(TOOLS, request(Caller("bob")))) == ["look_up"]
        assert names(policy.resolve(TOOLS, request(Caller("eve", ("agent",))))) == []
        assert names(policy.resolve(TOOLS[:1], request())) == ["pay"]
        assert names(policy.resolve([], request())) == []


def test_the_digest_is_that_of_what_the_policy_says():
    text = 'roles = ["a"]\n[[rule]]\nid = "r"\ndecision = "ask"\n[[budget]]\nid = "b"\nlimit = 1\nper = "run"\n'
    first = RulePolicy.parse(text)
    assert first.digest == RulePolicy.parse("# a comment\n" + text.replace("ask", "ask")).digest
    for old, new in (("ask", "deny"), ("limit = 1", "limit = 2"), ('["a"]', '["b"]'), ('roles = ["a"]', 'default = "ask"')):
        assert RulePolicy.parse(text.replace(old, new)).digest != first.digest


def test_the_digest_is_the_same_in_every_process():
    program = (
        "from callgate.policy import *\n"
        "print(RulePolicy([Rule(id='r', decision=Verdict.ASK, roles={'a', 'b', 'c', 'd'})], roles={'a', 'b', 'c', 'd'}).digest)"
    )
    found = set()
    for seed in ("1", "2", "3"):
        surroundings = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        command = [sys.executable, "-c", program]
        found.add(subprocess.run(command, env=surroundings, capture_output=True, text=True, check=True).stdout)
    assert len(found) == 1


def test_a_thousand_tools_made_anew_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr("callgate.policy.plans._KEPT_TOOLS", 10)
    policy = RulePolicy([Rule(id="r", decision=ALLOW, tools=["t*"])])
    for number in range(50):
        assert policy.decide(PolicyCall(made(f"t{number}"), {}, ALICE, 0.0)).verdict is ALLOW
    assert len(policy._index._plans) <= 10
    for number in range(200):
        policy.resolve(TOOLS, request(labels=[f"l{number}"]))
    assert len(policy._offers.by_request) <= 64


# ── the closed world ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('tools = ["pays"]', "there is no tool 'pays'; the nearest is 'pay'"),
        ('tools = ["pay", "refund_*"]', "there is no tool 'refund_*'"),
        ('tools = ["PAY"]', "there is no tool 'PAY'"),
        ('kinds = ["raed"]', "there is no kind 'raed'; the nearest is 'read'"),
        ('tags = ["coins"]', "there is no tag 'coins'"),
        ('labels = ["untrustd"]', "there is no label 'untrustd'; the nearest is 'untrusted'"),
        ('roles = ["bos"]', "there is no role 'bos'; the nearest is 'boss'"),
        ('when = [{ path = "/amuont", op = ">", value = 1 }]', "there is no argument '/amuont'; the nearest is '/amount'"),
        ('when = [{ path = "/amount/cents", op = ">", value = 1 }]', "there is no argument '/amount/cents'"),
        ('decision = "permit"', 'decision must be "allow", "ask" or "deny"'),
        ('resaon = "x"', "unknown key 'resaon' in a rule"),
        ('when = [{ path = "/amount", op = "=>", value = 1 }]', "unknown operator '=>'"),
        ('when = [{ path = "/amount", op = ">", value = 1, x = 1 }]', "unknown key 'x' in a condition"),
        ('when = [{ path = "/amount", op = ">", value = 2024-01-01 }]', "a number or a text"),
        ("tools = []", "must not be empty"),
        ('time = { zone = "Mars" }', "unknown time zone 'Mars'"),
        ('time = { day = ["mon"] }', "unknown key 'day' in time"),
        ("reason = 3", "reason must be a text"),
        ('id = "first"', "two rules have the id 'first'"),
    ],
)
def test_what_there_is_not_is_refused_with_file_and_line(tmp_path, line, reason):
    key = line.partition(" ")[0]
    second = "\n".join(each for each in ('id = "second"', 'decision = "ask"') if not each.startswith(key))
    text = f'roles = ["agent", "boss"]\n[[rule]]\nid = "first"\ndecision = "deny"\n\n[[rule]]  # the second\n{second}\n\n{line}\n'
    path = tmp_path / "p.toml"
    path.write_text(text)
    with pytest.raises(PolicyError) as caught:
        RulePolicy.load(path, TOOLS)
    assert reason in caught.value.reason
    assert caught.value.file == str(path)
    assert caught.value.line == text.count("\n"), "it is the last line"
    assert f"{path}:{caught.value.line}: " in caught.value.user_message


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("default = \n", 1, "no TOML"),
        ("a = 1\n\nb = [1,\n", 4, "no TOML"),
        ('\n\ndefualt = "deny"', 3, "unknown key 'defualt'"),
        ('# x\ndefault = "no"', 2, 'default must be "allow", "ask" or "deny"'),
        ('roles = "agent"', 1, "roles must be a list"),
        ("\nrule = 3", 2, "write each rule as"),
        ("[rule]\nid = 'a'", 1, "write each rule as"),
        ("\n[a.b.c]\nd = 1", 2, "unknown key 'a'"),
        ("[[rule]]\nid = 'default'\ndecision='ask'", 2, "the gate's own"),
        ("[[rule]]\ndecision='ask'\nid = 'tool:needs_approval'", 3, "the gate's own"),
        ("[[budget]]\nlimit = 1\nper='run'\nid = 'policy:raised'", 4, "the gate's own"),
        ("\nrule = [\n {id = 'a', decision = 'deny'},\n 4]", 4, "a rule must be a table"),
        ("[[rule]]\nid = 'a'\n", 1, "a rule needs 'decision'"),
        ("[[budget]]\nid = 'a'\nper = 'run'\n\nlimit = -1", 5, "limit must be"),
        ("[[budget]]\nid = 'a'\nper = 'run'\nlimit = 1\ntools = ['x']", 5, "there is no tool 'x'"),
        ("[[rule]]\nid = 'a'\ndecision='deny'\n[[budget]]\nlimit = 1\nper = 'run'\nid = 'a'", 7, "two rules have the id"),
        ("[[rule]]\nid='a'\ndecision='deny'\n[rule.time]\nstart = '9'", 5, "written as"),
        ("[[rule]]\nid='a'\ndecision='deny'\n[[rule.when]]\npath = '/amount'\nop = '>'\nvalue = true", 7, "a number or a text"),
        ("[[rule]]\nid='a'\ndecision='deny'\n[[rule.when]]\npath = '/amount'\nop = '>'", 6, "needs a value"),
        (
            "[[rule]]\nid='a'\ndecision='deny'\nwhen = [\n{path='/amount', op='exists'},\n{path='/x', op='exists'}]",
            6,
            "there is no argument '/x'",
        ),
    ],
)
def test_an_error_names_the_line_of_what_is_wrong(text, line, reason):
    with pytest.raises(PolicyError) as caught:
        RulePolicy.parse(text, tools=TOOLS)
    assert reason in caught.value.reason
    assert (caught.value.file, caught.value.line) == ("policy.toml", line)


@pytest.mark.parametrize("depth", [500, 50_000])
@pytest.mark.parametrize("text", ["x = {}", "[[rule]]\nid='r'\ndecision='deny'\nwhen=[{{path='/a', op='==', value={}}}]"])
def test_what_is_too_deep_is_refused(text, depth):
    with pytest.raises(PolicyError):
        RulePolicy.parse(text.format("[" * depth + "]" * depth))


def test_a_number_that_is_too_long_is_refused():
    with pytest.raises(PolicyError, match="cannot be read"):
        RulePolicy.parse(f"[[budget]]\nid='b'\nper='run'\nlimit={'1' * 5000}")


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "p.toml").write_bytes(b"\xff")
    for name in ("none.toml", "p.toml", "."):
        with pytest.raises(PolicyError, match="cannot be read"):
            RulePolicy.load(tmp_path / name)


def test_a_rule_for_a_name_needs_that_very_tool_to_have_the_argument():
    def give(sum: float) -> None: ...  # noqa: A002

    tools = [*TOOLS, Tool.of(give)]
    condition = [Condition("/amount", ">", 1)]
    RulePolicy([Rule(id="r", decision=DENY, when=condition)], tools=tools)
    with pytest.raises(PolicyError, match="no argument '/amount'; known are /sum"):
        RulePolicy([Rule(id="r", decision=DENY, tools=["pay", "give"], when=condition)], tools=tools)


def test_a_rule_that_fits_no_tool_is_refused():
    with pytest.raises(PolicyError, match="fits no tool"):
        RulePolicy([Rule(id="r", decision=DENY, tools=["pay"], kinds=["read"])], tools=TOOLS)


class Line(BaseModel):
    sku: str
    count: int = 1


class Order(BaseModel):
    lines: list[Line]
    note: str | None = None
    extra: dict[str, Line] = {}
    free: dict[str, Any] = {}
    next: "Order | None" = None


@pytest.mark.parametrize(
    ("path", "leads"),
    [
        ("/order", True),
        ("/order/lines/0/sku", True),
        ("/order/lines/*/sku", True),
        ("/order/lines/*/skuu", False),
        ("/order/lines/sku", False),
        ("/order/note", True),
        ("/order/note/x", False),
        ("/order/extra/any/sku", True),
        ("/order/extra/*/sku", True),
        ("/order/extra/any/x", False),
        ("/order/free/any/thing", True),
        ("/order/next/next/lines/0/count", True),
        ("/order/next/next/linse", False),
        ("/*/lines", True),
        ("/lines", False),
        ("/anything/at/all", True),
        ("/anything/*/x", True),
        ("/names/*", True),
        ("/names/*/x", False),
    ],
)
def test_a_path_is_looked_for_in_the_schemas(path, leads):
    def buy(order: Order, anything: Any, names: list[str]) -> None: ...

    rules = [Rule(id="r", decision=DENY, when=[Condition(path, "exists")])]
    if leads:
        RulePolicy(rules, tools=[buy])
    else:
        with pytest.raises(PolicyError, match="there is no argument"):
            RulePolicy(rules, tools=[buy])


def test_a_schema_that_leaves_names_open_has_every_argument():
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True}
    closed = {**schema, "additionalProperties": False}
    patterns = {**closed, "patternProperties": {"^x_": {"type": "object", "properties": {"y": {}}}}}
    rules = [Rule(id="r", decision=DENY, when=[Condition("/b", "exists")])]

    def of(given):
        return Tool("t", lambda _: None, input_schema=given)

    RulePolicy(rules, tools=[of(schema)])
    RulePolicy(rules, tools=[of(patterns)])
    with pytest.raises(PolicyError, match="no argument '/b'"):
        RulePolicy(rules, tools=[of(closed)])


def test_tools_may_come_as_a_registry_as_functions_or_later():
    @tool(kind="read")
    async def see() -> None: ...

    text = '[[rule]]\nid = "r"\ndecision = "allow"\ntools = ["sea"]'
    for tools in (ToolRegistry([see]), [see], {see}):
        with pytest.raises(PolicyError, match="nearest is 'see'"):
            RulePolicy.parse(text, tools=tools)
    policy = RulePolicy.parse(text)
    policy.bind([])
    with pytest.raises(PolicyError, match=r"policy\.toml:4: "):
        policy.bind([Tool.of(see)])


def test_roles_are_closed_where_they_are_declared():
    rule = Rule(id="r", decision=ALLOW, roles=["agnet"])
    RulePolicy([rule])
    for roles in (["agent"], (each for each in ["agent"]), []):
        with pytest.raises(PolicyError, match="there is no role 'agnet'"):
            RulePolicy([rule], roles=roles)
    with pytest.raises(PolicyError, match="list of texts"):
        RulePolicy([], roles="agent")


# ── explanations ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_explanation_says_of_every_rule_why():
    rules = [
        Rule(id="all", decision=ALLOW),
        Rule(id="look", decision=DENY, tools=["look*"]),
        Rule(id="kind", decision=DENY, kinds=["read"]),
        Rule(id="tag", decision=DENY, tags=["money"]),
        Rule(id="role", decision=DENY, roles=["boss"]),
        Rule(id="caller", decision=DENY, callers=["bob"]),
        Rule(id="label", decision=DENY, labels=["untrusted"]),
        Rule(id="time", decision=DENY, time=TimeWindow(start="01:00", end="02:00")),
        Rule(id="amount", decision=DENY, when=[Condition("/amount", ">", 9)]),
        Rule(id="unsure", decision=ALLOW, when=[Condition("/to", ">", 9)]),
        Rule(id="odd", decision=ASK, when=[Condition("/to", ">", 9)]),
    ]
    explained = RulePolicy(rules).explain(call(arguments={"amount": 1, "to": "x"}))
    why = {each.rule.id: each.why for each in explained.considered}
    assert explained.decision.rules == ("odd",)
    assert [rule.id for rule in explained.fitting] == ["odd", "all"]
    assert {rule.id for rule in explained.others} == {"role", "caller", "label", "time", "amount", "unsure"}
    assert "none of look*" in why["look"]
    assert "'write' is none of read" in why["kind"]
    assert "tags money" in why["tag"]
    assert "roles boss" in why["role"]
    assert "none of bob" in why["caller"]
    assert "untrusted" in why["label"]
    assert "not the time" in why["time"]
    assert why["amount"] == "/amount > 9 does not hold"
    assert "needs to be sure" in why["unsure"]
    assert "counts against the call" in why["odd"]
    assert json.dumps(why)


# ── properties ───────────────────────────────────────────────────────────────────────────────────────────────────────────

some = st.lists
conditions = st.builds(
    Condition,
    st.sampled_from(["/amount", "/to"]),
    st.sampled_from([">", "==", "!=", "<="]),
    st.sampled_from([0, 5, "x", "5"]),
)
windows = st.sampled_from([None, TimeWindow(start="00:00", end="06:00"), TimeWindow(days=["fri"])])
rules_without_ids = st.fixed_dictionaries(
    {"decision": st.sampled_from(list(Verdict))},
    optional={
        "tools": some(st.sampled_from(["pay", "pay*", "look", "l*k", "*", "look_?p"]), min_size=1, max_size=2),
        "kinds": some(st.sampled_from(["read", "write"]), min_size=1, max_size=2),
        "tags": some(st.sampled_from(["money"]), min_size=1, max_size=1),
        "callers": some(st.sampled_from(["alice", "b*"]), min_size=1, max_size=2),
        "roles": some(st.sampled_from(["agent", "boss"]), min_size=1, max_size=2),
        "labels": some(st.sampled_from(["untrusted", "confidential"]), min_size=1, max_size=2),
        "when": some(conditions, min_size=1, max_size=2),
        "time": windows,
    },
)
rule_lists = some(rules_without_ids, max_size=6).map(
    lambda facts: [Rule(id=f"r{number}", **each) for number, each in enumerate(facts)]
)
given_arguments = {"amount": st.sampled_from([0, 5, 6.5, "x", "7", None, True]), "to": st.sampled_from(["x", "y", 5])}
calls = st.builds(
    call,
    st.sampled_from(names(TOOLS)),
    st.fixed_dictionaries({}, optional=given_arguments),
    st.builds(Caller, st.sampled_from(["alice", "bob", "eve"]), st.sampled_from([(), ("agent",), ("agent", "boss")])),
    st.sampled_from([0.0, 40_000.0, 100_000.0]),
    st.sampled_from([(), ("untrusted",), ("untrusted", "confidential")]),
)
defaults = st.sampled_from(["deny", "ask", "allow"])


def plainly(rules, default, judged):
    """Judge without index, plans and shortcuts."""
    about = [rule for rule in rules if rule.is_about(judged.tool) and rule.fits(judged)]
    return max([rule.decision for rule in about], default={"deny": DENY, "ask": ASK, "allow": ALLOW}[default])


@given(rule_lists, defaults, calls, st.randoms(use_true_random=False))
def test_the_strictest_wins_in_any_order(rules, default, judged, random):
    decision = RulePolicy(rules, default=default).decide(judged)
    assert decision.verdict is plainly(rules, default, judged)
    shuffled = random.sample(rules, len(rules))
    other = RulePolicy(shuffled, default=default).decide(judged)
    assert other.verdict is decision.verdict
    if decision.verdict is ASK:
        assert set(other.rules) == set(decision.rules)


@given(rule_lists, rules_without_ids, defaults, calls)
def test_a_further_deny_never_allows_more_and_an_ask_never_frees(rules, facts, default, judged):
    before = RulePolicy(rules, default=default).decide(judged).verdict
    for decision in (DENY, ASK):
        rule = Rule(id="new", **{**facts, "decision": decision})
        after = RulePolicy([*rules, rule], default=default).decide(judged).verdict
        fits = any(each.is_about(judged.tool) and each.fits(judged) for each in rules)
        assert after >= before or (not fits and decision is ASK and default == "deny"), "only the default can give way"


@given(rule_lists, defaults, calls)
def test_a_value_that_cannot_be_judged_never_loosens(rules, default, judged):
    odd = PolicyCall(judged.tool, {"amount": [], "to": []}, judged.caller, judged.now, "r", labels=judged.labels)
    with_conditions = {rule.id for rule in rules if rule.when}
    decided = RulePolicy(rules, default=default).decide(odd)
    if decided.verdict is ALLOW:
        assert not with_conditions.intersection(decided.rules)
    strict = [rule for rule in rules if rule.when and rule.decision is not ALLOW and rule.is_about(odd.tool) and rule.is_for(odd)]
    assert all(decided.verdict >= rule.decision for rule in strict)


@given(rule_lists, defaults, some(calls, min_size=1, max_size=4))
def test_no_tool_is_hidden_whose_call_is_let_through(rules, default, several):
    policy = RulePolicy(rules, default=default)
    for judged in several:
        offered = policy.resolve(TOOLS, request(judged.caller, judged.now, judged.labels))
        if policy.decide(judged).verdict is not DENY:
            assert judged.tool in offered
        bare = [rule for rule in rules if not rule.when]
        if judged.tool not in offered:
            assert policy.decide(judged).verdict is DENY
            assert RulePolicy(bare, default=default).decide(judged).verdict is DENY


@given(rule_lists, defaults, calls)
def test_an_explanation_decides_as_the_policy_does(rules, default, judged):
    policy = RulePolicy(rules, default=default)
    explained = policy.explain(judged)
    assert explained.decision == policy.decide(judged)
    assert len(explained.considered) == len(rules)
    fitting = {rule.id for rule in explained.fitting}
    assert set(explained.decision.rules) <= fitting | {"default"}
    assert fitting == {rule.id for rule in rules if rule.is_about(judged.tool) and rule.fits(judged)}


async def test_it_passes_the_suite_of_policies():
    rules = [Rule(id="a", decision=ALLOW, kinds=["read"]), Rule(id="b", decision=ASK, roles=["agent"], labels=["untrusted"])]
    budgets = [BudgetRule(id="c", limit=3, per="same-call"), BudgetRule(id="d", limit=3, per="tool")]
    for labels in ((), ("untrusted",)):
        await check_policy(RulePolicy(rules, budgets=budgets), TOOLS, caller=ALICE, labels=labels)
    await check_policy(RulePolicy([]), [])
