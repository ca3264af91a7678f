"""The surface that issue 2 names: what can be imported, that it is described, and that the issue's own code runs."""

import ast
import asyncio
import importlib
import inspect
import textwrap
from types import FunctionType
from typing import Any

import pytest

import callgate
from callgate import ToolCallRecord, ToolReply, ToolResult

BESIDES = frozenset(
    {
        "AbortedError",
        "ApprovalRequiredError",
        "Background",
        "Backoff",
        "BinaryBlock",
        "BudgetExceededError",
        "Call",
        "ContentBlock",
        "HookCall",
        "ImageBlock",
        "KeepContent",
        "MemorySpill",
        "NotFoundError",
        "Offer",
        "OutcomeUnknownError",
        "Outcome",
        "PolicyError",
        "Problem",
        "RunPausedError",
        "RunStateError",
        "RunningCall",
        "SpillStore",
        "StoreError",
        "TextBlock",
        "WorkflowDefinitionError",
        "WorkflowError",
        "require_approval",
    }
)
"""What the promised names give or take, so that a program can name its types."""

CODE = """
from callgate import (ToolRegistry, Tool, tool, ToolContext, ToolAnswer, ExecutionOptions, ErrorPorts, ToolInvocationRequest, ToolResult, ToolReply, ToolCallRecord, CallContext,
    AbortController, AbortSignal, ToolErrorReport, format_tool_error, CallgateError, UsageError, ToolError, InvalidInputError, ToolNotFoundError, ToolNotOfferedError,
    ToolDeniedError, ToolTimeoutError, OutputTooLargeError, InvalidOutputError, ToolUnavailableError, ToolFailedError, ToolDefinitionError, DuplicateToolError, RegistrySealedError)

@tool(kind="read", timeout_s=5)
async def add(a: int, b: int = 1) -> int:
    \"\"\"Add two numbers.\"\"\"
    return a + b

registry = ToolRegistry([add])                                   # a fixed catalog, sealed
result = await registry.ainvoke("add", '{"a": 2}')               # or registry.invoke(...) without a loop
result.value, result.text, result.invocation.invocation_id, result.invocation.status
await registry.execute("add", {"a": 2}, thread_id="t1", tools=[add], signal=AbortController().signal, call_context=CallContext(run_id="r1"))
(await registry.answer("add", {"a": "x"})).text                  # text for the model, names field a
mutable = ToolRegistry().register(add).seal()
mutable.invoke(ToolInvocationRequest(tool_id="add", input={"a": 1}))
"""  # noqa: E501 - as the issue has it


GATE = """
from callgate import Gate, Caller, ToolCall, Succeeded, Failed, Denied, Pending, Approve, Deny, Edit, ConflictError
from callgate.policy import ToolPolicy, Decision, RulePolicy, CedarPolicy, AllowAll
from callgate.store import MemoryStore, SQLStore
from callgate.profiles import Profile, ProfileStore
from callgate.agent import LLMClient, RunHooks, create_run_hooks, prepare_call, RunState, split_run_tools
from callgate.workflow import Engine, Node, define_workflow, route
"""
"""What the issues of the gate and of workflows promise."""


PROMISED = frozenset(alias.name for node in ast.parse(CODE).body if isinstance(node, ast.ImportFrom) for alias in node.names)


def test_the_issue_promises_as_many_names_as_it_lists():
    assert len(PROMISED) == 31


def test_every_promised_name_is_there():
    assert frozenset(callgate.__all__) >= PROMISED


def test_nothing_else_became_public_by_accident():
    gate = ast.parse(GATE).body[0]
    assert isinstance(gate, ast.ImportFrom)
    assert frozenset(callgate.__all__) - PROMISED - {alias.name for alias in gate.names} == BESIDES


def test_every_name_that_the_gate_promises_can_be_imported_and_is_in_the_list_of_its_module():
    exec(GATE, {})
    for node in ast.parse(GATE).body:
        assert isinstance(node, ast.ImportFrom)
        module = importlib.import_module(node.module or "")
        assert {alias.name for alias in node.names} <= set(module.__all__)


def test_the_public_names_are_a_sorted_tuple_without_twins():
    assert isinstance(callgate.__all__, tuple)
    assert list(callgate.__all__) == sorted(set(callgate.__all__))


@pytest.mark.parametrize("name", callgate.__all__)
def test_every_public_name_can_be_imported(name):
    names: dict[str, Any] = {}
    exec(f"from callgate import {name}", names)
    assert names[name] is getattr(callgate, name)


def test_a_star_import_gives_the_public_names_and_no_more():
    names: dict[str, Any] = {}
    exec("from callgate import *", names)
    assert set(names) - {"__builtins__"} == set(callgate.__all__)


OBJECTS = [name for name in callgate.__all__ if callable(getattr(callgate, name)) and name != "ContentBlock"]


@pytest.mark.parametrize("name", OBJECTS)
def test_every_public_object_has_a_docstring_of_its_own(name):
    written = vars(getattr(callgate, name)).get("__doc__") or getattr(callgate, name).__doc__
    assert written
    assert not written.startswith(f"{name}("), "that is the text that dataclasses make up"
    assert written.splitlines()[0].endswith((".", ":")) or "\n" in written


def members(name: str) -> list[tuple[str, Any]]:
    thing = getattr(callgate, name)
    own = [each for each in thing.__mro__ if each.__module__.startswith("callgate")] if inspect.isclass(thing) else []
    found = {key: value for each in reversed(own) for key, value in vars(each).items() if not key.startswith("_")}
    described = property | classmethod | FunctionType
    return [(key, value) for key, value in found.items() if isinstance(value, described)]


METHODS = [(name, key, value) for name in OBJECTS for key, value in members(name)]


@pytest.mark.parametrize(("name", "key", "value"), METHODS, ids=[f"{name}.{key}" for name, key, _ in METHODS])
def test_every_public_method_and_property_has_a_docstring(name, key, value):
    assert value.__doc__
    assert value.__doc__.strip()


def run_as_written(code: str) -> dict[str, Any]:
    """Run code with `await` at its top, in one loop, and give its names."""
    compiled = compile(code, "issue.py", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names: dict[str, Any] = {"__name__": "issue"}

    async def run() -> None:
        await eval(compiled, names)

    asyncio.run(run())
    return names


@pytest.fixture(scope="module")
def issue():
    """The names that the block has before its last line, which has a test of its own."""
    return run_as_written(CODE.rsplit("mutable.invoke", 1)[0])


def test_the_code_of_the_issue_gives_what_it_says(issue):
    result = issue["result"]
    assert isinstance(result, ToolResult)
    assert isinstance(result.invocation, ToolCallRecord)
    assert (result.value, result.text, result.invocation.status, result.invocation.kind) == (3, "3", "succeeded", "read")
    assert result.invocation.invocation_id
    assert issue["registry"].sealed
    assert issue["mutable"].sealed


def test_the_answer_of_the_issue_names_the_field(issue):
    reply = asyncio.run(issue["registry"].answer("add", {"a": "x"}))
    assert isinstance(reply, ToolReply)
    assert reply.is_error
    assert "a: expected" in reply.text


def test_the_last_line_of_the_issue_runs_without_a_loop(issue):
    assert issue["mutable"].invoke(issue["ToolInvocationRequest"](tool_id="add", input={"a": 1})).value == 2


def test_the_whole_code_of_the_issue_runs_as_written():
    assert run_as_written(CODE)["mutable"].events[-1].status == "succeeded"


def test_the_code_of_the_issue_runs_inside_a_function_as_well():
    body = textwrap.indent(CODE.split("RegistrySealedError)", 1)[1], "    ")
    imports = CODE.split("RegistrySealedError)", 1)[0] + "RegistrySealedError)\n"
    names: dict[str, Any] = {"__name__": "issue"}
    exec(f"{imports}\nasync def main():\n{body}\n    return mutable.events[-1].status\n", names)
    assert asyncio.run(names["main"]()) == "succeeded"


def test_an_error_has_code_status_and_message(issue):
    error = issue["InvalidInputError"].of("add", "a", "an integer", "text")
    assert (error.code, error.status) == ("invalid_input", 400)
    assert error.user_message == str(error)
    [problem] = error.problems
    assert (problem.path, problem.expected, problem.got) == ("a", "an integer", "text")


STATUSES = {
    "InvalidInputError": 400, "ToolNotOfferedError": 403, "ToolDeniedError": 403, "ToolNotFoundError": 404,
    "OutputTooLargeError": 413, "ToolFailedError": 500, "InvalidOutputError": 502, "ToolUnavailableError": 503,
    "ToolTimeoutError": 504,
}  # fmt: skip


@pytest.mark.parametrize(("name", "status"), STATUSES.items())
def test_every_error_of_a_call_is_a_tool_error_with_its_status_and_a_code_of_its_own(name, status):
    kind = getattr(callgate, name)
    assert issubclass(kind, callgate.ToolError)
    assert kind.status == status
    assert len({getattr(callgate, each).code for each in STATUSES}) == len(STATUSES)


@pytest.mark.parametrize("name", ["ToolDefinitionError", "DuplicateToolError", "RegistrySealedError"])
def test_every_error_of_a_program_is_a_usage_error(name):
    kind = getattr(callgate, name)
    assert issubclass(kind, callgate.UsageError)
    assert not issubclass(kind, callgate.ToolError)
