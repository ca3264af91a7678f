"""800 rows of the Berkeley Function-Calling Leaderboard: schemas by many hands, and calls that each of them accepts.

A call reaches its function unchanged; the same call without a required field, or with a field of a wrong kind, is
refused with the field named, wherever in the arguments it stands.
"""

import asyncio
import json
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from typing import Any, NamedTuple

import pytest

from callgate import ExecutionOptions, InvalidInputError, Tool, ToolRegistry
from callgate.diagnostics import DiagnosticContext
from tests.recorded import recorded

ROWS = {"simple_python": 400, "multiple": 200, "parallel": 200}
SILENT = DiagnosticContext()  # tens of thousands of refusals are the point here, and no news

WRONG = {
    "string": (7, 1.5, True, ["text"], {"text": 1}),
    "integer": ("many", "0x5", "1,000", "5abc", 1.5, True, [1], {"n": 1}),
    "number": ("many", "0x5", "1,000", " 5", "NaN", True, [1], {"n": 1}),
    "boolean": ("yes", "True", 1, 0, [True], {"b": True}),
    "array": ("one, two", 7, True, {"0": "one"}),
    "object": ("key: value", 7, True, ["key"]),
}

every_file = pytest.mark.parametrize("name", ROWS)
with_and_without_repair = pytest.mark.parametrize("repair", [True, False])


class Place(NamedTuple):
    """Be one place in the arguments: its steps, its schema, and whether it may be left out."""

    steps: tuple[str | int, ...]
    schema: dict[str, Any]
    required: bool

    @property
    def path(self) -> str:
        return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.steps).removeprefix(".")


@cache
def rows(name: str) -> list[dict[str, Any]]:
    path = recorded("bfcl") / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


class Offered:
    """Hold the tools of one row in a registry, and what their functions got."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.got: list[tuple[str, Any]] = []
        self.registry = ToolRegistry([self._tool(tool) for tool in row["tools"]], diagnostics=SILENT)

    def _tool(self, tool: dict[str, Any]) -> Tool[Any, Any]:
        def execute(arguments: dict[str, Any]) -> dict[str, Any]:
            self.got.append((tool["name"], arguments))
            return arguments

        options: dict[str, Any] = {"kind": "read", "run_in": "inline"}
        return Tool(tool["name"], execute, description=tool["description"], input_schema=tool["schema"], **options)

    def refusal(self, call: dict[str, Any], arguments: object, *, repair: bool) -> InvalidInputError | None:
        """Give the refusal of a changed call; None when the function ran."""
        before = len(self.got)
        try:
            self.registry.invoke(call["name"], arguments, options=ExecutionOptions(repair=repair))
        except InvalidInputError as error:
            assert len(self.got) == before
            return error
        return None


def calls(name: str) -> Iterator[tuple[str, Offered, dict[str, Any], dict[str, Any]]]:
    """Give each call of a file with the id of its row, its tools and the schema of the tool that it is for."""
    for row in rows(name):
        offered = Offered(row)
        schemas = {tool["name"]: tool["schema"] for tool in row["tools"]}
        for call in row["calls"]:
            yield row["id"], offered, call, schemas[call["name"]]


def places(schema: dict[str, Any], value: Any, steps: tuple[str | int, ...] = ()) -> Iterator[Place]:
    """Give every place of a value that its schema describes, at any depth."""
    if isinstance(value, dict):
        for key, inner in schema.get("properties", {}).items():
            if key in value:
                yield Place((*steps, key), inner, key in schema.get("required", ()))
                yield from places(inner, value[key], (*steps, key))
    if isinstance(value, list):
        for index, item in enumerate(value):
            inner = schema.get("items", {})
            yield Place((*steps, index), inner, required=True)
            yield from places(inner, item, (*steps, index))


def with_value(arguments: dict[str, Any], place: Place, value: object) -> dict[str, Any]:
    changed = deepcopy(arguments)
    container: Any = changed
    for step in place.steps[:-1]:
        container = container[step]
    container[place.steps[-1]] = value
    return changed


def without(arguments: dict[str, Any], place: Place) -> dict[str, Any]:
    changed = deepcopy(arguments)
    container: Any = changed
    for step in place.steps[:-1]:
        container = container[step]
    del container[place.steps[-1]]
    return changed


def as_written(value: object) -> str:
    """Write a value so that nothing of it is lost: key order, kinds of numbers, each character."""
    return json.dumps(value, ensure_ascii=True)


def names_only(error: InvalidInputError | None, path: str) -> bool:
    """Tell whether a refusal names this place and no other, for the program and for the model."""
    if error is None:
        return False
    return {problem.path for problem in error.problems} == {path} and f"- {path}: " in error.user_message


@every_file
def test_the_rows_are_complete(name):
    assert len(rows(name)) == ROWS[name]
    assert all(row["calls"] and row["tools"] for row in rows(name))


@every_file
def test_a_schema_is_registered_as_it_is(name):
    for row in rows(name):
        registry = Offered(row).registry
        assert registry.ids() == tuple(tool["name"] for tool in row["tools"])
        assert [tool.input_schema for tool in registry.list()] == [tool["schema"] for tool in row["tools"]]
        assert [tool.description for tool in registry.list()] == [tool["description"] for tool in row["tools"]]


def test_names_with_dots_are_kept_and_called():
    dotted = [(row, call) for name in ROWS for row in rows(name) for call in row["calls"] if "." in call["name"]]
    assert len(dotted) > 100
    for row, call in dotted:
        offered = Offered(row)
        result = offered.registry.invoke(call["name"], call["arguments"])
        assert result.invocation.tool == call["name"]
        assert offered.got == [(call["name"], call["arguments"])]


@every_file
@with_and_without_repair
def test_an_accepted_call_reaches_its_function_unchanged(name, repair):
    forms = (
        lambda arguments: arguments,
        json.dumps,
        lambda arguments: json.dumps(arguments, ensure_ascii=False, indent=2).encode(),
    )
    for row_id, offered, call, _ in calls(name):
        for form in forms:
            offered.got.clear()
            options = ExecutionOptions(repair=repair)
            result = offered.registry.invoke(call["name"], form(call["arguments"]), options=options)
            assert as_written(offered.got) == as_written([(call["name"], call["arguments"])]), row_id
            assert as_written(result.value) == as_written(call["arguments"]), row_id
            assert json.loads(result.text) == call["arguments"], row_id
            assert result.invocation.repairs == (), row_id


@every_file
async def test_all_calls_of_a_row_run_at_once_and_each_gets_its_own_answer(name):
    for row in rows(name):
        offered = Offered(row)
        results = await asyncio.gather(
            *(offered.registry.ainvoke(call["name"], json.dumps(call["arguments"])) for call in row["calls"])
        )
        assert as_written([result.value for result in results]) == as_written([call["arguments"] for call in row["calls"]])
        assert [result.invocation.tool for result in results] == [call["name"] for call in row["calls"]]
        sent = sorted(as_written((call["name"], call["arguments"])) for call in row["calls"])
        assert sorted(map(as_written, offered.got)) == sent
        assert len({result.invocation.invocation_id for result in results}) == len(row["calls"])


async def test_a_refused_call_of_a_parallel_row_keeps_none_of_the_others_from_running():
    for row in rows("parallel"):
        offered = Offered(row)
        inputs = [json.dumps(call["arguments"]) for call in row["calls"]]
        inputs[0] = "{"
        replies = await asyncio.gather(
            *(offered.registry.answer(call["name"], text) for call, text in zip(row["calls"], inputs, strict=True))
        )
        assert [reply.is_error for reply in replies] == [True] + [False] * (len(inputs) - 1)
        assert [reply.value for reply in replies[1:]] == [call["arguments"] for call in row["calls"][1:]]


@every_file
@with_and_without_repair
def test_a_call_without_a_required_field_is_refused_with_the_field_named(name, repair):
    removed, wrong = 0, []
    for row_id, offered, call, schema in calls(name):
        for place in places(schema, call["arguments"]):
            if not place.required or isinstance(place.steps[-1], int):
                continue
            removed += 1
            error = offered.refusal(call, without(call["arguments"], place), repair=repair)
            if not names_only(error, place.path) or "missing" not in error.problems[0].got:
                wrong.append((row_id, place.path, error and error.user_message))
    assert wrong == []
    assert removed > ROWS[name]


@every_file
@with_and_without_repair
def test_a_field_of_a_wrong_kind_is_refused_with_the_field_named(name, repair):
    made, wrong = 0, []
    for row_id, offered, call, schema in calls(name):
        for place in places(schema, call["arguments"]):
            for value in WRONG.get(place.schema.get("type", ""), ()):
                made += 1
                error = offered.refusal(call, with_value(call["arguments"], place, value), repair=repair)
                if not names_only(error, place.path):
                    wrong.append((row_id, place.path, value, error and error.user_message))
    assert wrong == []
    assert made > 10 * ROWS[name]


@every_file
@with_and_without_repair
def test_a_value_outside_an_enum_is_refused_with_the_field_named(name, repair):
    made, wrong = 0, []
    for row_id, offered, call, schema in calls(name):
        for place in places(schema, call["arguments"]):
            if "enum" in place.schema:
                made += 1
                error = offered.refusal(call, with_value(call["arguments"], place, "no such choice"), repair=repair)
                if not names_only(error, place.path) or not error.problems[0].expected.startswith(("one of", "'")):
                    wrong.append((row_id, place.path, error and error.user_message))
    assert wrong == []
    assert made > 10


@every_file
def test_null_is_refused_where_a_field_is_required_and_left_out_where_it_is_not(name):
    wrong = []
    for row_id, offered, call, schema in calls(name):
        for place in places(schema, call["arguments"]):
            if "type" not in place.schema:
                continue
            arguments = with_value(call["arguments"], place, None)
            strict = offered.refusal(call, arguments, repair=False)
            lenient = offered.refusal(call, arguments, repair=True)
            fits = names_only(lenient, place.path) if place.required else lenient is None
            if not names_only(strict, place.path) or not fits:
                wrong.append((row_id, place.path))
            elif not place.required and as_written(offered.got[-1][1]) != as_written(without(call["arguments"], place)):
                wrong.append((row_id, place.path, offered.got[-1]))
    assert wrong == []


@every_file
def test_a_field_sent_as_its_json_text_is_read_with_repair_and_refused_without(name):
    made, wrong = 0, []
    for row_id, offered, call, schema in calls(name):
        for place in places(schema, call["arguments"]):
            if place.schema.get("type", "string") == "string":
                continue
            made += 1
            value: Any = call["arguments"]
            for step in place.steps:
                value = value[step]
            arguments = with_value(call["arguments"], place, json.dumps(value))
            if not names_only(offered.refusal(call, arguments, repair=False), place.path):
                wrong.append((row_id, place.path, "accepted without repair"))
                continue
            result = offered.registry.invoke(call["name"], arguments)
            if as_written(result.value) != as_written(call["arguments"]):
                wrong.append((row_id, place.path, result.value))
            if [repair.partition(": ")[0] for repair in result.invocation.repairs] != [place.path]:
                wrong.append((row_id, place.path, result.invocation.repairs))
    assert wrong == []
    assert made > ROWS[name] // 2


@every_file
def test_an_invented_argument_is_refused_and_a_misspelt_one_gets_the_right_name(name):
    wrong = []
    for row_id, offered, call, _ in calls(name):
        for known in call["arguments"]:
            misspelt = {(f"{key}_" if key == known else key): value for key, value in call["arguments"].items()}
            error = offered.refusal(call, misspelt, repair=True)
            problem = next((each for each in error.problems if each.path == f"{known}_"), None) if error else None
            if problem is None or f"did you mean '{known}'" not in problem.hint:
                wrong.append((row_id, known, error and error.user_message))
        invented = offered.refusal(call, {**call["arguments"], "zz_invented": 1}, repair=True)
        if not names_only(invented, "zz_invented"):
            wrong.append((row_id, "zz_invented"))
    assert wrong == []
