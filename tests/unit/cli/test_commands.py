import itertools
import json
import os
import shlex
import subprocess
import sys
from importlib.metadata import version

import pytest

from callgate.cli.app import ExitCode
from callgate.tools.dialects import DIALECTS


def test_list_shows_every_tool_to_people(tools_file, run):
    done = run("list", tools_file)
    assert done.exit_code == ExitCode.DONE
    for text in ("add", "fail", "refuse", "Add two numbers."):
        assert text in done.stdout


def test_list_gives_programs_the_whole_definition(tools_file, run):
    add, *_ = json.loads(run("list", tools_file, "--json").stdout)
    shown = {key: add[key] for key in ("name", "kind", "run_in", "timeout_s", "tags")}
    assert shown == {"name": "add", "kind": "read", "run_in": "inline", "timeout_s": 5, "tags": ["sums"]}
    assert add["input_schema"]["properties"]["a"]["type"] == "integer"


def test_schema_gives_the_neutral_form_without_a_dialect(tools_file, run):
    shown = json.loads(run("schema", tools_file).stdout)
    assert [tool["name"] for tool in shown] == ["add", "fail", "refuse"]
    assert shown[0]["input_schema"]["required"] == ["a"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_schema_gives_the_form_of_every_provider(dialect, tools_file, run):
    done = run("schema", tools_file, "--dialect", dialect)
    assert done.exit_code == ExitCode.DONE
    assert "Add two numbers." in json.dumps(json.loads(done.stdout))


def test_an_unknown_dialect_is_wrong_use_and_names_the_known_ones(tools_file, run):
    done = run("schema", tools_file, "--dialect", "klingon")
    assert done.exit_code == ExitCode.WRONG_USE
    assert "openai_strict" in done.stderr
    assert done.stdout == ""


def test_call_prints_the_answer_and_keeps_the_receipt_off_stdout(tools_file, run):
    done = run("call", tools_file, "add", '{"a": 2, "b": 3}')
    assert (done.exit_code, done.stdout) == (ExitCode.DONE, "5\n")
    assert "add succeeded" in done.stderr


def test_call_reads_arguments_from_stdin(tools_file, run):
    assert run("call", tools_file, "add", "-", stdin='{"a": 2}').stdout == "3\n"


def test_call_gives_programs_the_receipt(tools_file, run):
    answer = json.loads(run("call", tools_file, "add", '{"a": 2}', "--json").stdout)
    assert (answer["text"], answer["is_error"], answer["receipt"]["status"]) == ("3", False, "succeeded")


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [("add", '{"a": "x"}', "a: expected"), ("add", '{"a": 2', "add"), ("ad", "{}", "Nearest: add"), ("add", "{}", "a: expected")],
)
def test_a_call_refused_before_the_tool_runs_exits_with_3(name, arguments, says, tools_file, run):
    done = run("call", tools_file, name, arguments)
    assert done.exit_code == ExitCode.CALL_REFUSED
    assert says in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(("name", "arguments"), [("fail", '{"text": "x"}'), ("refuse", "")])
def test_a_tool_that_fails_exits_with_4_whatever_status_it_chose(name, arguments, tools_file, run):
    done = run("call", tools_file, name, arguments)
    assert done.exit_code == ExitCode.TOOL_FAILED
    assert done.stdout == ""


def test_a_call_that_fails_does_not_print_the_exceptions_text(tools_file, run):
    done = run("call", tools_file, "fail", '{"text": "x"}', "--json")
    assert done.exit_code == ExitCode.TOOL_FAILED
    assert json.loads(done.stdout)["receipt"]["error_code"] == "tool_failed"
    assert "hunter2" not in done.stdout


def test_the_log_with_the_exception_is_shown_when_asked_for(tools_file):
    program, words = [sys.executable, "-m", "callgate.cli"], ["call", tools_file, "fail", '{"text": "x"}']
    told = {
        (before, after): subprocess.run(
            [*program, *["--log"] * before, *words, *["--log"] * after], capture_output=True, text=True, timeout=50, check=False
        )
        for before, after in itertools.product((0, 1), (0, 1))
    }
    assert {done.returncode for done in told.values()} == {ExitCode.TOOL_FAILED}
    assert {flags: done.stderr.count("RuntimeError: hunter2 x") for flags, done in told.items()} == {
        (0, 0): 0,
        (0, 1): 1,
        (1, 0): 1,
        (1, 1): 1,
    }


def test_the_version_is_that_of_the_installed_package(run):
    done = run("--version")
    assert (done.exit_code, done.stdout) == (ExitCode.DONE, f"callgate {version('callgate')}\n")


def test_check_names_what_has_no_description_and_exits_with_0(tools_file, run):
    done = run("check", tools_file, "--json")
    found = {(each["level"], each["tool"], each["subject"]) for each in json.loads(done.stdout)}
    assert {("warning", "fail", "description"), ("warning", "fail", "text")} <= found
    assert not any(tool in {"add", "refuse"} for _, tool, _ in found)
    assert done.exit_code == ExitCode.DONE


def test_check_exits_with_1_for_warnings_when_strict(tools_file, run):
    assert run("check", tools_file, "--strict").exit_code == ExitCode.FOUND
    assert run("check", f"{tools_file}:add", "--strict").exit_code == ExitCode.DONE


def test_check_finds_a_definition_that_is_refused(folder, run):
    (folder / "wrong.py").write_text("from callgate import tool\n@tool(timeout_s=-1)\ndef f() -> int:\n    'F.'\n    return 1\n")
    done = run("check", "wrong.py", "--json")
    (found,) = json.loads(done.stdout)
    assert (done.exit_code, found["level"], found["tool"]) == (ExitCode.FOUND, "error", "f")
    assert run("list", "wrong.py").exit_code == ExitCode.WRONG_USE


def test_check_finds_names_that_a_provider_cannot_tell_apart(folder, run):
    (folder / "same.py").write_text(
        "from callgate import tool\n"
        "@tool(name='a.b')\ndef f() -> int:\n    'F.'\n    return 1\n"
        "@tool(name='a_b')\ndef g() -> int:\n    'G.'\n    return 1\n"
    )
    done = run("check", "same.py", "--json")
    assert done.exit_code == ExitCode.FOUND
    assert "openai" in {each["subject"] for each in json.loads(done.stdout) if each["level"] == "error"}


def test_check_notes_the_name_that_a_provider_gets_instead(folder, run):
    (folder / "dotted.py").write_text("from callgate import tool\n@tool(name='a.b')\ndef f() -> int:\n    'F.'\n    return 1\n")
    done = run("check", "dotted.py", "--json", "--strict")
    assert done.exit_code == ExitCode.DONE
    notes = {each["subject"]: each["text"] for each in json.loads(done.stdout) if each["level"] == "note"}
    assert notes["openai"] == "is sent as 'a_b'"


def test_a_target_without_tools_is_wrong_use(folder, run):
    for command in (("list",), ("schema",), ("call",), ("check",)):
        done = run(*command, "nothing.py", *(("x",) if command == ("call",) else ()))
        assert (done.exit_code, done.stdout) == (ExitCode.WRONG_USE, "")
        assert "nothing.py" in done.stderr


def test_texts_of_tools_are_printed_as_they_are(folder, run):
    (folder / "marked.py").write_text(
        "from callgate import tool\n@tool\ndef f() -> str:\n    'Say [bold]no[/bold].'\n    return '[red]x[/red]'\n"
    )
    assert "[bold]no[/bold]" in run("list", "marked.py").stdout
    assert run("call", "marked.py", "f").stdout == '"[red]x[/red]"\n'


def test_without_the_extra_the_command_says_how_to_get_it():
    program = "import sys; sys.modules['typer'] = None; from callgate.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == ExitCode.WRONG_USE
    assert "install callgate with its extra cli, for example: pip install '/path/to/clone[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [("call", "--json"), ("call",), ("list",), ("schema",), ("check",)])
def test_an_output_without_unicode_gets_escapes_that_json_reads_back(words, folder):
    text = "from callgate import tool\n@tool\ndef f() -> str:\n    'Say é.'\n    return 'café 😀'\n"
    (folder / "words.py").write_text(text, encoding="utf-8")
    command, *flags = words
    program = [sys.executable, "-m", "callgate.cli", command, "words.py", *(["f"] if command == "call" else []), *flags]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(program, capture_output=True, timeout=50, check=False, env=environment)
    assert (done.returncode, b"Traceback" in done.stderr) == (ExitCode.DONE, False)
    if command == "call":
        answer = json.loads(done.stdout)
        assert (json.loads(answer["text"]) if flags else answer) == "café 😀"


@pytest.mark.parametrize(
    ("words", "closed", "code"),
    [
        ("call sums.py add -", "<&-", ExitCode.CALL_REFUSED),
        ("call sums.py refuse", "2>&-", ExitCode.TOOL_FAILED),
        ("call sums.py refuse", ">&- 2>&-", ExitCode.TOOL_FAILED),
        ("list sums.py", "<&- >&- 2>&-", ExitCode.DONE),
        ("list none.py", "2>&-", ExitCode.WRONG_USE),
    ],
)
def test_a_stream_that_is_closed_changes_no_exit_code(words, closed, code, tools_file):
    program = f"exec {shlex.quote(sys.executable)} -m callgate.cli {words} {closed}"
    done = subprocess.run(["sh", "-c", program], capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)


def test_bytes_on_stdin_that_are_no_text_are_refused_as_arguments(tools_file):
    program = [sys.executable, "-m", "callgate.cli", "call", tools_file, "add", "-"]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run(program, input=b"\xff{", capture_output=True, timeout=50, check=False, env=environment)
    assert (done.returncode, b"Traceback" in done.stderr) == (ExitCode.CALL_REFUSED, False)


@pytest.mark.parametrize("command", [("list",), ("schema",), ("call", "f"), ("check",)])
def test_a_target_that_exits_when_it_is_imported_is_wrong_use(command, folder, run):
    (folder / "script.py").write_text("import sys\nsys.exit(0)\n")
    done = run(command[0], "script.py", *command[1:])
    assert (done.exit_code, done.stdout) == (ExitCode.WRONG_USE, "")
    assert "importing 'script' raised SystemExit: 0" in done.stderr


def test_check_counts_one_tool_in_the_singular(tools_file, run):
    assert run("check", f"{tools_file}:refuse").stdout.startswith("1 tool, ")
