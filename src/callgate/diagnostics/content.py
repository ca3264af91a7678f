"""The one place where content is made fit for recording: copied to plain JSON values, bounded and redacted.

Every destination, log, span and observer gets the result of this and nothing else, so that what is redacted in one is
redacted in all. Nothing here calls a tool's code: an object that is no plain value becomes a note of its type.
"""

import dataclasses
import datetime as dt
import decimal
import json
import pathlib
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, TypeAlias, cast

from callgate.diagnostics.events import DiagnosticEvent, Payload
from callgate.errors import UsageError
from callgate.values import UNSET, ToolAnswer

__all__ = ("NOT_RECORDED", "REDACTED", "Redact", "Redactor", "json_text", "recorded", "without_content")

Redact: TypeAlias = Iterable[str] | Callable[[object], object]

REDACTED = "[redacted]"
NOT_RECORDED = "[not recorded]"
_CONTENT = ("arguments", "output", "item")
_MAX_DEPTH = 40
_MAX_VALUES = 100_000
_AS_TEXT = (dt.date, dt.time, dt.timedelta, decimal.Decimal, uuid.UUID, pathlib.PurePath)


@dataclass(frozen=True, slots=True)
class Redactor:
    """Say what of recorded content is hidden: fields of these names (any case, any depth), then what `function` changes."""

    names: frozenset[str] = frozenset()
    function: Callable[[object], object] | None = None

    @classmethod
    def of(cls, redact: Redact) -> "Redactor":
        """Read the names of fields, or a function from plain content to what is recorded in its place.

        Raises:
            UsageError: it is neither.
        """
        if callable(redact):
            return cls(function=redact)
        names = (redact,) if isinstance(redact, str) else tuple(cast("Iterable[object]", redact))
        if not all(isinstance(name, str) for name in names):
            msg = f"redact expects names of fields or a function, got {type(redact).__name__} with values that are no text"
            raise UsageError(msg)
        return cls(frozenset(str(name).casefold() for name in names))

    def record(self, value: object) -> object:
        """Copy `value` as plain JSON values without what is to be hidden; `[not recorded]` when that cannot be done."""
        try:
            bare = cast("ToolAnswer[object]", value).value if isinstance(value, ToolAnswer) else value
            plain = _Copy(self.names).of(bare, 0)
            return plain if self.function is None else self.function(plain)
        except Exception:  # noqa: BLE001 - the value's own code, or the host's redact function
            return NOT_RECORDED


class _Copy:
    """Copy one value; counts what it has copied, so that neither size nor a cycle makes it endless."""

    __slots__ = ("_left", "_names")

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._left = _MAX_VALUES

    def of(self, value: object, depth: int) -> object:
        self._left -= 1
        if self._left < 0 or depth > _MAX_DEPTH:
            return NOT_RECORDED
        match value:
            case None | bool() | int() | float() if not isinstance(value, Enum):
                return value
            case str() if not isinstance(value, Enum):
                return self._text(value, depth)
            case bytes() | bytearray():
                return f"<{len(value)} bytes>"
            case Enum():
                return self.of(value.value, depth + 1)
            case _:
                return self._composite(value, depth)

    def _composite(self, value: object, depth: int) -> object:
        if isinstance(value, list | tuple | set | frozenset):
            return self._items(cast("Iterable[object]", value), depth)
        if isinstance(value, dict | MappingProxyType):
            return self._fields(cast("Mapping[object, object]", value).items(), depth)
        if isinstance(value, _AS_TEXT):
            return str(value)
        names = _field_names(value)
        if names is None:
            return f"<{type(value).__name__}>"
        return self._fields(((name, getattr(value, name, None)) for name in names), depth)

    def _items(self, items: Iterable[object], depth: int) -> list[object]:
        copied: list[object] = []
        for item in items:
            copied.append(self.of(item, depth + 1))
            if self._left < 0:
                break
        return copied

    def _fields(self, pairs: Iterable[tuple[object, object]], depth: int) -> dict[str, object]:
        copied: dict[str, object] = {}
        for key, item in pairs:
            name = str(self.of(key, depth + 1))
            copied[name] = REDACTED if name.casefold() in self._names else self.of(item, depth + 1)
            if self._left < 0:
                break
        return copied

    def _text(self, text: str, depth: int) -> str:
        # An output is JSON text, and tools return JSON as text, which would carry a hidden field past the names.
        if not self._names or not text.lstrip().startswith(("{", "[", '"')):
            return text
        try:
            inner = json.loads(text)
        except (ValueError, RecursionError):
            return text
        copied = self.of(inner, depth + 1)
        return text if copied == inner else json.dumps(copied, ensure_ascii=False)


def _field_names(value: object) -> Iterable[str] | None:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [field.name for field in dataclasses.fields(value)]
    known = getattr(type(value), "__pydantic_fields__", None)
    return list(cast("dict[str, object]", known)) if isinstance(known, dict) else None


def json_text(plain: object) -> str:
    """Write plain content as JSON text; text stands as it is."""
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def recorded(event: DiagnosticEvent, redactor: Redactor) -> DiagnosticEvent:
    """Give the event with its content plain and redacted."""
    present = {name: value for name in _CONTENT if (value := getattr(event.payload, name, UNSET)) is not UNSET}
    changes = {name: redactor.record(value) for name, value in present.items()}
    debug = None if event.debug is None else redactor.record(event.debug)
    return dataclasses.replace(
        event,
        payload=_replaced(event.payload, changes),
        debug=cast("Mapping[str, object]", debug) if isinstance(debug, Mapping) else None,
    )


def without_content(event: DiagnosticEvent) -> DiagnosticEvent:
    """Give the event with its metadata alone."""
    present = [name for name in _CONTENT if getattr(event.payload, name, UNSET) is not UNSET]
    if not present and event.debug is None:
        return event
    return dataclasses.replace(event, payload=_replaced(event.payload, dict.fromkeys(present, UNSET)), debug=None)


def _replaced(payload: Payload, changes: Mapping[str, object]) -> Payload:
    # The names come from the payload itself, which no type checker can follow.
    return cast("Payload", dataclasses.replace(cast("Any", payload), **changes)) if changes else payload
