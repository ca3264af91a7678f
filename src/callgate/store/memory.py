"""`MemoryStore`: the journal and the rest in this process, bounded; it ends with the process.

The path of a call takes no lock: a place is claimed by one atomic `dict.setdefault`, and the record is written only when somebody
reads it.
"""

import itertools
import secrets
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from callgate.errors import StoreError
from callgate.store.protocol import JournalFilter, Verification
from callgate.store.records import (
    ApprovalRecord,
    ApprovalState,
    Entry,
    Grant,
    JournalRecord,
    KillSwitch,
    Refusal,
    RunRecord,
    RunStatus,
    StartEntry,
    quoted,
)
from callgate.store.switching import grant_holds, is_switched_off, record_fits
from callgate.tally import Tally
from callgate.tools.spill import MemorySpill, SpillStore

__all__ = ("MemoryStore",)

_KEPT: Final = 2_000
_COUNTERS: Final = 100_000
_CLAIMED: Final = Refusal("claimed")
_LIVE: Final = frozenset({"running", "paused"})
_NONE: Final[frozenset[str]] = frozenset()


class MemoryStore:
    """Keep the newest `kept` records of calls in memory, and the requests, grants and runs that belong to them.

    What is still open never goes: a call that has started or waits, a run that is not over. Of the counters of budgets the
    100,000 that were used last are kept.
    """

    def __init__(self, *, kept: int = _KEPT) -> None:
        self._kept = kept
        self._claims: dict[str, Entry] = {}
        self._order: deque[str] = deque()
        self._most = kept
        self._open: set[str] = set()
        self._asked: dict[str, str] = {}
        self._counters: dict[str, int] = {}
        self._switches: dict[str, KillSwitch] = {}
        self._approvals: dict[str, ApprovalRecord] = {}
        self._grants: dict[str, Grant] = {}
        self._runs: dict[str, RunRecord] = {}
        self._live: set[str] = set()
        self._profiles: dict[str, str] = {}
        self._dropped = Tally()
        self._lock = threading.RLock()
        self._spill = MemorySpill()
        self._closed = False
        self._judges = False
        self._writer = f"mem_{secrets.token_hex(6)}"
        self._ids = itertools.count(1)

    @property
    def writer(self) -> str:
        """The id of this store, which is its own only writer."""
        return self._writer

    @property
    def spill(self) -> SpillStore:
        """Where large outputs are kept, for `ToolRegistry(spill=…)`."""
        return self._spill

    # ── the journal ──────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, entry: StartEntry, /) -> Refusal | None:
        """Record a start; see `Store.start`."""
        if self._judges or entry.reserve:
            return self._start_judged(entry)
        claim, claims = entry.claim, self._claims
        if claim in claims or claims.setdefault(claim, entry) is not entry:
            return _CLAIMED
        self._open.add(claim)
        self._order.append(claim)
        return None

    def finish(self, entry: Entry, /) -> bool:
        """Record an end; see `Store.finish`."""
        claim, claims = entry.claim, self._claims
        if claim in claims or claims.setdefault(claim, entry) is not entry:
            return False
        if claim[-1] == "!":
            self._open.discard(claim[:-1])
        order = self._order
        order.append(claim)
        if len(order) > self._most:
            self._make_room()
        return True

    def _start_judged(self, entry: StartEntry) -> Refusal | None:
        if self._closed:
            raise StoreError("the store is closed; nothing was recorded, and nothing ran")
        with self._lock:
            if entry.claim in self._claims:
                return _CLAIMED
            for switch in self._switches.values():
                if is_switched_off(switch, entry):
                    return Refusal("switched_off", switch.reason)
            for counter, limit in entry.reserve:
                if self._counters.get(counter, 0) >= limit:
                    return Refusal("used_up", counter)
            if self._claims.setdefault(entry.claim, entry) is not entry:
                return _CLAIMED
            self._open.add(entry.claim)
            self._order.append(entry.claim)
            for counter, _ in entry.reserve:
                self._count(counter)
            return None

    def _count(self, counter: str) -> None:
        self._counters[counter] = self._counters.pop(counter, 0) + 1  # behind all others
        if len(self._counters) > _COUNTERS:
            del self._counters[next(iter(self._counters))]

    def _make_room(self) -> None:
        """Let the oldest records go."""
        order, claims = self._order, self._claims
        while len(order) > self._most:
            oldest = order.popleft()
            if oldest in self._open or oldest in self._asked or (self._live and oldest.partition("/")[0] in self._live):
                self._pass_over(oldest)
                return
            del claims[oldest]
            self._dropped.add()

    def _pass_over(self, oldest: str) -> None:
        """Let the oldest records go that belong to calls which have ended and to no open run."""
        with self._lock:
            order = self._order
            order.appendleft(oldest)
            kept: list[str] = []
            surplus = len(order) - self._kept
            while surplus > 0 and order:
                claim = order.popleft()
                if self._is_open(claim):
                    kept.append(claim)
                else:
                    del self._claims[claim]
                    self._dropped.add()
                    surplus -= 1
            order.extendleft(reversed(kept))
            self._most = max(self._kept, len(kept) * 2)  # what is open is not looked at again and again

    def _is_open(self, claim: str) -> bool:
        """Tell whether a record belongs to a call that has not ended, to one that waits, or to a run that is not over."""
        if claim in self._open:
            return True
        asked = self._asked.get(claim)
        if asked is not None and self._state_of(asked) == "pending":
            return True
        return claim.partition("/")[0] in self._live

    def _state_of(self, approval_id: str | None) -> ApprovalState | None:
        approval = self._approvals.get(approval_id or "")
        return None if approval is None else approval.state

    async def call(self, key: str, /) -> tuple[JournalRecord, ...]:
        """Give the records of a call; see `Store.call`."""
        found: list[JournalRecord] = []
        for number in itertools.count():
            claim = f"{key}#{number:04d}"
            entry = self._claims.get(claim)
            if entry is None:
                break
            found.append(entry.record())
            end = self._claims.get(claim + "!")
            if end is not None:
                found.append(end.record())
        return tuple(found)

    async def records(self, wanted: JournalFilter, /, *, limit: int = 100, after: int = 0) -> tuple[list[JournalRecord], int]:
        """Give records in their order; see `Store.records`. Positions count all records that there ever were."""
        with self._lock:
            dropped, claims = self._dropped.count, tuple(self._order)
        found: list[JournalRecord] = []
        position = max(after, dropped)
        for claim in claims[position - dropped :]:
            position += 1
            entry = self._claims.get(claim)
            record = None if entry is None else entry.record()
            if record is not None and record_fits(wanted, record):
                found.append(record)
                if len(found) >= limit:
                    break
        return found, position

    async def unfinished(self, *, stale_after_s: float) -> list[JournalRecord]:
        """Give nothing: what this process has not ended is still at work, and no other one writes here."""
        del stale_after_s
        return []

    async def labels(self, run_id: str, /) -> frozenset[str]:
        """Give the labels of a run; see `Store.labels`."""
        labels = _NONE
        for entry in self._entries_of(run_id):
            labels = labels.union(entry.record().labels)
        return labels

    def _entries_of(self, run_id: str) -> list[Entry]:
        within = f"{quoted(run_id)}/"
        return [entry for claim, entry in tuple(self._claims.items()) if claim.startswith(within)]

    async def used(self, counter: str, /) -> int:
        """Give the uses of a counter."""
        return self._counters.get(counter, 0)

    async def verify(self) -> Verification:
        """Tell how many records there are; records in memory have no chain."""
        return Verification(len(self._claims), {}, ())

    async def forget(self, run_id: str, /) -> None:
        """Forget what was kept for the run only; see `Store.forget`."""
        with self._lock:
            self._forget(self._entries_of(run_id), lambda record: record.content_for_run)

    async def purge(self, now: float, /) -> int:
        """Forget content whose time has passed; see `Store.purge`."""
        with self._lock:
            entries = list(self._claims.values())
            return self._forget(entries, lambda record: record.content_until is not None and record.content_until <= now)

    def _forget(self, entries: list[Entry], is_over: Callable[[JournalRecord], bool]) -> int:
        count = 0
        for entry in entries:
            record = entry.record()
            if record.content is not None and is_over(record):
                self._claims[record.claim] = _Written(replace(record, content=None))
                count += 1
        return count

    # ── approvals, grants, switches ──────────────────────────────────────────────────────────────────────────────────

    async def ask(self, entry: Entry, approval: ApprovalRecord, /) -> bool:
        """Record a request; see `Store.ask`."""
        with self._lock:
            if entry.claim in self._claims or self._claims.setdefault(entry.claim, entry) is not entry:
                return False
            self._approvals[approval.id] = approval
            self._asked[entry.claim] = approval.id
            self._order.append(entry.claim)
            for old in list(self._approvals.values())[: max(0, len(self._approvals) - self._kept)]:
                if old.state != "pending":
                    del self._approvals[old.id]
                    self._asked = {claim: each for claim, each in self._asked.items() if each != old.id}
            return True

    async def approval(self, approval_id: str, /) -> ApprovalRecord | None:
        """Give a request."""
        return self._approvals.get(approval_id)

    async def approval_of(self, key: str, /) -> ApprovalRecord | None:
        """Give the newest request of a call."""
        with self._lock:
            return next((each for each in reversed(self._approvals.values()) if each.key == key), None)

    async def approvals(
        self, *, state: ApprovalState | None = None, run_id: str | None = None, limit: int = 1000
    ) -> list[ApprovalRecord]:
        """Give requests, oldest first."""
        with self._lock:
            every = list(self._approvals.values())
        return [each for each in every if state in {None, each.state} and run_id in {None, each.run_id}][:limit]

    async def decide(self, decided: ApprovalRecord, /) -> bool:
        """Decide a request that is pending; see `Store.decide`."""
        with self._lock:
            if self._state_of(decided.id) != "pending":
                return False
            self._approvals[decided.id] = decided
            return True

    async def add_grant(self, grant: Grant, /) -> None:
        """Keep a grant."""
        with self._lock:
            self._grants[grant.id] = grant

    async def grants(self, *, active_at: float | None = None) -> list[Grant]:
        """Give the grants, oldest first."""
        with self._lock:
            every = list(self._grants.values())
        return [each for each in every if active_at is None or grant_holds(each, active_at)]

    async def use_grant(self, grant_id: str, now: float, /) -> bool:
        """Take one use of a grant; see `Store.use_grant`."""
        with self._lock:
            grant = self._grants.get(grant_id)
            if grant is None or not grant_holds(grant, now):
                return False
            self._grants[grant_id] = replace(grant, uses=grant.uses + 1)
            return True

    async def revoke_grant(self, grant_id: str, by: str, now: float, /) -> bool:
        """Revoke a grant; see `Store.revoke_grant`."""
        with self._lock:
            grant = self._grants.get(grant_id)
            if grant is None or grant.revoked_at is not None:
                return False
            self._grants[grant_id] = replace(grant, revoked_at=now, revoked_by=by)
            return True

    async def switch_off(self, switch: KillSwitch, /) -> None:
        """Throw a switch."""
        with self._lock:
            self._switches[switch.scope] = switch
            self._judges = True

    async def switch_on(self, scope: str, /) -> bool:
        """Take a switch back; see `Store.switch_on`."""
        with self._lock:
            thrown = self._switches.pop(scope, None)
            self._judges = self._closed or bool(self._switches)
            return thrown is not None

    async def switches(self) -> list[KillSwitch]:
        """Give the switches that are thrown."""
        with self._lock:
            return list(self._switches.values())

    # ── runs and profiles ────────────────────────────────────────────────────────────────────────────────────────────

    async def create_run(self, run: RunRecord, /) -> bool:
        """Keep a new run; see `Store.create_run`."""
        with self._lock:
            if run.id in self._runs:
                return False
            self._keep_run(run)
            surplus = len(self._runs) - self._kept
            over = [each.id for each in self._runs.values() if each.status not in _LIVE] if surplus > 0 else []
            for run_id in over[:surplus]:
                del self._runs[run_id]
            return True

    async def run(self, run_id: str, /) -> RunRecord | None:
        """Give a run."""
        return self._runs.get(run_id)

    async def runs(self, *, status: RunStatus | None = None, thread_id: str | None = None, limit: int = 100) -> list[RunRecord]:
        """Give runs, the newest first."""
        with self._lock:
            every = list(reversed(self._runs.values()))
        return [each for each in every if status in {None, each.status} and thread_id in {None, each.thread_id}][:limit]

    async def save_run(self, run: RunRecord, /) -> bool:
        """Put a run in the place of its version; see `Store.save_run`."""
        with self._lock:
            stored = self._runs.get(run.id)
            if stored is None or stored.version != run.version:
                return False
            self._keep_run(replace(run, version=run.version + 1))
            return True

    def _keep_run(self, run: RunRecord) -> None:
        self._runs[run.id] = run
        if run.status in _LIVE:
            self._live.add(quoted(run.id))
        else:
            self._live.discard(quoted(run.id))

    async def writer_gone(self, writer: str, /, *, stale_after_s: float) -> bool:
        """Tell whether a writer is another one than this process, and so of an earlier one."""
        del stale_after_s
        return writer != self._writer

    async def put_profile(self, name: str, profile: str, /) -> None:
        """Keep a profile."""
        with self._lock:
            self._profiles[name] = profile

    async def profile(self, name: str, /) -> str | None:
        """Give a profile."""
        return self._profiles.get(name)

    async def profiles(self) -> dict[str, str]:
        """Give all profiles by name."""
        with self._lock:
            return dict(self._profiles)

    async def delete_profile(self, name: str, /) -> bool:
        """Drop a profile; see `Store.delete_profile`."""
        with self._lock:
            return self._profiles.pop(name, None) is not None

    async def aclose(self) -> None:
        """Take no more starts; ends of calls that are under way are still taken."""
        with self._lock:
            self._closed = self._judges = True


class _Written:
    """Be a record that has been written already."""

    __slots__ = ("_record",)

    def __init__(self, record: JournalRecord) -> None:
        self._record = record

    @property
    def claim(self) -> str:
        """Its place."""
        return self._record.claim

    def record(self) -> JournalRecord:
        """Give it."""
        return self._record
