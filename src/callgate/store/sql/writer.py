"""The one thread of a process that writes to its store: whatever waits is written in one transaction.

Many calls in flight share a transaction, so that each of them costs a fraction of a disk's flush. Who waits is told when the
transaction is durable; all waiters of one event loop are told by one wake-up.
"""

import asyncio
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from callgate.errors import StoreError
from callgate.store.records import Entry, JournalRecord, KillSwitch, Refusal, StartEntry
from callgate.store.sql.engines import Engines
from callgate.store.sql.identity import born, host
from callgate.store.sql.rows import FIRST_HASH, journal_row, read_facts
from callgate.store.sql.tables import COUNTERS, JOURNAL, SWITCHES, WRITERS
from callgate.store.switching import is_switched_off

__all__ = ("Work", "Writer")


_MOST_AT_ONCE: Final = 2000
_BEAT_S: Final = 5.0
_TRIES: Final = 20
_CLAIMED: Final = Refusal("claimed")


@dataclass(slots=True, eq=False)
class Work:
    """Be one thing to write, and where its answer goes.

    `entry` is a record to claim a place for; with `judged` it is a start, which switches and budgets may forbid. `act` is done
    in the same transaction, for an entry only when its place was free. `answer` is set when the transaction is durable.
    """

    loop: asyncio.AbstractEventLoop | None
    future: Any
    entry: Entry | None = None
    judged: bool = False
    act: Callable[[Connection], object] | None = None
    record: JournalRecord | None = None
    answer: object = None
    failed: BaseException | None = None


@dataclass(slots=True)
class _Chain:
    seq: int = 0
    last: str = FIRST_HASH


@dataclass(slots=True)
class _Batch:
    """Gather what one transaction writes."""

    rows: list[dict[str, object]] = field(default_factory=list[dict[str, object]])
    claims: set[str] = field(default_factory=set[str])
    switches: list[KillSwitch] = field(default_factory=list[KillSwitch])
    taken: set[str] = field(default_factory=set[str])


class Writer:
    """Write in a thread of its own, from the first work until `close`."""

    def __init__(self, engines: Engines) -> None:
        self.id = f"w_{secrets.token_hex(8)}"
        self._engines = engines
        self._queue: deque[Work] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._chain = _Chain()
        self._lock = threading.Lock()
        self._dialect = sqlite if engines.writing.dialect.name == "sqlite" else postgresql
        self._register()
        self._thread = threading.Thread(target=self._run, name="callgate-store", daemon=True)
        self._thread.start()

    def _register(self) -> None:
        row = {"writer": self.id, "host": host(), "pid": os.getpid(), "born": born(os.getpid()), "beat_at": time.time()}
        further = {"last_seq": 0, "last_hash": FIRST_HASH, "closed": False, "settled": False}
        try:
            with self._engines.writing.begin() as connection:
                connection.execute(insert(WRITERS).values(row | further))
        except SQLAlchemyError as error:
            raise StoreError(f"the store cannot be written to: {type(error).__name__}") from error

    def submit(self, work: Work) -> None:
        """Queue work.

        Raises:
            StoreError: the writer is closed; nothing is written.
        """
        with self._lock:
            if self._closing:
                raise StoreError("the store is closed; nothing was recorded")
            self._queue.append(work)
        self._wake.set()

    def close(self) -> None:
        """Write what waits, tell that this writer is done, and end the thread."""
        with self._lock:
            self._closing = True
        self._wake.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while True:
            came = self._wake.wait(_BEAT_S)
            self._wake.clear()
            works = self._take()
            while works:
                self._write(works)
                _tell(works)
                works = self._take()
            if self._closing and not self._queue:
                self._beat(closed=True)
                return
            if not came:
                self._beat(closed=False)

    def _take(self) -> list[Work]:
        queue = self._queue
        return [queue.popleft() for _ in range(min(len(queue), _MOST_AT_ONCE))]

    def _beat(self, *, closed: bool) -> None:
        facts = {"beat_at": time.time()} | ({"closed": True} if closed else {})
        try:
            with self._engines.writing.begin() as connection:
                connection.execute(update(WRITERS).where(WRITERS.c.writer == self.id).values(facts))
        except SQLAlchemyError:
            return  # the next work meets the same fault, and tells whoever waits for it

    def _write(self, works: Sequence[Work]) -> None:
        """Write a batch; when it cannot be written as one, find out which work is at fault, and write the rest."""
        fault: BaseException | None = None
        for tries in range(_TRIES):
            try:
                self._commit(works, look=tries > 0)
            except IntegrityError as error:  # a place was taken by another process: look at the places and do it again
                fault = error
            except _ActError as error:
                error.work.failed = error.cause
                works = [work for work in works if work is not error.work]
                fault = error.cause
            except Exception as error:  # noqa: BLE001 - whatever it is, whoever waits has to be told
                fault = error
                break
            else:
                return
        for work in works:
            work.failed = StoreError(f"the store did not take it, and nothing was recorded: {type(fault).__name__}")
            work.failed.__cause__ = fault

    def _commit(self, works: Sequence[Work], *, look: bool) -> None:
        chain = _Chain(self._chain.seq, self._chain.last)
        with self._engines.writing.begin() as connection:
            batch = _Batch()
            if any(work.judged for work in works):
                found = connection.execute(select(SWITCHES.c.facts)).scalars()
                batch.switches = [read_facts(KillSwitch, facts) for facts in found]
            if look:
                batch.taken = _taken(connection, works)
            for work in works:
                self._judge(connection, batch, work, chain)
            if batch.rows:
                connection.execute(insert(JOURNAL), batch.rows)
            for work in works:
                if work.act is not None and (work.entry is None or work.answer is True):
                    _do(connection, work)
            facts = {"last_seq": chain.seq, "last_hash": chain.last, "beat_at": time.time(), "settled": False}
            connection.execute(update(WRITERS).where(WRITERS.c.writer == self.id).values(facts))
        self._chain = chain

    def _judge(self, connection: Connection, batch: _Batch, work: Work, chain: _Chain) -> None:
        """Decide whether a record is written, and chain it to the one before it."""
        entry = work.entry
        if entry is None:
            return
        claim = entry.claim
        if claim in batch.claims or claim in batch.taken:
            work.answer = _CLAIMED if work.judged else False
            return
        if work.judged:
            work.answer = self._refusal(connection, batch, cast("StartEntry", entry))
            if work.answer is not None:
                return
        else:
            work.answer = True
        if work.record is None:
            work.record = entry.record()
        row = journal_row(work.record, self.id, chain.seq + 1, chain.last)
        chain.seq += 1
        chain.last = cast("str", row["hash"])
        batch.claims.add(claim)
        batch.rows.append(row)

    def _refusal(self, connection: Connection, batch: _Batch, entry: StartEntry) -> Refusal | None:
        for switch in batch.switches:
            if is_switched_off(switch, entry):
                return Refusal("switched_off", switch.reason)
        used: list[str] = []
        for counter, limit in entry.reserve:
            if limit <= 0 or not self._use(connection, counter, limit):
                for each in used:
                    give_back = update(COUNTERS).where(COUNTERS.c.counter == each).values(used=COUNTERS.c.used - 1)
                    connection.execute(give_back)
                return Refusal("used_up", counter)
            used.append(counter)
        return None

    def _use(self, connection: Connection, counter: str, limit: int) -> bool:
        """Take one use of a counter below its limit, in one statement that no other process can come between."""
        fresh = self._dialect.insert(COUNTERS).values(counter=counter, used=1)
        taken = fresh.on_conflict_do_update(
            index_elements=[COUNTERS.c.counter], set_={"used": COUNTERS.c.used + 1}, where=COUNTERS.c.used < limit
        ).returning(COUNTERS.c.used)
        return connection.execute(taken).first() is not None


class _ActError(Exception):
    def __init__(self, work: Work, cause: BaseException) -> None:
        super().__init__()
        self.work = work
        self.cause = cause


def _do(connection: Connection, work: Work) -> None:
    assert work.act is not None
    try:
        answer = work.act(connection)
    except Exception as error:
        failure = StoreError(f"the store did not do it, and nothing was changed: {type(error).__name__}")
        failure.__cause__ = error
        raise _ActError(work, failure) from error
    if work.entry is None:
        work.answer = answer


def _taken(connection: Connection, works: Sequence[Work]) -> set[str]:
    """Find the places of a batch that have been taken already."""
    claims = [work.entry.claim for work in works if work.entry is not None]
    taken: set[str] = set()
    for first in range(0, len(claims), 500):
        wanted = JOURNAL.c.claim.in_(claims[first : first + 500])
        taken.update(connection.execute(select(JOURNAL.c.claim).where(wanted)).scalars())
    return taken


def _tell(works: Sequence[Work]) -> None:
    """Tell everybody who waits: those of one event loop together."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Work]] = {}
    for work in works:
        if work.loop is None:
            work.future.set_result(None)
        else:
            by_loop.setdefault(work.loop, []).append(work)
    for loop, told in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, told)
        except RuntimeError:
            continue  # that loop is closed: nobody waits there any more


def _settle(works: Sequence[Work]) -> None:
    for work in works:
        if not work.future.done():
            if work.failed is None:
                work.future.set_result(work.answer)
            else:
                work.future.set_exception(work.failed)
