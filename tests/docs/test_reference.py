"""The reference says what the code says: the generated page is up to date, the tables hold the code's names and defaults."""

import ast
import dataclasses
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import callgate
from callgate import CallgateError, ExecutionOptions, ToolError, ToolInvocationRequest, ToolRegistry
from callgate.tools.options import ToolOptions
from callgate.values import UNSET
from docs.build_reference import PAGE, page

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SCRIPT = re.compile(r"^```py\n# (?P<name>\w+\.py)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!\w+:)(?P<path>[^)#\s]*)(?:#(?P<place>[\w-]+))?\)")
GIVEN = {True: "yes", False: "no", None: "not said"}
REQUIRED = object()


def rows(page: str, heading: str) -> dict[str, list[str]]:
    """Read the first table below a heading: the cells of each row by the name in its first cell."""
    below = page[page.index(f"\n## {heading}\n") :]
    table = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return {row[0].strip("`"): row for row in cells}


def shown(cell: str) -> object:
    if cell in {"unset", "required"}:
        return UNSET if cell == "unset" else REQUIRED
    code = cell.strip("`")
    return frozenset() if code == "frozenset()" else ast.literal_eval(code)


def fields_of(kind: type) -> dict[str, object]:
    missing = dataclasses.MISSING
    return {
        each.name: each.default if each.default is not missing else REQUIRED
        for each in dataclasses.fields(kind)
        if each.default_factory is missing
    }


def arguments_of(function) -> dict[str, object]:
    return {name: each.default for name, each in inspect.signature(function).parameters.items() if name != "self"}


def test_the_page_of_the_api_is_what_the_docstrings_say():
    assert PAGE.read_text(encoding="utf-8") == page(), "run: .venv/bin/python -m docs.build_reference"


def test_the_page_of_the_api_has_every_public_name():
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in callgate.__all__ if f"\n### `{name}`\n" not in text] == []


@pytest.mark.parametrize(
    ("heading", "code"),
    [
        ("`ToolRegistry`", arguments_of(ToolRegistry.__init__)),
        ("`ToolOptions`", fields_of(ToolOptions)),
        ("`ExecutionOptions`", fields_of(ExecutionOptions)),
        ("`ToolInvocationRequest`", fields_of(ToolInvocationRequest)),
    ],
)
def test_a_table_of_the_configuration_has_the_names_and_defaults_of_the_code(heading, code):
    table = rows((REFERENCE / "configuration.md").read_text(encoding="utf-8"), heading)
    written = {name: shown(row[1]) for name, row in table.items() if row[1] != "see below"}
    expected = {name: value for name, value in code.items() if name in written}
    assert set(code) - set(written) <= {"transient"}, "classes have no form in a table"
    assert {name: tuple(value) if name == "tags" else value for name, value in expected.items()} == written


def errors() -> Iterator[type[CallgateError]]:
    waiting = [CallgateError]
    while waiting:
        kind = waiting.pop()
        children = [child for child in kind.__subclasses__() if child.__module__ == "callgate.errors"]
        waiting += children
        if kind is not CallgateError:
            yield kind


@pytest.mark.parametrize("kind", [*errors()], ids=lambda kind: kind.__name__)
def test_a_table_of_the_errors_has_status_code_and_advice_of_the_class(kind):
    text = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    part = {True: "Of a call", False: "Of the program"}[issubclass(kind, ToolError)]
    row = rows(text, "Of an abort" if kind.__name__ == "AbortedError" else part)[kind.__name__]
    assert row[1:3] == [str(kind.status), f"`{kind.code}`"]
    if issubclass(kind, ToolError):
        assert row[5] == GIVEN[kind.try_other_arguments]


def scripts() -> list[tuple[str, str, str]]:
    pages = {name: (ROOT / name).read_text(encoding="utf-8") for name in PAGES}
    return [(name, found["name"], found["code"]) for name, text in pages.items() for found in SCRIPT.finditer(text)]


@pytest.mark.parametrize(("name", "script", "code"), scripts())
def test_a_script_of_a_page_runs_as_a_file_of_its_own(name, script, code, tmp_path):
    path = tmp_path / script
    path.write_text(code, encoding="utf-8")
    done = subprocess.run([sys.executable, path], cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"


def places(page: str) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", PAGES)
def test_the_links_of_a_page_lead_somewhere(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    for link in LINK.finditer(re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)):
        target = (ROOT / name).parent / link["path"] if link["path"] else ROOT / name
        assert target.exists(), f"{name} links to {link['path']}"
        assert not link["place"] or link["place"] in places(target.read_text(encoding="utf-8")), f"{name}: #{link['place']}"


def test_a_decision_record_has_at_most_sixty_lines():
    records = sorted((ROOT / "docs" / "adr").glob("0*.md"))
    assert records
    assert [path.name for path in records if len(path.read_text(encoding="utf-8").splitlines()) > 60] == []


def test_every_page_is_in_the_index_of_its_folder():
    folders = [folder for folder in (ROOT / "docs").iterdir() if (folder / "README.md").exists()]
    lost = [
        path.relative_to(ROOT).as_posix()
        for folder in folders
        for path in folder.glob("*.md")
        if path.name != "README.md" and f"({path.name})" not in (folder / "README.md").read_text(encoding="utf-8")
    ]
    assert lost == []
