"""Calls as OpenTelemetry spans, after the semantic conventions for generative AI.

One span `execute_tool {name}` of kind INTERNAL for each call. Without `content=True` it holds no argument, no result and no
text of an exception. Source: OpenTelemetry semantic conventions, "Execute tool span" (status: development).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from callgate.diagnostics.content import json_text
from callgate.diagnostics.destinations import SpanEnding
from callgate.diagnostics.events import CallFacts, ContentLevel, DiagnosticEvent, EventName, original_error
from callgate.errors import ToolFailedError, UsageError
from callgate.values import UNSET, ToolCallRecord, Unset

__all__ = ("OpenTelemetryDestination", "TracerLike")

_MAX_NAME_BYTES = 128
_LEAST_ATTRIBUTE_BYTES = 64


class SpanLike(Protocol):
    """Be a span of OpenTelemetry, as far as it is used here."""

    def is_recording(self) -> bool: ...
    def set_attributes(self, attributes: Any) -> None: ...
    def set_status(self, status: Any) -> None: ...
    def end(self) -> None: ...


class TracerLike(Protocol):
    """Be a tracer of OpenTelemetry, as far as it is used here."""

    def start_span(self, name: str, *, kind: Any, attributes: Any) -> Any:
        """Start a span below the current one."""
        ...


@dataclass(frozen=True, slots=True)
class _Api:
    """Hold what is used of `opentelemetry-api`, which is an extra and loaded only for this destination."""

    tracer: Callable[[], Any]
    internal: Any
    error: Any
    activate: Callable[[Any], object]


def _api() -> _Api:
    try:
        from opentelemetry import context, trace  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        advice = "install callgate with its extra otel, for example: pip install '/path/to/clone[otel]'"
        raise UsageError(f"OpenTelemetryDestination needs the package opentelemetry-api; {advice}") from error
    return _Api(
        tracer=lambda: trace.get_tracer("callgate"),
        internal=trace.SpanKind.INTERNAL,
        error=trace.StatusCode.ERROR,
        activate=lambda span: context.attach(trace.set_span_in_context(span)),
    )


class OpenTelemetryDestination:
    """Give each call a span of `tracer` (None: the global provider's tracer `callgate`).

    `content=True` adds arguments and results, each cut to `max_attribute_bytes` UTF-8 bytes with a marker inside.
    `error.type` is the class of what the tool raised, or the code of the refusal. An aborted or cancelled call is no error.

    Raises:
        UsageError: `opentelemetry-api` is not installed, or `max_attribute_bytes` is under 64.
    """

    __slots__ = ("_api", "_content", "_max_bytes", "_tracer")

    def __init__(self, tracer: TracerLike | None = None, *, content: bool = False, max_attribute_bytes: int = 8_192) -> None:
        if max_attribute_bytes < _LEAST_ATTRIBUTE_BYTES:
            msg = f"max_attribute_bytes must be at least {_LEAST_ATTRIBUTE_BYTES}, got {max_attribute_bytes}"
            raise UsageError(msg)
        self._api = _api()
        self._tracer: TracerLike = self._api.tracer() if tracer is None else tracer
        self._content = content
        self._max_bytes = max_attribute_bytes

    def enabled(self, event: EventName, content: ContentLevel = "metadata") -> bool:  # noqa: ARG002 - a Destination's signature
        """Want no event: a call's span says all."""
        return False

    def write(self, event: DiagnosticEvent) -> None:
        """Do nothing with an event."""

    def open_span(self, facts: CallFacts) -> "_Span":
        """Start the span of a call below the current span."""
        name = f"execute_tool {_shortened(facts.tool, _MAX_NAME_BYTES)}"
        span = self._tracer.start_span(name, kind=self._api.internal, attributes=_cut(_start(facts), self._max_bytes))
        return _Span(span, self._api, self._max_bytes, content=self._content)


class _Span:
    """Be one call's span."""

    __slots__ = ("_api", "_max_bytes", "_span", "wants_content")

    def __init__(self, span: SpanLike, api: _Api, max_bytes: int, *, content: bool) -> None:
        self._span = span
        self._api = api
        self._max_bytes = max_bytes
        # An unsampled span records nothing; its content need not be copied.
        self.wants_content = content and span.is_recording()

    def activate(self) -> None:
        """Make the span current; nothing is given back, because the context it is set in dies with the call."""
        self._api.activate(self._span)

    def end(self, ending: SpanEnding) -> None:
        """Set what is known at the end, and end the span whatever happens meanwhile."""
        try:
            self._span.set_attributes(_cut(_end(ending), self._max_bytes))
            if _is_error(ending.record):
                self._span.set_status(self._api.error)
            self._span.set_attributes(_cut(_content(ending), self._max_bytes))
        finally:
            self._span.end()


def _start(facts: CallFacts) -> Mapping[str, object]:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": facts.tool,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": facts.description,
        "gen_ai.tool.call.id": facts.call_id,
        "callgate.invocation_id": facts.invocation_id,
        "callgate.tool.kind": facts.kind or None,
        "callgate.run_id": facts.run_id,
        "callgate.thread_id": facts.thread_id,
        "callgate.attempt": facts.attempt,
    }


def _end(ending: SpanEnding) -> Mapping[str, object]:
    record = ending.record
    return {
        "callgate.status": record.status,
        "callgate.input_bytes": record.input_bytes,
        "callgate.output_bytes": record.output_bytes,
        "callgate.notes": record.notes or None,
        "error.type": _error_type(ending) if _is_error(record) else None,
    }


def _content(ending: SpanEnding) -> Mapping[str, object]:
    return {"gen_ai.tool.call.arguments": _written(ending.arguments), "gen_ai.tool.call.result": _written(ending.output)}


def _written(value: object | Unset) -> str | None:
    return None if value is UNSET else json_text(value)


def _is_error(record: ToolCallRecord) -> bool:
    return record.status in {"failed", "denied"}


def _error_type(ending: SpanEnding) -> str:
    error = ending.error
    if isinstance(error, ToolFailedError) and error.__cause__ is not None:
        kind = type(original_error(error))
        return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return ending.record.error_code or "_OTHER"


def _cut(attributes: Mapping[str, object], most: int) -> dict[str, object]:
    known = {name: value for name, value in attributes.items() if value is not None}
    return {name: _shortened(value, most) if isinstance(value, str) else value for name, value in known.items()}


def _shortened(text: str, most: int) -> str:
    """Cut `text` to `most` UTF-8 bytes, with a marker of its size inside; what is no Unicode becomes `?`."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= most:
        return encoded.decode("utf-8")
    marker = f"…[cut, {len(encoded)} bytes]"
    return encoded[: most - len(marker.encode("utf-8"))].decode("utf-8", "ignore") + marker
