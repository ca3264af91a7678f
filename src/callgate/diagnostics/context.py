"""The scope through which a call is observed: frozen, cheap when nobody looks, and never a reason for a call to fail.

    registry ── enabled? ──► emit(thunk) ──► content.recorded (copy, bound, redact: once)
                                          ├─► LoggingDestination        metadata, or content when asked
                                          ├─► MemoryDestination
                                          └─► observer
             ── open_span(facts) ──► CallSpan ──► OpenTelemetryDestination

Source: contract rows D1, D2, D3.
"""

import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial, reduce
from inspect import isawaitable
from typing import TypeAlias

from callgate.diagnostics.content import Redact, Redactor, recorded, without_content
from callgate.diagnostics.destinations import (
    Destination,
    DestinationSpan,
    Observer,
    ObserverDestination,
    Receiver,
    SpanEnding,
)
from callgate.diagnostics.events import (
    CallFacts,
    ContentLevel,
    DiagnosticEvent,
    DiagnosticIdentity,
    DiagnosticSpanFields,
    EnabledCheck,
    EventName,
    Payload,
)
from callgate.diagnostics.logs import LoggingDestination
from callgate.errors import UsageError
from callgate.values import UNSET

__all__ = ("CallSpan", "DiagnosticContext", "Sink", "default_diagnostics")

Sink: TypeAlias = Callable[[DiagnosticEvent], Awaitable[None] | None]


class CallSpan:
    """Follow one call in every destination that has spans. `activate` inside the context that the tool runs in."""

    __slots__ = ("_ended", "_redactor", "_spans")

    def __init__(self, spans: tuple[tuple[Receiver, DestinationSpan], ...], redactor: Redactor) -> None:
        self._spans = spans
        self._redactor = redactor
        self._ended = False

    def activate(self) -> None:
        """Make the spans current in the running `contextvars` context, so that what the tool opens is below them."""
        for receiver, span in self._spans:
            receiver.attempt(span.activate)

    def end(self, ending: SpanEnding) -> None:
        """End the spans; a second call does nothing. Content reaches only a span that wants it, redacted."""
        if self._ended:
            return
        self._ended = True
        for receiver, span in self._spans:
            receiver.attempt(partial(self._end, span, ending))

    def _end(self, span: DestinationSpan, ending: SpanEnding) -> None:
        if not span.wants_content:
            span.end(SpanEnding(ending.record, ending.error))
            return
        arguments, output = (
            value if value is UNSET else self._redactor.record(value) for value in (ending.arguments, ending.output)
        )
        span.end(SpanEnding(ending.record, ending.error, arguments, output))


@dataclass(frozen=True, slots=True)
class DiagnosticContext:
    """Observe calls: build one with `DiagnosticContext.of(...)`; `DiagnosticContext()` observes nothing.

    `enabled(event, content="metadata")` tells cheaply whether anybody observes `event` (with `"content"`: its content).
    `observes_calls()` tells whether a call that does not fail is observed at all, its start or its end: one question in
    place of two for the hot path. `identity` names the execution that the scope is bound to, or is None.
    """

    identity: DiagnosticIdentity | None = None
    receivers: tuple[Receiver, ...] = field(default=(), repr=False)
    redactor: Redactor = field(default=Redactor(), repr=False)
    # Functions in slots, not methods: every call asks them, and a method with a loop costs twice as much.
    enabled: EnabledCheck = field(init=False, repr=False, compare=False)
    observes_calls: Callable[[], bool] = field(init=False, repr=False, compare=False)
    opens_spans: bool = field(init=False, repr=False, compare=False)
    _openers: tuple[Receiver, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "enabled", _combined(self.receivers))
        object.__setattr__(self, "observes_calls", _combined_calls(self.receivers))
        openers = tuple(receiver for receiver in self.receivers if receiver.opens_spans)
        object.__setattr__(self, "_openers", openers)
        object.__setattr__(self, "opens_spans", bool(openers))

    @classmethod
    def of(
        cls, *destinations: Destination, redact: Redact = (), identity: DiagnosticIdentity | None = None
    ) -> "DiagnosticContext":
        """Observe calls in `destinations`.

        `redact` holds for content in all of them, observers and sinks too: names of fields to hide at any depth, or a
        function from plain content to what is recorded in its place.

        Raises:
            UsageError: something is no destination, or `redact` is neither names nor a function.
        """
        return cls(identity, tuple(_received(destination) for destination in destinations), Redactor.of(redact))

    def emit(self, event: EventName, payload: Callable[[], Payload], debug: Mapping[str, object] | None = None) -> None:
        """Record one fact. `payload` is called only when the event is enabled, once, and may hold content.

        `debug` is output of a tool's debug steps; it is content. What a destination raises is logged and dropped.
        """
        if self.enabled(event):
            self._send(DiagnosticEvent(event, payload(), self.identity, debug), None)

    async def deliver(self, event: EventName, payload: Callable[[], Payload], sink: Sink) -> None:
        """Record one fact and bring it, content included, to `sink`; return when the sink has taken it.

        Awaiting one delivery after the other keeps their order. `payload` is called once, for the sink too.

        Raises:
            Exception: whatever the sink raises; the destinations have the fact by then.
        """
        fact = DiagnosticEvent(event, payload(), self.identity)
        full = recorded(fact, self.redactor)
        self._send(fact, full)
        taking = sink(full)
        if isawaitable(taking):
            await taking

    def child(self, span_id: str, fields: DiagnosticSpanFields | None = None) -> "DiagnosticContext":
        """Derive the scope of a part of this execution; `fields` fill what is not known here and overwrite nothing."""
        parent = self.identity
        if parent is None:
            identity = DiagnosticIdentity(span_id, None, _filled(DiagnosticSpanFields(), fields))
        else:
            identity = DiagnosticIdentity(span_id, parent.span_id, _filled(parent.fields, fields))
        return dataclasses.replace(self, identity=identity)

    def with_observer(self, observer: Observer, content: ContentLevel = "metadata") -> "DiagnosticContext":
        """Derive a scope that shows every event to `observer` as well; destinations and identity stay.

        Raises:
            UsageError: the observer is async or cannot be called.
        """
        return dataclasses.replace(self, receivers=(*self.receivers, Receiver(ObserverDestination(observer, content))))

    def open_span(self, facts: CallFacts) -> CallSpan | None:
        """Start the call's span below the one that is current here, or give None when no destination has spans."""
        if not self._openers:
            return None
        opened = [(receiver, span) for receiver in self._openers if (span := receiver.open_span(facts)) is not None]
        return CallSpan(tuple(opened), self.redactor) if opened else None

    def _send(self, fact: DiagnosticEvent, full: DiagnosticEvent | None) -> None:
        bare = without_content(fact)
        for receiver in self.receivers:
            if receiver.enabled(fact.name, "content"):
                full = recorded(fact, self.redactor) if full is None else full
                receiver.write(full)
            elif receiver.enabled(fact.name):
                receiver.write(bare)


def default_diagnostics() -> DiagnosticContext:
    """Observe by the logger `callgate` alone: each failed call is one warning, anything else is seen at DEBUG."""
    return DiagnosticContext.of(LoggingDestination())


def _received(destination: Destination) -> Receiver:
    if not isinstance(destination, Destination):  # pyright: ignore[reportUnnecessaryIsInstance]  # untyped callers
        msg = f"a destination has enabled() and write(), got {type(destination).__name__}"  # type: ignore[unreachable]
        raise UsageError(msg)
    return Receiver(destination, trusted=_is_standard(destination))


def _nobody(event: EventName, content: ContentLevel = "metadata") -> bool:  # noqa: ARG001 - an EnabledCheck's signature
    return False


def _no_calls() -> bool:
    return False


def _combined(receivers: tuple[Receiver, ...]) -> EnabledCheck:
    return reduce(_either, (receiver.enabled for receiver in receivers)) if receivers else _nobody


def _either(first: EnabledCheck, second: EnabledCheck) -> EnabledCheck:
    def check(event: EventName, content: ContentLevel = "metadata") -> bool:
        return first(event, content) or second(event, content)

    return check


def _combined_calls(receivers: tuple[Receiver, ...]) -> Callable[[], bool]:
    return reduce(_either_calls, map(_calls_check, receivers)) if receivers else _no_calls


def _either_calls(first: Callable[[], bool], second: Callable[[], bool]) -> Callable[[], bool]:
    return lambda: first() or second()


def _calls_check(receiver: Receiver) -> Callable[[], bool]:
    only = receiver.destination
    return only.observes_calls if isinstance(only, LoggingDestination) and _is_standard(only) else receiver.observes_calls


def _is_standard(destination: Destination) -> bool:
    """Tell whether it is standard logging, whose checks never raise; a logger of structlog runs the host's own code."""
    return type(destination) is LoggingDestination and destination.is_standard


def _filled(known: DiagnosticSpanFields, more: DiagnosticSpanFields | None) -> DiagnosticSpanFields:
    if more is None:
        return known
    names = [part.name for part in dataclasses.fields(known) if getattr(known, part.name) is None]
    return dataclasses.replace(known, **{name: getattr(more, name) for name in names})
