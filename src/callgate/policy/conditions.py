"""Conditions on the arguments of a call: a JSON pointer, an operator, a value. Source: RFC 6901; docs/adr/0010.

A condition has three answers: it holds, it does not, or it cannot be judged, because what is there is of another type than
what it is compared with. A rule that loosens takes "cannot be judged" for no, a rule that tightens takes it for yes.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from callgate.errors import PolicyError
from callgate.policy.facts import FactError, read_table
from callgate.policy.globs import matches
from callgate.policy.numbers import exact

__all__ = ("OPERATORS", "Condition", "Judgement", "fits", "judge", "segments_of", "values_at")

Operator: TypeAlias = Literal[
    "==", "!=", ">", ">=", "<", "<=", "in", "not-in", "contains", "starts-with", "ends-with", "matches", "exists", "absent"
]
OPERATORS: Final[tuple[str, ...]] = get_args(Operator)
"""The operators that a condition may have."""

_BARE: Final = frozenset({"exists", "absent"})
_LISTED: Final = frozenset({"in", "not-in"})
_TEXTUAL: Final = frozenset({"starts-with", "ends-with", "matches"})
_ORDERED: Final = frozenset({">", ">=", "<", "<="})
_UNLIKE: Final = frozenset({"!=", "not-in"})
_POINTER: Final = re.compile(r"(/([^~]|~[01])*)+", re.DOTALL)
_INDEX: Final = re.compile(r"0|[1-9][0-9]*")
_ODD: Final = object()
"""Stands for what is at a path that leads through something that has no inside, such as a text."""


class Judgement(Enum):
    """Answer whether a condition holds."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


_YES, _NO, _UNKNOWN = Judgement.YES, Judgement.NO, Judgement.UNKNOWN


@dataclass(frozen=True, slots=True)
class Condition:
    """Compare what stands at `path` in the arguments with `value`.

    `path` is a JSON pointer; a segment `*` stands for each item of a list or each field of an object, and the condition
    holds when it does for one of them. `in` and `not-in` take a list, `exists` and `absent` no value, `matches` a glob for
    the whole text. Numbers are compared exactly, also those that are written as text; a boolean is no number. Texts are
    compared as they are, by their code points. Nothing (null or absent) fits no comparison; whether it is unlike a value
    (`!=`, `not-in`) cannot be judged.

    Raises:
        PolicyError: it cannot be what it says.
    """

    path: str
    op: Operator
    value: Any = None
    segments: tuple[str, ...] = field(init=False, repr=False, compare=False, default=())
    wanted: Any = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        _check(self.path, self.op, self.value)
        object.__setattr__(self, "value", _frozen(self.value))
        object.__setattr__(self, "segments", segments_of(self.path))
        object.__setattr__(self, "wanted", _prepared(self.op, self.value))

    @classmethod
    def of(cls, facts: Mapping[str, object]) -> "Condition":
        """Make one of its facts, as in TOML or JSON.

        Raises:
            PolicyError: a key is unknown or missing, or a value cannot be.
        """
        if not isinstance(cast("object", facts), Mapping):
            raise PolicyError(f'a condition is a table such as {{ path = "/amount", op = ">", value = 100 }}, not {facts!r}')
        given = read_table(facts, "a condition", _READERS, ("path", "op"))
        op = given["op"]
        if "value" not in given and op not in _BARE and op in OPERATORS:
            raise FactError(f"the operator {op!r} needs a value", "op")
        return cls(**given)

    def facts(self) -> dict[str, object]:
        """Give the facts of which `of` makes the same condition."""
        bare: dict[str, object] = {"path": self.path, "op": self.op}
        return bare if self.op in _BARE else bare | {"value": self.value}

    def __str__(self) -> str:
        return f"{self.path} {self.op}" + ("" if self.op in _BARE else f" {_shown(self.value)}")


def _as_it_is(value: object) -> object:
    return value


_READERS: Final = {"path": _as_it_is, "op": _as_it_is, "value": _as_it_is}


def _shown(value: object) -> str:
    return repr(list(cast("tuple[object, ...]", value)) if isinstance(value, tuple) else value)


# ── what a condition may be ──────────────────────────────────────────────────────────────────────────────────────────────


def _check(path: object, op: object, value: object) -> None:
    if not isinstance(path, str) or not _POINTER.fullmatch(path):
        raise FactError(f"a path is a JSON pointer such as '/amount', not {path!r}", "path")
    if not isinstance(op, str) or op not in OPERATORS:
        raise FactError(f"unknown operator {op!r}; known are {', '.join(OPERATORS)}", "op")
    problem = _value_problem(op, value)
    if problem is not None:
        raise FactError(f"the operator {op!r} {problem}", "value")


def _value_problem(op: str, value: object) -> str | None:
    if op in _BARE:
        return None if value is None else "takes no value"
    if op in _LISTED and type(value) not in {list, tuple}:
        return f"takes a list, not {value!r}"
    if op in _TEXTUAL and type(value) is not str:
        return f"takes a text, not {value!r}"
    if op in _ORDERED and type(value) is not str and exact(value) is None:
        return f"takes a number or a text, not {value!r}"
    if value is None:
        return "takes a value; what is null or not there is found by 'absent'"
    return None if _is_comparable(value, nested=False) else f"cannot compare with {value!r}; write it as in JSON"


def _is_comparable(value: object, *, nested: bool = True) -> bool:
    """Tell whether a value has a JSON form: no date, no NaN, and nothing that is null at the top or in a list of `in`."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[object, object]", value)
        return all(isinstance(key, str) and _is_comparable(each) for key, each in fields.items())
    if isinstance(value, list | tuple):
        return all(_is_comparable(each, nested=nested) for each in cast("list[object]", value))
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str | int) or (nested and value is None)


def _frozen(value: object) -> object:
    if isinstance(value, list | tuple):
        return tuple(_frozen(each) for each in cast("list[object]", value))
    return value


def _prepared(op: str, value: Any) -> Any:
    """Make of the value what its test takes: worked out once, and not in every call."""
    if op in _ORDERED:
        number = exact(value)
        return value if number is None else number
    if op in _LISTED and all(isinstance(each, str) for each in value):
        return frozenset(value)
    return value


# ── judging ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def fits(conditions: Sequence[Condition], arguments: Mapping[str, object]) -> bool:
    """Tell whether all conditions hold; one that cannot be judged does not."""
    return all(judge(condition, arguments) is _YES for condition in conditions)


def judge(condition: Condition, arguments: Mapping[str, object]) -> Judgement:
    """Judge a condition on the arguments of a call: of several values at its path, one that fits is enough."""
    segments = condition.segments
    if len(segments) == 1 and segments[0] != "*":  # the path of most conditions
        value = arguments.get(segments[0])
        present: Sequence[object] = () if value is None else (value,)
    else:
        present = [value for value in _walk(arguments, segments) if value is not None]
    if condition.op in _BARE:
        return _judge_presence(condition.op, present)
    if not present:
        return _UNKNOWN if condition.op in _UNLIKE else _NO
    return _any_of(_TESTS[condition.op], present, condition.wanted)


def _judge_presence(op: str, present: Sequence[object]) -> Judgement:
    if any(value is not _ODD for value in present):
        return _answer(op == "exists")
    return _UNKNOWN if present else _answer(op == "absent")


def _any_of(test: "_Test", present: Sequence[object], wanted: Any) -> Judgement:
    answer = _NO
    for value in present:
        one = _UNKNOWN if value is _ODD else test(value, wanted)
        if one is _YES:
            return _YES
        if one is _UNKNOWN:
            answer = _UNKNOWN
    return answer


def _answer(holds: bool) -> Judgement:  # noqa: FBT001 - it turns a boolean into an answer
    return _YES if holds else _NO


def segments_of(path: str) -> tuple[str, ...]:
    """Split a JSON pointer."""
    return tuple(segment.replace("~1", "/").replace("~0", "~") for segment in path[1:].split("/"))


def values_at(value: object, path: str) -> Iterator[object]:
    """Give what stands at a JSON pointer; nothing when there is no such place."""
    return (found for found in _walk(value, segments_of(path)) if found is not _ODD)


def _walk(value: object, segments: tuple[str, ...]) -> Iterator[object]:
    for place, segment in enumerate(segments):
        if segment == "*":
            for each in _inside(value):
                yield from (each,) if each is _ODD else _walk(each, segments[place + 1 :])
            return
        value = _step(value, segment)
        if value is None or value is _ODD:
            break
    yield value


def _inside(value: object) -> Sequence[object]:
    if isinstance(value, Mapping):
        return tuple(cast("Mapping[str, object]", value).values())
    if isinstance(value, list | tuple):
        return cast("Sequence[object]", value)
    return () if value is None else (_ODD,)


def _step(value: object, segment: str) -> object:
    if isinstance(value, Mapping):
        return cast("Mapping[str, object]", value).get(segment)
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        if not _INDEX.fullmatch(segment):
            return _ODD
        return items[int(segment)] if len(segment) < 12 and int(segment) < len(items) else None
    return None if value is None else _ODD


# ── comparing ────────────────────────────────────────────────────────────────────────────────────────────────────────────

_Test: TypeAlias = Callable[[Any, Any], Judgement]


def _equal(value: object, wanted: object) -> Judgement:
    if isinstance(wanted, bool) or isinstance(value, bool):
        return _answer(value is wanted) if isinstance(value, bool) and isinstance(wanted, bool) else _UNKNOWN
    if isinstance(wanted, str):
        return _answer(value == wanted) if isinstance(value, str) else _UNKNOWN
    if isinstance(wanted, int | float):
        number = exact(value)
        return _UNKNOWN if number is None else _answer(number == exact(wanted))
    return _equal_inside(value, wanted)


def _equal_inside(value: object, wanted: object) -> Judgement:
    if value is None or wanted is None:
        return _answer(value is wanted)
    if isinstance(wanted, Mapping) and isinstance(value, Mapping):
        fields, others = cast("Mapping[str, object]", value), cast("Mapping[str, object]", wanted)
        return _NO if fields.keys() != others.keys() else _all_equal([(fields[key], others[key]) for key in others])
    if isinstance(wanted, list | tuple) and isinstance(value, list | tuple):
        items, others_ = cast("Sequence[object]", value), cast("Sequence[object]", wanted)
        return _NO if len(items) != len(others_) else _all_equal(list(zip(items, others_, strict=True)))
    return _UNKNOWN


def _all_equal(pairs: Sequence[tuple[object, object]]) -> Judgement:
    answer = _YES
    for value, wanted in pairs:
        one = _NO if value is None and wanted is not None else _equal(value, wanted)
        if one is _NO:
            return _NO
        if one is _UNKNOWN:
            answer = _UNKNOWN
    return answer


def _is_in(value: object, wanted: Any) -> Judgement:
    if isinstance(wanted, frozenset):
        return _answer(value in wanted) if isinstance(value, str) else _UNKNOWN
    return _any_of(lambda each, one: _equal(one, each), wanted, value)


def _contains(value: object, wanted: object) -> Judgement:
    if isinstance(value, str):
        return _answer(wanted in value) if isinstance(wanted, str) else _UNKNOWN
    if isinstance(value, list | tuple):
        return _any_of(_equal, [each for each in cast("list[object]", value) if each is not None], wanted)
    return _UNKNOWN


def _ordered(holds: Callable[[Any, Any], bool]) -> _Test:
    def test(value: object, wanted: object) -> Judgement:
        if isinstance(wanted, str):
            return _answer(holds(value, wanted)) if isinstance(value, str) else _UNKNOWN
        number = exact(value)
        return _UNKNOWN if number is None else _answer(holds(number, wanted))

    return test


def _textual(holds: Callable[[str, str], bool]) -> _Test:
    def test(value: object, wanted: str) -> Judgement:
        return _answer(holds(value, wanted)) if isinstance(value, str) else _UNKNOWN

    return test


def _opposite(test: _Test) -> _Test:
    def opposite(value: object, wanted: object) -> Judgement:
        answer = test(value, wanted)
        return answer if answer is _UNKNOWN else _answer(answer is _NO)

    return opposite


_TESTS: Final[dict[str, _Test]] = {
    "==": _equal,
    "!=": _opposite(_equal),
    ">": _ordered(lambda value, wanted: value > wanted),
    ">=": _ordered(lambda value, wanted: value >= wanted),
    "<": _ordered(lambda value, wanted: value < wanted),
    "<=": _ordered(lambda value, wanted: value <= wanted),
    "in": _is_in,
    "not-in": _opposite(_is_in),
    "contains": _contains,
    "starts-with": _textual(str.startswith),
    "ends-with": _textual(str.endswith),
    "matches": _textual(lambda value, wanted: matches(wanted, value)),
}
