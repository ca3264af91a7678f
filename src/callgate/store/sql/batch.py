"""One transaction of the writer: every start is judged, every record chained, and all of it is written together or not at all."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from sqlalchemy import Connection, select

from callgate.store.records import KillSwitch, Refusal, StartEntry
from callgate.store.sql.rows import FIRST_HASH, journal_row, read_facts
from callgate.store.sql.statements import Statements
from callgate.store.sql.tables import COUNTERS, JOURNAL, WRITERS
from callgate.store.sql.work import Work
from callgate.store.switching import is_switched_off

__all__ = ("Batch", "Chain", "read_chain")

_CLAIMED: Final = Refusal("claimed")


@dataclass(slots=True)
class Chain:
    """Hold the end of a writer's chain: the number and the hash of its newest record."""

    seq: int = 0
    last: str = FIRST_HASH


class Batch:
    """Be what one transaction writes. `chain` is moved on by each record; it counts when the transaction is durable."""

    def __init__(self, connection: Connection, statements: Statements, writer: str, chain: Chain) -> None:
        self._connection = connection
        self._statements = statements
        self._writer = writer
        self.chain = chain
        self._rows: list[dict[str, object]] = []
        self._taken: set[str] = set()
        self._switches: list[KillSwitch] = []
        self._used: dict[str, int] = {}
        self._counted: dict[str, int] = {}

    def write(self, works: Sequence[Work], *, careful: bool) -> None:
        """Write everything but the end of the chain; `careful` looks first which places are taken, and lets nobody between."""
        self._lock(alone=careful or any(work.alone for work in works))
        if any(work.judged for work in works):
            self._read_switches()
            self._read_counters(works)
        if careful:
            self._read_taken(works)
        for work in works:
            if work.entry is not None:
                self._judge(work)
        if self._counted:
            counted = [{"of_counter": counter, "used": used} for counter, used in self._counted.items()]
            self._connection.exec_driver_sql(self._statements.count, counted)
        if self._rows:
            self._connection.exec_driver_sql(self._statements.add_records, self._rows)
        for work in works:
            if work.act is not None and (work.entry is None or work.answer is True):
                answer = work.act(self._connection)
                work.answer = answer if work.entry is None else True

    def move_head(self, beat_at: float) -> None:
        """Say where the chain ends now; the row tells afterwards whether this transaction was committed."""
        head = {"last_seq": self.chain.seq, "last_hash": self.chain.last, "beat_at": beat_at, "settled": False}
        self._connection.exec_driver_sql(self._statements.move_head, {"of_writer": self._writer} | head)

    def _lock(self, *, alone: bool) -> None:
        """Share the journal's lock, or take it alone.

        Positions are visible in their order to whoever had it alone, and a switch that was thrown alone is seen by every
        transaction that begins after it. SQLite has one writer at a time anyway.
        """
        lock = self._statements.exclude if alone else self._statements.share
        if lock:
            self._connection.exec_driver_sql(lock)

    def _read_switches(self) -> None:
        found = self._connection.exec_driver_sql(self._statements.switches).scalars()
        self._switches = [read_facts(KillSwitch, facts) for facts in found]

    def _read_counters(self, works: Sequence[Work]) -> None:
        """Read the counters that this batch may count, and hold them until it is written; in one order, so that none waits."""
        names = sorted({counter for work in works for counter, _ in work.reserve})
        if names:
            self._connection.exec_driver_sql(self._statements.open_counters, [{"counter": name, "used": 0} for name in names])
            wanted = select(COUNTERS.c.counter, COUNTERS.c.used).where(COUNTERS.c.counter.in_(names)).with_for_update()
            self._used = {row[0]: row[1] for row in self._connection.execute(wanted)}

    def _read_taken(self, works: Sequence[Work]) -> None:
        claims = [work.entry.claim for work in works if work.entry is not None]
        for first in range(0, len(claims), 500):
            wanted = JOURNAL.c.claim.in_(claims[first : first + 500])
            self._taken.update(self._connection.execute(select(JOURNAL.c.claim).where(wanted)).scalars())

    def _judge(self, work: Work) -> None:
        """Decide whether a record is written, and chain it to the one before it."""
        assert work.entry is not None
        claim = work.entry.claim
        if claim in self._taken:
            work.answer = _CLAIMED if work.judged else False
            return
        work.answer = self._refusal(work, cast("StartEntry", work.entry)) if work.judged else True
        if isinstance(work.answer, Refusal):
            return
        if work.record is None:
            work.record = work.entry.record()
        row = journal_row(work.record, self._writer, self.chain.seq + 1, self.chain.last)
        self.chain.seq += 1
        self.chain.last = cast("str", row["hash"])
        self._taken.add(claim)
        self._rows.append(row)

    def _refusal(self, work: Work, entry: StartEntry) -> Refusal | None:
        for switch in self._switches:
            if is_switched_off(switch, entry):
                return Refusal("switched_off", switch.reason)
        for counter, limit in work.reserve:
            if self._used[counter] >= limit:
                return Refusal("used_up", counter)
        for counter, _ in work.reserve:
            self._used[counter] += 1
            self._counted[counter] = self._used[counter]
        return None


def read_chain(connection: Connection, writer: str) -> tuple[Chain, float] | None:
    """Read where a writer's chain ends, and its newest sign of life; waits for a transaction that may still be on its way."""
    row = connection.execute(select(WRITERS).where(WRITERS.c.writer == writer).with_for_update()).mappings().first()
    return None if row is None else (Chain(row["last_seq"], row["last_hash"]), row["beat_at"])
