"""What a policy judges is what the tool gets, by the names of the schema, for whatever type an author may write.

Every strategy draws a type together with what a model writes for it and what a policy must see of it; the expected form is made
from the declaration alone, never from the value that was parsed.
"""

import dataclasses
import json
from base64 import b64encode
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple, NotRequired
from uuid import UUID

import pydantic.dataclasses
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    Json,
    PlainSerializer,
    RootModel,
    Secret,
    SecretBytes,
    SecretStr,
    TypeAdapter,
    computed_field,
    create_model,
    model_serializer,
)
from typing_extensions import TypedDict

from callgate import Tool
from callgate.policy import Condition
from callgate.policy.conditions import Judgement, judge
from callgate.tools.json_forms import MASKED
from callgate.tools.plain_arguments import plain_arguments
from callgate.tools.reading import read_arguments

SLOW = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


class Case(NamedTuple):
    """Be a type, what a model writes for it, and what a policy has to see."""

    type: Any
    written: Any
    seen: Any


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1


class Opaque:
    """Be what only the author's code knows."""

    def __init__(self, value):
        self.value = value


def hidden_writer(_value):
    return "a lie"


def same(kind, values):
    return values.map(lambda value: Case(kind, value, value))


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
numbers = st.integers(-(10**25), 10**25)
leaves = st.one_of(
    same(int, numbers),
    same(bool, st.booleans()),
    same(str, texts),
    same(Any, texts | numbers | st.none()),
    same(float, st.floats(allow_nan=False, allow_infinity=False)),
    same(Literal["a", 2] | None, st.sampled_from(["a", 2, None])),
    same(Annotated[int, PlainSerializer(hidden_writer)], numbers),
    st.decimals(-(10**9), 10**9, places=2).map(lambda value: Case(Decimal, str(value), str(value))),
    st.dates().map(lambda value: Case(date, value.isoformat(), value.isoformat())),
    st.datetimes(timezones=st.just(UTC)).map(
        lambda value: Case(datetime, value.isoformat(), value.isoformat().replace("+00:00", "Z"))
    ),
    st.integers(1, 10**6).map(lambda seconds: Case(timedelta, f"PT{seconds}S", None)),
    st.uuids().map(lambda value: Case(UUID, str(value).upper(), str(value))),
    st.binary(max_size=5).map(lambda value: Case(bytes, b64encode(value).decode(), b64encode(value).decode())),
    st.just(Case(PurePosixPath, "/a//b", "/a/b")),
    st.just(Case(Colour, "blue", "blue")),
    st.just(Case(Level, 1, 1)),
    texts.filter(bool).map(lambda value: Case(SecretStr, value, MASKED)),
    texts.filter(bool).map(lambda value: Case(Secret[str], value, MASKED)),
    st.just(Case(SecretBytes, "aGk=", MASKED)),
    numbers.map(lambda value: Case(Annotated[int, AfterValidator(lambda given: given * 100)], value, value * 100)),
    texts.map(lambda value: Case(Annotated[str, AfterValidator(Opaque)], value, value)),
    numbers.map(lambda value: Case(Json[int], str(value), value)),
).map(lambda case: case if case.type is not timedelta else Case(timedelta, case.written, in_iso(case.written)))


def in_iso(written):
    """Give a duration as ISO 8601 writes it, with days, hours and minutes of their own."""
    minutes, seconds = divmod(int(written[2:-1]), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    time = "".join(f"{number}{unit}" for number, unit in ((hours, "H"), (minutes, "M"), (seconds, "S")) if number)
    return "P" + (f"{days}D" if days else "") + (f"T{time}" if time else "")


def as_list(case, count):
    return Case(list[case.type], [case.written] * count, [case.seen] * count)


def as_set(values):
    return Case(set[str], [*values, *values], sorted(set(values), key=json.dumps))


def as_tuple(first, second, repeated):
    if repeated:
        return Case(tuple[first.type, ...], [first.written] * 3, [first.seen] * 3)
    return Case(tuple[first.type, second.type], [first.written, second.written], [first.seen, second.seen])


def as_dict(case, keys, kind):
    lower = Annotated[str, AfterValidator(str.casefold)]
    if kind == "lower":
        named = {key.casefold(): key for key in keys}
        return Case(dict[lower, case.type], dict.fromkeys(named.values(), case.written), dict.fromkeys(named, case.seen))
    return Case(dict[str, case.type], dict.fromkeys(keys, case.written), dict.fromkeys(keys, case.seen))


def as_optional(case, is_null):
    return Case(case.type | None, None, None) if is_null else Case(case.type | None, case.written, case.seen)


def as_root(case):
    return Case(RootModel[case.type], case.written, case.seen)


def as_iterable(values):
    return Case(Iterable[int], values, values)


def as_loaded(case):
    """Let an author's code make of it what has no form: the model's words stand, unless a secret may be among them."""
    hides = "Secret" in str(TypeAdapter(case.type).core_schema)
    return Case(
        Annotated[case.type, AfterValidator(Opaque)],
        case.written,
        None if case.written is None else MASKED if hides else case.written,
    )


# ── objects ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

ALIASES = ("none", "alias", "both", "writing", "choices", "path")


class Named(NamedTuple):
    """Be a field: how it is declared, under which keys it is written, and under which one it is seen."""

    declared: dict[str, Any]
    way: tuple[str, ...]
    seen: str


def named(name, alias, is_excluded):
    wire = f"{name}-é"
    declared, way, seen = {
        "none": ({}, (name,), name),
        "alias": ({"alias": wire}, (wire,), wire),
        "both": ({"validation_alias": wire, "serialization_alias": name * 2}, (wire,), wire),
        "writing": ({"serialization_alias": wire}, (name,), name),
        "choices": ({"validation_alias": AliasChoices(AliasPath("deep", name), wire, "x")}, (wire,), wire),
        "path": ({"validation_alias": AliasPath(f"in_{name}", "there")}, (f"in_{name}", "there"), name),
    }[alias]
    return Named({**declared, "exclude": True} if is_excluded else declared, way, seen)


def put(way, value):
    return {way[0]: value if len(way) == 1 else put(way[1:], value)}


class Writing(BaseModel):
    """Write something else than what it is."""

    @computed_field
    @property
    def computed(self) -> int:
        return 1

    @model_serializer
    def written(self) -> dict[str, Any]:
        return {"written": True}


class Fields(NamedTuple):
    """Be the fields of an object: their cases and how they are named."""

    cases: list[Case]
    names: list[Named]

    @property
    def written(self):
        return {key: value for case, name in zip(*self, strict=True) for key, value in put(name.way, case.written).items()}

    @property
    def seen(self):
        return {name.seen: case.seen for case, name in zip(*self, strict=True)}

    @property
    def declared(self):
        fields = enumerate(zip(*self, strict=True))
        return {f"f{place}": Annotated[case.type, Field(**name.declared)] for place, (case, name) in fields}


def fields_of(cases, aliases, excluded):
    return Fields(cases, [named(f"f{place}", aliases[place], place in excluded) for place in range(len(cases))])


def without_paths(aliases):
    """Leave out what only a model reads."""
    return ["none" if alias in {"path", "choices"} else alias for alias in aliases]


def as_model(cases, aliases, excluded, how):
    fields = fields_of(cases, aliases, excluded)
    declared = {**fields.declared, "left": (int, Field(7, exclude=True))}
    seen = {**fields.seen, "left": 7}
    if how == "extra":
        model = create_model("Extra", __config__=ConfigDict(extra="allow"), **declared)
        return Case(model, {**fields.written, "more": [1]}, {**seen, "more": [1]})
    if how == "ignored":
        model = create_model("Lax", __config__=ConfigDict(extra="ignore"), **declared)
        return Case(model, {**fields.written, "more": [1]}, seen)
    return Case(create_model("Own", __base__=Writing if how == "writing" else BaseModel, **declared), fields.written, seen)


def as_dataclass(cases, aliases, excluded, how):
    fields = fields_of(cases, without_paths(aliases), excluded)
    declared = [*fields.declared.items(), ("gone", dataclasses.InitVar[int], dataclasses.field(default=3))]
    if how == "extra":
        declared += [("own", int, dataclasses.field(init=False, default=9))]
        kind = pydantic.dataclasses.dataclass(dataclasses.make_dataclass("Data", declared))
        return Case(kind, {**fields.written, "gone": 4}, {**fields.seen, "gone": 4})
    return Case(dataclasses.make_dataclass("Data", declared, slots=how == "writing"), fields.written, {**fields.seen, "gone": 3})


def as_typed_dict(cases, aliases, excluded, how):
    fields = fields_of(cases, without_paths(aliases), excluded)
    if how != "plain":
        return Case(TypedDict("Typed", {**fields.declared, "away": NotRequired[int]}), fields.written, fields.seen)
    return Case(TypedDict("Typed", fields.declared, total=False), fields.written, fields.seen)


def as_named_tuple(first, second):
    class Pair(NamedTuple):
        a: first.type
        b: second.type

    return Case(Pair, [first.written, second.written], [first.seen, second.seen])


def as_union(case, other, is_first):
    """Put an object beside another one that has a field which this one lacks."""
    return Case(case.type | other.type if is_first else other.type | case.type, case.written, case.seen)


def objects(cases):
    parts = (
        st.lists(cases, max_size=3),
        st.lists(st.sampled_from(ALIASES), min_size=3, max_size=3),
        st.sets(st.integers(0, 2)),
        st.sampled_from(["plain", "writing", "extra", "ignored"]),
    )
    return st.one_of(*(st.builds(build, *parts) for build in (as_model, as_dataclass, as_typed_dict)))


def others(cases):
    distinct = cases.map(
        lambda case: Case(create_model("Other", tag=(Literal["other"], ...), inner=(case.type, ...)), None, None)
    )
    return st.builds(as_union, objects(cases), distinct, st.booleans())


def deeper(cases):
    keys = st.lists(texts, max_size=3)
    return st.one_of(
        objects(cases),
        others(cases),
        st.builds(as_list, cases, st.integers(0, 3)),
        st.builds(as_set, st.lists(texts, max_size=4)),
        st.builds(as_tuple, cases, cases, st.booleans()),
        st.builds(as_named_tuple, cases, cases),
        st.builds(as_dict, cases, keys, st.sampled_from(["plain", "lower"])),
        st.builds(as_optional, cases, st.booleans()),
        st.builds(as_root, cases),
        st.builds(as_iterable, st.lists(numbers, max_size=3)),
        st.builds(as_loaded, cases),
    )


anything = st.recursive(leaves, deeper, max_leaves=5)


@SLOW
@given(anything)
def test_a_policy_sees_what_the_tool_gets_by_the_names_of_the_schema(case):
    def body(value):
        return "done"

    body.__annotations__ = {"value": Annotated[case.type, Field(alias="wert")]}
    tool = Tool.of(body)
    reading = read_arguments(tool.name, json.dumps({"wert": case.written}))
    seen = plain_arguments(tool, tool.input.parse(reading.text, reading.arguments), reading.text)
    assert seen == {"wert": case.seen}
    json.dumps(seen, allow_nan=False)


@SLOW
@given(objects(anything))
def test_an_explicit_input_is_seen_as_it_is_in_a_parameter(case):
    tool = Tool("body", lambda value: "done", input=case.type)
    reading = read_arguments("body", json.dumps(case.written))
    seen = plain_arguments(tool, tool.input.parse(reading.text, reading.arguments), reading.text)
    assert seen == case.seen


@SLOW
@given(leaves, st.lists(st.tuples(st.sampled_from(ALIASES), st.booleans()), min_size=1, max_size=3))
def test_a_rule_at_a_path_of_the_schema_finds_the_value_however_deep_it_stands(case, levels):
    path, written, kind = "", case.written, case.type
    for alias, is_excluded in levels:
        name = named("f0", alias, is_excluded)
        kind = create_model("Level", __base__=Writing, f0=Annotated[kind, Field(**name.declared)])
        path, written = f"/{name.seen}{path}", put(name.way, written)
    tool = Tool("body", lambda value: "done", input=kind)
    reading = read_arguments("body", json.dumps(written))
    seen = plain_arguments(tool, tool.input.parse(reading.text, reading.arguments), reading.text)
    judged = judge(Condition(path, "absent"), seen)
    assert judged is (Judgement.YES if case.seen is None else Judgement.NO)
    if case.seen is MASKED:
        assert judge(Condition(path, "!=", "another"), seen) is Judgement.UNKNOWN
    elif case.seen is not None:
        assert judge(Condition(path, "==", case.seen), seen) is Judgement.YES
