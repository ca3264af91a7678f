"""`StoredRuns`: runs that outlive their process, each with one loop at it at a time. Source: contract rows A3, A5, W3.

    begin ─► running ─► paused ─► claim ─► running ─► completed | stopped
                └────── failed, or its process is gone ─► claim

A run is one JSON text, a `StoredState`, in the store. Who goes on with it claims it first, and whoever saves it names the version
that was read: of two, one is refused. Both kinds of run, an agent's and a workflow's, are begun, claimed and saved here.
"""

import asyncio
import json
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, Protocol, Self, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticSerializationError

from callgate.errors import AbortedError, ConflictError, NotFoundError, RunStateError, StoreError, UsageError
from callgate.gate.gate import Gate
from callgate.gate.outcomes import Failed, Outcome
from callgate.gate.waiting import assured
from callgate.signals import AbortSignal
from callgate.store.records import RunRecord, RunStatus

__all__ = (
    "OVER",
    "OpenedRun",
    "StillAtWorkError",
    "StoredRuns",
    "StoredState",
    "checked_state",
    "entered",
    "is_at_work",
    "is_stop",
    "known",
    "refused",
    "whole",
)

R = TypeVar("R")

OVER: Final = frozenset[RunStatus]({"completed", "stopped"})
"""What a run is that nobody can go on with."""

_STALE_AFTER_S: Final = 60.0
_PATIENCE_S: Final = 60.0
_FIRST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 0.5
_log: Final = logging.getLogger("callgate")


# ── the text that is stored ──────────────────────────────────────────────────────────────────────────────────────────────


class StoredState(BaseModel):
    """Be what a run needs to go on, as one versioned JSON value. A subclass has the fields `format` and `version` as it wants."""

    model_config = ConfigDict(extra="forbid", strict=True, ser_json_inf_nan="constants")

    FORMAT: ClassVar[str]
    VERSION: ClassVar[int] = 1
    KIND: ClassVar[Literal["agent", "workflow"]]

    run_id: str

    def dump(self) -> str:
        """Write the state as JSON text.

        Raises:
            UsageError: it holds what JSON does not.
        """
        try:
            return self.model_dump_json()
        except (PydanticSerializationError, ValueError):
            pass  # a half character, which JSON holds and UTF-8 does not, is written as a sign for one
        try:
            return json.dumps(whole(self.model_dump(mode="json")))
        except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
            raise UsageError(f"run {self.run_id!r} cannot be stored: it holds what JSON does not") from error

    @classmethod
    def load(cls, text: str) -> Self:
        """Read a state.

        Raises:
            RunStateError: it is damaged, or a newer release wrote it; nothing is resumed.
        """
        try:
            facts = cast("object", json.loads(text))
        except (ValueError, RecursionError) as error:
            raise RunStateError("the stored run is damaged: it is no JSON") from error
        head = cast("dict[str, object]", facts) if isinstance(facts, dict) else {}
        if head.get("format") != cls.FORMAT:
            raise RunStateError("the stored run is damaged: it is no run of callgate")
        version = head.get("version")
        if isinstance(version, int) and version > cls.VERSION:
            raise RunStateError(f"the stored run has version {version}, this release reads {cls.VERSION}: upgrade callgate")
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            places = ", ".join(".".join(map(str, each["loc"])) or "(all)" for each in error.errors()[:3])
            raise RunStateError(f"the stored run is damaged at {places}") from error


def refused(error: ValidationError) -> UsageError:
    """Say of a run that is to begin where it cannot be what it was given."""
    places = ", ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors(include_input=False)[:3])
    return UsageError(f"a run cannot begin like this: {places}")


def whole(value: Any) -> Any:
    """Put halves of characters together that came one by one, in a JSON value, and write a sign for a half that stays alone."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {whole(key): whole(item) for key, item in cast("dict[Any, Any]", value).items()}  # type: ignore[redundant-cast]  # pyright wants it
    if isinstance(value, list):
        return [whole(item) for item in cast("list[Any]", value)]  # type: ignore[redundant-cast]  # pyright wants it
    return value


S = TypeVar("S", bound=StoredState)
_WHOSE: Final = {"agent": "an agent's", "workflow": "a workflow's"}


def checked_state(kind: type[S], record: RunRecord) -> S:
    """Read the state of a record, which has to be of that kind and of that very run.

    Raises:
        RunStateError: it is damaged, or newer than this release.
        UsageError: it is a run of another kind.
    """
    if record.kind != kind.KIND:
        raise UsageError(f"run {record.id!r} is {_WHOSE[record.kind]}, not {_WHOSE[kind.KIND]}")
    state = kind.load(record.state)
    if state.run_id != record.id:
        raise RunStateError(f"the stored run is damaged: it is kept as {record.id!r} and says that it is {state.run_id!r}")
    return state


# ── one loop at a time ───────────────────────────────────────────────────────────────────────────────────────────────────


class OpenedRun(Protocol):
    """Be a run while a loop is at it: its state, and the record of it as it was stored last."""

    record: RunRecord

    @property
    def state(self) -> StoredState:
        """What the run needs to go on."""
        ...


class _AtWork:
    """Know the runs that loops of this process are at, by the writer of their store: gates come and go, stores do not."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: set[tuple[str, str]] = set()

    def enter(self, writer: str, run_id: str) -> bool:
        """Note that a loop is at a run; False when another one is already."""
        with self._lock:
            if (writer, run_id) in self._runs:
                return False
            self._runs.add((writer, run_id))
            return True

    def leave(self, writer: str, run_id: str) -> None:
        """Note that the loop is not at it any more."""
        with self._lock:
            self._runs.discard((writer, run_id))


_AT_WORK: Final = _AtWork()


@dataclass(frozen=True, slots=True)
class StoredRuns:
    """Begin, claim, save and let go of the runs in a gate's store."""

    gate: Gate

    async def begin(self, state: StoredState, *, caller: str, name: str | None, thread_id: str | None) -> RunRecord:
        """Store a new run as running, and give its record.

        Raises:
            ConflictError: there is a run of that id already.
            UsageError: its state holds what JSON does not; nothing was stored.
        """
        store, run_id, now = self.gate.store, state.run_id, time.time()
        record = RunRecord(
            id=run_id,
            kind=state.KIND,
            status="running",
            state=state.dump(),
            owner=store.writer,
            caller=caller,
            name=name,
            thread_id=thread_id,
            created_at=now,
            updated_at=now,
        )
        if not _AT_WORK.enter(store.writer, run_id):
            raise ConflictError(f"there is a run {run_id!r} already")
        try:
            created = await assured(store.create_run(record))
        except BaseException:
            self.release(run_id)
            raise
        if not created:
            self.release(run_id)
            raise ConflictError(f"there is a run {run_id!r} already")
        self.gate.begin_run(run_id)
        return record

    async def record(self, run_id: str) -> RunRecord:
        """Give the record of a run.

        Raises:
            NotFoundError: there is none of that id.
        """
        record = await self.gate.store.run(run_id)
        if record is None:
            raise NotFoundError("run", run_id)
        return record

    @staticmethod
    def check_not_over(record: RunRecord) -> None:
        """Refuse what cannot be gone on with.

        Raises:
            ConflictError: the run is completed or stopped.
        """
        if record.status in OVER:
            raise ConflictError(f"run {record.id!r} is over: it is {record.status}")

    async def claim(self, run: OpenedRun) -> None:
        """Take a run over, and store it as running.

        Raises:
            ConflictError: it is over, or somebody else has it; nothing was stored.
        """
        record = run.record
        self.check_not_over(record)
        writer = self.gate.store.writer
        if not _AT_WORK.enter(writer, record.id):
            raise _elsewhere(record)
        try:
            await self._check_free(record)
            await self.save(run, "running")
            self.gate.take_run_over(record.id)
        except BaseException:
            self.release(record.id)
            raise

    async def _check_free(self, record: RunRecord) -> None:
        if record.status != "running":
            return
        if await self._is_at_work(record):
            raise _elsewhere(record)
        await self.gate.recover(stale_after_s=_STALE_AFTER_S)

    async def _is_at_work(self, record: RunRecord) -> bool:
        """Tell whether the owner of a run lives; a run of this very process, which no loop is at, was left by a fault."""
        store = self.gate.store
        if record.owner is None or record.owner == store.writer:
            return False
        return not await store.writer_gone(record.owner, stale_after_s=_STALE_AFTER_S)

    def release(self, run_id: str) -> None:
        """Let go of a run that was begun or claimed: no loop of this process is at it any more."""
        _AT_WORK.leave(self.gate.store.writer, run_id)

    async def save(self, run: OpenedRun, status: RunStatus) -> None:
        """Store a run as it is now. A cancellation that comes meanwhile is raised when it is known what was stored.

        Raises:
            ConflictError: somebody else has changed it; nothing was stored.
            UsageError: its state holds what JSON does not; nothing was stored.
        """
        owner = self.gate.store.writer if status == "running" else None
        state = run.state.dump()
        record = replace(run.record, status=status, state=state, owner=owner, updated_at=time.time())
        await assured(self._saved(run, record))

    async def _saved(self, run: OpenedRun, record: RunRecord) -> None:
        if not await self.gate.store.save_run(record):
            raise ConflictError(f"run {record.id!r} was changed elsewhere meanwhile: it was stopped, or somebody resumed it")
        run.record = replace(record, version=record.version + 1)
        if record.status not in OVER:
            return
        try:
            await self._withdraw(record)
            await self.gate.end_run(record.id)
        except StoreError as error:  # the run is over all the same
            _log.warning("the store kept what a run that is over had left: %s", type(error).__name__)

    async def _withdraw(self, record: RunRecord) -> None:
        """Let the requests of a run that is over expire: what they ask for is not to run any more.

        A workflow has those of the agents' runs within it as well, whose ids begin with its own.
        """
        store, within = self.gate.store, f"{record.id}/"
        alone = record.kind == "agent"
        for approval in await store.approvals(state="pending", run_id=record.id if alone else None):
            if alone or approval.run_id == record.id or (approval.run_id or "").startswith(within):
                await store.decide(replace(approval, state="expired", decided_at=time.time()))


def _elsewhere(record: RunRecord) -> ConflictError:
    return ConflictError(f"run {record.id!r} is being run elsewhere at the moment")


# ── calls that somebody else runs at the moment ──────────────────────────────────────────────────────────────────────────


class StillAtWorkError(ConflictError):
    """Tell that a call of a run is at work elsewhere, and that its end has not come; the run can be resumed later."""


def is_at_work(outcome: Outcome) -> bool:
    """Tell whether this is no end of a call but the word that it is being run elsewhere: by whoever has decided about it."""
    return isinstance(outcome, Failed) and outcome.replayed and isinstance(outcome.error, ConflictError)


async def known(
    ask: Callable[[], Awaitable[Outcome]],
    *,
    signal: AbortSignal | None,
    remaining_s: Callable[[], float | None],
    patience_s: float = _PATIENCE_S,
) -> Outcome:
    """Ask for the outcome of a call until it is known, or the run's time is over: a model must not read that it failed.

    Raises:
        BaseException: the signal's reason.
        StillAtWorkError: it is at work after `patience_s` seconds as well, or its process has lost its end.
    """
    gives_up_at, pause_s = time.monotonic() + patience_s, _FIRST_PAUSE_S
    while is_at_work(outcome := await ask()) and remaining_s() != 0:
        if signal is not None:
            signal.raise_if_aborted()
        if time.monotonic() >= gives_up_at:
            raise StillAtWorkError(f"the call {outcome.call.id!r} is being run elsewhere: resume the run when it has ended")
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    return outcome


def is_stop(stop: BaseException, signal: AbortSignal | None) -> bool:
    """Tell whether somebody has stopped a run or the program on purpose; anything else is a fault, which can be mended."""
    stops = asyncio.CancelledError | AbortedError | KeyboardInterrupt | SystemExit
    return isinstance(stop, stops) or (signal is not None and signal.aborted)


async def entered(entering: Awaitable[R], leave: Callable[[R, BaseException], Awaitable[object]]) -> R:
    """Wait until a run is begun or claimed. When this task is cancelled meanwhile, let `leave` end what was entered.

    Raises:
        BaseException: what `entering` raises, or the cancellation.
    """
    task = asyncio.ensure_future(entering)
    try:
        return await assured(task)
    except asyncio.CancelledError as stop:
        if not task.cancelled() and task.exception() is None:
            await assured(leave(task.result(), stop))
        raise
