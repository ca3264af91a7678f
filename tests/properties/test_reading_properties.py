import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import IntEnum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from jiter import from_json
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from callgate.errors import InvalidInputError, Problem
from callgate.tools.json_faults import escape_control_characters, find_fault
from callgate.tools.paths import write_path
from callgate.tools.reading import Reading, read_arguments
from callgate.tools.repair import repair_arguments

ANY_OBJECT = TypeAdapter(dict[str, Any])

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.integers(-(2**1023), 2**1023)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(texts, values, max_size=5)

PIECES = [
    '{"',
    '":',
    ",",
    '"',
    "\\",
    "\\u",
    "\\ud83c",
    "\\udf78",
    "[",
    "]",
    "{",
    "}",
    "{}",
    "1",
    "-",
    "0",
    ".",
    "e9",
    "e999",
    "true",
    "null",
    "NaN",
    "-Infinity",
    " ",
    "\n",
    "\x00",
    "\ud800",
    "'",
    "a",
    '"a":',
    "9" * 320,
    "/",
    "é",
    "\ufeff",
    "_",
    "$",
]
broken = st.lists(st.sampled_from(PIECES) | st.characters(), max_size=14).map("".join)


@st.composite
def damaged(draw):
    """Draw the text of an object with one part of it cut out, repeated or replaced."""
    text = json.dumps(draw(objects), ensure_ascii=draw(st.booleans()))
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(len(text), start + 6)))
    return text[:start] + draw(st.sampled_from(["", text[start:end] * 2, *PIECES])) + text[end:]


@st.composite
def damaged_or_broken(draw):
    return draw(damaged() | broken | broken.map(lambda text: '{"a":' + text + "}"))


def outcome(raw):
    try:
        return read_arguments("t", raw)
    except InvalidInputError as error:
        return error


def exactly(value):
    """Give a form in which 1, 1.0 and True, and 0.0 and -0.0, are different."""
    if isinstance(value, dict):
        return {key: exactly(item) for key, item in value.items()}
    if isinstance(value, list):
        return [exactly(item) for item in value]
    return type(value), value.hex() if isinstance(value, float) else value


@given(objects, st.booleans(), st.sampled_from([None, 1]))
def test_every_object_is_read_exactly_from_its_text(arguments, ensure_ascii, indent):
    text = json.dumps(arguments, ensure_ascii=ensure_ascii, indent=indent)
    reading = read_arguments("t", text)
    assert reading.text == text.encode()
    assert exactly(reading.arguments) == exactly(json.loads(text)) == exactly(arguments)
    assert read_arguments("t", text.encode()) == reading
    assert find_fault(text) is None


@given(objects)
def test_every_object_is_read_exactly_from_itself(arguments):
    reading = read_arguments("t", arguments)
    assert exactly(reading.arguments) == exactly(arguments)
    assert exactly(json.loads(reading.text)) == exactly(arguments)


with_escapes = st.text(st.sampled_from('ab\\"nt/ \n\t\x00\x1f'), max_size=8)


@given(st.dictionaries(with_escapes, with_escapes, max_size=3))
def test_raw_control_characters_are_read_as_the_standard_library_does(arguments):
    escaped = json.dumps(arguments)
    text = escaped.replace("\\n", "\n").replace("\\t", "\t").replace("\\u0000", "\x00")
    try:
        expected = json.loads(text, strict=False)
    except ValueError:  # the backslash belonged to another one before it, and now stands before a raw character
        with pytest.raises(InvalidInputError):
            read_arguments("t", text)
    else:
        assert read_arguments("t", text).arguments == expected


@given(damaged_or_broken())
@example('{"a":"\\ud83c\\udf78\\ud83c"}')
@example('{"a":-}')
@example('{"":{"":1,}}')
def test_the_careful_parser_finds_a_fault_exactly_where_the_fast_one_refuses(text):
    fault = find_fault(text)
    try:
        value = from_json(escape_control_characters(text).encode(), catch_duplicate_keys=True, allow_inf_nan=False)
    except ValueError:
        assert fault is not None
    else:
        assert (fault is not None) == any(is_beyond_float(number) for number in numbers_in(value))
    if fault is not None:
        assert 0 <= fault.offset <= len(text)


@given(damaged_or_broken())
def test_text_is_read_as_the_standard_library_reads_it_or_refused(text):
    reading = outcome(text)
    if isinstance(reading, InvalidInputError):
        assert str(reading).encode()
        return
    if reading.arguments:
        assert exactly(reading.arguments) == exactly(json.loads(text.removeprefix("\ufeff"), strict=False))
    assert ANY_OBJECT.validate_json(reading.text, strict=True) == reading.arguments
    assert exactly(json.loads(reading.text)) == exactly(reading.arguments)


class Moody(dict):
    def items(self):
        raise KeyError("secret")

    keys = __iter__ = items


class Colour(IntEnum):
    RED = 1


class Record(BaseModel):
    a: Any = None


anything = st.recursive(
    values
    | st.text()
    | st.floats()
    | st.binary()
    | st.complex_numbers()
    | st.dates()
    | st.datetimes()
    | st.decimals()
    | st.uuids()
    | st.sampled_from([object(), int, len, Moody(a=1), Colour.RED, 10**400, -(10**400), NotImplemented, ..., range(3)])
    | st.builds(memoryview, st.binary()),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.lists(inner, max_size=3).map(iter)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.none(), inner, max_size=3)
        | st.builds(Record, a=inner)
    ),
    max_leaves=8,
)


@given(anything | st.dictionaries(st.text(max_size=3), anything, max_size=3))
def test_anything_at_all_ends_in_a_reading_or_a_refusal(raw):
    reading = outcome(raw)
    if isinstance(reading, InvalidInputError):
        assert str(reading).encode()
        assert len(reading.problems) == 1
        return
    assert isinstance(reading, Reading)
    assert ANY_OBJECT.validate_json(reading.text, strict=True) == reading.arguments
    assert find_fault(reading.text.decode()) is None


@given(st.binary())
def test_any_bytes_end_in_a_reading_or_a_refusal(raw):
    assert isinstance(outcome(raw), Reading | InvalidInputError)


@dataclass
class Line:
    sku: str
    count: int


class Node(BaseModel, extra="forbid"):
    size: int
    label: str = ""
    kids: list["Node"] = []


class Everything(BaseModel, extra="forbid"):
    a: int
    b: float = 0.0
    c: bool = False
    d: str = ""
    e: list[int] = []
    f: Line | None = None
    g: int | list[str] = 0
    h: Literal[1, 2, True] = 1
    i: Literal["1", 2] = 2
    j: dict[str, float] = {}
    k: Node | None = None
    m: Decimal = Decimal(0)
    n: date | None = None
    o: tuple[int, str] | None = None
    p: Annotated[int | None, Field(ge=3)] = None


EVERYTHING = TypeAdapter(Everything)
SCHEMA = EVERYTHING.json_schema()

near_scalars = st.sampled_from(
    [
        0,
        1,
        2,
        5,
        1.0,
        2.5,
        True,
        False,
        None,
        "",
        "1",
        "2",
        "true",
        "[1]",
        "[]",
        '["x"]',
        "{}",
        '{"size":"1"}',
        '{"sku":"x","count":1}',
        "2024-01-01",
        "1.5",
        " 1",
        "NaN",
        "1e999",
        "x",
    ]
)
near_values = st.recursive(
    near_scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.fixed_dictionaries({"size": inner}, optional={"label": inner, "kids": st.lists(inner, max_size=2)})
        | st.fixed_dictionaries({"sku": inner, "count": inner})
        | st.dictionaries(st.sampled_from(["x", "y.z", "a b"]), inner, max_size=2)
    ),
    max_leaves=8,
)
# Pydantic takes 1.0 for the literal 1, so no strict check would ever refuse it there, and no repair is asked for.
whole_literals = near_scalars.filter(lambda value: type(value) is not float)
near_arguments = st.fixed_dictionaries(
    {"a": near_values}, optional={**dict.fromkeys("bcdefgijkmnop", near_values), "h": whole_literals}
)


def places_in(value, steps=()) -> Iterator[tuple[str | int, ...]]:
    yield steps
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in items:
        yield from places_in(item, (*steps, step))


def problems_at(places):
    return [Problem(write_path(steps), "something else", "this") for steps in places]


def without(value, steps):
    """Copy `value` without what is at `steps`."""
    if not steps:
        return ...
    if isinstance(value, dict):
        kept = {key: without(item, steps[1:]) if key == steps[0] else item for key, item in value.items()}
        return {key: item for key, item in kept.items() if item is not ...}
    if isinstance(value, list):
        return [without(item, steps[1:]) if index == steps[0] else item for index, item in enumerate(value)]
    return value


def refused_places(arguments):
    """Give the places that pydantic refuses, as far as their location is one of the arguments."""
    known = set(places_in(arguments))
    try:
        EVERYTHING.validate_json(json.dumps(arguments), strict=True)
    except ValidationError as error:
        locations = [each["loc"] for each in error.errors(include_url=False, include_input=False)]
        return {location[:length] for location in locations for length in range(1, len(location) + 1)} & known
    return set()


@given(near_arguments)
def test_a_value_that_validates_is_never_touched(arguments):
    refused = {steps[0] for steps in refused_places(arguments)}
    valid = {"a": 1} | {name: value for name, value in arguments.items() if name not in refused}
    assert not refused_places(valid)
    assert repair_arguments(SCHEMA, valid, problems_at(places_in(valid))) is None


@given(near_arguments)
def test_a_repair_changes_nothing_but_the_places_of_the_problems(arguments):
    refused = refused_places(arguments)
    assume(refused)
    before = exactly(arguments)
    found = repair_arguments(SCHEMA, arguments, problems_at(refused))
    assert exactly(arguments) == before
    if found is None:
        return
    left, kept = arguments, found.arguments
    for steps in sorted(refused, key=repr):
        left, kept = without(left, steps), without(kept, steps)
    assert exactly(left) == exactly(kept)
    assert found.repairs


@given(near_arguments, st.data())
def test_a_place_that_is_no_problem_is_never_touched_whatever_it_holds(arguments, data):
    places = [steps for steps in places_in(arguments) if steps]
    chosen = data.draw(st.sampled_from(places))
    found = repair_arguments(SCHEMA, arguments, problems_at([chosen]))
    if found is not None:
        assert exactly(without(found.arguments, chosen)) == exactly(without(arguments, chosen))
        assert len(found.repairs) == 1


def numbers_in(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [number for item in value for number in numbers_in(item)]
    return [value] if type(value) in {int, float} else []


def is_beyond_float(number):
    try:
        return math.isinf(float(number))
    except OverflowError:
        return True
