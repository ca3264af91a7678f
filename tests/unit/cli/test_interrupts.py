"""Ctrl-C in the terminal, and a journal that is followed: in processes of their own, as a person has them."""

import signal
import sqlite3
import subprocess
import sys
import time

import pytest

AGENT = '''
import asyncio
from callgate import ToolCall, tool
from callgate.testing import scripted_model


@tool(kind="read")
async def hang() -> None:
    """Hang."""
    open("hanging", "w").close()
    await asyncio.Event().wait()


@tool(kind="read")
async def look() -> int:
    """Look."""
    return 7


hanging = scripted_model([ToolCall("hang", {}, "a"), ToolCall("look", {}, "b")])
looking = scripted_model(ToolCall("look", {}, "a"), "done")
tools = [hang, look]
'''


def command(*words):
    return [sys.executable, "-c", "from callgate.cli import main; main()", *words]


@pytest.fixture
def agent(tmp_path):
    (tmp_path / "agent.py").write_text(AGENT)
    return tmp_path


def wait_for(condition):
    for _ in range(4000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come")


def test_ctrl_c_stops_the_run_and_leaves_a_whole_history(agent):
    words = command("run", "agent.py:tools", "go", "--model", "agent.py:hanging")
    process = subprocess.Popen(words, cwd=agent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for((agent / "hanging").exists)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=40)
    assert process.returncode == 130
    assert "stopped" in said
    assert "Traceback" not in said
    with sqlite3.connect(agent / "callgate.db") as database:
        [(status, state)] = database.execute("SELECT status, state FROM callgate_runs").fetchall()
        ends = database.execute("SELECT status FROM callgate_journal WHERE event = 'finished'").fetchall()
    database.close()
    assert status == "stopped"
    assert state.count('"tool-return"') == 2
    assert sorted(end for (end,) in ends) == ["cancelled", "succeeded"]


def test_a_journal_is_followed_while_others_write_to_it(agent):
    run = command("run", "agent.py:tools", "go", "--model", "agent.py:looking")
    subprocess.run(run, cwd=agent, check=True, capture_output=True, timeout=50)
    follower = subprocess.Popen(command("log", "--follow"), cwd=agent, stdout=subprocess.PIPE, text=True)
    try:
        assert follower.stdout is not None
        assert [follower.stdout.readline().split()[4] for _ in range(2)] == ["started", "succeeded"]
        subprocess.run(run, cwd=agent, check=True, capture_output=True, timeout=50)
        assert [follower.stdout.readline().split()[4] for _ in range(2)] == ["started", "succeeded"]
    finally:
        follower.send_signal(signal.SIGINT)
        follower.communicate(timeout=20)
    assert follower.returncode == 0
