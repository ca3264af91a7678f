"""The commands about workflows."""

import json

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


@pytest.fixture
def flow(folder):
    (folder / "flow.py").write_text(FLOW)
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
    assert run("approvals", "approve", waiting["id"], "--by", "bob").exit_code == ExitCode.DONE
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
    ],
)
def test_what_does_not_exist_is_wrong_use(flow, run, line):
    done = run("workflow", *line)
    assert done.exit_code == ExitCode.WRONG_USE
    assert done.stderr.startswith("callgate: ")
