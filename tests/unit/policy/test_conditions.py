"""What a condition says of arguments: yes, no, or that it cannot be judged."""

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate import PolicyError
from callgate.policy import Condition
from callgate.policy.conditions import OPERATORS, Judgement, fits, judge, values_at

YES, NO, UNKNOWN = Judgement.YES, Judgement.NO, Judgement.UNKNOWN
BIG = 2**53


@pytest.mark.parametrize(
    ("op", "wanted", "value", "answer"),
    [
        (">", 100, 101, YES),
        (">", 100, 100, NO),
        (">", 100, 100.01, YES),
        (">", 100, "101", YES),
        (">", 100, "1e3", YES),
        (">", 100, "99.999999999999999999999999", NO),
        (">", 100, "100.000000000000000000000001", YES),
        (">", 100, "a lot", UNKNOWN),
        (">", 100, "1_000", UNKNOWN),
        (">", 100, " 101", UNKNOWN),
        (">", 100, "\u0661\u0660\u0661", UNKNOWN),
        (">", 100, "NaN", UNKNOWN),
        (">", 100, "Infinity", UNKNOWN),
        (">", 100, "1e999999999999999999999", UNKNOWN),
        (">", 100, math.nan, UNKNOWN),
        (">", 100, math.inf, UNKNOWN),
        (">", 100, True, UNKNOWN),
        (">", 0, [1], UNKNOWN),
        (">", 0, {"a": 1}, UNKNOWN),
        (">", BIG, BIG + 1, YES),
        ("==", BIG, BIG + 1, NO),
        ("==", BIG + 1, float(BIG), NO),
        ("<=", BIG, "9007199254740993", NO),
        ("==", 0.1, 0.1, YES),
        ("==", 0.1, "0.1", YES),
        ("==", 1, 1.0, YES),
        ("==", 1, True, UNKNOWN),
        ("==", True, True, YES),
        ("==", True, 1, UNKNOWN),
        ("==", False, 0, UNKNOWN),
        ("==", 0, -0.0, YES),
        ("==", "a", "a", YES),
        ("==", "a", "A", NO),
        ("==", "1", 1, UNKNOWN),
        ("==", "\u00e9", "e\u0301", NO),
        ("!=", "a", "b", YES),
        ("!=", "a", "a", NO),
        ("!=", "a", 3, UNKNOWN),
        ("!=", 3, math.nan, UNKNOWN),
        ("==", [1, 2], [1, 2], YES),
        ("==", [1, 2], [1], NO),
        ("==", [1], [True], UNKNOWN),
        ("==", [1, "a"], [2, 3], NO),
        ("==", [1], "1", UNKNOWN),
        ("==", {"a": 1}, {"a": 1.0}, YES),
        ("==", {"a": 1}, {"b": 1}, NO),
        ("==", {"a": None}, {"a": None}, YES),
        ("==", {"a": 1}, {"a": None}, NO),
        ("in", ["a", "b"], "b", YES),
        ("in", ["a", "b"], "c", NO),
        ("in", ["a", "b"], 1, UNKNOWN),
        ("in", [1, "b"], "b", YES),
        ("in", [1, "b"], "c", UNKNOWN),
        ("in", [1, 2], 2.0, YES),
        ("in", [], "c", NO),
        ("not-in", ["a"], "b", YES),
        ("not-in", ["a"], "a", NO),
        ("not-in", ["a"], ["a"], UNKNOWN),
        ("contains", "rm", "rm -rf", YES),
        ("contains", "rm", "ls", NO),
        ("contains", "rm", ["ls", "rm"], YES),
        ("contains", "rm", ["rm -rf"], NO),
        ("contains", "rm", [], NO),
        ("contains", "rm", [None, "ls"], NO),
        ("contains", "rm", [3], UNKNOWN),
        ("contains", 3, "3", UNKNOWN),
        ("contains", "rm", {"rm": 1}, UNKNOWN),
        ("starts-with", "/etc", "/etc/passwd", YES),
        ("starts-with", "/etc", "etc", NO),
        ("starts-with", "/etc", 3, UNKNOWN),
        ("ends-with", ".md", "a.md", YES),
        ("matches", "src/*", "src/a/b.py", YES),
        ("matches", "src", "src/a", NO),
        ("matches", "src/*", ["src/a"], UNKNOWN),
        (">", "2024-01-01", "2024-06-01", YES),
        (">", "2024-01-01", 5, UNKNOWN),
        (">", "100", 101, YES),
        (">", "100", "20", NO),
    ],
)
def test_a_value_is_compared_as_what_it_is(op, wanted, value, answer):
    assert judge(Condition("/x", op, wanted), {"x": value}) is answer


@pytest.mark.parametrize("arguments", [{}, {"x": None}])
@pytest.mark.parametrize("op", OPERATORS)
def test_nothing_fits_no_comparison(op, arguments):
    value = None if op in {"exists", "absent"} else ["a"] if op in {"in", "not-in"} else "a"
    wanted = {"exists": NO, "absent": YES, "!=": UNKNOWN, "not-in": UNKNOWN}.get(op, NO)
    assert judge(Condition("/x", op, value), arguments) is wanted


@pytest.mark.parametrize(
    ("path", "arguments", "answer"),
    [
        ("/a/b", {"a": {"b": 1}}, YES),
        ("/a/b", {"a": {"b": 2}}, NO),
        ("/a/b", {"a": None}, NO),
        ("/a/b", {"a": "text"}, UNKNOWN),
        ("/a/0", {"a": [1]}, YES),
        ("/a/1", {"a": [1]}, NO),
        ("/a/00", {"a": [1]}, UNKNOWN),
        ("/a/x", {"a": [1]}, UNKNOWN),
        ("/a/99999999999999999999", {"a": [1]}, NO),
        ("/a/*", {"a": [2, 1]}, YES),
        ("/a/*", {"a": [2, 3]}, NO),
        ("/a/*", {"a": [2, "x"]}, UNKNOWN),
        ("/a/*", {"a": [2, "x", 1]}, YES),
        ("/a/*", {"a": []}, NO),
        ("/a/*", {"a": "1"}, UNKNOWN),
        ("/a/*/b", {"a": [{"b": 2}, {"b": 1}]}, YES),
        ("/a/*/b", {"a": [{}, None]}, NO),
        ("/a/*/b/*", {"a": [{"b": [3]}, {"b": [1]}]}, YES),
        ("/*", {"y": 2, "x": 1}, YES),
        ("/a/*", {"a": {"*": 2, "x": 1}}, YES),
        ("/x~1y", {"x/y": 1}, YES),
        ("/m~0n", {"m~n": 1}, YES),
        ("/~01", {"~1": 1}, YES),
        ("/", {"": 1}, YES),
    ],
)
def test_a_path_is_a_json_pointer_with_stars(path, arguments, answer):
    assert judge(Condition(path, "==", 1), arguments) is answer


def test_whether_something_is_there_cannot_be_told_inside_of_a_text():
    for op in ("exists", "absent"):
        assert judge(Condition("/a/b", op), {"a": "text"}) is UNKNOWN
    assert judge(Condition("/a/*", "exists"), {"a": [None, 0]}) is YES
    assert judge(Condition("/a/*", "absent"), {"a": [None]}) is YES


def test_what_stands_at_a_path_can_be_read():
    assert list(values_at({"a": [{"b": 1}, "x", {"b": 2}]}, "/a/*/b")) == [1, 2]


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"op": "==", "value": 1}, "needs 'path'"),
        ({"path": "/a"}, "needs 'op'"),
        ({"path": "a", "op": "exists"}, "JSON pointer"),
        ({"path": "", "op": "exists"}, "JSON pointer"),
        ({"path": "/~2", "op": "exists"}, "JSON pointer"),
        ({"path": "/a~", "op": "exists"}, "JSON pointer"),
        ({"path": 1, "op": "exists"}, "JSON pointer"),
        ({"path": "/a", "op": "=>", "value": 1}, "unknown operator '=>'"),
        ({"path": "/a", "op": ["=="], "value": 1}, "unknown operator"),
        ({"path": "/a", "op": "exists", "value": 1}, "takes no value"),
        ({"path": "/a", "op": "=="}, "needs a value"),
        ({"path": "/a", "op": "==", "value": None}, "'absent'"),
        ({"path": "/a", "op": "==", "value": math.nan}, "as in JSON"),
        ({"path": "/a", "op": "!=", "value": math.inf}, "as in JSON"),
        ({"path": "/a", "op": "==", "value": Decimal(1)}, "as in JSON"),
        ({"path": "/a", "op": "in", "value": "abc"}, "takes a list"),
        ({"path": "/a", "op": "in", "value": [1, None]}, "as in JSON"),
        ({"path": "/a", "op": "in", "value": [math.nan]}, "as in JSON"),
        ({"path": "/a", "op": "matches", "value": 3}, "takes a text"),
        ({"path": "/a", "op": ">", "value": True}, "a number or a text"),
        ({"path": "/a", "op": ">", "value": math.nan}, "a number or a text"),
        ({"path": "/a", "op": ">", "value": [1]}, "a number or a text"),
        ({"path": "/a", "op": ">", "values": 1}, "unknown key 'values'"),
        ("/a > 1", "is a table"),
    ],
)
def test_a_condition_that_cannot_be_is_refused(facts, reason):
    with pytest.raises(PolicyError, match=reason):
        Condition.of(facts)


def test_a_condition_is_a_value():
    first = Condition("/a", "in", ["x", ["y"]])
    assert first == Condition("/a", "in", ("x", ("y",))) == Condition.of(first.facts())
    assert hash(first) == hash(Condition("/a", "in", ("x", ("y",))))
    assert str(Condition("/a", "in", ["x", 1])) == "/a in ['x', 1]"
    assert str(Condition("/a", "absent")) == "/a absent"


numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)


def as_decimal(number):
    return Decimal(repr(number))


@given(numbers, numbers)
def test_numbers_compare_exactly(value, wanted):
    for op, holds in ((">", as_decimal(value) > as_decimal(wanted)), ("==", as_decimal(value) == as_decimal(wanted))):
        for written in (value, repr(value)):
            assert judge(Condition("/x", op, wanted), {"x": written}) is (YES if holds else NO)


@given(st.sampled_from([">", ">=", "<", "<="]), st.text(), numbers)
def test_a_text_that_is_no_number_is_never_compared_with_one(op, text, wanted):
    answer = judge(Condition("/x", op, wanted), {"x": text})
    assert answer is UNKNOWN or float(text) is not None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab*"), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.sampled_from(["/a", "/a/*", "/a/b", "/*", "/a/0", "/a/*/b"]),
    st.sampled_from(OPERATORS),
    st.sampled_from([1, "b", 2.5, True, [1], {"a": 1}]),
    st.dictionaries(st.sampled_from("ab*"), json_values, max_size=3),
)
def test_every_condition_has_an_answer_for_every_json(path, op, wanted, arguments):
    value = None if op in {"exists", "absent"} else [wanted] if op in {"in", "not-in"} else wanted
    try:
        condition = Condition(path, op, value)
    except PolicyError:
        return
    assert judge(condition, arguments) in {YES, NO, UNKNOWN}
    assert fits([condition], arguments) is (judge(condition, arguments) is YES)


@given(json_values, json_values)
def test_unlike_is_the_opposite_of_equal_where_either_can_be_judged(value, wanted):
    try:
        equal, unlike = Condition("/x", "==", wanted), Condition("/x", "!=", wanted)
    except PolicyError:
        return
    answers = {judge(each, {"x": value}) for each in (equal, unlike)}
    assert answers in ({YES, NO}, {UNKNOWN}) or value is None
