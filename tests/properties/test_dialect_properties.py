"""For any schema: every provider's rules hold, nothing is changed in place, and arguments come back as they were meant."""

import copy
import json
from dataclasses import dataclass
from typing import Any

import jsonschema_rs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callgate.tools.dialects import DIALECTS, name_map, render, restore_arguments
from callgate.tools.dialects.references import same_json
from tests.unit.tools.dialect_rules import TOOL_NAMES, Shape, broken_rules, gemini_admits

TYPES = ("string", "integer", "number", "boolean", "null", "array", "object")
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.5, 1.0]), st.text("ab1", max_size=3))
KEYS = st.sampled_from(["a", "b", "c", "d e", "$x", "enum", "properties", "x" * 70])
REFERENCES = st.sampled_from(["#", "#/$defs/A", "#/$defs/B", "#/$defs/C%20c", "#/properties/a"])
ANNOTATED = st.fixed_dictionaries(
    {}, optional={"description": st.text("xy", max_size=3), "title": st.just("T"), "default": SCALARS}
)
SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def combinations(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    keyed = st.dictionaries(KEYS, inner, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), min_size=1, max_size=3, unique=True),
            "properties": keyed,
            "required": st.lists(KEYS, max_size=2, unique=True),
            "additionalProperties": inner,
            "items": inner,
            "prefixItems": several,
            "anyOf": several,
            "oneOf": several,
            "allOf": several,
            "not": inner,
            "if": inner,
            "then": inner,
            "patternProperties": keyed,
            "dependentSchemas": keyed,
            "propertyNames": inner,
            "contains": inner,
            "unevaluatedProperties": inner,
            "unevaluatedItems": inner,
            "enum": st.lists(SCALARS, min_size=1, max_size=3, unique_by=json.dumps),
            "const": SCALARS,
            "$ref": REFERENCES,
            "format": st.sampled_from(["date", "uri", "int32"]),
            "minLength": st.integers(0, 3),
            "minItems": st.integers(0, 3),
            "maximum": st.integers(0, 3),
        },
    )


LEAVES = (
    st.booleans()
    | ANNOTATED
    | st.fixed_dictionaries({"type": st.sampled_from(TYPES)})
    | st.builds(lambda r: {"$ref": r}, REFERENCES)
)
SUBSCHEMAS = st.recursive(LEAVES, lambda inner: st.builds(lambda a, b: {**a, **b}, combinations(inner), ANNOTATED), max_leaves=8)


@st.composite
def any_schemas(draw: st.DrawFn) -> Any:
    """Draw a schema of every keyword, often of an object, with definitions that refer to each other."""
    root = draw(SUBSCHEMAS)
    if not isinstance(root, dict):
        return root
    kind = {"type": "object"} if draw(st.booleans()) else {}
    return {**root, **kind, "$defs": {name: draw(SUBSCHEMAS) for name in ("A", "B", "C c")}}


@SLOW
@given(any_schemas())
def test_any_schema_is_rendered_by_the_rules_or_left_out_with_a_reason(schema):
    before = copy.deepcopy(schema)
    for dialect in DIALECTS:
        rendered = render([Shape("tool", schema)], dialect)
        assert len(rendered.tools) + len(rendered.skipped) == 1
        assert [problem for tool in rendered.tools for problem in broken_rules(dialect, tool)] == []
        assert all(skipped.reason for skipped in rendered.skipped)
        assert rendered == render([Shape("tool", schema)], dialect)
    assert schema == before


@SLOW
@given(
    any_schemas(),
    st.dictionaries(KEYS, st.recursive(SCALARS, lambda one: st.lists(one) | st.dictionaries(KEYS, one), max_leaves=6)),
)
def test_restoring_never_fails_and_changes_no_argument_in_place(schema, arguments):
    before = copy.deepcopy(arguments)
    for dialect in DIALECTS:
        restored = restore_arguments(Shape("tool", schema), dialect, arguments) if isinstance(schema, dict) else arguments
        assert len(restored) <= len(arguments)
    assert same_json(arguments, before)


@SLOW
@given(any_schemas(), st.dictionaries(st.sampled_from("abc"), st.recursive(SCALARS, st.lists, max_leaves=4), max_size=3))
def test_what_the_tool_accepts_the_looser_forms_accept_too(schema, arguments):
    try:
        if not jsonschema_rs.is_valid(schema, arguments):
            return
    except (ValueError, jsonschema_rs.ReferencingError, RecursionError):
        return
    for dialect, field in (("openai", "parameters"), ("anthropic", "input_schema")):
        for tool in render([Shape("tool", schema)], dialect).tools:
            sent = tool["function"][field] if dialect == "openai" else tool[field]
            assert jsonschema_rs.is_valid(sent, arguments)


@dataclass(frozen=True)
class Sample:
    """A schema, a value of it, and that value as a model sends it in strict mode and to Gemini."""

    schema: Any
    value: Any
    strict: Any
    gemini: Any


def _same(schema: Any, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Sample]:
    return values.map(lambda value: Sample(schema, value, value, value))


def _text_of(value: Any) -> Any:
    return value if isinstance(value, str) or value is None else json.dumps(value)


@st.composite
def listed(draw: st.DrawFn) -> Sample:
    values = draw(
        st.lists(st.booleans() | st.integers(0, 9) | st.text("xy", min_size=1), min_size=1, max_size=4, unique_by=json.dumps)
    )
    value = draw(st.sampled_from(values))
    schema = {"const": value} if draw(st.booleans()) else {"enum": values}
    return Sample(schema, value, value, _text_of(value))


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Sample]) -> Sample:
    members = draw(st.dictionaries(st.sampled_from("abcd"), inner, min_size=1, max_size=4))
    required = [name for name in members if draw(st.booleans())]
    present = [name for name in members if name in required or draw(st.booleans())]
    schema = {"type": "object", "properties": {name: one.schema for name, one in members.items()}, "required": required}
    absent = {name: None for name in members if name not in present}
    return Sample(
        schema,
        {name: members[name].value for name in present},
        {**{name: members[name].strict for name in present}, **absent},
        {name: members[name].gemini for name in present},
    )


@st.composite
def lists(draw: st.DrawFn, inner: st.SearchStrategy[Sample]) -> Sample:
    one = draw(inner)
    count = draw(st.integers(0, 2))
    return Sample({"type": "array", "items": one.schema}, [one.value] * count, [one.strict] * count, [one.gemini] * count)


@st.composite
def tagged_unions(draw: st.DrawFn, inner: st.SearchStrategy[Sample]) -> Sample:
    members = draw(st.lists(objects(inner), min_size=2, max_size=3))
    tagged = [_tagged(member, number) for number, member in enumerate(members)]
    chosen = draw(st.sampled_from(tagged))
    keyword = draw(st.sampled_from(["anyOf", "oneOf"]))
    return Sample({keyword: [one.schema for one in tagged]}, chosen.value, chosen.strict, chosen.gemini)


def _tagged(member: Sample, number: int) -> Sample:
    schema = {
        **member.schema,
        "properties": {"tag": {"const": number}, **member.schema["properties"]},
        "required": ["tag", *member.schema["required"]],
    }
    values = (
        {"tag": tag, **value} for tag, value in ((number, member.value), (number, member.strict), (str(number), member.gemini))
    )
    return Sample(schema, *values)


PLAIN = st.one_of(
    _same({"type": "string"}, st.text("a1", max_size=3)),
    _same({"type": "integer"}, st.integers(-9, 9)),
    _same({"type": "number"}, st.sampled_from([0.5, 2])),
    _same({"type": "boolean"}, st.booleans()),
    listed(),
)
SAMPLES = objects(st.recursive(PLAIN, lambda inner: objects(inner) | lists(inner) | tagged_unions(inner), max_leaves=6))


@SLOW
@given(SAMPLES)
def test_strict_arguments_fit_the_strict_schema_and_come_back_without_their_nulls(sample):
    shape = Shape("tool", sample.schema)
    rendered = render([shape], "openai_strict")
    assert rendered.notes == ()
    assert broken_rules("openai_strict", rendered.tools[0]) == []
    assert jsonschema_rs.is_valid(rendered.tools[0]["function"]["parameters"], sample.strict)
    assert same_json(restore_arguments(shape, "openai_strict", sample.strict), sample.value)


@SLOW
@given(SAMPLES)
def test_gemini_arguments_fit_the_gemini_schema_and_come_back_with_their_types(sample):
    shape = Shape("tool", sample.schema)
    tool = render([shape], "gemini").tools[0]
    assert broken_rules("gemini", tool) == []
    assert gemini_admits(tool["parameters"], sample.gemini)
    assert same_json(restore_arguments(shape, "gemini", sample.gemini), sample.value)


@SLOW
@given(SAMPLES)
def test_arguments_of_the_tool_itself_are_left_as_they_are_in_every_dialect(sample):
    assert jsonschema_rs.is_valid(sample.schema, sample.value)
    for dialect in DIALECTS:
        assert same_json(restore_arguments(Shape("tool", sample.schema), dialect, sample.value), sample.value)


@given(st.lists(st.text(max_size=140), unique=True, max_size=8), st.sampled_from(DIALECTS))
def test_names_of_any_text_are_accepted_and_map_back(names, dialect):
    distinct = {wire: name for name in names for wire in [name_map([name], dialect).wire(name)]}
    table = name_map(distinct.values(), dialect)
    for name in distinct.values():
        assert table.name(table.wire(name)) == name
        assert broken_rules(dialect, render([Shape(name, {"type": "object"})], dialect).tools[0]) == []
    assert set(TOOL_NAMES) == set(DIALECTS)
