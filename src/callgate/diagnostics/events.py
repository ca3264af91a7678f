"""What can be observed: a closed list of events, each with one frozen payload.

Two kinds of fields. Metadata (names, ids, sizes, times, statuses) is always there. Content (`arguments`, `output`,
`item`, an event's `debug`) is what models and tools say; a destination gets it only when it asks for content, plain and
redacted, and reads `UNSET` otherwise. Source: contract rows D1 and D2.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from callgate.errors import ToolFailedError
from callgate.values import UNSET, CallStatus, ToolCallRecord, Unset

__all__ = (
    "CallFacts",
    "ContentLevel",
    "DiagnosticEvent",
    "DiagnosticIdentity",
    "DiagnosticSpanFields",
    "EnabledCheck",
    "EventName",
    "Payload",
    "ReportFailure",
    "ReportHandlerFailed",
    "ToolFailed",
    "ToolFinished",
    "ToolLate",
    "ToolProgress",
    "ToolStarted",
    "ending_event",
    "event_id",
    "original_error",
)

EventName = Literal["tool.started", "tool.progress", "tool.finished", "tool.failed", "tool.late", "report.handler_failed"]
ContentLevel = Literal["metadata", "content"]
ReportFailure = Literal["raised", "timed_out", "cancelled", "dropped"]


class EnabledCheck(Protocol):
    """Tell whether somebody observes `event` at the level `content`."""

    def __call__(self, event: EventName, content: ContentLevel = "metadata") -> bool:
        """Tell it, at the price of one lookup where possible."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFacts:
    """Say what is known of a call when it starts; for its start event and its span.

    `limit_s` is the time limit that holds for it in seconds (None: no limit). `kind` is `""` when no tool has the name.
    """

    invocation_id: str
    tool: str
    kind: str = ""
    description: str | None = None
    call_id: str | None = None
    run_id: str | None = None
    thread_id: str | None = None
    attempt: int = 1
    limit_s: float | None = None


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """Tell that a call has come as far as running its tool. `arguments` are content."""

    call: CallFacts
    arguments: object | Unset = UNSET


@dataclass(frozen=True, slots=True)
class ToolProgress:
    """Tell that a running tool has come further: `done` of `total` where it says so. `item` is content.

    `sequence` counts a call's progress from 1.
    """

    call: CallFacts
    sequence: int
    done: float | None = None
    total: float | None = None
    item: object | Unset = UNSET


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """Tell that a call ended without a failure: succeeded, aborted or cancelled. `arguments` and `output` are content."""

    record: ToolCallRecord
    arguments: object | Unset = UNSET
    output: object | Unset = UNSET


@dataclass(frozen=True, slots=True)
class ToolFailed:
    """Tell that a call failed or was denied. `arguments` are content.

    `error` is what the registry raised. It is an object for the program's own hooks and log: a destination that sends
    something elsewhere takes its type or code, never its text.
    """

    record: ToolCallRecord
    error: BaseException = field(repr=False)
    arguments: object | Unset = UNSET


@dataclass(frozen=True, slots=True)
class ToolLate:
    """Tell that a tool which had been given up came back, after `record.late_ms`; what it brought was dropped."""

    record: ToolCallRecord


@dataclass(frozen=True, slots=True)
class ReportHandlerFailed:
    """Tell that the handler of failure reports did not take one: why, for which call, and how many were dropped so far.

    `error` is what the handler raised, for the program's own log.
    """

    tool: str
    reason: ReportFailure
    invocation_id: str | None = None
    call_id: str | None = None
    limit_s: float | None = None
    dropped: int = 0
    error: BaseException | None = field(default=None, repr=False)


Payload: TypeAlias = ToolStarted | ToolProgress | ToolFinished | ToolFailed | ToolLate | ReportHandlerFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosticSpanFields:
    """Say where in a larger execution a scope stands; None is not known here."""

    request_id: str | None = None
    run_id: str | None = None
    thread_id: str | None = None
    call_id: str | None = None
    node: str | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True)
class DiagnosticIdentity:
    """Name a scope that is bound to an execution, its parent scope, and where it stands."""

    span_id: str
    parent_span_id: str | None = None
    fields: DiagnosticSpanFields = DiagnosticSpanFields()


@dataclass(frozen=True, slots=True)
class DiagnosticEvent:
    """Hold one observed fact: its name, its payload, the scope it was seen in, and debug output (content) if any."""

    name: EventName
    payload: Payload
    identity: DiagnosticIdentity | None = None
    debug: Mapping[str, object] | None = None


def ending_event(status: CallStatus) -> EventName:
    """Name the one event with which a call of this status ends."""
    return "tool.failed" if status in {"failed", "denied"} else "tool.finished"


def event_id(event: EventName) -> str:
    """Give the fixed id under which an event is logged, such as `callgate.tool_failed`."""
    return f"callgate.{event.replace('.', '_')}"


def original_error(error: BaseException) -> BaseException:
    """Give the exception that the tool itself raised, or `error` when no other stands behind it."""
    if isinstance(error, ToolFailedError) and error.__cause__ is not None:
        return error.__cause__
    return error
