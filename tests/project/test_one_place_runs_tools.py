"""The registry is the only place that runs a tool: nothing else in the package calls what a tool executes."""

import ast
from pathlib import Path

import callgate

PACKAGE = Path(callgate.__file__).parent
RUNS = {"call", "function"}  # the two attributes of a tool, and of its entry, that lead to its body
MAY_RUN = {
    "registry/bodies.py",  # a function here or in a thread
    "registry/drivers.py",  # a coroutine on the loop
}


def calls_of_tools(path: Path) -> list[int]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in RUNS
        and isinstance(node.func.value, ast.Attribute | ast.Name)
        and (node.func.value.attr if isinstance(node.func.value, ast.Attribute) else node.func.value.id) in {"tool", "entry"}
    ]


def test_nothing_but_the_registry_runs_a_tool():
    found = {path.relative_to(PACKAGE).as_posix(): calls_of_tools(path) for path in sorted(PACKAGE.rglob("*.py"))}
    assert {name for name, lines in found.items() if lines} == MAY_RUN


def test_a_tool_object_cannot_be_called_past_the_gate():
    assert not callable(callgate.Tool("p", print, input_schema={"type": "object"}))
