"""`MemoryStore`: the journal and the rest in this process, bounded; it ends with the process.

The path of a call takes no lock: a place is claimed by one atomic `dict.setdefault`, and the record is written only when somebody
reads it. An end is found by the place of its start, and one that stands alone by its own, under which it is a first record, too.
"""

import itertools
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

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
    quoted,
    start_claim,
)
from callgate.store.switching import grant_holds, is_switched_off, record_fits
from callgate.tools.spill import MemorySpill, SpillStore

__all__ = ("MemoryStore",)

_KEPT: Final = 2_000
_PARTS: Final = 16
_COUNTERS: Final = 100_000
_CLAIMED: Final = Refusal("claimed")
_LIVE: Final = frozenset({"running", "paused"})
_NONE: Final[frozenset[str]] = frozenset()


class MemoryStore:
    """Keep at most `kept` records of calls in memory, the newest ones, and the requests, grants and runs that belong to them.

    What is still open never goes: a call that has started or waits, a run that is not over. Of the counters of budgets the
    100,000 that were used last are kept.
    """

    def __init__(self, *, kept: int = _KEPT) -> None:
        self._kept = kept
        self._firsts: dict[str, Entry] = {}
        self._ends: dict[str, Entry] = {}
        self._order: deque[str | EndEntry] = deque()
        self._of_runs: dict[str, list[str]] = {}
        self._most = kept
        self._asked: dict[str, str] = {}
        self._counters: dict[str, int] = {}
        self._switches: dict[str, KillSwitch] = {}
        self._approvals: dict[str, ApprovalRecord] = {}
        self._grants: dict[str, Grant] = {}
        self._runs: dict[str, RunRecord] = {}
        self._live: set[str] = set()
        self._profiles: dict[str, str] = {}
        self._dropped = 0
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
        place, firsts = entry.claim, self._firsts
        if place in firsts or firsts.setdefault(place, entry) is not entry:
            return _CLAIMED
        if "/" in place:
            self._note(place)
        self._order.append(place)
        return None

    def finish(self, entry: EndEntry, /) -> bool:
        """Record an end; see `Store.finish`."""
        place, ends = entry.ends, self._ends
        if place is None:
            place = entry.claim
            if place in self._firsts or self._firsts.setdefault(place, entry) is not entry:
                return False
            self._note(place)
        if place in ends or ends.setdefault(place, entry) is not entry:
            return False
        order = self._order
        order.append(entry)
        if len(order) > self._most:
            self._make_room()
        return True

    def _start_judged(self, entry: StartEntry) -> Refusal | None:
        if self._closed:
            raise StoreError("the store is closed; nothing was recorded, and nothing ran")
        with self._lock:
            if entry.claim in self._firsts:
                return _CLAIMED
            for switch in self._switches.values():
                if is_switched_off(switch, entry):
                    return Refusal("switched_off", switch.reason)
            for counter, limit in entry.reserve:
                if self._counters.get(counter, 0) >= limit:
                    return Refusal("used_up", counter)
            if self._firsts.setdefault(entry.claim, entry) is not entry:
                return _CLAIMED
            self._note(entry.claim)
            self._order.append(entry.claim)
            for counter, _ in entry.reserve:
                self._count(counter)
            return None

    def _note(self, place: str) -> None:
        """Note a place of a run, so that a run's records are found among all of them."""
        run, slash, _ = place.partition("/")
        if slash:
            with self._lock:
                self._of_runs.setdefault(run, []).append(place)

    def _strike(self, place: str) -> None:
        run = place.partition("/")[0]
        places = self._of_runs.get(run)
        if places is not None:
            places.remove(place)
            if not places:
                del self._of_runs[run]

    def _count(self, counter: str) -> None:
        self._counters[counter] = self._counters.pop(counter, 0) + 1  # behind all others
        if len(self._counters) > _COUNTERS:
            del self._counters[next(iter(self._counters))]

    def _make_room(self) -> None:
        """Let the oldest records go, some at once; what belongs to a call that is open or to a run that is not over stays."""
        with self._lock:
            order, firsts, ends, live = self._order, self._firsts, self._ends, self._live
            before, staying = len(order), list[str | EndEntry]()
            surplus = before - self._kept + self._kept // _PARTS
            while surplus > 0 and order:
                oldest = order.popleft()
                place = oldest if isinstance(oldest, str) else oldest.ends or oldest.claim
                if (live or place not in ends) and self._is_open(place):
                    staying.append(oldest)
                    continue
                surplus -= 1
                if place is not oldest or (self._asked and place not in ends):  # a start is found until its end goes
                    if firsts.pop(place, None) is not None and "/" in place:
                        self._strike(place)
                    ends.pop(place, None)
            order.extendleft(reversed(staying))
            self._dropped += before - len(order)
            self._most = max(self._kept, len(staying) * 2)  # what is open is not looked at again and again

    def _is_open(self, place: str) -> bool:
        """Tell whether the call of a place has not ended, or waits for a person, or is of a run that is not over."""
        asked = self._asked.get(place)
        if place not in self._ends if asked is None else self._state_of(asked) == "pending":
            return True
        return place.partition("/")[0] in self._live

    def _state_of(self, approval_id: str | None) -> ApprovalState | None:
        approval = self._approvals.get(approval_id or "")
        return None if approval is None else approval.state

    async def call(self, key: str, /) -> tuple[JournalRecord, ...]:
        """Give the records of a call; see `Store.call`."""
        found: list[JournalRecord] = []
        for number in itertools.count():
            place = start_claim(key, number)
            first, end = self._firsts.get(place), self._ends.get(place)
            if first is None:
                break
            found.append(first.record())
            if end is not None and end is not first:
                found.append(end.record())
        return tuple(found)

    async def records(self, wanted: JournalFilter, /, *, limit: int = 100, after: int = 0) -> tuple[list[JournalRecord], int]:
        """Give records in their order; see `Store.records`. Positions count all records that there ever were."""
        with self._lock:
            dropped, kept = self._dropped, tuple(self._order)
        found: list[JournalRecord] = []
        position = max(after, dropped)
        for each in kept[position - dropped :]:
            position += 1
            entry = self._firsts.get(each) if isinstance(each, str) else self._ends.get(each.ends or each.claim)
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
        return _NONE.union(*(entry.record().labels for _, entry in self._entries(self._places_of(run_id))))

    def _places_of(self, run_id: str) -> list[str]:
        with self._lock:
            return list(self._of_runs.get(quoted(run_id), ()))

    def _entries(self, places: Iterable[str]) -> Iterator[tuple[str, Entry]]:
        for place in places:
            for entries in (self._firsts, self._ends):
                entry = entries.get(place)
                if entry is not None:
                    yield place, entry

    async def used(self, counter: str, /) -> int:
        """Give the uses of a counter."""
        return self._counters.get(counter, 0)

    async def verify(self) -> Verification:
        """Tell how many records there are; records in memory have no chain."""
        return Verification(len(self._order), {}, ())

    async def forget(self, run_id: str, /) -> None:
        """Forget what was kept for the run only; see `Store.forget`."""
        with self._lock:
            self._forget(self._places_of(run_id), lambda record: record.content_for_run)

    async def purge(self, now: float, /) -> int:
        """Forget content whose time has passed; see `Store.purge`."""
        with self._lock:
            places = dict.fromkeys((*self._firsts.copy(), *self._ends.copy()))
            return self._forget(places, lambda record: record.content_until is not None and record.content_until <= now)

    def _forget(self, places: Iterable[str], is_over: Callable[[JournalRecord], bool]) -> int:
        count = 0
        for place, entry in self._entries(places):
            record = entry.record()
            if record.content is None or not is_over(record):
                continue
            count += 1
            record.content = None  # it was written just now, for nobody else
            without = _Written(record)
            for entries in (self._firsts, self._ends):
                if entries.get(place) is entry:
                    entries[place] = without
        return count

    # ── approvals, grants, switches ──────────────────────────────────────────────────────────────────────────────────

    async def ask(self, entry: Entry, approval: ApprovalRecord, /) -> bool:
        """Record a request; see `Store.ask`."""
        with self._lock:
            if entry.claim in self._firsts or self._firsts.setdefault(entry.claim, entry) is not entry:
                return False
            self._note(entry.claim)
            self._approvals[approval.id] = approval
            self._asked[entry.claim] = approval.id
            self._order.append(entry.claim)
            self._drop_decided(len(self._approvals) - self._kept)
            return True

    def _drop_decided(self, surplus: int) -> None:
        over = (place for place, each in self._asked.items() if self._state_of(each) != "pending")
        for place in list(islice(over, max(0, surplus))):
            self._approvals.pop(self._asked.pop(place), None)

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
            over = (each.id for each in self._runs.values() if each.status not in _LIVE)
            for run_id in list(islice(over, max(0, len(self._runs) - self._kept))):
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
