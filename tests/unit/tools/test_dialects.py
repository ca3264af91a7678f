"""Every tool of the function-calling leaderboard in every dialect, the walker, and the shapes of each provider."""

import json
from types import MappingProxyType

import jsonschema_rs
import pytest

from callgate.errors import ToolDefinitionError, UsageError
from callgate.tools import dialects
from callgate.tools.dialects import DIALECTS, NameMap, name_map, render, restore_arguments, wire_name
from callgate.tools.dialects.references import Document, Inexpressible, admits_null, fold, merge
from callgate.tools.dialects.roots import root_object
from callgate.tools.dialects.schemas import children, map_children, nesting, references, thaw
from tests.recorded import recorded
from tests.unit.tools.dialect_rules import Shape, broken_rules, gemini_admits, with_nulls

FREE_KEYS = "rendered without strict mode: an object in it takes keys that it does not list"


def rows():
    files = sorted(recorded("bfcl").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def shapes(row):
    return [Shape(tool["name"], tool["schema"], tool["description"]) for tool in row["tools"]]


@pytest.fixture(scope="module")
def bfcl():
    found = rows()
    assert len(found) == 800
    return found


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_real_tool_is_rendered_by_the_rules_of_every_provider(dialect, bfcl):
    for row in bfcl:
        tools = shapes(row)
        before = json.dumps(row)
        rendered = render(tools, dialect)
        assert rendered.skipped == ()
        assert [broken_rules(dialect, tool) for tool in rendered.tools] == [[] for _ in tools]
        assert [rendered.names.name(rendered.names.wire(tool.name)) for tool in tools] == [tool.name for tool in tools]
        assert json.dumps(row) == before


def test_almost_every_real_tool_is_strict_and_the_others_say_why(bfcl):
    notes = [note.text for row in bfcl for note in render(shapes(row), "openai_strict").notes]
    assert len(notes) < 20
    assert all(note.startswith("rendered without strict mode: ") for note in notes)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_real_call_fits_the_rendered_schema_and_comes_back_as_it_was(dialect, bfcl):
    for row in bfcl:
        tools = {tool.name: tool for tool in shapes(row)}
        rendered = dict(zip(tools, render(tools.values(), dialect).tools, strict=True))
        for call in row["calls"]:
            sent = sent_arguments(dialect, rendered[call["name"]], tools[call["name"]], call["arguments"])
            assert restore_arguments(tools[call["name"]], dialect, sent) == call["arguments"]


def sent_arguments(dialect, tool, shape, arguments):
    """Give the arguments as a model would send them that keeps to the rendered schema, which is asserted."""
    match dialect:
        case "gemini":
            assert gemini_admits(tool.get("parameters", {"type": "OBJECT"}), arguments)
            return arguments
        case "openai_strict" if tool["function"]["strict"]:
            sent, schema = with_nulls(shape.input_schema, arguments), tool["function"]["parameters"]
        case "openai" | "openai_strict":
            sent, schema = arguments, tool["function"]["parameters"]
        case _:
            sent, schema = arguments, tool.get("inputSchema", tool.get("input_schema"))
    assert jsonschema_rs.is_valid(schema, sent)
    return sent


def test_the_whole_leaderboard_has_names_that_map_there_and_back(bfcl):
    names = sorted({tool["name"] for row in bfcl for tool in row["tools"]})
    assert sum("." in name for name in names) > 100
    for dialect in DIALECTS:
        distinct = list({wire_name(name, dialect): name for name in names}.values())
        table = name_map(distinct, dialect)
        assert [table.name(table.wire(name)) for name in distinct] == distinct


def test_the_walker_visits_every_keyword_that_holds_schemas():
    maps = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
    lists = ("prefixItems", "anyOf", "oneOf", "allOf")
    singles = (
        *("items", "additionalProperties", "not", "if", "then", "else", "propertyNames", "contains"),
        *("unevaluatedItems", "unevaluatedProperties", "additionalItems", "contentSchema"),
    )
    schema = {keyword: {"k": {"$ref": f"#/{keyword}"}} for keyword in maps}
    schema |= {keyword: [{"$ref": f"#/{keyword}"}] for keyword in lists}
    schema |= {keyword: {"$ref": f"#/{keyword}"} for keyword in singles}
    assert sorted(references(schema)) == sorted(f"#/{keyword}" for keyword in (*maps, *lists, *singles))
    assert sorted(keyword for keyword, _ in children(schema)) == sorted((*maps, *lists, *singles))
    assert list(references(map_children(schema, lambda _keyword, _schema: True))) == []


def test_the_walker_takes_properties_named_like_keywords_for_properties():
    schema = {"properties": {"$ref": {"type": "string"}, "anyOf": {"type": "string"}, "enum": {"$ref": "#/x"}}}
    assert list(references(schema)) == ["#/x"]
    values = {"enum": [{"$ref": "#/no"}], "const": {"$ref": "#/no"}, "default": {"$ref": "#/no"}}
    assert list(references(values)) == []


def test_frozen_schemas_are_rendered_like_plain_ones():
    plain = {"type": "object", "properties": {"a": {"type": "array", "items": {"enum": [1, 2]}}}, "required": ["a"]}
    frozen = MappingProxyType({**plain, "properties": MappingProxyType(plain["properties"]), "required": ("a",)})
    for dialect in DIALECTS:
        assert render([Shape("t", frozen)], dialect).tools == render([Shape("t", plain)], dialect).tools
    assert restore_arguments(Shape("t", frozen), "gemini", {"a": ["2"]}) == {"a": [2]}
    assert thaw(frozen) == plain


def test_each_provider_gets_its_own_shape():
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    shape = Shape("t", schema, output_schema={"type": "object"}, kind="read")
    tools = {dialect: render([shape], dialect).tools[0] for dialect in DIALECTS}
    closed = {**schema, "additionalProperties": False}
    function = {"name": "t", "description": "Does it."}
    assert tools["openai"] == {"type": "function", "function": {**function, "parameters": schema}}
    assert tools["openai_strict"] == {"type": "function", "function": {**function, "parameters": closed, "strict": True}}
    assert tools["anthropic"] == {**function, "input_schema": schema}
    parameters = {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}, "required": ["a"]}
    assert tools["gemini"] == {**function, "parameters": parameters}
    assert tools["mcp"] == {
        **function,
        "inputSchema": schema,
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    }


def test_a_tool_without_description_or_parameters_has_no_such_fields():
    shape = Shape("t", {"type": "object"}, description=None)
    assert render([shape], "gemini").tools == [{"name": "t"}]
    assert render([shape], "anthropic").tools == [{"name": "t", "input_schema": {"type": "object"}}]
    assert render([shape], "openai").tools[0]["function"]["parameters"] == {"type": "object", "properties": {}}


def test_mcp_says_that_a_tool_of_another_kind_may_write_and_leaves_out_an_output_that_is_no_object():
    rendered = render([Shape("t", {"type": "object"}, output_schema={"type": "array"})], "mcp")
    assert rendered.tools[0]["annotations"] == {"readOnlyHint": False}
    assert "outputSchema" not in rendered.tools[0]
    assert "output schema is left out" in rendered.notes[0].text


def test_a_tool_with_free_keys_goes_without_strict_mode_and_says_so():
    free = {"type": "object", "properties": {"labels": {"type": "object", "additionalProperties": {"type": "string"}}}}
    rendered = render([Shape("t", free)], "openai_strict")
    assert rendered.tools[0]["function"]["strict"] is False
    assert rendered.tools[0]["function"]["parameters"] == free
    assert [(note.name, note.text) for note in rendered.notes] == [("t", FREE_KEYS)]


@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        ({}, "any value"),
        (True, "any value"),
        ({"type": "array"}, "any items"),
        ({"type": "array", "prefixItems": [{"type": "string"}]}, "each place"),
        ({"type": "object"}, "keys"),
        ({"type": "object", "properties": {}, "patternProperties": {"^x": {}}}, "keys"),
        ({"enum": [{"a": 1}]}, "objects or lists"),
        ({"type": "object", "properties": {}, "required": ["a"]}, "does not describe"),
        ({"enum": [str(number) for number in range(1001)]}, "1001 values"),
        ({"enum": [f"{number:0100}" for number in range(300)]}, "characters"),
        ({"$ref": "#/properties/b", "required": ["x"]}, "beside"),
    ],
)
def test_what_strict_mode_cannot_hold_is_rendered_without_it(inner, reason):
    schema = {"type": "object", "properties": {"a": inner, "b": {"type": "string"}}, "required": ["a"]}
    rendered = render([Shape("t", schema)], "openai_strict")
    assert rendered.tools[0]["function"]["strict"] is False
    assert broken_rules("openai_strict", rendered.tools[0]) == []
    assert reason in rendered.notes[0].text


def test_strict_counts_levels_and_properties():
    deep = {"type": "object", "properties": {"a": {"type": "string"}}}
    for _ in range(10):
        deep = {"type": "object", "properties": {"a": deep}}
    assert "11 levels" in render([Shape("t", deep)], "openai_strict").notes[0].text
    wide = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(5001)}}
    assert "5001 properties" in render([Shape("t", wide)], "openai_strict").notes[0].text


def test_strict_tells_in_the_description_what_it_has_no_keyword_for():
    inner = {"type": "string", "description": "When.", "format": "uri", "pattern": "^(?=x)", "minLength": 2, "default": "now"}
    schema = {"type": "object", "properties": {"at": inner}}
    at = render([Shape("t", schema)], "openai_strict").tools[0]["function"]["parameters"]["properties"]["at"]
    assert at["description"] == 'When. (format: "uri"; pattern: "^(?=x)"; minLength: 2; default: "now")'
    assert set(at) == {"type", "description"}


def test_strict_keeps_the_constraints_that_it_has_keywords_for():
    inner = {"type": "integer", "minimum": 1, "exclusiveMaximum": 9, "multipleOf": 2}
    schema = {"type": "object", "properties": {"n": inner}, "required": ["n"]}
    assert render([Shape("t", schema)], "openai_strict").tools[0]["function"]["parameters"]["properties"]["n"] == inner


def test_strict_adds_null_to_the_listed_values_of_an_optional_parameter():
    schema = {"type": "object", "properties": {"a": {"enum": ["x"]}, "b": {"const": 1}, "c": {"enum": ["x", None]}}}
    properties = render([Shape("t", schema)], "openai_strict").tools[0]["function"]["parameters"]["properties"]
    assert properties["a"] == {"type": ["string", "null"], "enum": ["x", None]}
    assert properties["b"] == {"type": ["integer", "null"], "enum": [1, None]}
    assert properties["c"] == {"type": ["string", "null"], "enum": ["x", None]}


def test_strict_merges_all_of_into_one_object():
    base = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    more = {"properties": {"b": {"type": "integer"}}, "required": ["b"]}
    schema = {"type": "object", "properties": {"x": {"allOf": [{"$ref": "#/$defs/base"}, more]}}, "$defs": {"base": base}}
    rendered = render([Shape("t", schema)], "openai_strict")
    assert rendered.notes == ()
    assert rendered.tools[0]["function"]["parameters"]["properties"]["x"]["required"] == ["a", "b"]


def test_gemini_sets_null_and_the_description_into_the_branches_of_a_union():
    inner = {
        "anyOf": [{"type": "integer"}, {"type": "string", "description": "By name."}, {"type": "null"}],
        "description": "Who.",
    }
    schema = {"type": "object", "properties": {"who": inner}}
    assert render([Shape("t", schema)], "gemini").tools[0]["parameters"]["properties"]["who"] == {
        "anyOf": [
            {"type": "INTEGER", "description": "Who.", "nullable": True},
            {"type": "STRING", "description": "By name.", "nullable": True},
        ]
    }


def test_gemini_writes_an_optional_type_as_nullable():
    schema = {
        "type": "object",
        "properties": {"a": {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "b": {"type": ["string", "null"]}},
    }
    properties = render([Shape("t", schema)], "gemini").tools[0]["parameters"]["properties"]
    assert properties == {"a": {"type": "INTEGER", "nullable": True}, "b": {"type": "STRING", "nullable": True}}


def test_gemini_has_no_form_for_arguments_of_free_names():
    for schema in ({"type": "object", "additionalProperties": {"type": "string"}}, {"type": "object", "required": ["a"]}):
        assert "names" in render([Shape("t", schema)], "gemini").skipped[0].reason


def test_gemini_lists_values_that_it_would_refuse_in_the_description():
    schema = {"type": "object", "properties": {"a": {"type": "string", "enum": ["", "x"]}}}
    a = render([Shape("t", schema)], "gemini").tools[0]["parameters"]["properties"]["a"]
    assert a == {"type": "STRING", "description": '(one of: ["", "x"])'}


def test_alternatives_at_the_top_become_one_object_that_admits_each():
    cat = {
        "type": "object",
        "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}},
        "required": ["kind", "lives"],
    }
    dog = {"type": "object", "properties": {"kind": {"const": "dog"}}, "required": ["kind"], "additionalProperties": False}
    joined = root_object(Document({"oneOf": [{"$ref": "#/$defs/cat"}, dog], "$defs": {"cat": cat}}))
    assert joined["type"] == "object"
    assert joined["required"] == ["kind"]
    assert joined["properties"]["kind"] == {"anyOf": [{"const": "cat"}, {"const": "dog"}]}
    assert "additionalProperties" not in joined


def test_merging_keeps_the_first_of_two_constraints_that_cannot_be_combined():
    merged = merge(
        {"type": ["integer", "string"], "minimum": 1, "enum": [1, 2]}, {"type": "number", "minimum": 2, "enum": [2, 3]}
    )
    assert merged == {"type": "integer", "minimum": 1, "enum": [2]}


def test_a_reference_to_itself_without_anything_between_is_refused_with_the_cycle():
    document = Document({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}})
    with pytest.raises(Inexpressible, match=r"a > b > a"):
        fold(document, {"$ref": "#/$defs/a"})


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (True, True),
        (False, False),
        ({}, True),
        ({"type": "string"}, False),
        ({"type": ["string", "null"]}, True),
        ({"enum": [None, 1]}, True),
        ({"enum": [1]}, False),
        ({"const": None}, True),
        ({"type": "null", "const": 1}, False),
        ({"anyOf": [{"type": "string"}, {"$ref": "#/$defs/n"}]}, True),
        ({"allOf": [{"type": ["string", "null"]}, {"type": "string"}]}, False),
        ({"$ref": "#/$defs/n"}, True),
    ],
)
def test_null_is_known_to_fit_or_not(schema, expected):
    assert admits_null(Document({"$defs": {"n": {"type": "null"}}}), schema) is expected


def test_references_escape_as_json_pointers_do():
    schema = {"$defs": {"a/b~c %": {"type": "string"}}, "type": "object", "properties": {"x": {"$ref": "#/$defs/a~1b~0c%20%25"}}}
    for dialect in DIALECTS:
        rendered = render([Shape("t", schema)], dialect)
        assert [broken_rules(dialect, tool) for tool in rendered.tools if dialect != "mcp"] in ([[]], [])
        assert rendered.skipped == ()


def test_restoring_leaves_what_it_does_not_know_alone():
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    given = {"a": "x", "b": None, "c": {"d": None}}
    for dialect in DIALECTS:
        assert restore_arguments(Shape("t", schema), dialect, given) == given


def test_restoring_gives_up_on_arguments_or_schemas_without_an_end():
    loop = {"type": "object", "properties": {"a": {"$ref": "#/$defs/l"}}, "$defs": {"l": {"anyOf": [{"$ref": "#/$defs/l"}]}}}
    assert restore_arguments(Shape("t", loop), "openai_strict", {"a": 1}) == {"a": 1}
    tree = {"type": "object", "properties": {"a": {"$ref": "#"}, "n": {"type": "string"}}}
    deep: dict[str, object] = {}
    for _ in range(5_000):
        deep = {"a": deep}
    assert restore_arguments(Shape("t", tree), "openai_strict", deep).keys() == {"a"}


def test_schemas_too_deep_for_any_provider_are_left_out():
    deep: dict[str, object] = {"type": "string"}
    for _ in range(5_000):
        deep = {"type": "array", "items": deep}
    for dialect in DIALECTS:
        skipped = render([Shape("t", {"type": "object", "properties": {"a": deep}})], dialect).skipped
        assert "deeper" in skipped[0].reason


def test_an_unknown_draft_is_not_fetched():
    schema = {"$schema": "http://nowhere.invalid/draft", "type": "object", "properties": {"a": {"type": "string"}}}
    assert render([Shape("t", schema)], "mcp").tools[0]["inputSchema"] == schema


def test_a_name_that_was_not_rendered_has_no_wire_name_and_an_unknown_wire_name_stays():
    table = name_map(["a.b"], "openai")
    assert table == NameMap({"a.b": "a_b"}, {"a_b": "a.b"})
    assert table.name("made_up") == "made_up"
    with pytest.raises(UsageError, match="'other'"):
        table.wire("other")


def test_one_name_given_twice_is_refused():
    with pytest.raises(ToolDefinitionError, match="'t'"):
        name_map(["t", "t"], "mcp")


def test_a_dialect_that_does_not_exist_is_refused_with_the_known_ones():
    with pytest.raises(UsageError, match="openai_strict"):
        render([], "klingon")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="klingon"):
        restore_arguments(Shape("t", {}), "klingon", {})  # type: ignore[arg-type]


def test_nesting_is_counted_without_recursion():
    assert [nesting(value) for value in (1, {}, [[]], {"a": [{}]})] == [0, 1, 2, 3]


def test_the_public_names_are_sorted_and_exist():
    assert list(dialects.__all__) == sorted(dialects.__all__)
    assert all(hasattr(dialects, name) for name in dialects.__all__)
