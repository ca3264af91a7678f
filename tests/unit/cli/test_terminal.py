"""A person at a terminal: what they are asked, what they answer, and Ctrl-C. In processes with terminals of their own."""

import json
import os
import re
import select
import sqlite3
import subprocess
import sys
import time

import pytest

AGENT = '''
import asyncio
import time
from callgate import ToolCall, tool
from callgate.testing import Says, scripted_model


@tool(kind="read")
async def hang() -> None:
    """Hang."""
    open("hanging", "w").close()
    await asyncio.Event().wait()


@tool(kind="read")
async def cling() -> None:
    """Take a while to end."""
    print("it begins", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        print("it is cancelled", flush=True)
        await asyncio.sleep(0.5)


@tool(kind="read")
async def block() -> None:
    """Stand still, and the loop with it."""
    print("it begins", flush=True)
    while True:
        time.sleep(0.05)


@tool(kind="write")
async def pay(amount: int) -> str:
    """Pay."""
    open("paid", "a").write(f"{amount} ")
    return f"paid {amount}"


paying = scripted_model([ToolCall("pay", {"amount": 5}, "a"), ToolCall("pay", {"amount": 6}, "b")], "all done")
one = scripted_model(ToolCall("pay", {"amount": 5}, "a"), "all done")
evil = scripted_model(Says("\\x1b]0;owned\\x07 hello\\x9b2J", (ToolCall("pay", {"amount": 5}, "a"),)), "all done")
hanging = scripted_model(ToolCall("hang", {}, "a"))
clinging = scripted_model([ToolCall("cling", {}, "a"), ToolCall("hang", {}, "b")])
blocking = scripted_model(ToolCall("block", {}, "a"))
tools = [hang, cling, block, pay]
'''
FLOW = """
from callgate.workflow import Node, define_workflow, route


async def wait(state, runtime):
    return {"answer": (await runtime.tools.invoke("cling")).value}


flow = define_workflow("w", [Node(id="a", description="A", run=wait, starts_round=True, routes=[route.deliver("answer")])])
"""
PATIENCE_S = 40


class Terminal:
    """Be a command in a terminal, with a person before it."""

    def __init__(self, folder, *words, **environment):
        self.master, slave = os.openpty()
        command = [sys.executable, "-c", "from callgate.cli import main; main()", *words]
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "dumb", "COLUMNS": "200", **environment},
            preexec_fn=lambda: os.login_tty(slave),
        )
        os.close(slave)
        self.shown, self.place, self.folder = "", 0, folder

    def breaks_off(self):
        """Press Ctrl-C at a question until it is heard: while `input` begins to read, Python does not look for one."""
        for _ in range(5):
            self.types("\x03")
            if self.shows("\n", 5):
                return self
        raise AssertionError(self.shown)

    def shows(self, wanted, patience_s):
        until = time.monotonic() + patience_s
        while wanted not in self.shown[self.place :] and time.monotonic() < until:
            ready, _, _ = select.select([self.master], [], [], 0.2)
            if ready and not self._read():
                break
        return wanted in self.shown[self.place :]

    def sees(self, wanted):
        """Wait for a text, behind the one that was waited for last."""
        self.shows(wanted, PATIENCE_S)
        found = self.shown.find(wanted, self.place)
        assert found >= 0, self.shown
        self.place = found + len(wanted)
        return self

    def _read(self):
        try:
            data = os.read(self.master, 65536)
        except OSError:  # the other end is closed
            return False
        self.shown += data.decode(errors="surrogateescape")
        return bool(data)

    def types(self, text):
        os.write(self.master, text.encode())
        return self

    def ends(self):
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            ready, _, _ = select.select([self.master], [], [], 0.2)
            if ready and not self._read():
                break
            if self.process.poll() is not None and not ready:
                break
        os.close(self.master)
        code = self.process.wait(PATIENCE_S)
        assert "Traceback" not in self.shown, self.shown
        return code

    def paid(self):
        file = self.folder / "paid"
        return file.read_text().split() if file.exists() else []

    def run(self):
        with sqlite3.connect(self.folder / "callgate.db") as database:
            [(status, state)] = database.execute("SELECT status, state FROM callgate_runs").fetchall()
        database.close()
        return status, json.loads(state)


@pytest.fixture
def terminal(tmp_path):
    (tmp_path / "agent.py").write_text(AGENT)
    opened = []

    def open_command(*words, **environment):
        opened.append(Terminal(tmp_path, *words, **environment))
        return opened[-1]

    def open_one(model, *words, **environment):
        return open_command("run", "agent.py:tools", "go", "--model", f"agent.py:{model}", *words, **environment)

    open_one.command = open_command

    open_one.folder = tmp_path
    yield open_one
    for each in opened:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()


ASKED = "[p]ause"


@pytest.mark.parametrize(
    ("said", "code", "text", "paid"),
    [
        ("a\n", 0, "paid 5", ["5"]),
        ("d\nnot today\n", 0, "not today", []),
        ("r\n", 0, "all done", ["5"]),
        ("p\n", 5, "waits", []),
        ("\n", 5, "waits", []),
        ("nonsense\n", 5, "waits", []),
        ("\x04", 5, "waits", []),
    ],
)
def test_a_person_decides_in_the_terminal(terminal, said, code, text, paid):
    person = terminal("one").sees(ASKED).types(said)
    assert person.ends() == code
    assert text in person.shown
    assert person.paid() == paid


def test_ctrl_c_at_a_question_leaves_the_run_paused_and_nothing_decided(terminal):
    person = terminal("paying").sees(ASKED).types("a\n").sees(ASKED).sees("[p]:").breaks_off()
    assert person.ends() == 5
    assert person.paid() == []
    assert person.run()[0] == "paused"


def test_a_pause_at_the_second_question_lets_the_first_decision_stand(terminal):
    person = terminal("paying").sees(ASKED).types("a\n").sees(ASKED).types("p\n").sees(ASKED).types("p\n")
    assert person.ends() == 5
    assert person.paid() == ["5"]
    assert person.run()[0] == "paused"


def test_ctrl_c_while_a_tool_runs_stops_the_run(terminal):
    (terminal.folder / "all.toml").write_text('default = "allow"\n')
    person = terminal("hanging", "--policy", "all.toml").sees("→ hang")
    until = time.monotonic() + PATIENCE_S
    while not (person.folder / "hanging").exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert person.types("\x03").ends() == 130
    status, state = person.run()
    assert (status, state["calls"]) == ("stopped", [])


def test_a_second_ctrl_c_while_the_first_one_stops_the_run_does_no_harm(terminal):
    (terminal.folder / "all.toml").write_text('default = "allow"\n')
    person = terminal("clinging", "--policy", "all.toml").sees("it begins")
    person.types("\x03").sees("it is cancelled").types("\x03")
    assert person.ends() == 130
    status, state = person.run()
    assert (status, state["calls"]) == ("stopped", [])


def test_a_third_ctrl_c_leaves_a_loop_that_stands_still(terminal):
    (terminal.folder / "all.toml").write_text('default = "allow"\n')
    person = terminal("blocking", "--policy", "all.toml").sees("it begins")
    for _ in range(3):
        person.types("\x03").sees("^C")
        time.sleep(0.2)  # signals of one kind that are not yet delivered are one
    assert person.ends() == 130


@pytest.mark.parametrize("pressed", [1, 2])
def test_ctrl_c_ends_the_tool_of_a_single_call(terminal, pressed):
    person = terminal.command("call", "agent.py:tools", "cling").sees("it begins")
    person.types("\x03").sees("it is cancelled").types("\x03" * (pressed - 1))
    assert person.ends() in {1, 130}
    assert "KeyboardInterrupt" not in person.shown


@pytest.mark.parametrize("pressed", [1, 2])
def test_ctrl_c_ends_a_workflow_and_what_ran_is_stored(terminal, pressed):
    (terminal.folder / "flow.py").write_text(FLOW)
    (terminal.folder / "all.toml").write_text('default = "allow"\n')
    person = terminal.command("workflow", "run", "flow.py:flow", "agent.py:tools", "--policy", "all.toml").sees("it begins")
    person.types("\x03").sees("it is cancelled").types("\x03" * (pressed - 1))
    assert person.ends() == 130
    with sqlite3.connect(person.folder / "callgate.db") as database:
        ends = database.execute("SELECT status FROM callgate_journal WHERE event = 'finished'").fetchall()
    database.close()
    assert ends == [("cancelled",)]


def test_an_editor_that_fails_is_told_and_asks_again(terminal):
    person = (
        terminal("one", EDITOR="false", VISUAL="").sees(ASKED).types("e\n").sees("nothing was changed").sees(ASKED).types("p\n")
    )
    assert person.ends() == 5
    assert person.paid() == []


def test_edited_arguments_that_do_not_fit_are_told_and_asked_about_again(terminal, tmp_path):
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import sys, pathlib\nseen = pathlib.Path('seen')\n"
        "text = '{\"amount\": 7}' if seen.exists() else '{\"amount\": \"x\"}'\nseen.touch()\nopen(sys.argv[1], 'w').write(text)\n"
    )
    person = terminal("one", EDITOR=f"{sys.executable} {editor}", VISUAL="")
    person.sees(ASKED).types("e\n").sees("were refused").sees(ASKED).types("e\n")
    assert person.ends() == 0
    assert person.paid() == ["7"]


def test_a_call_that_was_decided_elsewhere_meanwhile_is_told_and_the_run_goes_on(terminal, tmp_path):
    person = terminal("one").sees(ASKED)
    command = [sys.executable, "-c", "from callgate.cli import main; main()"]
    listed = subprocess.run([*command, "approvals", "list", "--json"], cwd=tmp_path, capture_output=True, text=True, check=True)
    [found] = json.loads(listed.stdout)
    subprocess.run([*command, "approvals", "deny", found["id"], "--by", "eve"], cwd=tmp_path, check=True, capture_output=True)
    person.types("a\n").sees("by eve")
    assert person.ends() == 0
    assert person.paid() == []


def test_a_terminal_does_not_obey_what_a_model_says(terminal):
    person = terminal("evil").sees(ASKED).types("p\n")
    person.ends()
    assert not re.search(r"[\x07\x9b]|\x1b\]", person.shown.replace("\\x07", ""))
    assert r"\x1b]0;owned\x07 hello\x9b2J" in person.shown
