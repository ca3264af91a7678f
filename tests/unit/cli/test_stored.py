"""The commands about policies, runs, approvals and the journal, as a person and a program use them."""

import json
import sqlite3

import pytest

from callgate.cli.app import ExitCode

TOOLS = '''
from callgate import ToolCall, tool
from callgate.testing import scripted_model


@tool(kind="read")
async def look(number: int = 0) -> int:
    """Look."""
    return number


@tool(kind="write")
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


model = scripted_model([ToolCall("look", {"number": 7}, "a"), ToolCall("pay", {"amount": 5}, "b")], "all done")
tools = [look, pay]
'''
POLICY = """
[[rule]]
id = "reads"
decision = "allow"
kinds = ["read"]
[[rule]]
id = "large"
decision = "ask"
tools = ["pay"]
when = [{ path = "/amount", op = ">", value = 3 }]
reason = "over 3"
"""


@pytest.fixture
def shop(folder):
    (folder / "shop.py").write_text(TOOLS)
    (folder / "policy.toml").write_text(POLICY)
    return folder


RUN = ("run", "shop.py:tools", "pay 5", "--model", "shop.py:model", "--policy", "policy.toml", "--caller", "alice")


def pending(run):
    [found] = json.loads(run("approvals", "list", "--json").stdout)
    return found


def test_a_policy_is_checked_against_the_tools(shop, run):
    assert run("policy", "check", "policy.toml").exit_code == ExitCode.DONE
    assert json.loads(run("policy", "check", "policy.toml", "shop.py:tools", "--json").stdout)["rules"] == 2
    (shop / "policy.toml").write_text(POLICY.replace('"pay"', '"pays"'))
    done = run("policy", "check", "policy.toml", "shop.py:tools")
    assert done.exit_code == ExitCode.FOUND
    assert "policy.toml:9: rule 'large': there is no tool 'pays'; the nearest is 'pay'" in done.stderr


def test_a_decision_is_explained(shop, run):
    explain = ("policy", "explain", "policy.toml", "shop.py:tools", "pay")
    answer = json.loads(run(*explain, '{"amount": 5}', "--json").stdout)
    assert (answer["decision"], answer["rules"], answer["reason"]) == ("ask", ["large"], "over 3")
    done = run(*explain, '{"amount": 3}')
    assert "DENY by default" in done.stdout
    assert "does not fit" in done.stdout
    assert run(*explain, '{"amount": "x"}').exit_code == ExitCode.WRONG_USE


def test_a_run_pauses_is_approved_elsewhere_and_resumed(shop, run):
    done = run(*RUN, "--no-ask")
    assert done.exit_code == 5
    assert "paused" in done.stderr
    found = pending(run)
    assert (found["tool"], found["shown"], found["caller"]) == ("pay", '{"amount": 5}', "alice")
    assert "pay" in run("approvals", "list").stdout
    assert "over 3" in run("approvals", "show", found["id"]).stdout
    approved = run("approvals", "approve", found["id"], "--by", "bob")
    assert approved.exit_code == ExitCode.DONE
    assert f"callgate resume {found['run_id']}" in approved.stderr
    twice = run("approvals", "deny", found["id"], "--by", "eve")
    assert twice.exit_code == ExitCode.WRONG_USE
    assert "by bob" in twice.stderr
    resume = ("resume", found["run_id"], "shop.py:tools", "--model", "shop.py:model", "--policy", "policy.toml")
    resumed = run(*resume)
    assert (resumed.exit_code, resumed.stdout.strip()) == (ExitCode.DONE, "all done")
    assert "paid 5" in resumed.stderr
    assert run(*resume).exit_code == ExitCode.WRONG_USE, "it is over"
    [listed] = json.loads(run("runs", "--json").stdout)
    assert (listed["id"], listed["status"]) == (found["run_id"], "completed")
    assert found["run_id"] in run("runs", "--status", "completed").stdout


def test_the_journal_is_read_filtered_and_checked(shop, run):
    run(*RUN, "--no-ask")
    lines = run("log").stdout.splitlines()
    assert sorted(line.split()[4] for line in lines) == ["asked", "started", "succeeded"]
    [record] = [json.loads(line) for line in run("log", "--json", "--tool", "look", "--status", "succeeded").stdout.splitlines()]
    assert (record["tool"], record["caller"], record["event"]) == ("look", "alice", "finished")
    assert run("log", "--caller", "nobody").stdout == ""
    assert run("log", "verify").exit_code == ExitCode.DONE
    with sqlite3.connect(shop / "callgate.db") as database:
        database.execute("UPDATE callgate_journal SET facts = replace(facts, 'alice', 'eve') WHERE position = 2")
    database.close()
    done = run("log", "verify")
    assert done.exit_code == 1
    assert "BROKEN" in done.stdout
    assert json.loads(run("log", "verify", "--json").stdout)["breaks"]


@pytest.mark.parametrize(
    ("said", "code", "text"),
    [("a\n", 0, "paid 5"), ("d\nnot today\n", 0, "not today"), ("r\n", 0, "paid 5"), ("p\n", 5, "waits"), ("", 5, "waits")],
)
def test_a_person_decides_in_the_terminal(shop, run, said, code, text):
    done = run(*RUN, stdin=said)
    assert done.exit_code == code
    assert text in done.stderr


def test_a_person_edits_in_their_editor(shop, run, monkeypatch):
    editor = shop / "editor.py"
    editor.write_text("import sys\nopen(sys.argv[1], 'w').write('{\"amount\": 2}')\n")
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"python3 {editor}")
    run(*RUN, "--no-ask")
    found = pending(run)
    wrong = run("approvals", "edit", found["id"], "shop.py:tools", '{"amount": "x"}', "--policy", "policy.toml")
    assert wrong.exit_code == ExitCode.WRONG_USE
    (shop / "policy.toml").write_text(POLICY + '[[rule]]\nid = "small"\ndecision = "allow"\ntools = ["pay"]\n')
    done = run("approvals", "edit", found["id"], "shop.py:tools", "--policy", "policy.toml", "--by", "bob")
    assert done.exit_code == ExitCode.DONE
    assert "approved by bob" in done.stdout


def test_without_a_policy_reads_run_and_the_rest_asks(shop, run):
    done = run(*(part for part in RUN if part not in {"--policy", "policy.toml"}), "--no-ask")
    assert done.exit_code == 5
    assert pending(run)["tool"] == "pay"


@pytest.mark.parametrize(
    "line",
    [
        ("run", "shop.py:tools", "x", "--model", "none.py:model"),
        ("run", "shop.py:tools", "x", "--model", "shop.py:none"),
        ("run", "shop.py:tools", "x", "--model", "shop.py:model", "--policy", "none.toml"),
        ("run", "shop.py:tools", "x", "--model", "shop.py:model", "--profile", "none"),
        ("run", "none.py", "x", "--model", "shop.py:model"),
        ("resume", "none", "shop.py:tools", "--model", "shop.py:model"),
        ("approvals", "show", "none"),
        ("approvals", "approve", "none"),
        ("runs", "--store", "nonsense://x"),
    ],
)
def test_what_does_not_exist_is_wrong_use_and_is_named(shop, run, line):
    done = run(*line)
    assert done.exit_code == ExitCode.WRONG_USE
    assert done.stderr.startswith("callgate: ")
    assert "Traceback" not in done.stderr
