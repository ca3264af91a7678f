"""Cases a6, a8, a9, a17, a18, a23, a31, i5, i12 and j13: one neutral schema, every provider's form, and the way back."""

import json
from enum import IntEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter
from typing_extensions import TypedDict

from callgate.errors import ToolDefinitionError
from callgate.tools.dialects import DIALECTS, render, restore_arguments
from tests.unit.tools.dialect_rules import Shape, broken_rules, nodes


class Node(BaseModel):
    v: int
    kids: list["Node"] = []


class Chain(BaseModel):
    nxt: Annotated["Chain", Field(description="next")] | None = None


class Inner(BaseModel):
    n: int


class Car(BaseModel):
    kind: Literal["car"]
    doors: int = 4


class Bike(BaseModel):
    kind: Literal["bike"]
    gear: int | None = None


class Prio(IntEnum):
    LOW = 1
    HIGH = 2


def arguments_schema(**parameters: Any) -> dict[str, Any]:
    return TypeAdapter(TypedDict("Arguments", parameters)).json_schema()


def only(schema: Any, dialect: str) -> dict[str, Any]:
    rendered = render([Shape("tool", schema)], dialect)
    assert rendered.skipped == ()
    (tool,) = rendered.tools
    assert broken_rules(dialect, tool) == []
    return tool["function"] if dialect.startswith("openai") else tool


@pytest.mark.parametrize("dialect", ["openai", "openai_strict", "anthropic", "mcp"])
@pytest.mark.parametrize("schema", [arguments_schema(root=Node), Node.model_json_schema()])
def test_a6_a_recursive_schema_keeps_its_references_where_the_provider_has_them(dialect, schema):
    assert '"$ref": "#/$defs/Node"' in json.dumps(only(schema, dialect))


def test_a6_a_recursive_schema_is_left_out_of_gemini_with_the_cycle_named():
    (skipped,) = render([Shape("tree", arguments_schema(root=Node))], "gemini").skipped
    assert skipped.name == "tree"
    assert "Node > Node" in skipped.reason


def test_a6_gemini_writes_references_out_to_a_stated_depth():
    def chain(length):
        definitions = {f"D{i}": {"type": "object", "properties": {"p": {"$ref": f"#/$defs/D{i + 1}"}}} for i in range(length)}
        definitions[f"D{length}"] = {"type": "string"}
        return {"type": "object", "properties": {"p": {"$ref": "#/$defs/D0"}}, "$defs": definitions}

    assert "$ref" not in json.dumps(only(chain(15), "gemini"))
    (skipped,) = render([Shape("deep", chain(16))], "gemini").skipped
    assert "more than 16 references" in skipped.reason


def test_a6_references_that_multiply_end_with_a_reason_in_every_dialect():
    definitions = {f"D{i}": {"allOf": [{"$ref": f"#/$defs/D{i + 1}", "title": str(n)} for n in range(3)]} for i in range(15)}
    definitions["D15"] = {"type": "object"}
    schema = {"$ref": "#/$defs/D0", "$defs": definitions}
    for dialect in DIALECTS:
        rendered = render([Shape("bomb", schema), Shape("fine", {"type": "object"})], dialect)
        assert [skipped.name for skipped in rendered.skipped] == ["bomb"]
        assert len(rendered.tools) == 1


@pytest.mark.parametrize("dialect", ["openai", "openai_strict", "anthropic", "mcp"])
def test_a8_a_described_recursive_field_is_not_expanded(dialect):
    written = json.dumps(only(arguments_schema(n=Chain), dialect))
    assert len(written) < 1_000
    assert '"next"' in written


def test_a8_strict_sets_the_description_around_the_reference():
    chain = only(arguments_schema(n=Chain), "openai_strict")["parameters"]["$defs"]["Chain"]
    assert chain["properties"]["nxt"]["anyOf"][0] == {"anyOf": [{"$ref": "#/$defs/Chain"}], "description": "next"}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a9_references_in_mapping_values_and_tuples_are_resolved(dialect):
    written = only(arguments_schema(by_id=dict[str, Inner], pair=tuple[Inner, str]), dialect)
    text = json.dumps(written).lower().replace("\\", "")
    assert '"n": {"title": "n", "type": "integer"}' in text or '"n": {"type": "integer", "title": "n"}' in text


def test_a9_gemini_tells_what_the_values_of_a_mapping_and_the_places_of_a_tuple_are():
    properties = only(arguments_schema(by_id=dict[str, Inner], pair=tuple[Inner, str]), "gemini")["parameters"]["properties"]
    assert "any key, each with a value of" in properties["by_id"]["description"]
    assert "INTEGER" in properties["by_id"]["description"]
    assert [kind["type"] for kind in properties["pair"]["items"]["anyOf"]] == ["OBJECT", "STRING"]
    assert "in this order" in properties["pair"]["description"]


def test_a17_strict_makes_optional_parameters_required_and_nullable_without_a_default():
    schema = {
        "type": "object",
        "properties": {
            "major": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            "loc": {"type": "string", "default": ""},
        },
    }
    parameters = only(schema, "openai_strict")["parameters"]
    assert parameters["required"] == ["major", "loc"]
    assert parameters["properties"]["loc"]["type"] == ["string", "null"]
    assert not any("default" in node for _, node in nodes(parameters) if isinstance(node, dict))
    restored = restore_arguments(Shape("v", schema), "openai_strict", {"major": None, "loc": None})
    assert restored == {"major": None}


def test_a17_null_becomes_absence_at_any_depth():
    item = {
        "type": "object",
        "properties": {"sku": {"type": "string"}, "n": {"type": "integer", "default": 1}},
        "required": ["sku"],
    }
    schema = {"type": "object", "properties": {"lines": {"type": "array", "items": {"$ref": "#/$defs/i"}}}, "$defs": {"i": item}}
    given = {"lines": [{"sku": "a", "n": None}, {"sku": "b", "n": 2}]}
    assert restore_arguments(Shape("o", schema), "openai_strict", given) == {"lines": [{"sku": "a"}, {"sku": "b", "n": 2}]}
    assert given["lines"][0] == {"sku": "a", "n": None}


def test_a17_null_for_a_required_parameter_stays_for_the_gate_to_refuse():
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    assert restore_arguments(Shape("o", schema), "openai_strict", {"a": None}) == {"a": None}


def test_a18_strict_writes_a_discriminated_union_as_any_of_with_closed_objects():
    schema = arguments_schema(v=Annotated[Car | Bike, Field(discriminator="kind")])
    assert "oneOf" in json.dumps(schema)
    parameters = only(schema, "openai_strict")["parameters"]
    assert parameters["properties"]["v"] == {"anyOf": [{"$ref": "#/$defs/Car"}, {"$ref": "#/$defs/Bike"}]}
    assert all(parameters["$defs"][name]["additionalProperties"] is False for name in ("Car", "Bike"))


def test_a18_objects_written_inside_one_of_are_closed_too():
    branch = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    schema = {"type": "object", "properties": {"x": {"oneOf": [branch, {"type": "integer"}]}}, "required": ["x"]}
    written = only(schema, "openai_strict")["parameters"]["properties"]["x"]
    assert written["anyOf"][0]["additionalProperties"] is False


def test_a18_null_becomes_absence_in_the_branch_that_the_value_belongs_to():
    tool = Shape("buy", arguments_schema(v=Annotated[Car | Bike, Field(discriminator="kind")]))
    assert restore_arguments(tool, "openai_strict", {"v": {"kind": "car", "doors": None}}) == {"v": {"kind": "car"}}
    bike = {"v": {"kind": "bike", "gear": None}}
    assert restore_arguments(tool, "openai_strict", bike) == bike


def test_a23_integer_choices_keep_their_type_except_in_gemini_where_they_are_text():
    schema = arguments_schema(n=Literal[1, 2, 3], p=Prio)
    for dialect in ("openai", "openai_strict", "anthropic", "mcp"):
        assert '"enum": [1, 2, 3]' in json.dumps(only(schema, dialect))
    properties = only(schema, "gemini")["parameters"]["properties"]
    assert (properties["n"]["type"], properties["n"]["enum"]) == ("STRING", ["1", "2", "3"])
    assert (properties["p"]["type"], properties["p"]["enum"]) == ("STRING", ["1", "2"])


def test_a23_the_text_of_a_choice_becomes_the_choice_again():
    schema = arguments_schema(n=Literal[1, 2, 3], p=Prio, flags=list[Literal[True]], either=Literal["1"] | Prio, name=str)
    given = {"n": "2", "p": "1", "flags": ["true"], "either": "2", "name": "2"}
    restored = restore_arguments(Shape("lvl", schema), "gemini", given)
    assert restored == {"n": 2, "p": 1, "flags": [True], "either": 2, "name": "2"}
    assert type(restored["flags"][0]) is bool


def test_a23_text_that_is_a_choice_itself_is_never_changed():
    schema = {"type": "object", "properties": {"n": {"enum": [1, "1", "x"]}}}
    assert restore_arguments(Shape("t", schema), "gemini", {"n": "1"}) == {"n": "1"}
    assert restore_arguments(Shape("t", schema), "gemini", {"n": "7"}) == {"n": "7"}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a31_names_of_any_characters_become_accepted_and_distinct_names(dialect):
    names = ["my tool!", "x" * 100, "x" * 101, "風林", "疾風", "", "2fa", "a.b/c", "ünï", "my tool?"]
    rendered = render([Shape(name, {"type": "object"}) for name in names], dialect)
    assert all(broken_rules(dialect, tool) == [] for tool in rendered.tools)
    wires = [rendered.names.wire(name) for name in names]
    assert len(set(wires)) == len(names)
    assert [rendered.names.name(wire) for wire in wires] == names


@pytest.mark.parametrize("dialect", ["openai", "openai_strict", "anthropic"])
def test_a31_two_tools_that_would_share_a_name_are_refused_with_both_named(dialect):
    with pytest.raises(ToolDefinitionError) as caught:
        render([Shape("a.b", {"type": "object"}), Shape("a_b", {"type": "object"})], dialect)
    assert "'a.b'" in str(caught.value)
    assert "'a_b'" in str(caught.value)
    assert render([Shape("a.b", {"type": "object"}), Shape("a_b", {"type": "object"})], "mcp").names.wire("a.b") == "a.b"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_i5_long_names_are_shortened_the_same_way_each_time_and_stay_apart(dialect):
    server = "s" * 60 + "_" + "t" * 80
    names = [f"{server}_{number}" for number in range(50)]
    first = render([Shape(name, {"type": "object"}) for name in names], dialect)
    again = render([Shape(name, {"type": "object"}) for name in reversed(names)], dialect)
    assert [first.names.wire(name) for name in names] == [again.names.wire(name) for name in names]
    assert [first.names.name(first.names.wire(name)) for name in names] == names


def test_i5_a_shortened_name_is_the_same_in_every_process():
    assert render([Shape("n" * 70, {"type": "object"})], "openai").names.wire("n" * 70) == "n" * 53 + "_85069ddf41"


AWKWARD = {
    "untyped": {"properties": {}},
    "null_too": {"type": ["object", "null"], "properties": {"a": {"type": "string"}}},
    "no_items": {"type": "object", "properties": {"a": {"type": "array"}}},
    "any_value": {"type": "object", "properties": {"x": True, "never": False}},
    "union_types": {"type": "object", "properties": {"a": {"type": ["string", "integer", "null"]}}},
    "defs": {"type": "object", "properties": {"a": {"$ref": "#/definitions/A"}}, "definitions": {"A": {"type": "string"}}},
    "top_any_of": {"anyOf": [{"type": "object", "properties": {"a": {}}, "required": ["a"]}, {"type": "object"}]},
    "required_either": {"type": "object", "properties": {"a": {}, "b": {}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
    "everything": True,
    "bare": {},
    "draft_7": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"a": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}},
    },
}
IMPOSSIBLE = {
    "a_list": {"type": "array"},
    "nothing": False,
    "dangling": {"type": "object", "properties": {"a": {"$ref": "#/$defs/nowhere"}}},
    "no_schema": {"type": "object", "properties": []},
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_i12_awkward_schemas_are_rendered_so_that_no_provider_refuses_them(dialect):
    rendered = render([Shape(name, schema) for name, schema in AWKWARD.items()], dialect)
    assert rendered.skipped == ()
    assert [problem for tool in rendered.tools for problem in broken_rules(dialect, tool)] == []


@pytest.mark.parametrize("dialect", ["openai", "openai_strict", "anthropic", "gemini"])
def test_i12_a_tool_that_cannot_be_expressed_is_left_out_with_a_reason_and_the_others_stay(dialect):
    shapes = [Shape(name, schema) for name, schema in {**IMPOSSIBLE, **AWKWARD}.items()]
    rendered = render(shapes, dialect)
    assert [skipped.name for skipped in rendered.skipped] == list(IMPOSSIBLE)
    assert all(skipped.reason for skipped in rendered.skipped)
    assert len(rendered.tools) == len(AWKWARD)


def test_i12_a_parameter_name_that_a_provider_refuses_is_renamed_there_and_back():
    schema = {"type": "object", "properties": {"filter[id]": {"type": "string"}, "q": {}}, "required": ["filter[id]"]}
    for dialect, field in (("anthropic", "input_schema"), ("gemini", "parameters")):
        written = only(schema, dialect)[field]
        (wire,) = written["required"]
        assert wire in written["properties"]
        given = {wire: "7", "q": 1}
        assert restore_arguments(Shape("list", schema), dialect, given) == {"filter[id]": "7", "q": 1}


RAW = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Search",
    "type": "object",
    "required": ["q"],
    "properties": {
        "q": {"type": "string", "minLength": 1, "pattern": "^x"},
        "n": {"default": 3, "type": "integer"},
        "who": {"oneOf": [{"$ref": "#/$defs/p"}, {"type": "null"}]},
    },
    "$defs": {"p": {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/p"}}}}},
    "additionalProperties": False,
    "dependentRequired": {"n": ["q"]},
}


@pytest.mark.parametrize(("dialect", "field"), [("mcp", "inputSchema"), ("anthropic", "input_schema"), ("openai", "parameters")])
def test_j13_a_raw_schema_that_needs_no_change_is_sent_byte_for_byte(dialect, field):
    before = json.dumps(RAW)
    assert json.dumps(only(RAW, dialect)[field]) == before
    assert json.dumps(RAW) == before


def test_j13_what_is_sent_shares_nothing_with_the_tool():
    schema = json.loads(json.dumps(RAW))
    for dialect in DIALECTS:
        for tool in render([Shape("t", schema)], dialect).tools:
            _spoil(tool)
    assert schema == RAW


def _spoil(value):
    if isinstance(value, dict):
        for inner in list(value.values()):
            _spoil(inner)
        value.clear()
    elif isinstance(value, list):
        for inner in value:
            _spoil(inner)
        value.clear()
