"""`Store`: the one protocol that memory, SQLite and PostgreSQL keep. Source: contract rows A3, A5; docs/adr/0009."""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol

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
from callgate.tools.spill import SpillStore

__all__ = ("ChainBreak", "JournalFilter", "Store", "Verification")


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalFilter:
    """Choose records of the journal: each field that is given must fit. `after` is a position that a reading gave."""

    key: str | None = None
    run_id: str | None = None
    tool: str | None = None
    caller: str | None = None
    status: str | None = None
    event: str | None = None
    since: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class ChainBreak:
    """Say where a chain of the journal does not hold: its writer, the number of the record, and what is wrong there."""

    writer: str
    seq: int
    problem: str


@dataclass(frozen=True, slots=True)
class Verification:
    """Tell what a check of the journal found: how many records, the newest hash of each writer, and the breaks."""

    records: int
    heads: dict[str, tuple[int, str]]
    breaks: tuple[ChainBreak, ...]


class Store(Protocol):
    """Keep what must outlive a call. Every method may be called from several event loops and threads.

    Methods that give `T | Awaitable[T]` give the value at once where nothing has to be waited for. What they promise is
    durable when the value is there. A failure of the store itself is a `StoreError`, and nothing has happened then.
    """

    @property
    def writer(self) -> str:
        """The id of this process among those that write to the store."""
        ...

    @property
    def spill(self) -> SpillStore:
        """Where large outputs are kept, for `ToolRegistry(spill=…)`."""
        ...

    # ── the journal ──
    def start(self, entry: StartEntry, /) -> Refusal | None | Awaitable[Refusal | None]:
        """Record a start, unless its place is taken, a switch is thrown, or a counter is used up: judged in one transaction."""
        ...

    def finish(self, entry: EndEntry, /) -> bool | Awaitable[bool]:
        """Record an end; False when its place is taken, and nothing was recorded."""
        ...

    async def call(self, key: str, /) -> tuple[JournalRecord, ...]:
        """Give the records of a call, in the order of their places; empty when there are none."""
        ...

    async def records(self, wanted: JournalFilter, /, *, limit: int = 100, after: int = 0) -> tuple[list[JournalRecord], int]:
        """Give records in the order in which they were taken, and the position from which to read on."""
        ...

    async def unfinished(self, *, stale_after_s: float) -> list[JournalRecord]:
        """Give the starts without an end whose writer is gone: its process has ended, or was silent for so long."""
        ...

    async def labels(self, run_id: str, /) -> frozenset[str]:
        """Give the labels of the results that a run has had."""
        ...

    async def used(self, counter: str, /) -> int:
        """Give the uses that a counter has had."""
        ...

    async def verify(self) -> Verification:
        """Check the chains of the journal from their first record."""
        ...

    async def forget(self, run_id: str, /) -> None:
        """Forget the content of the run's records that was kept for its resuming only; facts and digests stay."""
        ...

    async def purge(self, now: float, /) -> int:
        """Forget content whose retention time has passed; give the number of records that lost theirs."""
        ...

    # ── approvals, grants, switches ──
    async def ask(self, entry: Entry, approval: ApprovalRecord, /) -> bool:
        """Record a request together with its journal record; False when its place is taken."""
        ...

    async def approval(self, approval_id: str, /) -> ApprovalRecord | None:
        """Give a request."""
        ...

    async def approval_of(self, key: str, /) -> ApprovalRecord | None:
        """Give the newest request of a call."""
        ...

    async def approvals(
        self, *, state: ApprovalState | None = None, run_id: str | None = None, limit: int = 1000
    ) -> list[ApprovalRecord]:
        """Give requests, oldest first."""
        ...

    async def decide(self, decided: ApprovalRecord, /) -> bool:
        """Put a decided request in the place of the pending one of that id; False when it is not pending any more."""
        ...

    async def add_grant(self, grant: Grant, /) -> None:
        """Keep a grant."""
        ...

    async def grants(self, *, active_at: float | None = None) -> list[Grant]:
        """Give the grants, or only those that hold at that moment, oldest first."""
        ...

    async def use_grant(self, grant_id: str, now: float, /) -> bool:
        """Take one use of a grant; False when it is revoked, expired or used up."""
        ...

    async def revoke_grant(self, grant_id: str, by: str, now: float, /) -> bool:
        """Revoke a grant; False when there is none or it is revoked already."""
        ...

    async def switch_off(self, switch: KillSwitch, /) -> None:
        """Throw a switch; it holds for every start that is recorded from now on, in every process."""
        ...

    async def switch_on(self, scope: str, /) -> bool:
        """Take a switch back; False when it was not thrown."""
        ...

    async def switches(self) -> list[KillSwitch]:
        """Give the switches that are thrown."""
        ...

    # ── runs and profiles ──
    async def create_run(self, run: RunRecord, /) -> bool:
        """Keep a new run; False when there is one of that id."""
        ...

    async def run(self, run_id: str, /) -> RunRecord | None:
        """Give a run."""
        ...

    async def runs(self, *, status: RunStatus | None = None, thread_id: str | None = None, limit: int = 100) -> list[RunRecord]:
        """Give runs, the newest first."""
        ...

    async def save_run(self, run: RunRecord, /) -> bool:
        """Put `run` in the place of its version (`run.version` is the one that was read; the stored one becomes one more).

        False when it was changed meanwhile.
        """
        ...

    async def writer_gone(self, writer: str, /, *, stale_after_s: float) -> bool:
        """Tell whether a writer's process has ended or was silent for so long."""
        ...

    async def put_profile(self, name: str, profile: str, /) -> None:
        """Keep a profile as JSON text, in the place of one of that name."""
        ...

    async def profile(self, name: str, /) -> str | None:
        """Give a profile."""
        ...

    async def profiles(self) -> dict[str, str]:
        """Give all profiles by name."""
        ...

    async def delete_profile(self, name: str, /) -> bool:
        """Drop a profile; False when there is none."""
        ...

    async def aclose(self) -> None:
        """Write what is on its way and let go of files and connections."""
        ...
