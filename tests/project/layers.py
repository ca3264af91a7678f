"""Which modules a part of the package imports, read from its source."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "callgate"


def imports_of(part: str) -> set[str]:
    """Give the names of the modules that the files of a part import."""
    found = set()
    for file in (SOURCE / part).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
            elif isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
    return found
