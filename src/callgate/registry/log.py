"""The registry's own call log: the newest calls, bounded, with the number that had to go. Source: contract row R6."""

import threading
from collections import deque
from dataclasses import replace

from callgate.tally import Tally
from callgate.values import EndedCall, ToolCallRecord

__all__ = ("CallLog",)


class CallLog:
    """Keep the newest `kept` calls that have ended. Thread safe."""

    __slots__ = ("_appended", "_calls", "_kept", "_late", "_lock")

    def __init__(self, kept: int) -> None:
        self._calls: deque[EndedCall] = deque(maxlen=kept)
        self._kept = kept
        self._late: dict[int, float] = {}
        self._lock = threading.Lock()
        self._appended = Tally()

    def append(self, call: EndedCall) -> None:
        """Add a call that has ended. Both steps are atomic, so the hot path takes no lock."""
        self._calls.append(call)
        self._appended.add()

    def mark_late(self, number: int, late_ms: float) -> ToolCallRecord | None:
        """Note of the call of that number that its tool came back, and give its receipt; None when it has gone.

        Beside the calls and not in them: another thread may add one at any moment, which moves them all.
        """
        with self._lock:
            self._late[number] = late_ms
            for surplus in list(self._late)[: -self._kept]:
                del self._late[surplus]
        found = next((call for call in self._snapshot() if call.number == number), None)
        return None if found is None else self._with_late(found)

    @property
    def recorded(self) -> int:
        """How many calls were added in all."""
        return self._appended.count

    @property
    def dropped(self) -> int:
        """How many calls had to go."""
        return max(0, self.recorded - len(self._calls))

    def snapshot(self) -> tuple[ToolCallRecord, ...]:
        """Give the receipts that are kept, oldest first."""
        return tuple(map(self._with_late, self._snapshot()))

    def _snapshot(self) -> tuple[EndedCall, ...]:
        while True:
            try:
                return tuple(self._calls)
            except RuntimeError:  # another thread added one meanwhile
                continue

    def _with_late(self, call: EndedCall) -> ToolCallRecord:
        late_ms = self._late.get(call.number)
        return call.record() if late_ms is None else replace(call.record(), late_ms=late_ms)
