"""Follow one job in one worker: deliver it, pass progress on, and notice its answer, its limit, its abort or its death."""

import math
import os
import pickle
import select
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from operator import itemgetter
from typing import Final

from callgate.running.process_channel import Frame, GarbledError, Kind
from callgate.running.process_errors import (
    ProcessAborted,
    ProcessDataError,
    ProcessDied,
    ProcessError,
    ProcessOutputTooLarge,
    ProcessTimeout,
    RemoteToolError,
)
from callgate.running.process_handle import WorkerHandle
from callgate.running.process_job import ProcessJob
from callgate.signals import AbortSignal

__all__ = ("Ending", "Supervision", "Watch")

# A worker that waits for its next job takes it within a millisecond; only one that is stopped or starved needs so long.
_SILENCE_S: Final = 1.0
# All items of one job together, pickled: far above any output cap, and far below what a parent cannot hold.
_MAX_ITEMS_BYTES: Final = 64 << 20
_STATUS_S: Final = 0.2
_LONGEST_POLL_S: Final = 3600.0
_POSSIBLY_MEMORY: Final = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGKILL)


class Ending(Enum):
    """Say how the supervision of a job ended."""

    ANSWERED = "answered"
    DIED = "died"
    GARBLED = "garbled"
    TIMED_OUT = "timed out"
    TOO_LATE = "too late"
    ABORTED = "aborted"
    NOT_STARTED = "not started"
    SILENT = "silent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Say what is to be followed: a job with its pickled form, the signal, and the limits.

    `timeout_s` is for the body alone, `deadline` a moment of `time.monotonic()` that ends all, `deadline_s` how far away
    it was when the call came; `start_by` is the moment by which the body has to begin, `start_timeout_s` after the call.
    """

    job: ProcessJob
    payload: bytes
    stop: AbortSignal
    started: Callable[[], None] | None
    timeout_s: float | None
    start_by: float
    start_timeout_s: float
    deadline: float | None
    deadline_s: float


class Supervision:
    """Follow one job; `began` says whether its body has begun, `answer` is its last frame."""

    __slots__ = (
        "_garbled",
        "_items",
        "_items_bytes",
        "_limit",
        "_lock",
        "_over",
        "_queued",
        "_taken",
        "_unsent",
        "_watch",
        "_worker",
        "answer",
        "began",
    )

    def __init__(self, worker: WorkerHandle, watch: Watch) -> None:
        self._worker = worker
        self._watch = watch
        self._unsent = memoryview(worker.channel.header(Kind.JOB, watch.payload) + watch.payload)
        self._items: list[object] = []
        self._items_bytes = 0
        self._garbled = ""
        self._queued = False
        self._taken = worker.calls == 0  # a new one may need long before it can take anything
        self._lock = threading.Lock()
        self._over = False
        self.answer: Frame | None = None
        self.began = False
        self._limit = self._nearest_limit()

    @property
    def fit(self) -> bool:
        """Whether the worker can take another job."""
        return self.answer is not None and self.answer.kind is not Kind.EXIT and self.answer.payload[:1] == b"\x00"

    def follow(self) -> Ending:
        """Block until the job has ended or is to be ended.

        Raises:
            ProcessDataError: when a progress item cannot be loaded. The worker is then still running.
            ProcessOutputTooLarge: when the items are more than is kept. The worker is then still running.
            BaseException: what `started` or `on_progress` raised. The worker is then still running.
        """
        deaf = self._watch.stop.add_listener(self._hang_up)
        try:
            self._send()
            while (ending := self._ending()) is None:
                self._turn()
        finally:
            deaf()
            # A listener that is under way must not reach the worker's next job.
            with self._lock:
                self._over = True
        return ending

    def _hang_up(self) -> None:
        with self._lock:
            if not self._over:
                self._worker.hang_up()

    def _ending(self) -> Ending | None:
        if self.answer is not None:
            return Ending.ANSWERED
        if self._watch.stop.aborted:
            return Ending.ABORTED
        if self._garbled:
            return Ending.GARBLED
        if self._worker.gone:
            return Ending.DIED
        moment, ending = self._limit
        return ending if time.monotonic() >= moment else None

    def _nearest_limit(self) -> tuple[float, Ending]:
        """Give the moment that ends the present part of the job, counted from now, and what it then is."""
        watch, now = self._watch, time.monotonic()
        limits = [(math.inf if watch.deadline is None else watch.deadline, Ending.TOO_LATE)]
        if not self.began:
            limits.append((watch.start_by, Ending.NOT_STARTED))
            limits.append((math.inf if self._taken else now + _SILENCE_S, Ending.SILENT))
        elif watch.timeout_s is not None:
            limits.append((now + watch.timeout_s, Ending.TIMED_OUT))
        return min(limits, key=itemgetter(0))

    def _turn(self) -> None:
        control = self._worker.control.fileno()
        for descriptor, events in self._worker.poller.poll(self._patience_ms()):
            if descriptor == control:
                self._worker.hear()
            elif events & ~select.POLLOUT:
                self._read()
            else:
                self._send()
        if self._worker.gone:
            self._read_rest()

    def _patience_ms(self) -> float:
        return max(0.0, min(self._limit[0] - time.monotonic(), _LONGEST_POLL_S)) * 1000

    def _send(self) -> None:
        """Send what the socket takes; ask to be told when it takes more."""
        connection = self._worker.channel.connection
        with suppress(BlockingIOError, ConnectionError):
            while self._unsent:
                self._unsent = self._unsent[connection.send(self._unsent) :]
                if not self._taken:  # it reads: its silence is counted from the last bytes that it made room for
                    self._limit = self._nearest_limit()
        if self._unsent or self._queued:
            self._queued = bool(self._unsent)
            self._worker.poller.modify(connection, select.POLLIN | (select.POLLOUT if self._queued else 0))

    def _read(self) -> None:
        with suppress(BlockingIOError):
            if not self._worker.channel.fill():
                self._worker.poller.unregister(self._worker.channel.connection)
                self._garbled = "the worker closed its connection"
        self._take()

    def _read_rest(self) -> None:
        """Read what a dead worker sent before its end."""
        with suppress(BlockingIOError):
            while self._worker.channel.fill():
                pass
        self._take()

    def _take(self) -> None:
        try:
            while self.answer is None and (frame := self._worker.channel.take()) is not None:
                self._handle(frame)
        except GarbledError as error:
            self._garbled = str(error)

    def _handle(self, frame: Frame) -> None:
        match frame.kind:
            case Kind.TAKEN:
                self._taken = True
                self._limit = self._nearest_limit()
            case Kind.STARTED:
                self._start()
            case Kind.ITEM | Kind.PROGRESS:
                self._progress(frame)
            case Kind.JOB:
                self._garbled = "the worker sent a job"
            case _:
                self.answer = frame

    def _start(self) -> None:
        self.began = True
        self._limit = self._nearest_limit()
        if self._watch.started is not None:
            self._watch.started()

    def _progress(self, frame: Frame) -> None:
        if frame.kind is Kind.ITEM:
            self._items_bytes += len(frame.payload)
            if self._items_bytes > _MAX_ITEMS_BYTES:
                raise ProcessOutputTooLarge(self._items_bytes, _MAX_ITEMS_BYTES)
        item = _load("a progress item", frame.payload)
        if frame.kind is Kind.ITEM:
            self._items.append(item)
        if self._watch.job.on_progress is not None:
            self._watch.job.on_progress(item)

    def value(self) -> object:
        """Give what the tool returned, after `ANSWERED`.

        Raises:
            ProcessDied: when the tool called `sys.exit` or the job could not be begun.
            ProcessDataError: when the result could not be pickled, or cannot be loaded here.
            RemoteToolError: when the tool's exception could not be pickled or cannot be loaded here.
            BaseException: the tool's own.
        """
        assert self.answer is not None
        kind, payload = self.answer.kind, self.answer.payload[1:]
        if kind is Kind.RESULT:
            return _load("the result", payload)
        if kind is Kind.COLLECTED:
            return self._items
        raise self._failure(kind, payload)

    def _failure(self, kind: Kind, payload: bytes) -> BaseException:
        if kind is Kind.ERROR:
            return _tool_error(payload, self._watch.job)
        if kind is Kind.UNSENDABLE:
            return ProcessDataError("the result", payload.decode())
        if kind is Kind.REFUSED:
            return ProcessDied(payload.decode(), began=False)
        exit_code, reason = pickle.loads(payload)  # noqa: S301 - two plain values of our own
        return ProcessDied(reason if exit_code is None else f"{reason} ({exit_code})", exit_code=exit_code)

    def failure(self, ending: Ending) -> ProcessError:
        """Give the exception for an ending without an answer; it may wait a little to hear how the worker died."""
        match ending:
            case Ending.ABORTED:
                return ProcessAborted(self._watch.stop.reason)
            case Ending.TIMED_OUT:
                return ProcessTimeout(self._watch.timeout_s or 0.0)
            case Ending.TOO_LATE:
                return ProcessTimeout(self._watch.deadline_s, by_deadline=True, began=self.began)
            case Ending.SILENT:
                return ProcessDied(f"an idle worker did not take its next job within {_SILENCE_S:g} s", began=False)
            case Ending.NOT_STARTED:
                return ProcessDied(f"the worker was not ready within {self._watch.start_timeout_s:g} s", began=False)
            case _:
                return self._death()

    def _death(self) -> ProcessDied:
        status = self._worker.await_status(_STATUS_S)
        if status is None:
            return ProcessDied(self._garbled or "the worker's keeper process was killed", began=self.began)
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            return ProcessDied(_signal_text(-code, self._watch.job), signal=-code, began=self.began)
        return ProcessDied(f"the process ended with exit code {code} before it answered", exit_code=code, began=self.began)


def _signal_text(number: int, job: ProcessJob) -> str:
    if number == signal.SIGXCPU and job.max_cpu_s is not None:
        return f"CPU limit of {job.max_cpu_s:g} s"
    text = f"the process was killed by {_signal_name(number)}"
    if number == signal.SIGKILL:
        text += ", from outside or by the system for want of memory"
    if number in _POSSIBLY_MEMORY and job.max_memory_bytes is not None:
        text += f"; it had a memory limit of {job.max_memory_bytes} bytes"
    return text


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _tool_error(payload: bytes, job: ProcessJob) -> BaseException:
    pickled, type_name, text, trace = pickle.loads(payload)  # noqa: S301 - a tuple of our own; the exception is bytes in it
    error = _rebuild(pickled) or RemoteToolError(type_name, text)
    if isinstance(error, MemoryError) and job.max_memory_bytes is not None:
        error = MemoryError(f"memory limit of {job.max_memory_bytes} bytes")
    with suppress(Exception):  # a class that refuses attributes refuses notes
        error.add_note(f"In the worker process:\n{trace}")
    return error


def _rebuild(pickled: bytes | None) -> BaseException | None:
    if pickled is None:
        return None
    try:
        error = pickle.loads(pickled)  # noqa: S301 - the tool is the host's own code
    except (Exception, SystemExit):  # noqa: BLE001 - the tool's own __init__ and __setstate__
        return None
    return error if isinstance(error, BaseException) else None


def _load(what: str, payload: bytes) -> object:
    try:
        return pickle.loads(payload)  # noqa: S301 - the tool is the host's own code
    except (Exception, SystemExit) as error:
        raise ProcessDataError(what, f"it cannot be loaded here ({type(error).__name__}: {error})") from error
