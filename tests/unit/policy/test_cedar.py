"""Policies in Cedar: permitted runs, permitted with an approval asks, everything else is denied."""

import json
import sys
from types import SimpleNamespace

import pytest
from pydantic import SecretStr

from callgate import Caller, Denied, Pending, PolicyError, Succeeded, Tool, ToolCall, UsageError, tool
from callgate.policy import CedarPolicy, PolicyCall, Verdict
from callgate.testing import check_policy, gate_for

POLICIES = """
permit(principal, action == Action::"call", resource) when { resource.kind == "read" };
permit(principal in Role::"agent", action == Action::"call", resource == Tool::"refund")
  when { context.arguments.amount <= 100 && !context.labels.contains("untrusted") };
permit(principal in Role::"agent", action == Action::"call_with_approval", resource == Tool::"refund");
forbid(principal == Caller::"mallory", action, resource);
"""
ALICE = Caller("alice", ("agent",))
ALICE_AS_ENTITY = {"uid": {"type": "Caller", "id": "alice"}, "attrs": {}, "parents": []}


@tool(kind="read", emits=["untrusted"])
async def look() -> str:
    return "x"


@tool(kind="write")
async def refund(amount: float, note: str | None = None) -> str:
    return f"refunded {amount:g}"


@pytest.mark.parametrize(
    ("amount", "caller", "kind"),
    [
        (100, ALICE, Succeeded),
        (101, ALICE, Pending),
        (99.5, ALICE, Pending),  # Cedar has no fractions: what it cannot compare is not permitted as it is
        ("50", ALICE, Succeeded),  # the parsed number is judged
        (5, Caller("bob"), Denied),
        (5, Caller("mallory", ("agent",)), Denied),
    ],
)
async def test_a_call_runs_asks_or_is_denied_as_the_policies_say(amount, caller, kind):
    gate = gate_for(look, refund, policy=CedarPolicy(POLICIES))
    outcome = await gate.call(ToolCall("refund", {"amount": amount}), caller=caller)
    assert type(outcome) is kind


async def test_what_a_run_has_read_is_in_the_context():
    gate = gate_for(look, refund, policy=CedarPolicy(POLICIES))
    place = {"caller": ALICE, "run_id": "r"}
    assert isinstance(await gate.call(ToolCall("refund", {"amount": 1}, "1"), **place), Succeeded)
    assert isinstance(await gate.call(ToolCall("look", None, "2"), **place), Succeeded)
    assert isinstance(await gate.call(ToolCall("refund", {"amount": 1}, "3"), **place), Pending)


async def test_it_passes_the_suite_of_policies():
    calls = [("refund", {"amount": amount}) for amount in (1, 100, 500)]
    await check_policy(CedarPolicy(POLICIES), [look, refund], calls, caller=ALICE, now=0)


def test_a_text_that_is_no_cedar_is_refused(tmp_path):
    with pytest.raises(PolicyError, match="no Cedar"):
        CedarPolicy("permit(everything);")
    with pytest.raises(PolicyError, match="cannot be read"):
        CedarPolicy.load(tmp_path / "none.cedar")
    (tmp_path / "p.cedar").write_text(POLICIES)
    assert isinstance(CedarPolicy.load(tmp_path / "p.cedar"), CedarPolicy)


def test_what_is_too_deep_is_refused(monkeypatch):
    def too_deep(_text):  # how deep that is depends on the Python
        raise RecursionError

    monkeypatch.setattr("callgate.policy.cedar.json", SimpleNamespace(loads=too_deep, dumps=json.dumps))
    with pytest.raises(PolicyError, match="too deep"):
        CedarPolicy(POLICIES)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cedarpy", None)
    with pytest.raises(UsageError, match="extra cedar"):
        CedarPolicy(POLICIES)


# ── what may be written ──────────────────────────────────────────────────────────────────────────────────────────────────

TOOLS = [look, refund]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("permit(principal, action, resource);\n\n// permit(;\nfob(principal, action, resource);", 4, "fob"),
        ("permit(principal, action, resource)\n", 1, "no Cedar"),
        ('permit(principal, action, resource);\n\n@id("a;b")\npermit(principal == "x;y", action, resource);', 3, "no Cedar"),
        ("\n\npermit(principal == ?principal, action, resource);", 3, "template"),
    ],
)
def test_an_error_names_the_line_on_which_its_policy_begins(text, line, reason):
    with pytest.raises(PolicyError, match=reason) as caught:
        CedarPolicy(text, file="p.cedar")
    assert (caught.value.file, caught.value.line) == ("p.cedar", line)


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ('permit(principal, action == Action::"cal", resource);', "no action 'cal'; the nearest is 'call'"),
        ('permit(principal, action in [Action::"call", Action::"x"], resource);', "no action 'x'"),
        ('permit(principal, action, resource == Tool::"refnd");', "no tool 'refnd'; the nearest is 'refund'"),
        ('permit(principal == User::"a", action, resource);', "no type of entities 'User'"),
        ("permit(principal is User, action, resource);", "no type of entities 'User'"),
        ('permit(principal is Caller in Group::"x", action, resource);', "no type of entities 'Group'"),
        ('permit(principal, action, resource) when { resource.kind == "raed" };', "no kind 'raed'; the nearest is 'read'"),
        ('permit(principal, action, resource) when { "raed" == resource.kind };', "no kind 'raed'"),
        ('permit(principal, action, resource) when { ["raed"].contains(resource.kind) };', "no kind 'raed'"),
        ('permit(principal, action, resource) when { resource.tags.contains("x") };', "no tag 'x'"),
        ('permit(principal, action, resource) when { resource.sort == "read" };', "no attribute of resource 'sort'"),
        ('permit(principal, action, resource) when { context.labels.containsAny(["untrusted", "x"]) };', "no label 'x'"),
        ("permit(principal, action, resource) when { context.argument.amount > 1 };", "no attribute of context 'argument'"),
        ("permit(principal, action, resource) when { context.arguments.amuont > 1 };", "no argument 'amuont'"),
        ("permit(principal, action, resource) when { context.arguments has amuont };", "no argument 'amuont'"),
        ('permit(principal, action, resource) unless { resource in Tool::"x" || false };', "no tool 'x'"),
    ],
)
def test_what_there_is_not_is_refused(policy, reason):
    text = "// first\npermit(principal, action, resource);\n\n" + policy
    with pytest.raises(PolicyError, match=reason) as caught:
        CedarPolicy(text, tools=TOOLS)
    assert caught.value.line == 4
    policy = CedarPolicy(text)
    policy.bind([])
    with pytest.raises(PolicyError, match=reason):
        gate_for(*TOOLS, policy=policy)


def test_what_there_is_may_be_named():
    text = """
    permit(principal is Caller in Role::"agent", action, resource is Tool) when {
      ["read", "write"].contains(resource.kind) && context.labels.contains("untrusted") && context.now > 0
      && context has run_id && context.arguments has note && context.arguments.note like "a*"
      && principal in Group::"staff" && principal.level > 3
    };
    """
    CedarPolicy(text, tools=TOOLS, entities=[{"uid": {"type": "Group", "id": "staff"}, "attrs": {}, "parents": []}])


def test_arguments_of_any_name_close_nothing():
    async def call_anything(**everything: int) -> None: ...

    CedarPolicy("permit(principal, action, resource) when { context.arguments.x > 1 };", tools=[call_anything])


def test_a_schema_is_obeyed():
    schema = """
    entity Role; entity Caller in [Role]; entity Tool { kind: String, tags: Set<String> };
    action "call", "call_with_approval" appliesTo { principal: [Caller], resource: [Tool], context: { labels: Set<String> } };
    """
    CedarPolicy('permit(principal, action, resource) when { resource.kind == "read" };', schema=schema)
    with pytest.raises(PolicyError, match="sort") as caught:
        CedarPolicy('\npermit(principal, action, resource) when { resource.sort == "read" };', schema=schema)
    assert caught.value.line == 2


def judge(policy, arguments, caller=ALICE, name=refund):
    return policy.decide(PolicyCall(Tool.of(name) if not isinstance(name, Tool) else name, arguments, caller, 0.0, "r"))


def test_a_reason_and_a_name_come_from_annotations():
    policy = CedarPolicy("""
    @id("large") @reason("a person looks at it")
    permit(principal, action == Action::"call_with_approval", resource);
    @id("no-eve") @reason("eve may not")
    forbid(principal == Caller::"eve", action, resource);
    """)
    asks = judge(policy, {"amount": 1})
    assert (asks.verdict, asks.reason, asks.rules) == (Verdict.ASK, "a person looks at it", ("cedar:large",))
    denied = judge(policy, {"amount": 1}, Caller("eve"))
    assert (denied.verdict, denied.reason, denied.rules) == (Verdict.DENY, "eve may not", ("cedar:no-eve",))
    assert policy.rules == ("cedar:large", "cedar:no-eve")


def test_what_cannot_be_evaluated_is_not_permitted():
    forbids = "forbid(principal, action, resource) when { context.arguments.amount > 10 };"
    policy = CedarPolicy("permit(principal, action, resource);" + forbids)
    assert judge(policy, {"amount": 5}).verdict is Verdict.ALLOW
    assert judge(policy, {"amount": "much"}).verdict is Verdict.DENY
    assert judge(policy, {}).verdict is Verdict.DENY


@pytest.mark.parametrize("test", ['!= "x"', '== "x"', "!= {}"])
async def test_a_secret_is_nothing_that_a_policy_can_compare(test):
    @tool
    async def pay(card: SecretStr) -> str:
        raise AssertionError("it must not run")

    text = f"permit(principal, action, resource) when {{ context.arguments.card {test} }};"
    gate = gate_for(pay, policy=CedarPolicy(text))
    assert isinstance(await gate.call(ToolCall("pay", {"card": "y"}), caller=ALICE), Denied)


@pytest.mark.parametrize("key", ["__entity", "__extn", "__expr"])
def test_an_argument_cannot_pose_as_an_entity(key):
    policy = CedarPolicy('permit(principal, action, resource) when { context.arguments.amount == Role::"boss" };')
    posing = {"amount": [{key: {"type": "Role", "id": "boss"}}]}
    assert judge(policy, posing).verdict is Verdict.DENY
    assert judge(policy, {"amount": posing["amount"][0]}).verdict is Verdict.DENY


def test_any_name_of_a_caller_is_a_name_and_nothing_else():
    policy = CedarPolicy('permit(principal == Caller::"al\\"ice\\n", action, resource);')
    assert judge(policy, {}, Caller('al"ice\n')).verdict is Verdict.ALLOW
    assert judge(policy, {}, Caller('x" || true || "')).verdict is Verdict.DENY


def test_entities_of_the_host_are_joined_with_the_calls():
    entities = [
        {"uid": {"type": "Caller", "id": "alice"}, "attrs": {"level": 5}, "parents": [{"type": "Group", "id": "staff"}]},
        {"uid": {"__entity": {"type": "Group", "id": "staff"}}, "attrs": {}, "parents": []},
        {"uid": {"type": "Role", "id": "agent"}, "attrs": {}, "parents": [{"type": "Group", "id": "staff"}]},
        {"uid": {"type": "Tool", "id": "refund"}, "attrs": {"kind": "read", "owner": "us"}, "parents": []},
    ]
    text = """permit(principal in Role::"agent", action, resource)
      when { principal in Group::"staff" && principal.level > 3 && resource.owner == "us" && resource.kind == "write" };"""
    policy = CedarPolicy(text, entities=entities)
    assert judge(policy, {}).verdict is Verdict.ALLOW
    assert judge(policy, {}, Caller("bob", ("agent",))).verdict is Verdict.DENY
    assert CedarPolicy(text).digest != policy.digest == CedarPolicy(text, entities=reversed(entities)).digest
    for uid in (None, "alice", {"type": "Caller"}):
        with pytest.raises(PolicyError, match="needs a uid"):
            CedarPolicy(text, entities=[{"uid": uid}])


@pytest.mark.parametrize(
    ("entities", "says"),
    [
        (["alice"], "a list of tables"),
        ({"uid": {"type": "Caller", "id": "alice"}}, "a list of tables"),
        ([ALICE_AS_ENTITY, {**ALICE_AS_ENTITY, "parents": [{"type": "Role", "id": "boss"}]}], r'uid Caller::"alice"'),
        ([{**ALICE_AS_ENTITY, "attrs": None}], "not Cedar's: .*null"),
        ([{**ALICE_AS_ENTITY, "attrs": {"level": 1.5}}], "not Cedar's"),
        ([{**ALICE_AS_ENTITY, "attrs": {"level": object()}}], "no JSON"),
        ([{**ALICE_AS_ENTITY, "uid": {"type": "no type", "id": "x"}}], "not Cedar's"),
        ([{**ALICE_AS_ENTITY, "parents": [{"type": "Caller", "id": "alice"}]}], "cycle"),
        ([{"uid": {"type": "Caller", "id": "alice"}}], "missing field"),
    ],
)
def test_entities_that_would_deny_every_call_are_refused(entities, says):
    with pytest.raises(PolicyError, match=says):
        CedarPolicy("permit(principal, action, resource);", entities=entities)


@pytest.mark.parametrize("names", [("same", "same"), ("policy1", None)])
def test_an_approval_for_one_policy_is_none_for_another_of_the_same_id(names):
    notes = (f'@id("{name}")' if name else "" for name in names)
    with pytest.raises(PolicyError, match=rf"x\.cedar:2: two policies have the id '{names[0]}'"):
        CedarPolicy("\n".join(f"{note} permit(principal, action, resource);" for note in notes), file="x.cedar")


@pytest.mark.parametrize(
    ("value", "test"),
    [
        (2**62, "x == 4611686018427387904"),
        (2**64, 'x == "18446744073709551616"'),
        (1.5, 'x == "1.5"'),
        (2.0, "x == 2"),
        (1e300, 'x == "1e+300"'),
        ([1, 1, None, 2], "x == [2, 1]"),
        ({"a": {"b": None, "c": True}}, "x.a.c && !(x.a has b)"),
    ],
)
def test_json_has_a_form_in_cedar(value, test):
    policy = CedarPolicy(
        "permit(principal, action, resource) when { "
        + test.replace("x", "context.arguments.x", 1).replace("(x", "(context.arguments.x")
        + " };"
    )
    assert judge(policy, {"x": value}).verdict is Verdict.ALLOW
