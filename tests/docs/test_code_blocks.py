"""Run the code of the documentation: every `python` block, and every `callgate` command of a `console` or `sh` block.

The blocks of one page run in order and share one namespace, as a reader types them; a block may await at its top level. A
block fenced as `output` is what the `python` block before it prints. A command that ends in `# exit 3` exits so.
"""

import ast
import asyncio
import codeop
import contextlib
import inspect
import io
import itertools
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^(?P<indent> *)```(?P<kind>\w+)[^\n]*\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:\$ )?(?P<command>callgate .*?)(?:\s+# exit (?P<code>\d+))?$", re.MULTILINE)
numbers = itertools.count()


@dataclass(frozen=True)
class Block:
    kind: str
    text: str
    line: int


@dataclass(frozen=True)
class Command:
    words: tuple[str, ...]
    exit_code: int


def blocks(page: str) -> Iterator[Block]:
    for found in FENCE.finditer(page):
        text = re.sub(f"^{found['indent']}", "", found["body"], flags=re.MULTILINE)
        yield Block(found["kind"], text, page.count("\n", 0, found.start("body")))


def compiled(block: Block, filename: str) -> CodeType:
    source = "\n" * block.line + block.text  # a traceback then names the line of the page
    return compile(source, filename, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


def run_block(code: CodeType, module: ModuleType, runner: asyncio.Runner) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        result = eval(code, module.__dict__)
        if inspect.iscoroutine(result):
            runner.run(result)
    return printed.getvalue()


@contextlib.contextmanager
def page_module() -> Iterator[ModuleType]:
    """Make a module of the page, so that annotations in its code are resolved as in a file."""
    module = ModuleType(f"page_{next(numbers)}")
    sys.modules[module.__name__] = module
    try:
        yield module
    finally:
        del sys.modules[module.__name__]


def run_page(page: str, filename: str) -> None:
    printed = ""
    with page_module() as module, asyncio.Runner() as runner:
        for block in blocks(page):
            if block.kind == "python":
                printed = run_block(compiled(block, filename), module, runner)
            elif block.kind == "output":
                assert printed.strip() == block.text.strip(), f"{filename}:{block.line}: the page shows another output"


def paste(block: Block, filename: str) -> None:
    """Read a block line by line, as a prompt takes what is pasted into it, and then one empty line.

    Raises:
        SyntaxError: a blank line ends a body too early, or none stands between a body and the statement after it.
    """
    compiler = codeop.CommandCompiler()
    compiler.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    typed: list[str] = []
    for line in [*block.text.splitlines(), ""]:
        typed.append(line)
        if compiler("\n".join(typed), f"{filename}:{block.line}", "single") is not None:
            typed.clear()
    assert not typed, f"{filename}:{block.line}: the prompt waits for more"


def commands(page: str) -> list[Command]:
    shown = "\n".join(block.text for block in blocks(page) if block.kind in {"console", "sh"})
    return [Command(tuple(shlex.split(found["command"])[1:]), int(found["code"] or 0)) for found in COMMAND.finditer(shown)]


def run_command(command: Command) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "callgate.cli", *command.words]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)


@pytest.mark.parametrize("name", PAGES)
def test_the_python_code_of_a_page_runs(name):
    run_page((ROOT / name).read_text(encoding="utf-8"), name)


@pytest.mark.parametrize("name", PAGES)
def test_the_python_code_of_a_page_can_be_pasted_into_a_prompt(name):
    for block in blocks((ROOT / name).read_text(encoding="utf-8")):
        if block.kind == "python":
            paste(block, name)


@pytest.mark.parametrize("name", PAGES)
def test_the_commands_of_a_page_exit_as_shown(name):
    for command in commands((ROOT / name).read_text(encoding="utf-8")):
        done = run_command(command)
        assert done.returncode == command.exit_code, f"{name}: {command}\n{done.stdout}\n{done.stderr}"


def test_blocks_of_a_page_share_one_namespace_and_may_await():
    run_page("```python\nimport asyncio\nx = 1\n```\n\n```python\nawait asyncio.sleep(0)\nassert x == 1\n```\n", "page.md")


def test_a_failing_block_fails_with_the_line_of_its_page():
    with pytest.raises(ZeroDivisionError) as caught:
        run_page("# Page\n\n```python\nx = 0\n1 / x\n```\n", "page.md")
    assert [entry.lineno + 1 for entry in caught.traceback if str(entry.path).endswith("page.md")] == [5]


def test_an_output_block_must_be_what_the_code_prints():
    run_page("```python\nprint(1)\n```\n\n```output\n1\n```\n", "page.md")
    with pytest.raises(AssertionError, match="another output"):
        run_page("```python\nprint(1)\n```\n\n```output\n2\n```\n", "page.md")


@pytest.mark.parametrize("code", ["def f():\n    x = 1\n\n    return x\n", "if 1:\n    x = 1\ny = 2\n", "f(\n"])
def test_a_block_that_a_prompt_would_not_take_is_noticed(code):
    with pytest.raises((SyntaxError, AssertionError)):
        paste(Block("python", code, 1), "page.md")


def test_annotations_of_a_page_are_resolved_as_in_a_file():
    run_page(
        "```python\nimport typing\nclass A: ...\ndef f(a: 'A'): ...\nassert typing.get_type_hints(f) == {'a': A}\n```\n",
        "page.md",
    )


def test_code_in_a_list_is_found_without_its_indent():
    assert [block.text for block in blocks("- so:\n\n  ```python\n  x = 1\n  ```\n")] == ["x = 1\n"]


def test_commands_are_found_with_the_exit_code_shown():
    shown = "$ callgate list shop.py\nadd\n$ callgate call shop.py add '{\"a\": 1}'  # exit 3\n"
    page = f"```console\n{shown}```\n\n```text\ncallgate no\n```\n"
    assert commands(page) == [Command(("list", "shop.py"), 0), Command(("call", "shop.py", "add", '{"a": 1}'), 3)]
