"""What a destination of diagnostics has to offer, and the guard that keeps its failures from the calls."""

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Protocol, TypeAlias, runtime_checkable

from callgate.diagnostics.events import CallFacts, ContentLevel, DiagnosticEvent, EnabledCheck, EventName
from callgate.errors import UsageError
from callgate.values import UNSET, ToolCallRecord, Unset

__all__ = ("Destination", "DestinationSpan", "Observer", "Receiver", "SpanEnding", "SpanOpener")

Observer: TypeAlias = Callable[[DiagnosticEvent], None]

_log = logging.getLogger("callgate.diagnostics")


@runtime_checkable
class Destination(Protocol):
    """Take events. Both methods are called in the thread of the call, so they must be quick; what they raise is dropped."""

    def enabled(self, event: EventName, content: ContentLevel = "metadata") -> bool:
        """Tell cheaply whether `event` is wanted, and with `content="content"` whether its content is wanted too."""
        ...

    def write(self, event: DiagnosticEvent) -> None:
        """Take one event that is enabled."""
        ...


@dataclass(frozen=True, slots=True)
class SpanEnding:
    """Say how the call of a span ended. `arguments` and `output` are content, `UNSET` unless the span asked for it.

    `error` is for its type and code; its text must not leave the process.
    """

    record: ToolCallRecord
    error: BaseException | None = None
    arguments: object | Unset = UNSET
    output: object | Unset = UNSET


class DestinationSpan(Protocol):
    """Follow one call from its start to its end."""

    @property
    def wants_content(self) -> bool:
        """Whether `end` is to be given arguments and output."""
        ...

    def activate(self) -> None:
        """Make the span the current one of the `contextvars` context that this runs in."""
        ...

    def end(self, ending: SpanEnding) -> None:
        """End the span; called once."""
        ...


@runtime_checkable
class SpanOpener(Protocol):
    """Be a destination that follows calls by spans."""

    def open_span(self, facts: CallFacts) -> DestinationSpan:
        """Start a span below whatever span is current where this is called."""
        ...


class Receiver:
    """Stand before one destination: what it raises fails no call, and is logged once."""

    __slots__ = ("_failed", "destination", "enabled", "opens_spans")

    def __init__(self, destination: Destination, *, trusted: bool = False) -> None:
        """Guard `destination`; a trusted one's `enabled` never raises and is asked directly, which halves its price."""
        self.destination = destination
        self.opens_spans = isinstance(destination, SpanOpener)
        self._failed = False
        self.enabled: EnabledCheck = destination.enabled if trusted else self._guarded_check

    def observes_calls(self) -> bool:
        """Tell whether the destination wants to see a call that does not fail."""
        return self.enabled("tool.started") or self.enabled("tool.finished")

    def write(self, event: DiagnosticEvent) -> None:
        """Hand the event on."""
        self.attempt(lambda: self.destination.write(event))

    def open_span(self, facts: CallFacts) -> DestinationSpan | None:
        """Open the destination's span, or give None when it has none to open."""
        opener = self.destination
        if not isinstance(opener, SpanOpener):
            return None
        opened: list[DestinationSpan] = []
        self.attempt(lambda: opened.append(opener.open_span(facts)))
        return opened[0] if opened else None

    def attempt(self, action: Callable[[], None]) -> None:
        """Run `action` of the destination, whatever it raises."""
        try:
            action()
        except Exception as error:  # noqa: BLE001 - the destination's own code must fail no call
            self._note(error)

    def _guarded_check(self, event: EventName, content: ContentLevel = "metadata") -> bool:
        try:
            return bool(self.destination.enabled(event, content))
        except Exception as error:  # noqa: BLE001 - the destination's own code must fail no call
            self._note(error)
            return False

    def _note(self, error: Exception) -> None:
        if self._failed:
            return
        self._failed = True
        # The log's own handler may be what fails.
        with contextlib.suppress(Exception):
            _log.warning(
                "callgate.destination_failed destination=%s: it raised, the event is lost; its next failures are not logged",
                type(self.destination).__name__,
                exc_info=error,
            )


class ObserverDestination:
    """Show every event to a function, with content when asked for."""

    __slots__ = ("_content", "_observer")

    def __init__(self, observer: Observer, content: ContentLevel) -> None:
        if iscoroutinefunction(observer):
            msg = "an observer is a plain function of one event; an async consumer takes its events by deliver()"
            raise UsageError(msg)
        self._observer = observer
        self._content = content

    def enabled(self, event: EventName, content: ContentLevel = "metadata") -> bool:  # noqa: ARG002 - a Destination's signature
        """Want every event."""
        return content == "metadata" or self._content == "content"

    def write(self, event: DiagnosticEvent) -> None:
        """Call the observer."""
        self._observer(event)
