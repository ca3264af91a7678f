"""Observing calls: `DiagnosticContext` and its destinations for logging, OpenTelemetry and memory."""

from callgate.diagnostics.content import NOT_RECORDED, Redact
from callgate.diagnostics.context import CallSpan, DiagnosticContext, Sink, default_diagnostics
from callgate.diagnostics.destinations import Destination, DestinationSpan, Observer, SpanEnding, SpanOpener
from callgate.diagnostics.events import (
    CallFacts,
    ContentLevel,
    DiagnosticEvent,
    DiagnosticIdentity,
    DiagnosticSpanFields,
    EventName,
    Payload,
    ReportFailure,
    ReportHandlerFailed,
    ToolFailed,
    ToolFinished,
    ToolLate,
    ToolProgress,
    ToolStarted,
    ending_event,
    event_id,
    original_error,
)
from callgate.diagnostics.logs import LoggingDestination
from callgate.diagnostics.memory import MemoryDestination
from callgate.diagnostics.otel import OpenTelemetryDestination

__all__ = (
    "NOT_RECORDED",
    "CallFacts",
    "CallSpan",
    "ContentLevel",
    "Destination",
    "DestinationSpan",
    "DiagnosticContext",
    "DiagnosticEvent",
    "DiagnosticIdentity",
    "DiagnosticSpanFields",
    "EventName",
    "LoggingDestination",
    "MemoryDestination",
    "Observer",
    "OpenTelemetryDestination",
    "Payload",
    "Redact",
    "ReportFailure",
    "ReportHandlerFailed",
    "Sink",
    "SpanEnding",
    "SpanOpener",
    "ToolFailed",
    "ToolFinished",
    "ToolLate",
    "ToolProgress",
    "ToolStarted",
    "default_diagnostics",
    "ending_event",
    "event_id",
    "original_error",
)
