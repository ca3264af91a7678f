"""The commands about workflows."""

import json
import signal
import subprocess
import sys
import time

import pytest

from callgate.cli.app import ExitCode

FLOW = """
from callgate import tool
from callgate.workflow import Node, define_workflow, route


@tool(kind="read")
async def look() -> int:
    return 7


@tool(kind="write")
async def pay(amount: int) -> str:
    return f"paid {amount}"


async def read(state, runtime):
    return {"answer": (await runtime.tools.invoke("look")).value}


async def settle(state, runtime):
    return {"answer": (await runtime.tools.invoke("pay", {"amount": 5})).value}


async def fail(state, runtime):
    raise ZeroDivisionError("hunter2")


def one(run):
    return define_workflow("w", [Node(id="a", description="A", run=run, starts_round=True, routes=[route.deliver("answer")])])


reading, paying, failing = one(read), one(settle), one(fail)
tools = [look, pay]
"""


ODD = """
class Proxy:
    def __getattribute__(self, name):
        raise KeyError("not yet")


proxy = Proxy()
"""
RAISES = """
class Silent(BaseException):
    def __str__(self):
        raise Silent


raise Silent
"""


@pytest.fixture
def flow(folder):
    (folder / "flow.py").write_text(FLOW)
    (folder / "odd.py").write_text(ODD)
    (folder / "exits.py").write_text("raise SystemExit(0)")
    (folder / "raises.py").write_text(RAISES)
    return folder


def test_a_workflow_is_checked_shown_and_run(flow, run):
    assert json.loads(run("workflow", "check", "flow.py:reading", "--json").stdout)["nodes"] == ["a"]
    assert run("workflow", "show", "flow.py:reading").stdout.splitlines() == ["w", "-> a: A", "    => answer"]
    assert run("workflow", "show", "flow.py:reading", "--mermaid").stdout.startswith("flowchart TD")
    done = run("workflow", "run", "flow.py:reading", "flow.py:tools")
    assert (done.exit_code, done.stdout) == (ExitCode.DONE, "7\n")


def test_a_run_that_waits_is_approved_resumed_and_its_way_is_marked(flow, run):
    assert run("workflow", "run", "flow.py:paying", "flow.py:tools").exit_code == 5
    [waiting] = json.loads(run("approvals", "list", "--json").stdout)
    approved = run("approvals", "approve", waiting["id"], "--by", "bob")
    assert approved.exit_code == ExitCode.DONE
    assert f"workflow run WORKFLOW TOOLS --resume {waiting['run_id']}" in approved.stderr
    done = run("workflow", "run", "flow.py:paying", "flow.py:tools", "--resume", waiting["run_id"])
    assert (done.exit_code, done.stdout) == (ExitCode.DONE, '"paid 5"\n')
    assert "-> a *: A" in run("workflow", "show", "flow.py:paying", "--run", waiting["run_id"]).stdout
    assert waiting["run_id"] in run("runs").stdout


def test_a_node_that_fails_is_named_and_its_text_is_not(flow, run):
    done = run("workflow", "run", "flow.py:failing", "flow.py:tools")
    assert done.exit_code == 4
    assert "node 'a' in round 1" in done.stderr
    assert "hunter2" not in done.stderr


@pytest.mark.parametrize(
    "line",
    [
        ("check", "flow.py"),
        ("check", "flow.py:tools"),
        ("check", "flow.py:none"),
        ("show", "flow.py:reading", "--run", "none"),
        ("run", "flow.py:reading", "none.py"),
        ("run", "flow.py:reading", "flow.py:tools", "{"),
        ("run", "flow.py:reading", "flow.py:tools", "--resume", "none"),
        ("run", "flow.py:reading", "flow.py:tools", "[" * 20_000),
        ("run", "flow.py:reading", "flow.py:tools", "5"),
        ("run", "flow.py:reading", "flow.py:tools", '{"answer": NaN}'),
        ("run", "flow.py:reading", "flow.py:tools", "--policy", "none.toml"),
        ("run", "flow.py:reading", "odd.py:proxy"),
        ("check", "odd.py:proxy"),
        ("check", "odd.py:proxy.inner"),
        ("check", "odd.py:[/bold]"),
        ("check", "exits.py:flow"),
        ("check", "raises.py:flow"),
        ("check", ":flow"),
    ],
)
def test_what_does_not_exist_is_wrong_use(flow, run, line):
    done = run("workflow", *line)
    assert done.exit_code == ExitCode.WRONG_USE
    assert done.stderr.startswith("callgate: ")


def test_markup_in_names_is_text(flow, run):
    (flow / "marked.py").write_text(FLOW.replace('define_workflow("w"', 'define_workflow("[red]w[/bold]"'))
    assert run("workflow", "check", "marked.py:reading").stdout.startswith("[red]w[/bold]: 1 nodes")


def test_ctrl_c_stops_a_workflow(flow, run):
    (flow / "hanging.py").write_text(FLOW.replace('raise ZeroDivisionError("hunter2")', HANG))
    words = ("workflow", "run", "hanging.py:failing", "hanging.py:tools")
    process = subprocess.Popen([sys.executable, "-m", "callgate.cli", *words], cwd=flow, stderr=subprocess.PIPE, text=True)
    for _ in range(4000):
        if (flow / "begun").exists():
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=40)
    assert process.returncode == 130
    assert "Traceback" not in said
    [listed] = json.loads(run("runs", "--json").stdout)
    assert listed["status"] == "stopped"


HANG = """import asyncio
    open("begun", "w").close()
    await asyncio.Event().wait()"""
