"""Copy what a program hands over as arguments into plain JSON values: the slow, careful way that names each fault.

Plain is what JSON has: dicts with text keys, lists, text, integers, finite floats, booleans and None, of exactly those
types. Python values that have one form in JSON are written in it; nothing is ever written as its `repr`.
"""

import dataclasses
import math
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address, IPv6Address
from pathlib import PurePath
from typing import Any, Final, TypeAlias, cast
from uuid import UUID

from pydantic_core import to_json, to_jsonable_python

from callgate.errors import Problem
from callgate.tools.json_faults import MAX_DEPTH
from callgate.tools.paths import Step, write_path

__all__ = ("BEYOND_FLOAT", "Json", "NotPlainError", "is_plain", "kind_of", "plain_json")

Json: TypeAlias = dict[str, Any] | list[Any] | str | int | float | bool | None
"""A value as the JSON parser gives it."""

BEYOND_FLOAT: Final = 2**1024 - 2**970
"""The least integer that rounds to more than the largest 64-bit float."""

_ATOMS = frozenset({str, int, bool, float, type(None)})
_MAX_QUICK_CONTAINERS = 100_000
_WRITTEN_AS_TEXT = (date, time, timedelta, UUID, Decimal, PurePath, IPv4Address, IPv6Address)


class NotPlainError(Exception):
    """Tell that a value has no form in JSON; `problem` names its path and its type, and holds no value."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def kind_of(value: object) -> str:
    """Name the kind of a value in the words of JSON; what JSON does not have, by its type."""
    kind = type(value)
    if value is None:
        return "null"
    if kind is bool:
        return "a boolean"
    for kinds, word in _WORDS:
        if issubclass(kind, kinds):
            return word
    return f"a value of type {kind.__name__}"


_WORDS: Final[tuple[tuple[type | tuple[type, ...], str], ...]] = (
    (str, "text"),
    ((int, float), "a number"),
    (Mapping, "an object"),
    ((list, tuple), "a list"),
)


def is_plain(value: object) -> bool:
    """Tell whether `value` is made of plain types alone, without running any code of the value's own.

    Floats may be infinite and text may hold lone surrogates. A value of very many lists and objects, and so one that
    contains itself, is not called plain.
    """
    waiting, left = [cast("Json", value)], _MAX_QUICK_CONTAINERS
    while waiting:
        container = waiting.pop()
        left -= 1
        if left < 0:
            return False
        if type(container) is dict:
            if not _is_plain_object(container, waiting):
                return False
        elif type(container) is list:
            waiting.extend(each for each in container if type(each) not in _ATOMS)
        else:
            return False
    return True


def _is_plain_object(container: dict[str, Any], waiting: list[Json]) -> bool:
    for key, value in container.items():
        if type(key) is not str:
            return False
        if type(value) not in _ATOMS:
            waiting.append(value)
    return True


def plain_json(value: object) -> object:
    """Copy `value` into plain values that JSON text can hold.

    Enums give their value, bytes base64 text, dates, times, UUIDs, decimals, paths and addresses their text, tuples and
    sets lists (a set in a fixed order), dataclasses and pydantic models objects.

    Raises:
        NotPlainError: something within has no form in JSON, contains itself, is nested too deeply, or raised.
    """
    copier = _Copier()
    try:
        return copier.copy(value)
    except NotPlainError:
        raise
    except RecursionError as error:
        raise copier.refusal(*_TOO_DEEP) from error
    except Exception as error:  # the methods of foreign objects run here, and may raise anything
        raise copier.refusal("a value with a form in JSON", f"one whose reading raised {type(error).__name__}") from error


_TOO_DEEP = (f"at most {MAX_DEPTH - 1} levels of lists and objects", "more levels", "send flatter arguments")


class _Copier:
    """Walk a value, remembering where it is and which containers are open around it."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.around: set[int] = set()

    def refusal(self, expected: str, got: str, hint: str = "") -> NotPlainError:
        return NotPlainError(Problem(write_path(self.steps), expected, got, hint))

    def copy(self, value: object) -> object:
        if value is None or type(value) is bool:
            return value
        for kinds, write in _FORMS:
            if issubclass(type(value), kinds):
                return write(self, value)
        if dataclasses.is_dataclass(value) or hasattr(type(value), "__pydantic_serializer__"):
            return self.record(value)
        raise self.refusal("a value with a form in JSON", kind_of(value))

    def text(self, value: str) -> str:
        text = str.__str__(value)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise self.refusal("whole characters", f"half of a surrogate pair at offset {error.start}") from error
        return text

    def integer(self, value: int) -> int:
        number = int.__index__(value)
        if not -BEYOND_FLOAT < number < BEYOND_FLOAT:
            raise self.refusal("a number that a 64-bit float can hold", "a larger one")
        return number

    def number(self, value: float) -> float:
        number = float.__float__(value)
        if not math.isfinite(number):
            raise self.refusal("a finite number", "NaN or Infinity")
        return number

    def mapping(self, value: Mapping[object, object]) -> dict[str, object]:
        copied: dict[str, object] = {}
        self.enter(value)
        for key, item in value.items():
            if not issubclass(type(key), str):
                raise self.refusal("text as every key", f"a key that is {kind_of(key)}")
            name = self.text(key)  # type: ignore[arg-type]  # the check above is on its type
            if name in copied:
                raise self.refusal("every key once", "the same key a second time")
            copied[name] = self.step(name, item)
        self.leave(value)
        return copied

    def items(self, value: Iterable[object]) -> list[object]:
        self.enter(value)
        copied = [self.step(index, item) for index, item in enumerate(value)]
        self.leave(value)
        return copied

    def unordered(self, value: AbstractSet[object]) -> list[object]:
        return sorted(self.items(value), key=to_json)

    def record(self, value: object) -> object:
        serializer = getattr(type(value), "__pydantic_serializer__", None)
        self.enter(value)
        if serializer is not None:
            copied = self.copy(serializer.to_python(value, by_alias=True))
        else:
            names = [each.name for each in dataclasses.fields(cast("Any", value))]
            copied = {name: self.step(name, getattr(value, name)) for name in names}
        self.leave(value)
        return copied

    def step(self, step: Step, value: object) -> object:
        self.steps.append(step)
        copied = self.copy(value)
        self.steps.pop()
        return copied

    def enter(self, value: object) -> None:
        if id(value) in self.around:
            raise self.refusal("a value that ends", "one that contains itself")
        if len(self.around) >= MAX_DEPTH:
            raise self.refusal(*_TOO_DEEP)
        self.around.add(id(value))

    def leave(self, value: object) -> None:
        self.around.remove(id(value))


_Form = tuple[type | tuple[type, ...], Callable[[_Copier, Any], object]]

# The first that fits is taken: an enum may be text or a number as well, and only its value counts.
_FORMS: Final[tuple[_Form, ...]] = (
    (Enum, lambda copier, value: copier.copy(value.value)),
    (str, _Copier.text),
    (int, _Copier.integer),
    (float, _Copier.number),
    ((bytes, bytearray, memoryview), lambda _, value: b64encode(value).decode()),
    (Mapping, _Copier.mapping),
    ((list, tuple), _Copier.items),
    ((set, frozenset), _Copier.unordered),
    (_WRITTEN_AS_TEXT, lambda _, value: to_jsonable_python(value)),
)
