"""The registry's own call log: the newest receipts, bounded, with the number that had to go. Source: contract row R6."""

import itertools
from collections import deque
from dataclasses import replace

from callgate.values import ToolCallRecord

__all__ = ("CallLog",)


class CallLog:
    """Keep the newest `kept` receipts. Thread safe."""

    __slots__ = ("_appended", "_kept", "_late", "_records")

    def __init__(self, kept: int) -> None:
        self._records: deque[ToolCallRecord] = deque(maxlen=kept)
        self._kept = kept
        self._late: dict[str, float] = {}
        self._appended = itertools.count()

    def append(self, record: ToolCallRecord) -> None:
        """Add the receipt of a call that has ended. Both steps are atomic, so the hot path takes no lock."""
        self._records.append(record)
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
        """How many receipts were added in all."""
        return int(repr(self._appended)[len("count(") : -1])  # the one way to read a counter without counting

    @property
    def dropped(self) -> int:
        """How many receipts had to go."""
        return self.recorded - len(self._records)

    def snapshot(self) -> tuple[ToolCallRecord, ...]:
        """Give the receipts that are kept, oldest first."""
        while True:
            try:
                records = tuple(self._records)
            except RuntimeError:  # another thread added a receipt meanwhile
                continue
            late = self._late
            return tuple(_with_late(each, late.get(each.invocation_id)) for each in records) if late else records


def _with_late(record: ToolCallRecord, late_ms: float | None) -> ToolCallRecord:
    if late_ms is None:
        return record
    late = replace(record, late_ms=late_ms)
    object.__setattr__(late, "_input", record.input_digest)
    object.__setattr__(late, "_output", record.output_digest)
    return late
