"""`SQLStore`: the store on SQLite or PostgreSQL. Source: design.md, decision 5; docs/adr/0009."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar, cast

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from callgate.errors import StoreError
from callgate.store.protocol import JournalFilter, Verification
from callgate.store.records import (
    ApprovalRecord,
    ApprovalState,
    EndEntry,
    Entry,
    Grant,
    JournalRecord,
    KillSwitch,
    Refusal,
    RunRecord,
    RunStatus,
    StartEntry,
)
from callgate.store.sql import reading
from callgate.store.sql.engines import Engines, open_engines, read_url
from callgate.store.sql.identity import is_gone
from callgate.store.sql.rows import facts_of, read_facts
from callgate.store.sql.spilling import SQLSpill
from callgate.store.sql.tables import APPROVALS, COUNTERS, GRANTS, JOURNAL, PROFILES, RUNS, SWITCHES, WRITERS
from callgate.store.sql.work import Work
from callgate.store.sql.writer import Writer
from callgate.store.switching import grant_holds
from callgate.tools.spill import SpillStore

__all__ = ("SQLStore",)

T = TypeVar("T")

_READERS: Final = 4
_USES: Final = frozenset({"uses", "revoked_at", "revoked_by"})
_RUN_COLUMNS: Final = frozenset({"state", "version"})


class SQLStore:
    """Keep everything in a database: `sqlite:///callgate.db`, or `postgresql://user@host/name`.

    Any number of processes may use one database at once. What a method has promised is on disk when it returns. The schema
    is brought to the newest version when the store is opened.

    Raises:
        StoreError: the database cannot be opened, or a newer release has made its schema.
        UsageError: the address is none of these.
    """

    def __init__(self, url: str) -> None:
        self._url = read_url(url)
        self._lock = threading.Lock()
        self._closed = False
        self._spill = SQLSpill(self._do, self._see)
        self._open()

    def _open(self) -> None:
        self._engines: Engines = open_engines(self._url)
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="callgate-store-reader")
        self._thread = Writer(self._engines)
        self._pid = os.getpid()

    def _here(self) -> None:
        """Open the store anew in a child process: connections and threads stay behind when a process forks."""
        if os.getpid() != self._pid:
            with self._lock:
                if os.getpid() != self._pid:
                    self._engines.writing.dispose(close=False)
                    self._engines.reading.dispose(close=False)
                    self._open()

    @property
    def writer(self) -> str:
        """The id of this process among those that write to the store."""
        self._here()
        return self._thread.id

    @property
    def spill(self) -> SpillStore:
        """Where large outputs are kept, for `ToolRegistry(spill=…)`."""
        self._here()
        return self._spill

    def _submit(self, work: Work) -> Any:
        self._here()
        self._thread.submit(work)
        return work.future

    async def _act(self, act: Callable[[Connection], T], *, alone: bool = False) -> T:
        loop = asyncio.get_running_loop()
        return cast("T", await self._submit(Work(loop, loop.create_future(), act=act, alone=alone)))

    def _do(self, act: Callable[[Connection], T]) -> T:
        """Do something in this thread's time, and wait for it without an event loop."""
        future: Future[T] = self._submit(Work(None, Future(), act=act))
        return future.result()

    def _see(self, read: Callable[[Connection], T]) -> T:
        self._here()
        return self._read_here(read, of_one_moment=False)

    async def _read(self, read: Callable[[Connection], T], *, of_one_moment: bool = False) -> T:
        self._here()
        work = partial(self._read_here, read, of_one_moment=of_one_moment)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, work)
        except RuntimeError as error:
            raise StoreError("the store is closed; nothing was read") from error

    def _read_here(self, read: Callable[[Connection], T], *, of_one_moment: bool) -> T:
        engine = self._engines.reading
        if of_one_moment and engine.dialect.name == "postgresql":  # elsewhere a transaction sees one moment anyway
            engine = engine.execution_options(isolation_level="REPEATABLE READ")
        try:
            with engine.connect() as connection:
                return read(connection)
        except SQLAlchemyError as error:
            raise StoreError(f"the store cannot be read: {type(error).__name__}") from error

    # ── the journal ──────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, entry: StartEntry, /) -> Awaitable[Refusal | None]:
        """Record a start; see `Store.start`."""
        loop = asyncio.get_running_loop()
        work = Work(loop, loop.create_future(), entry, judged=True, reserve=entry.reserve)
        return cast("Awaitable[Refusal | None]", self._submit(work))

    def finish(self, entry: EndEntry, /) -> Awaitable[bool]:
        """Record an end; see `Store.finish`."""
        loop = asyncio.get_running_loop()
        return cast("Awaitable[bool]", self._submit(Work(loop, loop.create_future(), entry)))

    async def call(self, key: str, /) -> tuple[JournalRecord, ...]:
        """Give the records of a call; see `Store.call`."""
        return await self._read(lambda connection: reading.records_of(connection, key))

    async def records(self, wanted: JournalFilter, /, *, limit: int = 100, after: int = 0) -> tuple[list[JournalRecord], int]:
        """Give records in the order in which they were written; see `Store.records`.

        No record is skipped that another process is just writing: positions that are still on their way are waited for. With
        a run or a key only its own records are read, with anything else all that come after the position.
        """
        return await self._read(lambda connection: reading.search(connection, wanted, limit, after))

    async def unfinished(self, *, stale_after_s: float) -> list[JournalRecord]:
        """Give the starts without an end whose writer is gone; see `Store.unfinished`."""
        lost, settled = await self._read(lambda connection: reading.unfinished(connection, stale_after_s))
        if settled:
            await self._act(lambda connection: reading.settle(connection, settled))
        return lost

    async def labels(self, run_id: str, /) -> frozenset[str]:
        """Give the labels of a run; see `Store.labels`."""
        return await self._read(lambda connection: reading.labels_of(connection, run_id))

    async def used(self, counter: str, /) -> int:
        """Give the uses of a counter."""
        wanted = select(COUNTERS.c.used).where(COUNTERS.c.counter == counter)
        return await self._read(lambda connection: connection.execute(wanted).scalar() or 0)

    async def verify(self) -> Verification:
        """Check the chains of the journal; see `Store.verify`."""
        return await self._read(reading.verify, of_one_moment=True)

    async def forget(self, run_id: str, /) -> None:
        """Forget what was kept for the run only; see `Store.forget`."""

        def forget(connection: Connection) -> None:
            within = reading.within_run(run_id)
            drop = update(JOURNAL).where(within, JOURNAL.c.content_for_run.is_(True)).values(content=None)
            connection.execute(drop)

        await self._act(forget)

    async def purge(self, now: float, /) -> int:
        """Forget content whose time has passed; see `Store.purge`. It goes in portions, so that no call waits for all of it."""
        count, portion = 0, 1
        while portion:
            portion = await self._act(lambda connection: reading.purge(connection, now))
            count += portion
        return count

    # ── approvals, grants, switches ──────────────────────────────────────────────────────────────────────────────────

    async def ask(self, entry: Entry, approval: ApprovalRecord, /) -> bool:
        """Record a request; see `Store.ask`."""
        row = {"id": approval.id, "key": approval.key, "run_id": approval.run_id, "state": approval.state}
        keep = insert(APPROVALS).values(**row, facts=facts_of(approval))

        def add(connection: Connection) -> None:
            connection.execute(keep)

        loop = asyncio.get_running_loop()
        return cast("bool", await self._submit(Work(loop, loop.create_future(), entry, act=add)))

    async def approval(self, approval_id: str, /) -> ApprovalRecord | None:
        """Give a request."""
        wanted = select(APPROVALS.c.facts).where(APPROVALS.c.id == approval_id)
        return await self._read(lambda connection: _one(ApprovalRecord, connection.execute(wanted).scalar()))

    async def approval_of(self, key: str, /) -> ApprovalRecord | None:
        """Give the newest request of a call."""
        wanted = select(APPROVALS.c.facts).where(APPROVALS.c.key == key).order_by(APPROVALS.c.position.desc()).limit(1)
        return await self._read(lambda connection: _one(ApprovalRecord, connection.execute(wanted).scalar()))

    async def approvals(
        self, *, state: ApprovalState | None = None, run_id: str | None = None, limit: int = 1000
    ) -> list[ApprovalRecord]:
        """Give requests, oldest first."""
        wanted = select(APPROVALS.c.facts).order_by(APPROVALS.c.position).limit(limit)
        if state is not None:
            wanted = wanted.where(APPROVALS.c.state == state)
        if run_id is not None:
            wanted = wanted.where(APPROVALS.c.run_id == run_id)
        found = await self._read(lambda connection: list(connection.execute(wanted).scalars()))
        return [read_facts(ApprovalRecord, facts) for facts in found]

    async def decide(self, decided: ApprovalRecord, /) -> bool:
        """Decide a request that is pending; see `Store.decide`."""
        pending = update(APPROVALS).where(APPROVALS.c.id == decided.id, APPROVALS.c.state == "pending")
        change = pending.values(state=decided.state, facts=facts_of(decided))
        return await self._act(lambda connection: connection.execute(change).rowcount == 1)

    async def add_grant(self, grant: Grant, /) -> None:
        """Keep a grant."""
        row = {name: getattr(grant, name) for name in ("id", "expires_at", "max_uses", "uses", "revoked_at", "revoked_by")}
        keep = insert(GRANTS).values(**row, facts=facts_of(grant, leave_out=_USES))
        await self._act(lambda connection: connection.execute(keep).rowcount)

    async def grants(self, *, active_at: float | None = None) -> list[Grant]:
        """Give the grants, oldest first."""
        wanted = select(GRANTS).order_by(GRANTS.c.position)
        if active_at is not None:
            wanted = wanted.where(GRANTS.c.revoked_at.is_(None))
        rows = await self._read(lambda connection: list(connection.execute(wanted).mappings()))
        every = [
            read_facts(Grant, row["facts"], uses=row["uses"], revoked_at=row["revoked_at"], revoked_by=row["revoked_by"])
            for row in rows
        ]
        return [grant for grant in every if active_at is None or grant_holds(grant, active_at)]

    async def use_grant(self, grant_id: str, now: float, /) -> bool:
        """Take one use of a grant; see `Store.use_grant`."""
        usable = (
            (GRANTS.c.id == grant_id)
            & GRANTS.c.revoked_at.is_(None)
            & (GRANTS.c.max_uses.is_(None) | (GRANTS.c.uses < GRANTS.c.max_uses))
            & (GRANTS.c.expires_at.is_(None) | (GRANTS.c.expires_at > now))
        )
        use = update(GRANTS).where(usable).values(uses=GRANTS.c.uses + 1)
        return await self._act(lambda connection: connection.execute(use).rowcount == 1)

    async def revoke_grant(self, grant_id: str, by: str, now: float, /) -> bool:
        """Revoke a grant; see `Store.revoke_grant`."""
        valid = update(GRANTS).where(GRANTS.c.id == grant_id, GRANTS.c.revoked_at.is_(None))
        revoke = valid.values(revoked_at=now, revoked_by=by)
        return await self._act(lambda connection: connection.execute(revoke).rowcount == 1)

    async def switch_off(self, switch: KillSwitch, /) -> None:
        """Throw a switch."""

        def throw(connection: Connection) -> None:
            connection.execute(delete(SWITCHES).where(SWITCHES.c.scope == switch.scope))
            connection.execute(insert(SWITCHES).values(scope=switch.scope, facts=facts_of(switch)))

        await self._act(throw, alone=True)

    async def switch_on(self, scope: str, /) -> bool:
        """Take a switch back; see `Store.switch_on`."""
        back = delete(SWITCHES).where(SWITCHES.c.scope == scope)
        return await self._act(lambda connection: connection.execute(back).rowcount == 1)

    async def switches(self) -> list[KillSwitch]:
        """Give the switches that are thrown."""
        found = await self._read(lambda connection: list(connection.execute(select(SWITCHES.c.facts)).scalars()))
        return [read_facts(KillSwitch, facts) for facts in found]

    # ── runs and profiles ────────────────────────────────────────────────────────────────────────────────────────────

    async def create_run(self, run: RunRecord, /) -> bool:
        """Keep a new run; see `Store.create_run`."""
        row = {"id": run.id, "status": run.status, "version": run.version, "thread_id": run.thread_id, "state": run.state}
        keep = insert(RUNS).values(**row, facts=facts_of(run, leave_out=_RUN_COLUMNS))

        def create(connection: Connection) -> bool:
            try:
                with connection.begin_nested():
                    connection.execute(keep)
            except IntegrityError:
                return False
            return True

        return await self._act(create)

    async def run(self, run_id: str, /) -> RunRecord | None:
        """Give a run."""
        wanted = select(RUNS).where(RUNS.c.id == run_id)
        row = await self._read(lambda connection: connection.execute(wanted).mappings().first())
        return None if row is None else _run(row)

    async def runs(self, *, status: RunStatus | None = None, thread_id: str | None = None, limit: int = 100) -> list[RunRecord]:
        """Give runs, the newest first."""
        wanted = select(RUNS).order_by(RUNS.c.position.desc()).limit(limit)
        if status is not None:
            wanted = wanted.where(RUNS.c.status == status)
        if thread_id is not None:
            wanted = wanted.where(RUNS.c.thread_id == thread_id)
        rows = await self._read(lambda connection: list(connection.execute(wanted).mappings()))
        return [_run(row) for row in rows]

    async def save_run(self, run: RunRecord, /) -> bool:
        """Put a run in the place of its version; see `Store.save_run`."""
        same = update(RUNS).where(RUNS.c.id == run.id, RUNS.c.version == run.version)
        change = same.values(
            status=run.status,
            version=run.version + 1,
            thread_id=run.thread_id,
            state=run.state,
            facts=facts_of(run, leave_out=_RUN_COLUMNS),
        )
        return await self._act(lambda connection: connection.execute(change).rowcount == 1)

    async def writer_gone(self, writer: str, /, *, stale_after_s: float) -> bool:
        """Tell whether a writer's process has ended or was silent for so long."""
        wanted = select(WRITERS).where(WRITERS.c.writer == writer)
        row = await self._read(lambda connection: connection.execute(wanted).mappings().first())
        return row is None or is_gone(row, stale_after_s=stale_after_s)

    async def put_profile(self, name: str, profile: str, /) -> None:
        """Keep a profile."""

        def put(connection: Connection) -> None:
            connection.execute(delete(PROFILES).where(PROFILES.c.name == name))
            connection.execute(insert(PROFILES).values(name=name, profile=profile))

        await self._act(put)

    async def profile(self, name: str, /) -> str | None:
        """Give a profile."""
        wanted = select(PROFILES.c.profile).where(PROFILES.c.name == name)
        return await self._read(lambda connection: connection.execute(wanted).scalar())

    async def profiles(self) -> dict[str, str]:
        """Give all profiles by name."""
        wanted = select(PROFILES.c.name, PROFILES.c.profile).order_by(PROFILES.c.name)
        rows = await self._read(lambda connection: list(connection.execute(wanted)))
        return {row[0]: row[1] for row in rows}

    async def delete_profile(self, name: str, /) -> bool:
        """Drop a profile; see `Store.delete_profile`."""
        drop = delete(PROFILES).where(PROFILES.c.name == name)
        return await self._act(lambda connection: connection.execute(drop).rowcount == 1)

    async def aclose(self) -> None:
        """Write what is on its way, and let go of threads and connections; closing again does nothing."""
        if not self._closed and os.getpid() == self._pid:
            self._closed = True
            closing: Future[None] = Future()
            threading.Thread(target=self._close, args=(closing,), daemon=True).start()
            await asyncio.wrap_future(closing)

    def _close(self, closing: "Future[None]") -> None:
        try:
            self._thread.close()
            self._readers.shutdown(wait=True)
            self._engines.dispose()
        finally:
            closing.set_result(None)


def _one(kind: type[T], facts: str | None) -> T | None:
    return None if facts is None else read_facts(kind, facts)


def _run(row: Any) -> RunRecord:
    return replace(read_facts(RunRecord, row["facts"], state=row["state"]), version=row["version"])
