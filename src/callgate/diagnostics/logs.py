"""Events as log lines, by the standard library's logging or by structlog.

A line of standard logging reads `callgate.tool_failed tool=add call_id=c1 … duration_ms=3.1`, one line whatever a model
put into a name, with the same facts as a mapping in the record's attribute `callgate`. structlog gets them as key-values.
"""

import dataclasses
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias, runtime_checkable

from callgate.diagnostics.content import json_text
from callgate.diagnostics.events import (
    CallFacts,
    ContentLevel,
    DiagnosticEvent,
    EnabledCheck,
    EventName,
    Payload,
    ReportHandlerFailed,
    ToolFailed,
    ToolFinished,
    ToolLate,
    ToolProgress,
    ToolStarted,
    event_id,
    original_error,
)
from callgate.errors import ToolFailedError, UsageError
from callgate.values import UNSET, ToolCallRecord

__all__ = ("BoundLogger", "LoggingDestination")

Levels: TypeAlias = Mapping[EventName, int]
StandardLogger: TypeAlias = logging.Logger | logging.LoggerAdapter[Any]

_MAX_VALUE_CHARS = 200
_MAX_CONTENT_CHARS = 2_000
_RECORD_FIELDS = (
    "tool", "kind", "call_id", "invocation_id", "run_id", "thread_id", "attempt", "status", "error_code", "error_status",
    "duration_ms", "input_bytes", "output_bytes", "repairs", "notes", "approved_by", "late_ms",
)  # fmt: skip
_CALL_FIELDS = ("tool", "kind", "call_id", "invocation_id", "run_id", "thread_id", "attempt", "limit_s")
_REPORT_FIELDS = ("tool", "call_id", "invocation_id", "reason", "limit_s", "dropped")
_METHODS = (
    (logging.CRITICAL, "critical"),
    (logging.ERROR, "error"),
    (logging.WARNING, "warning"),
    (logging.INFO, "info"),
    (logging.DEBUG, "debug"),
)


@runtime_checkable
class BoundLogger(Protocol):
    """Be a structlog logger, as far as it is used here."""

    def bind(self, **new_values: Any) -> Any:
        """Give the logger as it is configured now."""
        ...


class LoggingDestination:
    """Write events to `logger`: a name, a logger of standard logging, or one of structlog.

    A failed call is one line at `failure_level` with the tool's own exception and traceback; the rest of a call is at
    `success_level`. A late tool is INFO, or `failure_level` where that is lower; a failing report handler is ERROR.
    `content=True` adds arguments and outputs, shortened.

    Raises:
        UsageError: `logger` is none of the three.
    """

    __slots__ = ("_levels", "_logger", "_standard", "enabled", "observes_calls")

    def __init__(
        self,
        logger: str | StandardLogger | BoundLogger = "callgate",
        *,
        failure_level: int = logging.WARNING,
        success_level: int = logging.DEBUG,
        content: bool = False,
    ) -> None:
        self._levels = _levels(failure_level, success_level)
        self._logger: Any = logging.getLogger(logger) if isinstance(logger, str) else logger
        self._standard = isinstance(self._logger, logging.Logger | logging.LoggerAdapter)
        self.enabled: EnabledCheck = _check(self._logger, self._levels, with_content=content)
        self.observes_calls = _calls_check(self._logger, success_level, self.enabled)

    @property
    def is_standard(self) -> bool:
        """Whether the lines go to standard logging, and not to structlog."""
        return self._standard

    def write(self, event: DiagnosticEvent) -> None:
        """Write one line."""
        level = self._levels[event.name]
        facts = _facts(event)
        error = _error_of(event.payload)
        if self._standard:
            line = " ".join((event_id(event.name), *(f"{key}={_token(value)}" for key, value in facts.items())))
            self._logger.log(level, "%s", line, exc_info=error, extra={"callgate": facts})
        else:
            more: dict[str, object] = {} if error is None else {"exc_info": error}
            getattr(self._logger, _method(level))(event_id(event.name), **facts, **more)


def _levels(failure: int, success: int) -> Levels:
    return MappingProxyType({
        "tool.started": success,
        "tool.progress": success,
        "tool.finished": success,
        "tool.failed": failure,
        "tool.late": min(logging.INFO, failure),
        "report.handler_failed": logging.ERROR,
    })  # fmt: skip


def _check(logger: object, levels: Levels, *, with_content: bool) -> EnabledCheck:
    if isinstance(logger, logging.Logger | logging.LoggerAdapter):
        return _standard_check(logger, levels, with_content=with_content)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(logger, BoundLogger):
        return _structlog_check(logger, levels, with_content=with_content)
    msg = f"a logger is a name, a logging.Logger or a structlog logger, got {type(logger).__name__}"
    raise UsageError(msg)


def _standard_check(logger: StandardLogger, levels: Levels, *, with_content: bool) -> EnabledCheck:
    # Two calls of this are the whole price of diagnostics in a call that nobody looks at. isEnabledFor keeps its answers
    # in a cache that setLevel clears, so nothing is remembered here.
    is_enabled_for = logger.isEnabledFor
    level_of = dict(levels)

    def check(event: EventName, content: ContentLevel = "metadata") -> bool:
        return is_enabled_for(level_of[event]) and (with_content or content == "metadata")

    return check


def _calls_check(logger: object, success_level: int, enabled: EnabledCheck) -> Callable[[], bool]:
    if isinstance(logger, logging.Logger | logging.LoggerAdapter):
        is_enabled_for = logger.isEnabledFor
        return lambda: is_enabled_for(success_level)
    return lambda: enabled("tool.finished")


def _structlog_check(logger: BoundLogger, levels: Levels, *, with_content: bool) -> EnabledCheck:
    def check(event: EventName, content: ContentLevel = "metadata") -> bool:
        if content == "content" and not with_content:
            return False
        # Bound anew each time: a proxy from get_logger() follows a configuration that may come later. Looked up on the
        # type, because a generic bound logger takes any attribute for the name of a logging method.
        bound: object = logger.bind()
        kind = type(bound)
        method = getattr(kind, "is_enabled_for", None) or getattr(kind, "isEnabledFor", None)
        return True if method is None else bool(method(bound, levels[event]))

    return check


def _method(level: int) -> str:
    return next((name for least, name in _METHODS if level >= least), "debug")


def _facts(event: DiagnosticEvent) -> dict[str, object]:
    pairs = [*_payload_pairs(event.payload), *_identity_pairs(event), *_content_pairs(event)]
    facts: dict[str, object] = {}
    for key, value in pairs:
        if value is not None and value != () and key not in facts:
            facts[key] = round(value, 3) if isinstance(value, float) else value
    return facts


def _payload_pairs(payload: Payload) -> Iterable[tuple[str, object]]:
    match payload:
        case ToolStarted():
            return _pairs(payload.call, _CALL_FIELDS)
        case ToolProgress():
            return [*_pairs(payload.call, _CALL_FIELDS), *_pairs(payload, ("sequence", "done", "total"))]
        case ToolFinished() | ToolFailed() | ToolLate():
            return _pairs(payload.record, _RECORD_FIELDS)
        case ReportHandlerFailed():
            return _pairs(payload, _REPORT_FIELDS)


def _pairs(
    source: CallFacts | ToolCallRecord | ToolProgress | ReportHandlerFailed, names: Iterable[str]
) -> Iterable[tuple[str, object]]:
    return [(name, _capped(getattr(source, name), _MAX_VALUE_CHARS)) for name in names]


def _identity_pairs(event: DiagnosticEvent) -> Iterable[tuple[str, object]]:
    identity = event.identity
    if identity is None:
        return []
    named = [(part.name, getattr(identity.fields, part.name)) for part in dataclasses.fields(identity.fields)]
    return [("span_id", identity.span_id), ("parent_span_id", identity.parent_span_id), *named]


def _content_pairs(event: DiagnosticEvent) -> Iterable[tuple[str, object]]:
    named = [(name, getattr(event.payload, name, UNSET)) for name in ("arguments", "output", "item")]
    pairs = [(name, _capped(json_text(value), _MAX_CONTENT_CHARS)) for name, value in named if value is not UNSET]
    return pairs if event.debug is None else [*pairs, ("debug", _capped(json_text(event.debug), _MAX_CONTENT_CHARS))]


def _capped(value: object, most: int) -> object:
    if isinstance(value, str) and len(value) > most:
        return f"{value[:most]}…[{len(value)} characters]"
    return value


def _token(value: object) -> str:
    # One line and unambiguous: names and ids come from models and may hold line breaks that would forge a second line.
    text = value if isinstance(value, str) else json.dumps(value)
    if text and text.isascii() and text.isprintable() and not set(text) & set(" =\"'\\"):
        return text
    return json.dumps(text)


def _error_of(payload: Payload) -> BaseException | None:
    match payload:
        case ToolFailed():
            # A refusal is no surprise and needs no traceback, and the library's below it would show the model's values.
            return original_error(payload.error) if isinstance(payload.error, ToolFailedError) else payload.error.__cause__
        case ReportHandlerFailed():
            return payload.error
        case _:
            return None
