"""One transaction of the writer: every start is judged, every record chained, and all of it is written together or not at all."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, cast

from sqlalchemy import Connection, select

from callgate.store.records import KillSwitch, Refusal, StartEntry
from callgate.store.sql.rows import FIRST_HASH, JournalRow, journal_row, read_facts
from callgate.store.sql.statements import Statements
from callgate.store.sql.tables import COUNTERS, JOURNAL, WRITERS
from callgate.store.sql.work import Work
from callgate.store.switching import is_switched_off

__all__ = ("Batch", "Chain", "read_chain")

_CLAIMED: Final = Refusal("claimed")
_LARGE: Final = 1024 * 1024


@dataclass(slots=True)
class Chain:
    """Hold the end of a writer's chain: the number and the hash of its newest record."""

    seq: int = 0
    last: str = FIRST_HASH


class Batch:
    """Be what one transaction writes. `chain` is moved on by each record; it counts when the transaction is durable.

    What every batch does goes to the driver itself: in a small batch the layers above it cost more than the database.
    """

    def __init__(self, connection: Connection, statements: Statements, writer: str, head: Chain) -> None:
        self._connection = connection
        self._driver = connection.connection.cursor()
        self._statements = statements
        self._writer = writer
        self.chain = head
        self._rows: list[JournalRow] = []
        self._content_size = 0
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
            counted = [(used, counter) for counter, used in self._counted.items()]
            self._driver.executemany(self._statements.count, counted)
        self._add_records()
        for work in works:
            if work.act is not None and (work.entry is None or work.answer is True):
                answer = work.act(self._connection)
                work.answer = answer if work.entry is None else True

    def move_head(self, beat_at: float) -> None:
        """Say where the chain ends now; the row tells afterwards whether this transaction was committed."""
        head = (beat_at, self.chain.seq, self.chain.last, False, self._writer)
        self._driver.execute(self._statements.move_head, head)

    def _lock(self, *, alone: bool) -> None:
        """Share the journal's lock, or take it alone.

        Positions are visible in their order to whoever had it alone, and a switch that was thrown alone is seen by every
        transaction that begins after it. SQLite has one writer at a time anyway.
        """
        lock = self._statements.exclude if alone else self._statements.share
        if lock:
            self._driver.execute(lock)

    def _read_switches(self) -> None:
        self._driver.execute(self._statements.switches)
        self._switches = [read_facts(KillSwitch, facts) for (facts,) in self._driver.fetchall()]

    def _read_counters(self, works: Sequence[Work]) -> None:
        """Read the counters that this batch may count, and hold them until it is written; in one order, so that none waits."""
        names = sorted({counter for work in works for counter, _ in work.reserve})
        if names:
            self._driver.executemany(self._statements.open_counters, [(name, 0) for name in names])
            wanted = select(COUNTERS.c.counter, COUNTERS.c.used).where(COUNTERS.c.counter.in_(names))
            self._used = {
                row[0]: row[1] for row in self._connection.execute(wanted.order_by(COUNTERS.c.counter).with_for_update())
            }

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
        self.chain.seq += 1
        row, self.chain.last = journal_row(work.record, self._writer, self.chain.seq, self.chain.last)
        self._content_size += len(work.record.content or "")
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

    def _add_records(self) -> None:
        """Insert the rows in their order: as many as one statement takes, where their content is not large."""
        rows, first = self._rows, 0
        for size, statement in self._statements.add_records:
            last = len(rows) - (len(rows) - first) % size
            if first < last and (size == 1 or self._content_size < _LARGE):
                places = range(first, last, size)
                self._driver.executemany(statement, [list(chain.from_iterable(rows[place : place + size])) for place in places])
                first = last


def read_chain(connection: Connection, writer: str) -> tuple[Chain, float] | None:
    """Read where a writer's chain ends, and its newest sign of life; waits for a transaction that may still be on its way."""
    row = connection.execute(select(WRITERS).where(WRITERS.c.writer == writer).with_for_update()).mappings().first()
    return None if row is None else (Chain(row["last_seq"], row["last_hash"]), row["beat_at"])
