"""What the parsers of explicit inputs and outputs accept, refuse, and say."""

import asyncio
import json
import re
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, TypedDict
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, ConfigDict, IPvAnyAddress, Json, TypeAdapter, model_validator
from pydantic_core import PydanticCustomError

from callgate.errors import InvalidInputError, Problem, ToolDefinitionError, ToolError
from callgate.tools.inputs import (
    InputRefused,
    OutputRefused,
    callable_input,
    callable_output,
    pydantic_input,
    pydantic_output,
    schema_input,
    schema_output,
)


class Item(BaseModel):
    sku: str
    count: int = 1


class SpecialItem(Item):
    gift: bool = True


class Order(BaseModel):
    items: list[Item]
    on: date | None = None


@dataclass
class Point:
    x: int
    y: int = 0


class Patch(TypedDict):
    a: int


class Tree(BaseModel):
    kids: list["Tree"] = []


class Pair(NamedTuple):
    left: int
    right: int


def parse(parser, arguments):
    return parser.parse(json.dumps(arguments).encode(), arguments)


def refusal(parser, arguments):
    with pytest.raises(InputRefused) as caught:
        parse(parser, arguments)
    return caught.value


def problem(parser, arguments):
    (only,) = refusal(parser, arguments).problems
    return only


def problems_or_none(parser, arguments):
    try:
        parse(parser, arguments)
    except InputRefused as refused:
        return refused.problems
    return None


# Types.


@pytest.mark.parametrize(
    ("source", "arguments", "expected"),
    [
        (Order, {"items": [{"sku": "x"}]}, Order(items=[Item(sku="x")])),
        (Point, {"x": 1}, Point(1)),
        (Patch, {"a": 1}, {"a": 1}),
        (TypeAdapter(Order), {"items": [], "on": "2025-01-31"}, Order(items=[], on=date(2025, 1, 31))),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (Tree, {"kids": [{"kids": []}]}, Tree(kids=[Tree()])),
    ],
)
def test_a_typed_input_gives_an_instance_of_the_type(source, arguments, expected):
    assert parse(pydantic_input("t", source), arguments) == expected


def test_a_typed_input_is_strict_and_closed():
    parser = pydantic_input("t", Order)
    assert problem(parser, {"items": [{"sku": "x", "count": "2"}]}) == Problem("items[0].count", "an integer", "text")
    refused = refusal(parser, {"itens": []})
    assert refused.unknown == ("itens",)
    assert {found.path: found.hint for found in refused.problems} == {
        "items": "",
        "itens": "did you mean 'items'? known: items, on",
    }
    assert parser.schema["additionalProperties"] is False


def test_a_recursive_model_has_its_properties_at_the_top():
    schema = pydantic_input("t", Tree).schema
    assert schema["type"] == "object"
    assert schema["properties"]["kids"]["items"] == {"$ref": "#/$defs/Tree"}
    assert "Tree" in schema["$defs"]


@pytest.mark.parametrize("source", [int, list[int], TypeAdapter(str), object(), lambda x: x])
def test_what_is_no_object_type_is_refused(source):
    with pytest.raises(ToolDefinitionError) as caught:
        pydantic_input("my_tool", source)
    assert caught.value.tool == "my_tool"


def test_twenty_wrong_items_give_short_texts_without_values_or_library_words():
    refused = refusal(pydantic_input("t", Order), {"items": [{"sku": "secret", "count": "secret"}] * 20})
    text = str(refused)
    assert len(refused.problems) == 20
    for word in ("secret", "pydantic", "http", "Input should"):
        assert word not in text


def refuse_as_custom(value):
    raise PydanticCustomError("own", "secret {reason}", {"reason": "secret"})


@pytest.mark.parametrize(("kind", "value"), [(int, 5), (str, "x"), (list[int], [1]), (float, 5), (date, "2025-01-31")])
def test_an_error_of_the_authors_own_type_never_asks_for_what_came(kind, value):
    class Checked(BaseModel):
        a: Annotated[kind, AfterValidator(refuse_as_custom)]

    only = problem(pydantic_input("t", Checked), {"a": value})
    assert (only.path, only.expected) == ("a", "a value accepted by the tool's own check")
    assert "secret" not in str(only)


def test_an_error_of_the_authors_own_type_about_all_arguments_says_so():
    class Checked(BaseModel):
        a: int

        @model_validator(mode="after")
        def check(self):
            return refuse_as_custom(self)

    assert problem(pydantic_input("t", Checked), {"a": 1}).expected == "arguments accepted by the tool's own check"


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (IPvAnyAddress, "x", "an IP address"),
        (re.Pattern, "(", "a regular expression"),
        (Json, 5, "JSON as text"),
        (ZoneInfo, "x", "the name of a time zone"),
    ],
)
def test_an_error_of_a_type_of_pydantics_is_worded_as_what_the_type_is(kind, value, expected):
    assert problem(pydantic_input("t", TypedDict("Given", {"a": kind})), {"a": value}).expected == expected


# Raw JSON Schema.


WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2},
        "unit": {"enum": ["C", "F"]},
        "days": {"type": "array", "items": {"$ref": "#/$defs/day"}, "maxItems": 2},
    },
    "required": ["city"],
    "$defs": {"day": {"type": "integer", "minimum": 1, "maximum": 7}},
}


def test_a_raw_schema_delivers_the_arguments_unchanged():
    arguments = {"city": "Rome", "days": [1, 2.0]}
    parsed = parse(schema_input("t", WEATHER), arguments)
    assert parsed is arguments
    assert [type(day) for day in parsed["days"]] == [int, float]


@pytest.mark.parametrize(
    ("arguments", "path", "expected", "got"),
    [
        ({}, "city", "text", "nothing (it is missing)"),
        ({"city": 5}, "city", "text", "an integer"),
        ({"city": "x"}, "city", "at least 2 characters", "1 character"),
        ({"city": "Rome", "unit": "K"}, "unit", "one of 'C', 'F'", "other text"),
        ({"city": "Rome", "days": [1, 9]}, "days[1]", "at most 7", "a larger number"),
        ({"city": "Rome", "days": [1, "x"]}, "days[1]", "an integer", "text"),
        ({"city": "Rome", "days": [1, True]}, "days[1]", "an integer", "a boolean"),
        ({"city": "Rome", "days": [1, 2, 3]}, "days", "at most 2 items", "3 items"),
        ({"city": "Rome", "days": {}}, "days", "a list", "an object"),
        ({"city": "Rome", "day": 1}, "day", "no argument of this name", "an integer"),
    ],
)
def test_a_raw_schema_is_enforced_and_its_problems_name_the_place(arguments, path, expected, got):
    only = problem(schema_input("t", WEATHER), arguments)
    assert (only.path, only.expected, only.got) == (path, expected, got)


@pytest.mark.parametrize(
    ("limits", "value", "expected", "got"),
    [
        ({"type": "string", "minLength": 1}, "", "at least 1 character", "0 characters"),
        ({"type": "string", "maxLength": 1}, "ab", "at most 1 character", "2 characters"),
        ({"type": "array", "minItems": 1}, [], "at least 1 item", "0 items"),
        ({"type": "array", "minItems": 2}, [0], "at least 2 items", "1 item"),
        ({"type": "object", "maxProperties": 1}, {"a": 0, "b": 0}, "at most 1 entry", "2 entries"),
        ({"type": "string", "pattern": "^1 items$"}, "x", "text that matches the pattern ^1 items$", "other text"),
    ],
)
def test_a_raw_schema_s_problem_counts_one_in_the_singular(limits, value, expected, got):
    only = problem(schema_input("t", {"properties": {"a": limits}}), {"a": value})
    assert (only.expected, only.got) == (expected, got)


def test_an_unknown_argument_of_a_plain_object_is_refused_with_the_nearest_name():
    refused = refusal(schema_input("t", WEATHER), {"city": "Rome", "untis": "C"})
    assert refused.unknown == ("untis",)
    assert "did you mean 'unit'?" in refused.problems[0].hint


def test_the_nearest_name_is_one_that_is_still_free():
    hint = refusal(schema_input("t", WEATHER), {"city": "Rome", "citty": "x"}).problems[0].hint
    assert "did you mean" not in hint
    assert "known: city, unit, days" in hint


@pytest.mark.parametrize(
    "more",
    [
        {"additionalProperties": True},
        {"patternProperties": {"^x": {}}},
        {"anyOf": [{"required": ["a"]}, {"required": ["b"]}, {}]},
        {"unevaluatedProperties": {}},
    ],
)
def test_a_schema_that_speaks_of_other_arguments_lets_them_through(more):
    arguments = {"other": 1}
    assert parse(schema_input("t", {"type": "object", "properties": {"a": {}}, **more}), arguments) is arguments


@pytest.mark.parametrize("schema", [True, {}, {"type": "object"}, {"$defs": {"x": {}}}, {"properties": {"a": True}}])
def test_schemas_that_say_little_are_schemas(schema):
    assert parse(schema_input("t", schema), {"a": 1}) == {"a": 1}


def test_the_schema_false_admits_nothing():
    assert problem(schema_input("t", False), {}).expected
    only = problem(schema_input("t", {"properties": {"a": False}}), {"a": 1})
    assert only.path == "a"


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "https://example.org/schema.json"},
        {"properties": {"a": {"$ref": "other.json#/x"}}},
        {"properties": {"a": {"items": [{"$ref": "file:///etc/passwd"}]}}},
        {"$defs": {"x": {"anyOf": [{"$dynamicRef": "https://example.org/x"}]}}},
        {"properties": {"a": {"$ref": "#/$defs/missing"}}},
        {"type": "objct"},
        {"properties": {"a": {"pattern": "("}}},
        {"$schema": "https://example.org/my-own"},
        {"type": "array"},
        {"properties": {"a": {"enum": [object()]}}},
        {"properties": {"a": {"maximum": float("nan")}}},
        {"properties": 5},
    ],
)
def test_a_schema_that_cannot_work_is_refused_when_it_is_defined(schema):
    with pytest.raises(ToolDefinitionError) as caught:
        schema_input("my_tool", schema)
    assert caught.value.tool == "my_tool"


def test_words_of_a_schema_may_be_names_and_data():
    schema = {
        "properties": {"$ref": {"type": "string"}, "enum": {"const": {"$ref": "https://example.org/data"}}},
        "default": {"$ref": "https://example.org/data"},
    }
    assert parse(schema_input("t", schema), {"$ref": "x"}) == {"$ref": "x"}


def test_t4_the_schema_is_copied():
    mutable = {"type": "object", "properties": {"a": {"type": "integer"}}}
    parser = schema_input("t", MappingProxyType(mutable))
    mutable["properties"]["a"]["type"] = "string"
    mutable["properties"]["b"] = {}
    assert parse(parser, {"a": 1}) == {"a": 1}
    assert parser.schema == {"type": "object", "properties": {"a": {"type": "integer"}}}


def test_older_drafts_are_followed_when_they_are_named():
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"n": {"type": "integer"}},
        "properties": {"a": {"$ref": "#/definitions/n"}},
    }
    assert problem(schema_input("t", schema), {"a": "x"}).path == "a"


def test_alternatives_that_all_fail_are_joined_in_one_problem():
    schema = {"properties": {"a": {"anyOf": [{"type": "integer"}, {"type": "array"}, {"type": "null"}]}}}
    assert problem(schema_input("t", schema), {"a": "x"}) == Problem("a", "an integer or a list or null", "text")


def test_the_alternative_that_came_nearest_is_explained():
    person = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"], "additionalProperties": False}
    firm = {
        "type": "object",
        "properties": {"firm": {}, "vat": {"type": "string"}},
        "required": ["firm", "vat"],
        "additionalProperties": False,
    }
    parser = schema_input("t", {"properties": {"who": {"oneOf": [person, firm]}}})
    assert problem(parser, {"who": {"firm": 1}}) == Problem("who.vat", "text", "nothing (it is missing)")


def levels(count, word="anyOf"):
    """Make a schema of one place where each level refers to the next twice."""
    two = {f"d{n}": {word: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(count)}
    return {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**two, f"d{count}": {"type": "integer"}}}


NODE = {"properties": {"a": {"$ref": "#/$defs/node"}}, "required": ["a"]}
RECURSIVE = {"properties": {"a": {"$ref": "#/$defs/node"}}, "$defs": {"node": {"anyOf": [NODE, {**NODE, "title": "other"}]}}}


def nested(depth):
    value = 1
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [(levels(20), {"a": "x"}), (levels(20, "allOf"), {"a": "x"}), (RECURSIVE, {**nested(20), "b": "x"}), (RECURSIVE, nested(20))],
)
def test_arguments_that_would_take_too_long_to_explain_are_refused_in_one_problem(schema, arguments):
    schema = {**schema, "additionalProperties": False, "required": ["b"]}
    coarse = Problem("", "arguments that fit the tool's schema", "other arguments")
    assert problem(schema_input("t", schema), arguments) == coarse
    with pytest.raises(OutputRefused) as caught:
        schema_output("t", schema).parse(arguments)
    assert [found.expected for found in caught.value.problems] == ["an output that fits the tool's output schema"]


DRAFT_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}
NUMBERS = {"properties": {"a": {"items": {"$ref": "#/$defs/n"}}}, "$defs": {"n": {"type": "integer"}}}
LISTS = {"properties": {"a": {"$ref": "#/$defs/t"}}, "$defs": {"t": {"items": {"$ref": "#/$defs/t"}, "type": "array"}}}
ANCHORED = {"properties": {"a": {"$ref": "#n"}}, "$defs": {"n": {"$anchor": "n", "type": "integer"}}}
BY_POSITION = {**DRAFT_7, "properties": {"a": {"items": [{"type": "null"}, {"$ref": "#/properties/a/items/0"}]}}}
IN_A_CIRCLE = {"properties": {"a": {"type": "integer"}}, "anyOf": [{"$ref": "#"}, {}]}


@pytest.mark.parametrize(
    ("schema", "arguments", "path"),
    [
        (levels(8), {"a": "x"}, "a"),
        (NUMBERS, {"a": [*[1] * 30_000, "x"]}, "a[30000]"),
        (LISTS, {"a": [[[], 1]]}, "a[0][1]"),
        (ANCHORED, {"a": "x"}, "a"),
        (BY_POSITION, {"a": [None, 1]}, "a[1]"),
        (IN_A_CIRCLE, {"a": "x"}, "a"),
    ],
)
def test_references_that_cost_little_leave_the_problem_at_its_place(schema, arguments, path):
    assert problem(schema_input("t", schema), arguments).path == path


def test_a_schema_that_no_validator_could_check_in_time_is_refused_when_it_is_defined():
    for build in (schema_input, schema_output):
        with pytest.raises(ToolDefinitionError, match="too many times over"):
            build("t", levels(60))


@pytest.mark.parametrize(
    "rule",
    [
        {"const": 5},
        {"not": {"type": "string"}},
        {"multipleOf": 7},
        {"exclusiveMaximum": 0},
        {"exclusiveMinimum": 1000},
        {"uniqueItems": True},
        {"minItems": 9},
        {"contains": {"type": "null"}},
        {"minProperties": 9},
        {"maxLength": 0},
        {"pattern": "^$"},
        {"propertyNames": {"maxLength": 0}},
        {"dependentRequired": {"k": ["other"]}},
        {"if": {}, "then": False},
        {"oneOf": [{}, {}]},
        {"prefixItems": [{}, {}], "items": False},
        {"unevaluatedItems": False},
        {"unevaluatedProperties": False},
    ],
)
@pytest.mark.parametrize("value", ["secret", 3, [1, 1, 2], {"k": 1}])
def test_every_keyword_is_worded_without_the_value(rule, value):
    parser = schema_input("t", {"properties": {"a": rule}})
    problems = problems_or_none(parser, {"a": value})
    assert problems != ()
    for found in problems or ():
        assert found.path.startswith("a")
        assert found.expected
        assert "secret" not in str(found)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["city", "unit", "days", "x", ""]), JSON))
def test_any_arguments_end_in_a_parse_or_a_refusal_with_problems(arguments):
    for parser in (schema_input("t", WEATHER), ORDER_PARSER, UNION_PARSER):
        assert problems_or_none(parser, arguments) != ()


class Wide(BaseModel):
    model_config = ConfigDict(extra="allow")
    city: str | list[Item] | dict[str, Point] | None = None
    unit: Item | Point | Tree | int = 0
    days: tuple[int, str] | set[date] = (1, "x")


ORDER_PARSER = pydantic_input("t", Order)
UNION_PARSER = pydantic_input("t", Wide)


# The author's own function.


def test_a_function_may_parse():
    parser = callable_input("t", lambda arguments: Point(**arguments))
    assert parse(parser, {"x": 1}) == Point(1)
    assert parser.schema == {"type": "object"}


def raising(error):
    def parse_input(_arguments):
        raise error

    return parse_input


@pytest.mark.parametrize("error", [ValueError("secret"), TypeError("secret"), KeyError("secret"), RecursionError("secret")])
def test_what_a_function_raises_is_a_refusal_and_stays_on_the_server(error):
    refused = refusal(callable_input("t", raising(error)), {})
    assert "secret" not in str(refused)
    assert refused.problems[0].expected == "arguments accepted by the tool's own check"
    assert refused.__cause__ is error


def test_what_a_function_raises_for_the_model_reaches_it():
    assert problem(callable_input("t", raising(ToolError("use a smaller page"))), {}).hint == "use a smaller page"
    ours = InvalidInputError.of("t", "page", "at most 10", "a larger number")
    assert problem(callable_input("t", raising(ours)), {}) == ours.problems[0]


class Forgetful(ToolError):
    def __init__(self):
        """Forget the constructor of ToolError."""


class Spoilt(BaseException):
    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize("error", [Forgetful(), Spoilt(), ToolError(5), asyncio.CancelledError()])
def test_an_odd_error_of_the_authors_is_a_refusal_like_any_other(error):
    assert problem(callable_input("t", raising(error)), {}).hint == ""
    assert output_problem(callable_output("t", raising(error)), {}).hint == ""


def test_text_for_the_model_is_cut_to_a_length_and_can_be_encoded():
    hint = problem(callable_input("t", raising(ToolError("\ud800" + "x" * 100_000))), {}).hint
    assert len(hint.encode()) <= 2000


def test_a_models_own_validation_is_worded_like_ours():
    only = problem(callable_input("t", Item.model_validate), {"sku": 5})
    assert only == Problem("sku", "text", "an integer")


def test_what_is_meant_for_the_program_passes_through():
    with pytest.raises(KeyboardInterrupt):
        parse(callable_input("t", raising(KeyboardInterrupt())), {})


@pytest.mark.parametrize("function", [5, "x", None])
def test_what_cannot_be_called_does_not_parse(function):
    with pytest.raises(ToolDefinitionError):
        callable_input("t", function)


def test_an_async_function_does_not_parse():
    async def parse_later(arguments): ...

    with pytest.raises(ToolDefinitionError, match="async"):
        callable_input("t", parse_later)
    with pytest.raises(ToolDefinitionError, match="async"):
        callable_output("t", parse_later)


# Outputs.


def output_problem(parser, value):
    with pytest.raises(OutputRefused) as caught:
        parser.parse(value)
    (only,) = caught.value.problems
    return only


def test_d13_an_output_that_is_not_what_was_declared_is_refused():
    class Count(TypedDict):
        n: int

    for parser in (
        pydantic_output("t", Count),
        schema_output("t", {"properties": {"n": {"type": "integer"}}, "required": ["n"]}),
    ):
        assert parser.parse({"n": 1}) == {"n": 1}
        assert output_problem(parser, {"wrong": "shape"}).path == "n"


def test_a_dict_becomes_the_declared_model_and_nothing_is_converted():
    parser = pydantic_output("t", Order)
    assert parser.parse({"items": [{"sku": "x"}], "on": date(2025, 1, 31)}) == Order(items=[Item(sku="x")], on=date(2025, 1, 31))
    assert output_problem(parser, {"items": [{"sku": "x", "count": "2"}]}).path == "items[0].count"


def test_d14_an_instance_of_a_subclass_and_a_list_are_results():
    special = SpecialItem(sku="x")
    assert pydantic_output("t", Item).parse(special) is special
    assert pydantic_output("t", list[str]).parse(["a"]) == ["a"]
    assert output_problem(pydantic_output("t", list[str]), ["a", 5]).path == "[1]"


def test_a_declared_output_has_a_schema():
    assert pydantic_output("t", Item).schema["required"] == ["sku"]
    assert pydantic_output("t", list[int]).schema == {"type": "array", "items": {"type": "integer"}}
    assert callable_output("t", str).schema is None


def test_a_raw_output_schema_looks_at_what_will_be_written_and_gives_the_value_unchanged():
    parser = schema_output("t", {"type": "object", "properties": {"items": {"type": "array"}}, "required": ["items"]})
    order = Order(items=[])
    assert parser.parse(order) is order
    assert output_problem(parser, Item(sku="x")).path == "items"
    assert schema_output("t", {"type": "array"}).parse(Pair(1, 2)) == Pair(1, 2)


@pytest.mark.parametrize("parser", [pydantic_output("t", Item), schema_output("t", {"type": "object"})])
@pytest.mark.parametrize("value", [object(), dict, {"x": object()}, float("nan")])
def test_d1_a_value_without_json_form_is_refused(parser, value):
    assert output_problem(parser, value).expected


def test_a_cycle_is_refused():
    cycle: dict[str, Any] = {}
    cycle["kids"] = [cycle]
    for parser in (pydantic_output("t", Tree), schema_output("t", {"type": "object"})):
        assert output_problem(parser, cycle).expected


def test_a_function_may_check_an_output():
    assert callable_output("t", str.upper).parse("a") == "A"
    assert "secret" not in str(output_problem(callable_output("t", raising(ValueError("secret"))), 1))
    assert output_problem(callable_output("t", raising(ToolError("too few rows"))), 1).hint == "too few rows"


def test_an_output_type_without_json_form_is_refused_when_it_is_defined():
    with pytest.raises(ToolDefinitionError):
        pydantic_output("t", object().__class__.__subclasshook__)
    with pytest.raises(ToolDefinitionError):
        schema_output("t", {"$ref": "https://example.org/x"})
