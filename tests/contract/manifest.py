"""Which rows of the contract there are, and which tests name them.

The rows are those of the tables in `docs/reference/contract.md`. A test names its row by the beginning of its name:
`test_p7_…` proves P7, `test_p4plus_…` proves P4+.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "reference" / "contract.md"
TESTS = Path(__file__).parent

_ROW = re.compile(r"^\| *([A-Z][0-9]+\+?) *\| *(\S.*?) *\|$", re.MULTILINE)
_NAMED = re.compile(r"test_([a-z][0-9]+)(plus)?_\w+")


class Proof(NamedTuple):
    """Be one test and the row that it names."""

    row: str
    file: str
    test: str


def rows(table: str) -> dict[str, str]:
    """Give the rows that a table of the contract has, each with its summary."""
    found = _ROW.findall(table)
    twins = sorted({name for name, _ in found if [each for each, _ in found].count(name) > 1})
    if twins:
        raise ValueError(f"rows that are there twice: {', '.join(twins)}")
    return dict(found)


def row_of(test: str) -> str | None:
    """Give the row that a test's name names, or None."""
    named = _NAMED.fullmatch(test)
    return None if named is None else named[1].upper() + ("+" if named[2] else "")


def names_in(source: str) -> Iterator[str]:
    """Give the names of the test functions of a file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name


def proofs(folder: Path = TESTS) -> list[Proof]:
    """Give every test of the folder that names a row."""
    found = []
    for file in sorted(folder.glob("test_*.py")):
        for test in names_in(file.read_text(encoding="utf-8")):
            row = row_of(test)
            if row is not None:
                found.append(Proof(row, file.name, test))
    return found
