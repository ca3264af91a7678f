"""The commands about policies, runs, approvals and the journal, as a person and a program use them."""

import json
import logging
import re
import sqlite3
import sys

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


class Proxy:
    def __getattr__(self, name):
        raise RuntimeError("not yet")


proxy = Proxy()
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


FLOW = """
from callgate.workflow import Node, define_workflow, route


async def end(state, runtime):
    return {"done": True}


node = Node(id="a", description="End.", starts_round=True, run=end, routes=[route.deliver("done")])
flow = define_workflow("flow", nodes=[node])
"""


@pytest.fixture
def shop(folder):
    (folder / "shop.py").write_text(TOOLS)
    (folder / "policy.toml").write_text(POLICY)
    (folder / "broken.py").write_text("raise SystemExit(3)")
    return folder


RUN = ("run", "shop.py:tools", "pay 5", "--model", "shop.py:model", "--policy", "policy.toml", "--caller", "alice")


def pending(run):
    [found] = json.loads(run("approvals", "list", "--json").stdout)
    return found


VAULT = """
from pydantic import SecretStr
from callgate import ToolCall, tool
from callgate.testing import scripted_model


@tool(kind="write")
async def login(name: str, pin: SecretStr) -> str:
    return pin.get_secret_value()[-2:]


model = scripted_model(ToolCall("login", {"name": "ann", "pin": "hunter2"}, "a"), "all done")
tools = [login]
"""


def test_nobody_who_decides_sees_a_secret_and_the_tool_gets_it(folder, run):
    (folder / "vault.py").write_text(VAULT)
    said = [run("run", "vault.py:tools", "go", "--model", "vault.py:model", "--no-ask")]
    found = pending(run)
    said += [run("approvals", "list"), run("approvals", "list", "--json"), run("approvals", "show", found["id"])]
    said += [run("approvals", "show", found["id"], "--json"), run("approvals", "approve", found["id"], "--by", "bob")]
    said += [run("resume", found["run_id"], "vault.py:tools", "--model", "vault.py:model"), run("log", "--json")]
    assert "r2" in said[-2].stderr
    assert "ann" in said[3].stdout
    assert "hunter2" not in "".join(done.stdout + done.stderr for done in said)


def test_a_request_is_shown_with_times_that_people_read(shop, run):
    run(*RUN, "--no-ask")
    shown = run("approvals", "show", pending(run)["id"]).stdout
    assert re.search(r"created_at\s+│ 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d ", shown)


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


@pytest.mark.parametrize("said", ["a\n", "r\n", "e\n", "y\n" * 100, ""])
def test_what_a_pipe_says_is_no_approval(shop, run, said):
    done = run(*RUN, stdin=said)
    assert done.exit_code == 5
    assert "waits" in done.stderr
    assert "[a]pprove" not in done.stderr
    assert pending(run)["state"] == "pending"


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
        ("runs", "--status", "nonsense"),
        ("run", "shop.py:tools", "x", "--model", "nobody:none"),
        ("run", "shop.py:tools", "x", "--model", "broken.py:model"),
        ("run", "shop.py:tools", "x", "--model", "shop.py:proxy.model"),
        ("run", "shop.py:tools", "x", "--model", "shop.py:tools"),
        ("run", "shop.py:tools", "x", "--model", "shop.py:model", "--policy", "none.cedar"),
    ],
)
def test_what_does_not_exist_is_wrong_use_and_is_named(shop, run, line):
    (shop / "callgate.db").touch()
    done = run(*line)
    assert done.exit_code == ExitCode.WRONG_USE
    assert done.stderr.startswith("callgate: ")
    assert "Traceback" not in done.stderr


def writing(content: bytes) -> str:
    """Give an editor that leaves this."""
    return f"""{sys.executable} -c "import sys; open(sys.argv[1], 'wb').write(bytes({list(content)}))\""""


EDITORS = {
    "none": "",
    "not there": "/no/such/editor",
    "badly quoted": "vi '",
    "failing": "false",
    "removing the file": "rm",
    "leaving no JSON": writing(b"{"),
    "leaving no object": writing(b"[]"),
    "leaving no text": writing(bytes([255, 254])),
    "leaving too much": writing(b"[" * 20_000),
    "leaving a mask": writing(b'{"amount": [{"x": "**********"}]}'),
}


@pytest.mark.parametrize("editor", EDITORS)
def test_an_editor_that_fails_or_leaves_what_is_no_object_decides_nothing(shop, run, monkeypatch, editor):
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", EDITORS[editor])
    run(*RUN, "--no-ask")
    done = run("approvals", "edit", pending(run)["id"], "shop.py:tools", "--policy", "policy.toml")
    assert done.exit_code == ExitCode.WRONG_USE
    assert done.stderr.startswith("callgate: ")
    assert pending(run)["state"] == "pending"


def test_the_log_is_shown_wherever_the_option_stands(shop, run):
    log = logging.getLogger("callgate")
    for words in (("--log", *RUN, "--no-ask"), (*RUN, "--no-ask", "--log")):
        before = list(log.handlers)
        assert run(*words).exit_code == 5
        added = [each for each in log.handlers if each not in before]
        assert any(type(each) is logging.StreamHandler for each in added)
        for each in added:
            log.removeHandler(each)
    for words in (
        ("resume", "none", "shop.py:tools", "--model", "shop.py:model", "--log"),
        ("workflow", "run", "a", "b", "--log"),
    ):
        assert "No such option" not in run(*words).stderr


def test_a_policy_of_cedar_is_loaded_too(shop, run):
    (shop / "policy.cedar").write_text("permit (principal, action, resource);")
    done = run(*(part if part != "policy.toml" else "policy.cedar" for part in RUN), "--no-ask")
    assert (done.exit_code, done.stdout.strip()) == (0, "all done")


def test_a_store_of_a_newer_release_is_refused_by_every_command(shop, run):
    run(*RUN, "--no-ask")
    with sqlite3.connect(shop / "callgate.db") as database:
        database.execute("UPDATE callgate_schema SET version_num = '9999'")
    database.close()
    resume = ("resume", "r", "shop.py:tools", "--model", "shop.py:model")
    for words in (RUN, ("runs",), ("approvals", "list"), ("log",), ("log", "verify"), resume):
        done = run(*words)
        assert done.exit_code == ExitCode.WRONG_USE, words
        assert "Traceback" not in done.stderr
        assert "newer" in done.stderr


def test_the_options_of_the_log_may_stand_before_its_check(shop, run):
    run(*RUN, "--no-ask", "--store", "other.db")
    assert run("log", "verify").exit_code == ExitCode.WRONG_USE
    for words in (("--store", "other.db", "--json", "verify"), ("verify", "--store", "other.db", "--json")):
        done = run("log", *words)
        assert (done.exit_code, json.loads(done.stdout)["records"] > 0) == (ExitCode.DONE, True)
    assert run("log", "--store", "none.db", "verify").exit_code == ExitCode.WRONG_USE


@pytest.mark.parametrize(
    "words",
    [
        ("runs",),
        ("runs", "--json"),
        ("log",),
        ("log", "verify"),
        ("approvals", "list"),
        ("approvals", "show", "x"),
        ("approvals", "approve", "x"),
        ("approvals", "deny", "x"),
        ("approvals", "edit", "x", "shop.py:tools", "{}"),
        ("resume", "r", "shop.py:tools", "--model", "shop.py:model"),
        ("workflow", "show", "flow.py:flow", "--run", "r"),
        ("workflow", "run", "flow.py:flow", "shop.py:tools", "--resume", "r"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("place", ["nothing.db", "sqlite:///nothing.db"])
def test_only_what_begins_a_run_makes_a_store(shop, run, words, place):
    (shop / "flow.py").write_text(FLOW)
    before = sorted(shop.iterdir())
    done = run(*words, "--store", place)
    assert (done.exit_code, done.stdout) == (ExitCode.WRONG_USE, "")
    assert "there is no store 'nothing.db'" in done.stderr
    assert sorted(shop.iterdir()) == before, "a name that is misspelt is not taken for a store in which nothing waits"


EVIL = "\x1b]0;owned\x07\x9b2J\u202egnihtyna\r"


def test_nothing_that_a_model_or_a_tool_says_reaches_the_terminal_as_a_command_of_it(shop, run):
    evil = TOOLS.replace("import ToolCall, tool", "import ToolCall, ToolError, tool")
    evil = evil.replace("return number", f"raise ToolError({EVIL!r})").replace("amount: int)", "amount: int, note: str = '')")
    evil = evil.replace('{"amount": 5}, "b"', f'{{"amount": 5, "note": {EVIL!r}}}, "b" + {EVIL!r} + chr(10) + "2030 forged"')
    (shop / "evil.py").write_text(evil)
    done = run(*(word.replace("shop.py", "evil.py") for word in RUN), "--no-ask", "--thread", EVIL)
    assert done.exit_code == 5
    found = pending(run)
    assert found["call_id"].startswith(f"b{EVIL}"), "programs read what it is"
    said = [done, run("approvals", "list"), run("approvals", "show", found["id"]), run("approvals", "list", "--json")]
    said += [run("approvals", "deny", found["id"], "--by", EVIL, "--reason", EVIL), run("approvals", "approve", found["id"])]
    said += [run("log"), run("log", "--json"), run("runs"), run("runs", "--json"), run("approvals", "show", EVIL)]
    said += [run("list", f"evil.py:{EVIL}"), run("resume", EVIL, "shop.py:tools", "--model", "shop.py:model")]
    for done in said:
        text = done.stdout + done.stderr
        assert not set(text) & set("\x1b\x07\x9b\u202e\r"), text
    log = run("log").stdout.splitlines()
    assert len(log) == len(run("log", "--json").stdout.splitlines())
    assert not any(each.startswith("2030") for each in log)
