"""The registry's own call log: the newest calls, bounded, with the number that had to go. Source: contract row R6."""

import itertools
from collections import deque
from dataclasses import replace

from callgate.values import EndedCall, ToolCallRecord

__all__ = ("CallLog",)


class CallLog:
    """Keep the newest `kept` calls that have ended. Thread safe."""

    __slots__ = ("_appended", "_calls", "_kept", "_late")

    def __init__(self, kept: int) -> None:
        self._calls: deque[EndedCall] = deque(maxlen=kept)
        self._kept = kept
        self._late: dict[str, float] = {}
        self._appended = itertools.count()

    def append(self, call: EndedCall) -> None:
        """Add a call that has ended. Both steps are atomic, so the hot path takes no lock."""
        self._calls.append(call)
        next(self._appended)

    def mark_late(self, invocation_id: str, late_ms: float) -> ToolCallRecord | None:
        """Note on a receipt that its tool came back after it was given up, and give it; None when it has gone.

        Beside the receipts and not in them: another thread may add one at any moment, which moves them all.
        """
        self._late[invocation_id] = late_ms
        while len(self._late) > self._kept:
            self._late.pop(next(iter(self._late)), None)
        return next((record for record in self.snapshot() if record.invocation_id == invocation_id), None)

    @property
    def recorded(self) -> int:
        """How many calls were added in all."""
        return int(repr(self._appended)[len("count(") : -1])  # the one way to read a counter without counting

    @property
    def dropped(self) -> int:
        """How many calls had to go."""
        return max(0, self.recorded - len(self._calls))

    def snapshot(self) -> tuple[ToolCallRecord, ...]:
        """Give the receipts that are kept, oldest first."""
        while True:
            try:
                calls = tuple(self._calls)
            except RuntimeError:  # another thread added one meanwhile
                continue
            return tuple(self._with_late(call.record()) for call in calls)

    def _with_late(self, record: ToolCallRecord) -> ToolCallRecord:
        late_ms = self._late.get(record.invocation_id)
        return record if late_ms is None else replace(record, late_ms=late_ms)
