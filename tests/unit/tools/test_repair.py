import copy
import enum
import time
from typing import Any, Literal

import pytest
from pydantic import BaseModel, TypeAdapter

from callgate.errors import Problem
from callgate.tools.repair import Repaired, repair_arguments

INTEGER = {"type": "integer"}
TEXT = {"type": "string"}


def at(*paths):
    return [Problem(path, "something else", "this") for path in paths]


def repaired(schema, value, path="v"):
    return repair_arguments({"type": "object", "properties": {"v": schema}, "required": ["v"]}, {"v": value}, at(path))


def assert_left(schema, value, path="v"):
    assert repaired(schema, value, path) is None


def assert_read(schema, value, result):
    found = repaired(schema, value)
    assert found is not None
    assert found.arguments == {"v": result}
    assert type(found.arguments["v"]) is type(result)


@pytest.mark.parametrize("text", ["12345", "007", "1e5", "true", "null", "[1]", '{"a": 1}'])
@pytest.mark.parametrize(
    "schema", [TEXT, {"type": ["string", "integer"]}, {"anyOf": [TEXT, {"type": "array"}]}, {}, True, {"enum": ["a", 1]}]
)
def test_b4_text_is_left_where_text_may_be_meant(schema, text):
    assert_left(schema, text)


def test_b5_faithful_text_of_a_number_or_a_boolean_is_read():
    schema = {"type": "object", "properties": {"n": INTEGER, "deep": {"type": "boolean"}, "x": {"type": "number"}}}
    found = repair_arguments(schema, {"n": "5", "deep": "true", "x": "-1.5e3"}, at("n", "deep", "x"))
    assert found == Repaired(
        {"n": 5, "deep": True, "x": -1500.0},
        ("n: text read as an integer", "deep: text read as true or false", "x: text read as a number"),
    )


@pytest.mark.parametrize(
    "text",
    ["0x5", "1,000", "5abc", " 5", "5 ", "+5", "05", "5.", ".5", "5.0", "1e2", "True", "yes", "", "null", "٣", '"5"', "9" * 400],
)
def test_b5_any_other_text_is_no_integer(text):
    assert_left(INTEGER, text)


@pytest.mark.parametrize("value", [True, False, [5], {"a": 5}, 1.5, 2.0**60])
def test_b5_no_other_value_is_an_integer(value):
    assert_left(INTEGER, value)


@pytest.mark.parametrize("text", ["True", "TRUE", "yes", "1", "0", "on", " true"])
def test_b5_only_the_words_of_json_are_booleans(text):
    assert_left({"type": "boolean"}, text)


def test_b5_a_number_is_no_boolean():
    assert_left({"type": "boolean"}, 1)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "nan", "inf", "1e999"])
def test_b13_text_for_no_finite_number_stays_refused(text):
    assert_left({"type": "number", "minimum": 0}, text)


def test_a23_text_for_an_enum_of_integers_or_booleans_is_read():
    assert_read({"enum": [1, 2, 3], "type": "integer"}, "2", 2)
    assert_read({"enum": [1, 2, 3]}, "2", 2)
    assert_read({"const": True}, "true", True)


def test_a23_text_for_an_enum_that_has_text_stays():
    assert_left({"enum": [1, "2"]}, "2")


def test_json_text_is_read_where_an_object_or_a_list_has_to_be():
    assert_read({"type": "array"}, " [1, 2]\n", [1, 2])
    assert_read({"type": "object"}, '{"a": {"b": "x\ny"}}', {"a": {"b": "x\ny"}})
    assert repaired({"type": "array"}, "[]").repairs == ("v: JSON text read as a list",)
    assert repaired({"type": "object"}, "{}").repairs == ("v: JSON text read as an object",)


@pytest.mark.parametrize(
    "text", ["[1", "[1]x", "{'a': 1}", '{"a":1,"a":2}', "[NaN]", "[1e999]", '["\\ud800"]', "", "1,2", "{}", "[" * 300 + "]" * 300]
)
def test_text_that_is_no_list_in_full_stays_refused(text):
    assert_left({"type": "array"}, text)


def test_null_is_left_out_where_it_is_optional_and_not_admitted():
    schema = {"type": "object", "properties": {"a": INTEGER, "b": INTEGER}, "required": ["b"]}
    found = repair_arguments(schema, {"a": None, "b": 1}, at("a"))
    assert found == Repaired({"b": 1}, ("a: null left out",))


def test_null_stays_where_it_is_required_or_admitted_or_unknown():
    schema = {
        "type": "object",
        "properties": {"a": INTEGER, "b": {"type": ["integer", "null"]}, "c": {}},
        "required": ["a"],
        "additionalProperties": INTEGER,
    }
    assert repair_arguments(schema, {"a": None, "b": None, "c": None, "d": None}, at("a", "b", "c", "d")) is None


def test_null_in_a_list_stays():
    assert_left({"type": "array", "items": INTEGER}, [None], "v[0]")


def test_a_float_without_fraction_is_an_integer_where_no_other_number_is_admitted():
    assert_read(INTEGER, 1.0, 1)
    assert_read(INTEGER, -0.0, 0)
    assert_left({"type": "number", "minimum": 3}, 1.0)


class Inner(BaseModel):
    n: int
    tags: list[str] = []


class Tree(BaseModel):
    size: int
    kids: list["Tree"] = []


class Outer(BaseModel):
    lines: list[Inner]
    by_id: dict[str, Inner] = {}
    pair: tuple[int, Inner] | None = None
    tree: Tree | None = None
    either: Inner | int = 1
    level: Literal[1, 2] | None = None


def repaired_outer(arguments, *paths):
    before = copy.deepcopy(arguments)
    found = repair_arguments(TypeAdapter(Outer).json_schema(), arguments, at(*paths))
    assert arguments == before
    return found


@pytest.mark.parametrize(
    ("arguments", "path", "result"),
    [
        ({"lines": '[{"n": 1}]'}, "lines", {"lines": [{"n": 1}]}),
        ({"lines": ['{"n": 1}', {"n": 2}]}, "lines[0]", {"lines": [{"n": 1}, {"n": 2}]}),
        ({"lines": [{"n": "1"}]}, "lines[0].n", {"lines": [{"n": 1}]}),
        ({"lines": [{"n": 1, "tags": None}]}, "lines[0].tags", {"lines": [{"n": 1}]}),
        ({"lines": [], "by_id": {"x": {"n": "7"}}}, "by_id.x.n", {"lines": [], "by_id": {"x": {"n": 7}}}),
        ({"lines": [], "by_id": {"a.b c": '{"n": 7}'}}, '["by_id"]["a.b c"]', {"lines": [], "by_id": {"a.b c": {"n": 7}}}),
        ({"lines": [], "by_id": {"a.b": '{"n": 7}'}}, "by_id.a.b", {"lines": [], "by_id": {"a.b": {"n": 7}}}),
        ({"lines": [], "pair": ["1", {"n": 1}]}, "pair[0]", {"lines": [], "pair": [1, {"n": 1}]}),
        (
            {"lines": [], "tree": {"size": 1, "kids": [{"size": "2"}]}},
            "tree.kids[0].size",
            {"lines": [], "tree": {"size": 1, "kids": [{"size": 2}]}},
        ),
        ({"lines": [], "either": '{"n": 1}'}, "either", {"lines": [], "either": {"n": 1}}),
        ({"lines": [], "either": "5"}, "either", {"lines": [], "either": 5}),
        ({"lines": [], "level": "2"}, "level", {"lines": [], "level": 2}),
        ({"lines": None}, "lines", None),
        ({"lines": []}, "", None),
        ({"lines": []}, "missing", None),
        ({"lines": []}, "lines[3].n", None),
        ({"lines": []}, '["lines', None),
    ],
)
def test_places_are_found_through_models_references_unions_and_mappings(arguments, path, result):
    found = repaired_outer(arguments, path)
    assert (found and found.arguments) == result


def test_a_path_that_two_places_have_is_left():
    schema = {"type": "object", "properties": {"a.b": INTEGER, "a": {"type": "object", "properties": {"b": INTEGER}}}}
    assert repair_arguments(schema, {"a.b": "1", "a": {"b": "2"}}, at("a.b")) is None


def test_several_repairs_share_no_part_with_what_was_given():
    given = {"lines": [{"n": "1"}, {"n": "2"}, {"n": 3}]}
    found = repaired_outer(given, "lines[0].n", "lines[1].n", "lines[0].n")
    assert found.arguments == {"lines": [{"n": 1}, {"n": 2}, {"n": 3}]}
    assert found.repairs == ("lines[0].n: text read as an integer", "lines[1].n: text read as an integer")


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/loop"},
        {"$ref": "#/$defs/many"},
        {"$ref": "https://example.com/schema"},
        {"$ref": "#/nowhere"},
        {"anyOf": [INTEGER, True]},
        {"allOf": [{"minimum": 3}]},
        {"not": TEXT},
        {"type": 5},
        None,
    ],
)
def test_a_schema_that_does_not_say_leaves_the_value(schema):
    many = {"anyOf": [{"$ref": "#/$defs/many"}, {"$ref": "#/$defs/many"}]}
    whole: dict[str, Any] = {"properties": {"v": schema}, "$defs": {"loop": {"$ref": "#/$defs/loop"}, "many": many}}
    assert repair_arguments(whole, {"v": "5"}, at("v")) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [INTEGER, {"minimum": 3}]},
        {"allOf": [{"type": "number"}, INTEGER]},
        {"oneOf": [INTEGER, {"type": "null"}]},
        {"$ref": "#/$defs/a~1b%25", "description": "a number"},
        {"type": ["integer", "string"], "anyOf": [INTEGER]},
    ],
)
def test_every_keyword_that_bounds_the_kinds_counts(schema):
    whole = {"properties": {"v": schema}, "$defs": {"a/b%": INTEGER}}
    assert repair_arguments(whole, {"v": "5"}, at("v")) == Repaired({"v": 5}, ("v: text read as an integer",))


def test_a_union_of_objects_leaves_text_that_one_of_them_admits():
    union = {"anyOf": [{"type": "object", "properties": {"x": INTEGER}}, {"type": "object", "properties": {"x": TEXT}}]}
    assert_left(union, {"x": "5"}, "v.x")


def test_a_union_of_objects_of_which_one_has_the_property_is_followed():
    closed = {"type": "object", "properties": {"y": TEXT}, "additionalProperties": False}
    union = {"anyOf": [{"type": "object", "properties": {"x": INTEGER}}, closed, {"type": "null"}]}
    assert repaired(union, {"x": "5"}, "v.x").arguments == {"v": {"x": 5}}


class Prio(enum.IntEnum):
    LOW = 1


def test_a23_an_enum_class_of_integers_is_read_from_its_text():
    assert_read(TypeAdapter(Prio).json_schema(), "1", 1)


def test_ten_thousand_repairs_copy_each_list_once():
    # With a copy for each repair this takes minutes; the bound is a hundred times what it needs.
    given = {"v": ["1"] * 10_000}
    started = time.monotonic()
    found = repair_arguments({"properties": {"v": {"items": INTEGER}}}, given, at(*[f"v[{n}]" for n in range(10_000)]))
    assert found.arguments == {"v": [1] * 10_000}
    assert time.monotonic() - started < 30
