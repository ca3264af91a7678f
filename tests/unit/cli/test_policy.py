"""`callgate policy check` and `callgate policy explain`, as a person and a program use them."""

import json

import pytest

from callgate.cli.app import ExitCode

TOOLS = '''
from callgate import tool


@tool(kind="read", emits=["untrusted"])
async def look(number: int = 0) -> int:
    """Look."""
    return number


@tool(kind="write")
async def pay(amount: int) -> str:
    """Pay."""
    return "paid"
'''
RULES = """\
[[rule]]
id = "reads"
decision = "allow"
kinds = ["read"]

[[rule]]
id = "pays"
decision = "ask"
tools = ["pay"]
roles = ["agent"]
reason = "money"

[[rule]]
id = "night"
decision = "deny"
tools = ["pay"]
time = { start = "00:00", end = "06:00" }

[[rule]]
id = "tainted"
decision = "deny"
tools = ["pay"]
labels = ["untrusted"]

[[budget]]
id = "few"
per = "tool"
limit = 3
"""
CEDAR = """
@id("reads") permit(principal, action == Action::"call", resource) when { resource.kind == "read" };
@id("pays") @reason("money") permit(principal in Role::"agent", action == Action::"call_with_approval", resource);
"""
ASKING_TOOLS = """
from typing import Annotated

from pydantic import AfterValidator

from callgate import require_approval, tool


def small(amount):
    if amount > 100:
        require_approval("it is a lot")
    return amount


@tool(needs_approval=True)
async def always() -> None: ...


@tool(needs_approval=lambda arguments: arguments["amount"] > 100)
async def large(amount: int) -> None: ...


@tool
async def checked(amount: Annotated[int, AfterValidator(small)]) -> None: ...
"""
NOON = "2024-05-06T12:00:00Z"


@pytest.fixture
def files(folder):
    (folder / "shop.py").write_text(TOOLS)
    (folder / "p.toml").write_text(RULES)
    (folder / "p.cedar").write_text(CEDAR)
    return folder


@pytest.fixture
def policy(files, run):
    return lambda *words: run("policy", *words)


@pytest.fixture
def explained(policy):
    def explain(*words):
        done = policy("explain", "p.toml", "shop.py", *words, "--json")
        assert done.exit_code == ExitCode.DONE, done.output
        return json.loads(done.stdout)

    return explain


def test_a_good_policy_is_counted(policy):
    done = policy("check", "p.toml", "shop.py")
    assert (done.exit_code, done.stdout) == (ExitCode.DONE, "4 rules and 1 budgets, nothing found\n")
    facts = json.loads(policy("check", "p.toml", "--json").stdout)
    assert (facts["rules"], facts["budgets"]) == (4, 1)
    assert json.loads(policy("check", "p.cedar", "shop.py", "--json").stdout)["rules"] == 2


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("p.toml", '"pay"', '"pays"', "p.toml:9: rule 'pays': there is no tool 'pays'"),
        ("p.toml", "limit = 3", 'limit = "3"', "p.toml:28: limit must be a whole number"),
        ("p.cedar", '"read"', '"raed"', "p.cedar:2: policy 'cedar:reads': there is no kind 'raed'"),
        ("p.cedar", "permit", "allow", "p.cedar:2: it is no Cedar"),
    ],
)
def test_what_is_wrong_is_found_with_its_line(files, file, old, new, words, policy):
    (files / file).write_text((files / file).read_text().replace(old, new))
    done = policy("check", file, "shop.py")
    assert done.exit_code == ExitCode.FOUND
    assert words in done.stderr


def test_a_file_that_is_not_there_is_found_missing(policy):
    assert policy("check", "none.toml").exit_code == ExitCode.FOUND


def test_an_explanation_names_the_rule_that_decides(explained):
    found = explained("pay", '{"amount": 5}', "--role", "agent", "--at", NOON)
    assert (found["decision"], found["reason"], found["rules"]) == ("ask", "money", ["pays"])
    says = {row["id"]: row["says"] for row in found["considered"]}
    assert says == {"pays": "decides", "night": "does not fit", "tainted": "does not fit"}
    assert [budget["limit"] for budget in found["budgets"]] == [3]


def test_caller_labels_and_time_are_those_of_the_command(explained):
    assert explained("pay", '{"amount": 5}', "--at", NOON)["rules"] == ["default"]
    assert explained("pay", '{"amount": 5}', "--at", "2024-05-06T05:00:00")["rules"] == ["night"]
    assert explained("pay", '{"amount": 5}', "--at", "0")["rules"] == ["night"]
    assert explained("pay", '{"amount": 5}', "--at", NOON, "--label", "untrusted")["rules"] == ["tainted"]
    assert explained("look")["decision"] == "allow"
    every = explained("look", "--all")
    assert {row["id"]: row["says"] for row in every["considered"]}["pays"] == "not about it"


def test_a_person_reads_a_table(policy):
    done = policy("explain", "p.toml", "shop.py", "pay", '{"amount": 5}', "--role", "agent", "--at", NOON)
    assert "ASK by pays: money" in done.stdout
    assert "not the time" in " ".join(done.stdout.split())


def test_a_cedar_policy_is_explained_as_well(policy):
    done = policy("explain", "p.cedar", "shop.py", "pay", '{"amount": 5}', "--role", "agent")
    assert done.stdout == "ASK by cedar:pays: money\n"
    assert policy("explain", "p.cedar", "shop.py", "pay", '{"amount": 5}').stdout == "DENY: the policy does not permit it\n"


@pytest.mark.parametrize(
    "words",
    [
        ("pay", "{}"),
        ("pays", "{}"),
        ("look", "{}", "--caller", ""),
        *(("look", "{}", "--at", at) for at in ("noon", "", "nan", "inf", "-1e12", "1e12", "1e300", "0001-01-01", "9999-12-31")),
    ],
)
def test_a_call_that_cannot_be_is_wrong_use(words, policy):
    done = policy("explain", "p.toml", "shop.py", *words)
    assert (done.exit_code, done.stdout) == (ExitCode.WRONG_USE, "")
    assert done.stderr.startswith("callgate: ")


def test_what_a_tool_asks_for_itself_is_explained_too(files, policy):
    (files / "own.py").write_text(ASKING_TOOLS)
    (files / "all.toml").write_text('default = "allow"\n')
    for name, arguments, said in [
        ("always", "{}", "ASK by tool:needs_approval: the tool 'always' needs an approval for it"),
        ("large", '{"amount": 5}', "ALLOW by default"),
        ("large", '{"amount": 500}', "ASK by tool:needs_approval: the tool 'large' needs an approval for it"),
        ("checked", '{"amount": 5}', "ALLOW by default"),
        ("checked", '{"amount": 500}', "ASK by tool:require_approval: it is a lot"),
    ]:
        assert policy("explain", "all.toml", "own.py", name, arguments).stdout == f"{said}\n"


def test_a_policy_that_cannot_judge_a_call_denies_it(policy):
    done = policy("explain", "p.cedar", "shop.py", "look", "--caller", "\ud800")
    assert done.stdout == "DENY: its policy could not judge it\n"
