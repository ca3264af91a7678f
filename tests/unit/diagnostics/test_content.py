"""What of content is recorded: plain, bounded, redacted."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import PurePosixPath
from typing import NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from callgate.diagnostics.content import NOT_RECORDED, Redactor, json_text
from callgate.errors import UsageError


class Model(BaseModel):
    email: str
    inner: dict[str, int]


@dataclass
class Data:
    email: str


class Color(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Hostile:
    def __str__(self):
        raise AssertionError

    __repr__ = __str__

    def __getattr__(self, name):
        raise AssertionError


class Point(NamedTuple):
    x: int
    y: int


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        (True, True),
        ({"a": [1, 2.5, "x"]}, {"a": [1, 2.5, "x"]}),
        ({1: (2,), None: 3}, {"1": [2], "None": 3}),
        ({7}, [7]),
        (Point(1, 2), [1, 2]),
        (b"abc", "<3 bytes>"),
        (Color.RED, "red"),
        (Level.LOW, 1),
        (Decimal("1.50"), "1.50"),
        (datetime(2025, 1, 2, tzinfo=UTC), "2025-01-02 00:00:00+00:00"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (PurePosixPath("/a"), "/a"),
        (Data("x"), {"email": "x"}),
        (Model(email="x", inner={"a": 1}), {"email": "x", "inner": {"a": 1}}),
        (object(), "<object>"),
        (Data, "<type>"),
    ],
)
def test_h10_every_value_becomes_plain_or_a_note_of_its_type(value, plain):
    assert Redactor().record(value) == plain


def test_h10_no_code_of_an_object_is_called():
    assert Redactor().record([Hostile()]) == ["<Hostile>"]


def test_recording_does_not_consume_an_iterator_of_the_tool():
    items = iter([1, 2])
    assert Redactor().record({"items": items}) == {"items": "<list_iterator>"}
    assert next(items) == 1


def test_what_is_recorded_is_a_copy():
    arguments = {"a": [1]}
    plain = Redactor().record(arguments)
    arguments["a"].append(2)
    assert plain == {"a": [1]}


def test_a_cycle_ends():
    cycle = []
    cycle += [cycle, cycle]
    assert NOT_RECORDED in json_text(Redactor().record(cycle))


def test_a_huge_value_is_cut():
    assert len(Redactor().record(list(range(300_000)))) < 150_000


@pytest.mark.parametrize("redact", ["email", ["email"], {"EMAIL"}, lambda plain: {**plain, "email": "[redacted]"}])
def test_h7_a_field_is_hidden_by_name_or_by_function(redact):
    assert Redactor.of(redact).record({"email": "a@b", "n": 1}) == {"email": "[redacted]", "n": 1}


@pytest.mark.parametrize("value", [Data("marker"), Model(email="marker", inner={}), [{"x": Data("marker")}]])
def test_h7_a_field_of_an_object_is_hidden_too(value):
    assert "marker" not in repr(Redactor.of(["email"]).record(value))


def test_h7_a_field_is_hidden_in_json_given_as_text():
    recorded = Redactor.of(["email"]).record({"rows": ' [{"email": "marker", "n": 1}]'})
    assert json.loads(recorded["rows"]) == [{"email": "[redacted]", "n": 1}]


def test_h7_a_field_is_hidden_in_json_text_inside_json_text():
    text = json.dumps(json.dumps({"email": "marker"}))
    assert json.loads(json.loads(Redactor.of(["email"]).record(text))) == {"email": "[redacted]"}


@pytest.mark.parametrize("text", ["{not json", "[1,  2]", "plain", '"quoted"', '{"a" : 1}'])
def test_text_without_a_hidden_field_stays_as_it_is(text):
    assert Redactor.of(["email"]).record(text) == text


def test_content_that_the_function_cannot_redact_is_kept_back():
    def redact(plain):
        raise KeyError("marker")

    assert Redactor.of(redact).record("marker") == NOT_RECORDED


@pytest.mark.parametrize("wrong", [[1], 5, None, [["email"]]])
def test_what_cannot_redact_is_refused(wrong):
    with pytest.raises((UsageError, TypeError)):
        Redactor.of(wrong)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(), st.lists))
def test_plain_json_is_recorded_unchanged(value):
    assert Redactor().record(value) == value
