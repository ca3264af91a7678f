"""A destination that keeps events in memory, for tests and for looking at the last ones."""

from collections import deque

from callgate.diagnostics.events import ContentLevel, DiagnosticEvent, EventName

__all__ = ("MemoryDestination",)


class MemoryDestination:
    """Keep the last `max_events` events; with `content=True` what models and tools say as well. Thread safe."""

    __slots__ = ("_content", "_events")

    def __init__(self, *, content: bool = False, max_events: int = 10_000) -> None:
        self._content = content
        self._events: deque[DiagnosticEvent] = deque(maxlen=max_events)

    @property
    def events(self) -> tuple[DiagnosticEvent, ...]:
        """What was kept so far, oldest first."""
        return tuple(self._events)

    def named(self, event: EventName) -> tuple[DiagnosticEvent, ...]:
        """Give the events of one name, oldest first."""
        return tuple(kept for kept in self.events if kept.name == event)

    def clear(self) -> None:
        """Forget every event."""
        self._events.clear()

    def enabled(self, event: EventName, content: ContentLevel = "metadata") -> bool:  # noqa: ARG002 - a Destination's signature
        """Want every event."""
        return content == "metadata" or self._content

    def write(self, event: DiagnosticEvent) -> None:
        """Keep the event."""
        self._events.append(event)
