import collections
import enum
import math
import types
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from pydantic import BaseModel, TypeAdapter

from callgate.errors import InvalidInputError
from callgate.tools.json_faults import MAX_DEPTH
from callgate.tools.paths import write_path
from callgate.tools.reading import Reading, read_arguments

ANY_OBJECT = TypeAdapter(dict[str, Any])


def refused(raw):
    with pytest.raises(InvalidInputError) as caught:
        read_arguments("t", raw)
    (problem,) = caught.value.problems
    return problem


def nested(levels):
    return '{"a":' + "[" * (levels - 1) + "]" * (levels - 1) + "}"


def test_a_reading_holds_the_text_and_what_it_says():
    assert read_arguments("add", '{"a": 2, "b": 1}') == Reading(b'{"a": 2, "b": 1}', {"a": 2, "b": 1})


@pytest.mark.parametrize(
    "raw", ["", "   ", "\n\t", None, "null", " null ", "{}", {}, b"", b"null", "\ufeff", types.MappingProxyType({})]
)
def test_b1_nothing_blank_and_null_mean_no_arguments(raw):
    assert read_arguments("ping", raw) == Reading(b"{}", {})


def test_b1_each_reading_of_nothing_is_an_object_of_its_own():
    read_arguments("ping", None).arguments["x"] = 1
    assert read_arguments("ping", None).arguments == {}


@pytest.mark.parametrize("text", ["12345", "007", "1e5", "true", "null"])
def test_b4_text_that_looks_like_something_else_stays_text(text):
    assert read_arguments("f", f'{{"p": "{text}"}}').arguments == {"p": text}
    assert read_arguments("f", {"p": text}).arguments == {"p": text}


@pytest.mark.parametrize(
    "cut", ['{"title": "example', '{"title"', "{", '{"a": [1, 2', '{"a": 1', '{"a": 1,', '{"a": tr', '{"a": -', '{"a": 1.',
            '{"a": "x\\', '{"a": "\\u12', '{"a": "\\ud83c', '{"a": "\\ud83c\\u', '{"a":']
)  # fmt: skip
def test_b8_text_that_ends_too_early_is_called_cut_off_where_it_ends(cut):
    problem = refused(cut)
    assert problem.expected == "complete JSON"
    assert problem.got == f"a text that is cut off at line 1, column {len(cut) + 1} (offset {len(cut)})"
    assert "send less" in problem.hint


def test_b8_the_parameter_in_which_the_text_ends_is_named():
    assert refused('{"id": 1, "lines": [{"n": 1}, {"title": "example').path == "lines[1].title"


def test_b10_raw_control_characters_inside_strings_are_content():
    reading = read_arguments("run", '{"code": "a\nb\tc\x00", "n\n": ["\x1f"]}')
    assert reading.arguments == {"code": "a\nb\tc\x00", "n\n": ["\x1f"]}
    assert ANY_OBJECT.validate_json(reading.text, strict=True) == reading.arguments


@pytest.mark.parametrize("text", ['{"a": "x\\\ny"}', '{"a":\\n1}', '{\x0b"a": 1}', '{"a": 1}\x00'])
def test_b10_control_characters_elsewhere_are_refused(text):
    assert "line 1" in refused(text).got


def test_b10_an_escape_before_a_raw_newline_is_not_split():
    assert read_arguments("run", '{"code": "a\\\\\nb"}').arguments == {"code": "a\\\nb"}


def test_b11_surrogate_pairs_become_one_character():
    assert read_arguments("f", '{"t": "\\ud83c\\udf78"}').arguments == {"t": "\U0001f378"}


@pytest.mark.parametrize("half", ["\\ud835", "\\udc00", "\\ud835\\ud835", "\\ud835x", "\\ud835\\n", "\ud835"])
def test_b12_half_a_surrogate_pair_is_refused_with_its_place(half):
    problem = refused(f'{{"a": "ok",\n "t": "bad {half} text"}}')
    assert problem.path == "t"
    assert problem.expected == "whole characters"
    assert problem.got.endswith("at line 2, column 12 (offset 23)")


def test_b12_an_escaped_backslash_before_u_is_no_surrogate():
    assert read_arguments("f", '{"t": "\\\\ud835"}').arguments == {"t": "\\ud835"}


def test_b12_every_error_text_can_be_encoded():
    for raw in ('{"\ud800": 1}', {"\ud800": 1}, {"\ud800": {"b": math.nan}}, '{"\\ud800": [1'):
        with pytest.raises(InvalidInputError) as caught:
            read_arguments("t", raw)
        assert str(caught.value).encode()


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "nan", "-inf"])
def test_b13_words_for_no_finite_number_are_refused(word):
    problem = refused(f'{{"temp": {word}}}')
    assert (problem.path, problem.expected) == ("temp", "a finite number")
    assert problem.got == "NaN or Infinity at line 1, column 10 (offset 9)"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_b13_floats_that_are_not_finite_are_refused_with_their_path(number):
    problem = refused({"rows": [{"temp": number}]})
    assert (problem.path, problem.expected, problem.got) == ("rows[0].temp", "a finite number", "NaN or Infinity")


@pytest.mark.parametrize("number", ["1e999", "-1e999", "9" * 400, "9" * 5000, "9" * 310 + ".0", "1E400", "1" + "0" * 250 + "e60"])
@pytest.mark.parametrize("frame", ['{{"a": {}}}', '{{"a": "b", "c": [1, {{"d": {}}}]}}'])
def test_numbers_beyond_a_float_are_refused_with_their_place(number, frame):
    problem = refused(frame.format(number))
    assert problem.path in {"a", "c[1].d"}
    assert problem.expected == "a number that a 64-bit float can hold"
    assert f"(offset {frame.format(number).index(number)})" in problem.got


@pytest.mark.parametrize("number", ["1e308", "1e-999", "9" * 308, "0e999", "0." + "0" * 400 + "1e400", str(2**1024 - 2**970 - 1)])
def test_long_numbers_within_a_float_are_read(number):
    assert read_arguments("f", f'{{"a": {number}}}').arguments == {"a": pytest.approx(float(number))}


def test_integers_keep_every_digit():
    number = 2**1023 + 1
    assert read_arguments("f", f'{{"a": {number}}}').arguments == {"a": number}
    assert read_arguments("f", {"a": number}).arguments == {"a": number}


def test_b19_an_object_and_its_text_give_the_same_arguments():
    assert read_arguments("f", {"a": 1, "b": [True, None, {"c": "ü"}]}) == read_arguments(
        "f", '{"a":1,"b":[true,null,{"c":"ü"}]}'
    )


@pytest.mark.parametrize(
    "code", ["echo 'it' && ls -la", "def f():\n    return 'x'", "key: value\nother: 'x", "- a\n- b", "```json\n{}\n```"]
)
def test_b20_what_is_no_json_is_a_plain_refusal_and_no_second_grammar_is_tried(code):
    problem = refused(code)
    assert problem.expected == "one JSON object"
    assert "line 1, column 1 (offset 0)" in problem.got


@pytest.mark.parametrize(
    ("text", "path", "got", "hint"),
    [
        (
            '{"a":1,"b":[{"x":1,"\\u0078":2}]}',
            "b[0].x",
            "the same name a second time at line 1, column 20 (offset 19)",
            "one of the two",
        ),
        ('{"a":1}\n{"a":2}', "", "more text after its end at line 2, column 1 (offset 8)", "nothing after it"),
        ('{"a":1,}', "a", "'}' at line 1, column 8 (offset 7)", "last comma"),
        ('{"a":[1,]}', "a[0]", "']' at line 1, column 9 (offset 8)", "last comma"),
        ('{"a" 1}', "a", "other text at line 1, column 6 (offset 5)", ""),
        ("{'a':1}", "", "a quotation mark at line 1, column 2 (offset 1)", "double quotes"),
        ("{a:1}", "", "other text at line 1, column 2 (offset 1)", ""),
        ('{"a":1 "b":2}', "a", "a quotation mark at line 1, column 8 (offset 7)", ""),
        ('{"a":True}', "a", "a word of another language at line 1, column 6 (offset 5)", "small letters"),
        ('{"a":secret}', "a", "a word without quotes at line 1, column 6 (offset 5)", "double quotes"),
        ('{"a":01}', "a", "another form at line 1, column 6 (offset 5)", "such as 12"),
        ('{"a":0x5}', "a", "another form at line 1, column 6 (offset 5)", "such as 12"),
        ('{"a":1 // one\n}', "a", "other text at line 1, column 8 (offset 7)", "no comments"),
        ('{"a":"\\x"}', "a", "an unknown escape at line 1, column 7 (offset 6)", "backslash"),
    ],
)
def test_a_fault_is_named_with_path_and_place(text, path, got, hint):
    problem = refused(text)
    assert (problem.path, problem.got) == (path, got)
    assert hint in problem.hint


def test_a_refusal_repeats_no_text_of_the_arguments():
    for raw in (
        '{"a": hunter2}',
        '{"a": "hunter2" x}',
        {"a": object()},
        "hunter2",
        ["hunter2"],
        b"\xffhunter2",
        '{"a": "hunter2',
    ):
        with pytest.raises(InvalidInputError) as caught:
            read_arguments("t", raw)
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("raw", "got"),
    [("[1]", "a list"), ("5", "a number"), ('"x"', "text"), ("true", "a boolean"), ([1], "a list"), (5, "a number"),
     (object(), "a value of type object"), (dict, "a value of type type")],
)  # fmt: skip
def test_what_is_no_object_is_refused_by_its_kind(raw, got):
    problem = refused(raw)
    assert (problem.path, problem.expected, problem.got) == ("", "one JSON object", got)


def test_an_object_in_quotes_is_refused_with_advice():
    assert "not its text in quotes" in refused('"{\\"a\\": 1}"').hint


def test_bytes_are_read_as_utf_8_with_or_without_a_mark():
    for raw in (
        b'{"a": "\xc3\xbc"}',
        bytearray(b'{"a": "\xc3\xbc"}'),
        memoryview(b'{"a": "\xc3\xbc"}'),
        b'\xef\xbb\xbf{"a": "\xc3\xbc"}',
    ):
        assert read_arguments("f", raw).arguments == {"a": "ü"}


def test_bytes_that_are_no_utf_8_are_refused_with_their_place():
    assert refused(b'{"a": "\xff"}').got == "a byte that is not, at offset 7"
    assert refused(b'{"a": "\xed\xa0\x80"}').expected == "text in UTF-8"


def test_a_released_buffer_is_refused():
    view = memoryview(b"{}")
    view.release()
    assert refused(view).got == "bytes that cannot be read"


def test_the_deepest_arguments_that_are_read_validate_as_well():
    reading = read_arguments("f", nested(MAX_DEPTH))
    assert ANY_OBJECT.validate_json(reading.text, strict=True) == reading.arguments


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 1_000, 200_000])
def test_deeper_arguments_are_refused_without_a_recursion_error(levels):
    problem = refused(nested(levels))
    assert problem.expected == "at most 200 levels of lists and objects"
    assert problem.got == "more levels at line 1, column 206 (offset 205)"


def lists(levels):
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_a_mapping_may_be_as_deep_as_text():
    assert read_arguments("f", {"a": lists(MAX_DEPTH - 1)}).text == nested(MAX_DEPTH).encode()


@pytest.mark.parametrize("levels", [MAX_DEPTH, 1_000, 50_000])
def test_a_mapping_that_is_deeper_is_refused(levels):
    assert refused({"a": lists(levels)}).got == "more levels"


def test_a_mapping_that_contains_itself_is_refused():
    loop: dict[str, Any] = {"a": [1]}
    loop["a"].append(loop)
    problem = refused(loop)
    assert (problem.path, problem.got) == ("a[1]", "one that contains itself")


def test_a_part_that_stands_twice_is_written_twice():
    part = [1]
    assert read_arguments("f", {"a": part, "b": (part, part)}).arguments == {"a": [1], "b": [[1], [1]]}


class Level(enum.IntEnum):
    HIGH = 2


class Pair(NamedTuple):
    left: int
    right: str


@dataclass
class Line:
    sku: str
    on: date


class Order(BaseModel):
    lines: list[int]
    data: bytes = b"\xff\x00\xfe"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (b"\xff\x00\xfe", "/wD+"),
        (bytearray(b"ab"), "YWI="),
        (date(2024, 2, 29), "2024-02-29"),
        (datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC), "2024-02-29T01:02:03Z"),
        (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (Decimal("1.50"), "1.50"),
        (Level.HIGH, 2),
        (Pair(1, "x"), [1, "x"]),
        ({"b", "a"}, ["a", "b"]),
        (Line("x", date(2024, 1, 1)), {"sku": "x", "on": "2024-01-01"}),
        (Order(lines=[1]), {"lines": [1], "data": "/wD+"}),
        (collections.OrderedDict(a=1), {"a": 1}),
        (types.MappingProxyType({"a": (1, 2)}), {"a": [1, 2]}),
        (True, True),
    ],
)
def test_values_with_one_form_in_json_are_written_in_it(value, written):
    assert read_arguments("f", {"v": value}).arguments == {"v": written}


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (1j, "a value of type complex"),
        (object(), "a value of type object"),
        (int, "a value of type type"),
        ((n for n in (1, 2)), "a value of type generator"),
        ({1: "x"}, "a key that is a number"),
        ({None: "x"}, "a key that is null"),
        ("\ud800", "half of a surrogate pair at offset 0"),
        (10**400, "a larger one"),
    ],
)
def test_values_without_a_form_in_json_are_refused_by_path_and_type(value, got):
    problem = refused({"rows": [{"v": value}]})
    assert (problem.path, problem.got) == ("rows[0].v", got)


def test_a_generator_among_the_arguments_is_not_consumed():
    generator = (n for n in (1, 2))
    refused({"v": [generator]})
    assert list(generator) == [1, 2]


class Moody(collections.UserDict):
    def __iter__(self):
        raise ZeroDivisionError("secret")


def test_a_mapping_whose_own_code_raises_is_refused():
    problem = refused({"a": Moody(x=1)})
    assert (problem.path, problem.got) == ("a", "one whose reading raised ZeroDivisionError")


class Liar:
    @property
    def __class__(self):
        raise ZeroDivisionError


def test_an_object_that_lies_about_its_class_is_refused():
    assert refused(Liar()).got == "a value of type Liar"
    assert refused({"a": Liar()}).path == "a"


class Text(str):
    __slots__ = ()

    def encode(self, *_):
        raise ZeroDivisionError


def test_subclasses_of_text_are_read_as_the_text_they_are():
    assert read_arguments("f", Text('{"a": 1}')) == Reading(b'{"a": 1}', {"a": 1})
    assert type(read_arguments("f", {Text("a"): Text("b")}).arguments["a"]) is str


def test_the_mapping_given_is_not_the_one_read():
    given = {"a": [1]}
    read_arguments("f", given).arguments["a"].append(2)
    assert given == {"a": [1]}


def test_paths_are_written_as_in_code():
    assert write_path(["lines", 2, "price"]) == "lines[2].price"
    assert write_path(["a b", "c.d", 0]) == '["a b"]["c.d"][0]'
    assert write_path([]) == ""
    assert write_path(["k" * 79] * 9) == (".".join(["k" * 79] * 9))[:400] + "…"
