"""A place of its own for each test's target files, and a way to run the command line."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import callgate.agent  # loaded before a test forgets what it has imported, because it cannot be loaded twice
import callgate.store.sql.store  # noqa: F401 - the same
from callgate.cli.app import app

TOOLS = '''
"""Tools to look at."""
from typing import Annotated

from pydantic import Field

from callgate import ToolError, tool

SECRET = "hunter2"


@tool(kind="read", timeout_s=5, tags=("sums",))
async def add(a: Annotated[int, Field(description="One.")], b: Annotated[int, Field(description="Another.")] = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(kind="write")
def fail(text: str) -> str:
    raise RuntimeError(f"{SECRET} {text}")


@tool(kind="read")
def refuse() -> str:
    """Answer the model on purpose."""
    raise ToolError("Nothing of that name.", code="gone", status=404)
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of this test; what it imports from there is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


@pytest.fixture
def tools_file(folder: Path) -> str:
    (folder / "sums.py").write_text(TOOLS)
    return "sums.py"


@pytest.fixture
def run():
    def invoke(*words: str, stdin: str | None = None):
        return CliRunner().invoke(app, list(words), input=stdin)

    return invoke
