"""Read the arguments of a call, whatever a model or a program sent, as one JSON object.

Nothing is guessed and no value is changed: what is no JSON object in full is refused with the place of its fault. Text
that the fast parser takes costs little more than its parse; everything else goes a slow way that finds the words.
"""

from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any, Final, NamedTuple, cast

from jiter import from_json
from pydantic_core import to_json

from callgate.errors import InvalidInputError, Problem
from callgate.tools.json_faults import escape_control_characters, find_fault
from callgate.tools.plain_json import BEYOND_FLOAT, Json, NotPlainError, is_plain, kind_of, plain_json

__all__ = ("Reading", "parse_strictly", "read_arguments")

_SHORTEST_BEYOND_FLOAT: Final = 309
_NESTED_OR_FLOAT: Final = frozenset({float, list, dict})
_NESTED_OR_NUMBER: Final = frozenset({float, list, dict, int})
_BYTE_ORDER_MARK: Final = "\ufeff"
_ONE_OBJECT: Final = "one JSON object"
_MARK_BYTES: Final = _BYTE_ORDER_MARK.encode()


class Reading(NamedTuple):
    """Hold the arguments of a call twice: as JSON text in UTF-8, and decoded.

    `text` is one object without duplicate keys, lone surrogates, raw control characters and numbers that a float cannot
    hold. A tuple and no dataclass, because one is built for every call and a frozen dataclass costs 200 ns more.
    """

    text: bytes
    arguments: dict[str, object]


# What the class itself does when it is called, less the binding of its parameters by name.
_new: Final = cast(
    "Callable[[type[Reading], tuple[bytes, dict[str, Any]]], Reading]",
    tuple.__new__,  # pyright: ignore[reportUnknownMemberType]  # the cast says what it is here
)


def read_arguments(tool: str, raw: object) -> Reading:
    """Read `raw` as the arguments object of `tool`.

    `raw` is JSON text, its UTF-8 bytes or a mapping; None, blank text and `null` mean no arguments. A mapping may hold
    what has one JSON form (dates, UUIDs, decimals, bytes as base64, dataclasses, pydantic models).

    Raises:
        InvalidInputError: `raw` is no JSON object. The problem names the place, in text with line and column (from 1)
            and offset (from 0), in characters, or in bytes where bytes are no UTF-8.

    Source: cases b1, b8, b10-b13, b19, b20.
    """
    if type(raw) is str:
        try:
            text = raw.encode()
            arguments: Json = from_json(text, catch_duplicate_keys=True, allow_inf_nan=False)
        except ValueError:
            return _read_carefully(tool, raw)
        if type(arguments) is dict:
            risky = _NESTED_OR_FLOAT if len(text) < _SHORTEST_BEYOND_FLOAT else _NESTED_OR_NUMBER
            # Most calls hold no float and nothing nested: the loop spares them the call of the full check.
            for value in arguments.values():
                if type(value) in risky:
                    if _is_beyond_float(arguments.values(), risky):
                        return _read_carefully(tool, raw)
                    break
            return _new(Reading, (text, arguments))
        return _no_object(tool, arguments)
    return _read_other(tool, raw)


def _is_beyond_float(values: Iterable[Json], risky: frozenset[type]) -> bool:
    """Tell whether a number anywhere within is infinite as a float; the parser makes infinity of 1e999."""
    waiting: list[Iterable[Json]] = [values]
    while waiting:
        for value in waiting.pop():
            if type(value) not in risky:
                continue
            if type(value) is dict:
                waiting.append(value.values())
            elif type(value) is list:
                waiting.append(value)
            elif type(value) is float:
                if not isfinite(value):
                    return True
            elif type(value) is int and not -BEYOND_FLOAT < value < BEYOND_FLOAT:
                return True
    return False


def _read_other(tool: str, raw: object) -> Reading:
    if raw is None:
        return _empty()
    kind = type(raw)  # isinstance() would ask the object itself what it is, and that may raise
    if kind is dict or issubclass(kind, Mapping):
        return _read_mapping(tool, cast("Mapping[object, object]", raw))
    if issubclass(kind, bytes | bytearray | memoryview):
        return _read_bytes(tool, cast("bytes", raw))
    if issubclass(kind, str):
        return read_arguments(tool, str.__str__(cast("str", raw)))
    return _no_object(tool, raw)


def _empty() -> Reading:
    return Reading(b"{}", {})


def _no_object(tool: str, value: object) -> Reading:
    if value is None:
        return _empty()
    hint = "send the object itself, not its text in quotes" if issubclass(type(value), str) else ""
    raise InvalidInputError.of(tool, "", _ONE_OBJECT, kind_of(value), hint)


def _read_bytes(tool: str, raw: bytes) -> Reading:
    try:
        text = memoryview(raw).tobytes().removeprefix(_MARK_BYTES).decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError.of(tool, "", "text in UTF-8", f"a byte that is not, at offset {error.start}") from error
    except ValueError as error:  # a memoryview that was released
        raise InvalidInputError.of(tool, "", _ONE_OBJECT, "bytes that cannot be read") from error
    return read_arguments(tool, text)


def _read_carefully(tool: str, text: str) -> Reading:
    """Read text that the fast parser refused: it may be blank, or hold raw control characters, or it has a fault."""
    text = text.removeprefix(_BYTE_ORDER_MARK)
    if not text or text.isspace():
        return _empty()
    escaped = escape_control_characters(text)
    try:
        arguments = parse_strictly(escaped)
    except ValueError as error:
        raise InvalidInputError(tool, (_problem_in(text),)) from error
    if type(arguments) is not dict:
        return _no_object(tool, arguments)
    return Reading(escaped.encode(), arguments)


def parse_strictly(text: str) -> Json:
    """Parse one JSON value of any type; raw control characters inside strings are taken as they are.

    Raises:
        ValueError: the text has a fault, a duplicate key or a number beyond a float; the message is the parser's.
    """
    value: Json = from_json(escape_control_characters(text).encode(), catch_duplicate_keys=True, allow_inf_nan=False)
    if _is_beyond_float((value,), _NESTED_OR_NUMBER):
        raise ValueError("a number is beyond a 64-bit float")
    return value


def _problem_in(text: str) -> Problem:
    fault = find_fault(text)
    if fault is None:  # the two parsers disagree, which a property test rules out for those that are known
        return Problem("", _ONE_OBJECT, "text that is no JSON")
    line = text.count("\n", 0, fault.offset) + 1
    column = fault.offset - text.rfind("\n", 0, fault.offset)
    place = f"{fault.got} at line {line}, column {column} (offset {fault.offset})"
    return Problem(fault.path, fault.expected, place, fault.hint)


def _read_mapping(tool: str, raw: Mapping[object, object]) -> Reading:
    reading = _read_plain(raw) if is_plain(raw) else None
    if reading is not None:
        return reading
    try:
        reading = _read_plain(plain_json(raw))
    except NotPlainError as error:
        raise InvalidInputError(tool, (error.problem,)) from error.__cause__
    if reading is None:
        raise InvalidInputError.of(tool, "", _ONE_OBJECT, "a mapping that cannot be written as one")
    return reading


def _read_plain(plain: object) -> Reading | None:
    """Write plain values as JSON text and read them back; None when that fails: the careful way knows the words."""
    try:
        text = to_json(plain, inf_nan_mode="constants")
        arguments: Json = from_json(text, catch_duplicate_keys=True, allow_inf_nan=False)
    except ValueError:
        return None
    if type(arguments) is not dict or _is_beyond_float(arguments.values(), _NESTED_OR_NUMBER):
        return None
    return Reading(text, arguments)
