"""Conditions on the arguments of a call: a JSON pointer, an operator, a value. Source: RFC 6901; docs/adr/0010.

A condition has three answers: it holds, it does not, or it cannot be judged because what is there is of another type than
what it is compared with. A rule that loosens takes "cannot be judged" for no, a rule that tightens takes it for yes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from callgate.errors import PolicyError
from callgate.policy.globs import matches

__all__ = ("OPERATORS", "Condition", "Judgement", "fits", "judge")

Operator: TypeAlias = Literal[
    "==", "!=", ">", ">=", "<", "<=", "in", "not-in", "contains", "starts-with", "ends-with", "matches", "exists", "absent"
]
OPERATORS: Final[tuple[str, ...]] = get_args(Operator)
"""The operators that a condition may have."""

_BARE: Final = frozenset({"exists", "absent"})
_LISTED: Final = frozenset({"in", "not-in"})
_TEXTUAL: Final = frozenset({"starts-with", "ends-with", "matches"})
_ORDERED: Final = frozenset({">", ">=", "<", "<="})


class Judgement(Enum):
    """Answer whether a condition holds."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Condition:
    """Compare what stands at `path` in the arguments with `value`.

    `path` is a JSON pointer; a segment `*` stands for each item of a list or each field of an object, and the condition
    holds when it does for one of them. `in` and `not-in` take a list, `exists` and `absent` no value, `matches` a glob for
    the whole text. Numbers are compared exactly, also those that are written as text; a boolean is no number. Nothing (null
    or absent) fits no comparison but `absent`, `!=` and `not-in`.

    Raises:
        PolicyError: it cannot be what it says.
    """

    path: str
    op: Operator
    value: Any = None
    segments: tuple[str, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        problem = _problem(self.path, self.op, self.value)
        if problem is not None:
            raise PolicyError(problem)
        object.__setattr__(self, "segments", segments_of(self.path))

    @classmethod
    def of(cls, facts: Mapping[str, object]) -> "Condition":
        """Make one of its facts, as in TOML or JSON.

        Raises:
            PolicyError: a key is unknown or missing, or a value cannot be.
        """
        if not isinstance(cast("object", facts), Mapping):
            raise PolicyError(f'a condition is a table such as {{ path = "/amount", op = ">", value = 100 }}, not {facts!r}')
        unknown = facts.keys() - {"path", "op", "value"}
        if unknown:
            raise PolicyError(f"unknown key {min(unknown)!r} in a condition; known are op, path, value")
        for key in ("path", "op"):
            if key not in facts:
                raise PolicyError(f"a condition needs {key!r}")
        op = facts["op"]
        if "value" not in facts and op not in _BARE and op in OPERATORS:
            raise PolicyError(f"the operator {op!r} needs a value")
        return cls(cast("str", facts["path"]), cast("Operator", op), facts.get("value"))

    def facts(self) -> dict[str, object]:
        """Give the facts of which `of` makes the same condition."""
        bare: dict[str, object] = {"path": self.path, "op": self.op}
        return bare if self.op in _BARE else bare | {"value": self.value}

    def __str__(self) -> str:
        return f"{self.path} {self.op}" + ("" if self.op in _BARE else f" {self.value!r}")


def _problem(path: object, op: object, value: object) -> str | None:
    if not isinstance(path, str) or not path.startswith("/"):
        return f"a path is a JSON pointer such as '/amount', not {path!r}"
    if op not in OPERATORS:
        return f"unknown operator {op!r}; known are {', '.join(OPERATORS)}"
    return _value_problem(op, value)


def _value_problem(op: object, value: object) -> str | None:
    if op in _BARE and value is not None:
        return f"the operator {op!r} takes no value"
    if op in _LISTED and type(value) not in {list, tuple}:
        return f"the operator {op!r} takes a list, not {value!r}"
    if op in _TEXTUAL and not isinstance(value, str):
        return f"the operator {op!r} takes a text, not {value!r}"
    if op in _ORDERED and not isinstance(value, str) and _number(value) is None:
        return f"the operator {op!r} takes a number or a text, not {value!r}"
    return None


def fits(conditions: Sequence[Condition], arguments: Mapping[str, object]) -> bool:
    """Tell whether all conditions hold; one that cannot be judged does not."""
    return all(judge(condition, arguments) is Judgement.YES for condition in conditions)


def judge(condition: Condition, arguments: Mapping[str, object]) -> Judgement:
    """Judge a condition on the arguments of a call: of several values at its path, one that fits is enough."""
    present = [value for value in _walk(arguments, condition.segments) if value is not None]
    if condition.op == "exists":
        return _answer(bool(present))
    if condition.op == "absent":
        return _answer(not present)
    if not present:
        return _answer(condition.op in {"!=", "not-in"})
    answers = {_compare(condition.op, value, condition.value) for value in present}
    if Judgement.YES in answers:
        return Judgement.YES
    return Judgement.UNKNOWN if Judgement.UNKNOWN in answers else Judgement.NO


def _answer(holds: bool) -> Judgement:  # noqa: FBT001 - it turns a boolean into an answer
    return Judgement.YES if holds else Judgement.NO


def segments_of(path: str) -> tuple[str, ...]:
    """Part a JSON pointer."""
    return tuple(segment.replace("~1", "/").replace("~0", "~") for segment in path[1:].split("/"))


def _walk(value: object, segments: tuple[str, ...]) -> Sequence[object]:
    """Give what stands at a place; nothing when there is no such place."""
    for depth, head in enumerate(segments):
        fields = cast("dict[str, object]", value) if isinstance(value, dict) else {}
        if head in fields:
            value = fields[head]
            continue
        inside = _inside(cast("object", value), head)  # type: ignore[redundant-cast]  # pyright wants it
        if len(inside) != 1:
            return [found for each in inside for found in _walk(each, segments[depth + 1 :])]
        value = inside[0]
    return (value,)


def _inside(value: object, head: str) -> Sequence[object]:
    if isinstance(value, Mapping):
        named = cast("Mapping[str, object]", value)
        return tuple(named.values()) if head == "*" else (named[head],) if head in named else ()
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        return items if head == "*" else _item(items, head)
    return ()


def _item(items: Sequence[object], segment: str) -> list[object]:
    place = int(segment) if segment.isascii() and segment.isdecimal() else len(items)
    return [items[place]] if place < len(items) else []


def _number(value: object) -> Decimal | None:
    """Give a number exactly, whether it is written as a number or as text; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    try:
        number = Decimal(repr(value) if isinstance(value, float) else value)
    except (InvalidOperation, ValueError):
        return None
    return number if number.is_finite() else None


def _compare(op: str, value: object, wanted: Any) -> Judgement:
    if op in {"==", "in"}:
        return _equal_to_any(value, wanted if op == "in" else [wanted])
    if op in {"!=", "not-in"}:
        return _opposite(_equal_to_any(value, wanted if op == "not-in" else [wanted]))
    if op == "contains":
        return _contains(value, wanted)
    if op in _TEXTUAL:
        return _answer(_TEXT_TESTS[op](value, wanted)) if isinstance(value, str) else Judgement.UNKNOWN
    return _ordered(op, value, wanted)


def _opposite(answer: Judgement) -> Judgement:
    return {Judgement.YES: Judgement.NO, Judgement.NO: Judgement.YES}.get(answer, answer)


def _equal_to_any(value: object, wanted: Sequence[object]) -> Judgement:
    answers = {_equal(value, each) for each in wanted}
    if Judgement.YES in answers:
        return Judgement.YES
    return Judgement.UNKNOWN if Judgement.UNKNOWN in answers else Judgement.NO


def _equal(value: object, wanted: object) -> Judgement:
    if isinstance(wanted, bool) or isinstance(value, bool):
        return _answer(value is wanted) if isinstance(value, bool) and isinstance(wanted, bool) else Judgement.UNKNOWN
    if isinstance(wanted, int | float):
        number = _number(value)
        return Judgement.UNKNOWN if number is None else _answer(number == _number(wanted))
    if isinstance(wanted, str) is not isinstance(value, str):
        return Judgement.UNKNOWN
    return _answer(value == wanted)


def _contains(value: object, wanted: object) -> Judgement:
    if isinstance(value, str):
        return _answer(wanted in value) if isinstance(wanted, str) else Judgement.UNKNOWN
    if isinstance(value, list):
        return _equal_to_any(wanted, cast("list[object]", value)) if value else Judgement.NO
    return Judgement.UNKNOWN


def _ordered(op: str, value: object, wanted: object) -> Judgement:
    if type(value) in _EXACT and type(wanted) in _EXACT and value == value:  # noqa: PLR0124 - NaN is not itself
        return _answer(_ORDER_TESTS[op](value, wanted))
    if isinstance(wanted, str) and _number(wanted) is None:
        return _answer(_ORDER_TESTS[op](value, wanted)) if isinstance(value, str) else Judgement.UNKNOWN
    number, limit = _number(value), _number(wanted)
    return Judgement.UNKNOWN if number is None or limit is None else _answer(_ORDER_TESTS[op](number, limit))


_EXACT: Final = frozenset({int, float})  # Python compares these with each other exactly
_TEXT_TESTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "starts-with": str.startswith,
    "ends-with": str.endswith,
    "matches": lambda value, wanted: matches(wanted, value),
}
_ORDER_TESTS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    ">": lambda value, wanted: value > wanted,
    ">=": lambda value, wanted: value >= wanted,
    "<": lambda value, wanted: value < wanted,
    "<=": lambda value, wanted: value <= wanted,
}
