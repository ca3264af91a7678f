"""The one thread of a process that writes to its store: whatever waits is written in one transaction.

Many calls in flight share a transaction, so that each of them costs a fraction of a disk's flush. Who waits is told when the
transaction is durable; all waiters of one event loop are told by one wake-up.
"""

import atexit
import contextlib
import os
import secrets
import threading
import time
from collections.abc import Generator, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final

from sqlalchemy import Connection, insert, update
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from callgate.errors import StoreError
from callgate.store.sql.batch import Batch, Chain, read_chain
from callgate.store.sql.engines import Engines
from callgate.store.sql.identity import born, host
from callgate.store.sql.rows import FIRST_HASH
from callgate.store.sql.statements import statements_for
from callgate.store.sql.tables import WRITERS
from callgate.store.sql.work import Work, tell

__all__ = ("Writer",)

_MOST_AT_ONCE: Final = 2000
_BEAT_S: Final = 5.0
_TRIES: Final = 3
_EXIT_S: Final = 30.0
_TOO_CLOSE: Final = frozenset({"40001", "40P01"})
_TOO_LARGE: Final = "54"  # the class of PostgreSQL's own limits, such as that of a key in an index
_TICK_S: Final = 1e-6
_NOTHING: Final = "the store did not take it, and nothing was recorded"
_IN_DOUBT: Final = "the connection was lost while it was written; the journal will tell whether it was recorded"
_BROKEN: Final = "the thread that writes broke down; the journal will tell whether it was recorded"


class Writer:
    """Write in a thread of its own, until `close` or the end of the interpreter."""

    def __init__(self, engines: Engines) -> None:
        self.id = f"w_{secrets.token_hex(8)}"
        self._engines = engines
        self._statements = statements_for(engines.writing.dialect)
        self._driver = engines.writing.dialect.loaded_dbapi
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._closing = False
        # In a forked child the thread's frame holds this object for ever, and so nothing speaks on its connection there.
        self._connection: Connection | None = None
        self._chain: Chain | None = Chain()
        self._beat_at = 0.0
        self._in_doubt = False
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._register()
        self._thread = threading.Thread(target=self._run, name="callgate-store", daemon=True)
        self._thread.start()
        atexit.register(self._close_at_exit)

    def _register(self) -> None:
        row = {"writer": self.id, "host": host(), "pid": self._pid, "born": born(self._pid), "beat_at": self._tick()}
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
            self._queue.put(work)

    def close(self, timeout_s: float | None = None) -> None:
        """Write what waits, tell that this writer is done, and end the thread; wait for that so long (None: to the end)."""
        with self._lock:
            if not self._closing:
                self._closing = True
                self._queue.put(None)
        self._thread.join(timeout_s)
        atexit.unregister(self._close_at_exit)

    def _close_at_exit(self) -> None:
        if os.getpid() == self._pid:  # a forked child has no such thread
            self.close(_EXIT_S)
            self._engines.dispose()

    # ── in the thread ────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        works: list[Work] = []
        try:
            while not self._closing or not self._queue.empty():
                works, timed_out = self._take()
                self._write(works)
                tell(works)
                works = []
                if timed_out:
                    self._beat(closed=False)
            self._beat(closed=True)
        finally:
            self._let_go()
            self._give_up(works)

    def _give_up(self, works: Sequence[Work]) -> None:
        """Tell whoever still waits when this thread ends before its time, so that nobody waits for ever."""
        with self._lock:
            self._closing = True
        left = [*works]
        while not self._queue.empty():
            left += [work for work in (self._queue.get(),) if work is not None]
        _fail(left, RuntimeError("this thread has ended"), _BROKEN)
        tell(left)

    @contextlib.contextmanager
    def _begun(self) -> Generator[Connection]:
        """Give the writer's one connection, which is opened when there is none, in a transaction."""
        if self._connection is None:
            self._connection = self._engines.writing.connect()
        with self._connection.begin():
            yield self._connection

    def _let_go(self) -> None:
        """Let go of the connection, whatever state it is in."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    def _take(self) -> tuple[list[Work], bool]:
        """Take whatever waits, and wait for the first; also tell whether nothing came for so long that it is time to beat."""
        works: list[Work] = []
        try:
            work = self._queue.get(timeout=_BEAT_S)
            while len(works) < _MOST_AT_ONCE:
                if work is not None:
                    works.append(work)
                work = self._queue.get_nowait()
        except Empty:
            return works, not works and not self._closing
        if work is not None:
            works.append(work)
        return works, False

    def _tick(self) -> float:
        """Give the time, but never one twice: it marks a transaction, so that one can be recognised."""
        self._beat_at = max(time.time(), self._beat_at + _TICK_S)
        return self._beat_at

    def _beat(self, *, closed: bool) -> None:
        facts: dict[str, Any] = {"beat_at": self._tick()} | ({"closed": True} if closed else {})
        try:
            with self._begun() as connection:
                connection.execute(update(WRITERS).where(WRITERS.c.writer == self.id).values(facts))
        except (SQLAlchemyError, StoreError):
            self._let_go()  # the next work meets the same fault, and tells whoever waits for it

    def _write(self, works: Sequence[Work]) -> None:
        """Write a batch; what cannot be written together is written in halves, until what is at fault is alone and fails."""
        fault = self._fault_of(works) if works else None
        if fault is None:
            return
        if self._in_doubt:
            _fail(works, fault, _IN_DOUBT)
        elif len(works) == 1 or self._is_of_the_database(fault):
            _fail(works, fault, _NOTHING)
        else:
            middle = len(works) // 2
            self._write(works[:middle])
            self._write(works[middle:])

    def _fault_of(self, works: Sequence[Work]) -> Exception | None:
        """Try to write works in one transaction; give what is in the way, when nothing was written."""
        fault: Exception | None = None
        for number in range(_TRIES):
            try:
                self._commit(works, careful=number > 0)
            except Exception as error:  # noqa: BLE001 - whatever it is, whoever waits has to be told
                fault, again = error, self._is_worth_a_try(error)
                self._chain = None
                self._let_go()
                if self._in_doubt and self._was_committed():
                    return None
                if self._in_doubt or not again:
                    break
            else:
                return None
        return fault

    def _commit(self, works: Sequence[Work], *, careful: bool) -> None:
        self._in_doubt = False
        with self._begun() as connection:
            chain = self._chain
            if chain is None:  # after a fault the database knows best
                found = read_chain(connection, self.id)
                chain = Chain() if found is None else found[0]
            batch = Batch(connection, self._statements, self.id, Chain(chain.seq, chain.last))
            batch.write(works, careful=careful)
            batch.move_head(self._tick())
            self._in_doubt = True  # a fault from here on may come after the transaction has become durable
        self._in_doubt = False
        self._chain = batch.chain

    def _was_committed(self) -> bool:
        """Find out whether the transaction whose commit failed is there all the same."""
        try:
            with self._begun() as connection:
                found = read_chain(connection, self.id)
        except (SQLAlchemyError, StoreError):
            self._let_go()
            return False
        self._in_doubt = False
        return found is not None and found[1] == self._beat_at

    def _is_worth_a_try(self, error: Exception) -> bool:
        """Tell whether the same can succeed when it is done again: another process came between, or the connection was lost."""
        cause, connection = _cause(error), self._connection
        if isinstance(cause, self._driver.IntegrityError) or getattr(cause, "sqlstate", None) in _TOO_CLOSE:
            return True
        if connection is None or not isinstance(cause, self._driver.Error):
            return False
        return connection.invalidated or connection.dialect.is_disconnect(cause, connection.connection.dbapi_connection, None)

    def _is_of_the_database(self, fault: Exception) -> bool:
        """Tell whether the database itself is at fault, and not one of the things that it was given."""
        cause = _cause(fault)
        is_given = str(getattr(cause, "sqlstate", "")).startswith(_TOO_LARGE)
        return isinstance(cause, self._driver.OperationalError | self._driver.InternalError | StoreError) and not is_given


def _cause(error: Exception) -> BaseException:
    """Give the driver's own error: what every batch does goes to the driver itself."""
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error


def _fail(works: Sequence[Work], fault: Exception, text: str) -> None:
    said = str(fault) if isinstance(fault, StoreError) else f"{text}: {type(fault).__name__}"
    for work in works:
        work.failed = StoreError(said)
        work.failed.__cause__ = fault
