"""Run tools in worker processes that are really stopped at the limit or on abort, with everything that they started.

A worker is a fresh interpreter (never a fork of the parent, which has threads), in a session of its own, kept by a keeper
process that leaves nothing of it behind (`process_keeper` says how). Workers are reused while they are healthy. What
happens in a worker cannot harm the parent: a crash, an exit, memory or CPU used up are failures of one call.

It is isolation from faults, not from malice: results are unpickled in the parent. On systems other than Linux only the
worker's process group is killed; a descendant that left the group survives there. Source: contract row P4+.
"""

import os
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from callgate.running.process_errors import (
    ProcessAborted,
    ProcessDataError,
    ProcessDied,
    ProcessError,
    ProcessOutputTooLarge,
    ProcessTimeout,
    RemoteToolError,
)
from callgate.running.process_handle import WorkerHandle, start_worker
from callgate.running.process_job import ContextFactory, ProcessJob, dump_job, require_picklable
from callgate.running.process_supervision import Ending, Supervision, Watch
from callgate.signals import AbortSignal

__all__ = (
    "ContextFactory",
    "PoolStats",
    "ProcessAborted",
    "ProcessDataError",
    "ProcessDied",
    "ProcessError",
    "ProcessJob",
    "ProcessOutputTooLarge",
    "ProcessPool",
    "ProcessTimeout",
    "RemoteToolError",
    "require_picklable",
)

_START_S: Final = 30.0
_CLOSED: Final = "the process pool was closed"


@dataclass(frozen=True, slots=True)
class PoolStats:
    """Count workers: idle and busy ones now, and those started and killed since the pool was made.

    `killed` counts workers that ended in a call: at its limit, its abort, or by themselves. The rest of `started` was
    recycled: after enough calls, after a call that left threads or processes behind, or because enough were idle.
    """

    idle: int
    busy: int
    started: int
    killed: int


class ProcessPool:
    """Keep worker processes and run jobs in them, one at a time each; nothing is started before the first job.

    At most `max_idle` workers (None: one for each CPU) wait for the next job; how many run at a time is the caller's
    affair. A worker is replaced after `max_calls` jobs. `start_timeout_s` bounds what comes before the body: the start of
    the interpreter, the imports, the arguments. A pool that is dropped, or whose process exits or is killed, takes its
    workers with it.
    """

    def __init__(self, *, max_idle: int | None = None, max_calls: int = 10_000, start_timeout_s: float = _START_S) -> None:
        self._max_idle = (os.cpu_count() or 1) if max_idle is None else max_idle
        self._max_calls = max_calls
        self._start_timeout_s = start_timeout_s
        self._changed = threading.Condition()
        self._idle: list[WorkerHandle] = []
        self._workers: set[WorkerHandle] = set()
        self._started = self._killed = 0
        self._closed = False
        weakref.finalize(self, _let_go, self._workers, self._idle)
        _forget_in_forks(weakref.ref(self))

    def run(  # noqa: PLR0913 - typed keywords, of which a call needs one
        self,
        job: ProcessJob,
        *,
        started: Callable[[], None] | None = None,
        stop: AbortSignal,
        timeout_s: float | None = None,
        start_timeout_s: float | None = None,
        deadline: float | None = None,
    ) -> object:
        """Run `job` in a worker, block until it has ended, and give its value; a generator's is the list of its items.

        `started` is called when the body begins, which is also when `timeout_s` (None: no limit) begins to count. What
        comes before may take `start_timeout_s` seconds, at most the pool's own (None: those). `deadline` is a moment of
        `time.monotonic()` that ends both. When this raises anything but the tool's own exception, nothing of the job is
        running any more.

        Raises:
            ProcessTimeout: at the limit or the deadline.
            ProcessAborted: when `stop` was given.
            ProcessDied: when the process exited, crashed, was killed, went over a limit or never became ready.
            ProcessDataError: when the job, its result or its progress could not be pickled or loaded.
            ProcessOutputTooLarge: when the items of a generator came to more than 64 MiB, pickled.
            MemoryError: when the tool met its memory limit and Python noticed; the text names the limit.
            RemoteToolError: for an exception of the tool that cannot be rebuilt here.
            BaseException: the tool's own exception, with the worker's traceback as a note. `sys.exit` is `ProcessDied`.
        """
        called = time.monotonic()
        patience_s = self._start_timeout_s if start_timeout_s is None else min(start_timeout_s, self._start_timeout_s)
        watch = Watch(
            job=job,
            payload=dump_job(job),
            stop=stop,
            started=started,
            timeout_s=timeout_s,
            start_by=called + patience_s,
            start_timeout_s=patience_s,
            deadline=deadline,
            deadline_s=0.0 if deadline is None else max(0.0, deadline - called),
        )
        return self._run(watch)

    def _run(self, watch: Watch) -> object:
        again = False
        while not watch.stop.aborted:
            if watch.deadline is not None and time.monotonic() >= watch.deadline:
                raise ProcessTimeout(watch.deadline_s, by_deadline=True, began=False)
            worker = self._start() if again else self._take()
            reused = worker.calls > 0
            supervision = Supervision(worker, watch)
            if (failure := self._follow(worker, supervision)) is None:
                return supervision.value()
            # An idle worker that died or is stopped before the body began was not this job's fault: it goes to a new one.
            if not (reused and isinstance(failure, ProcessDied) and self._may_retry(supervision, watch)):
                raise failure
            again = True
        raise ProcessAborted(watch.stop.reason)

    def _may_retry(self, supervision: Supervision, watch: Watch) -> bool:
        return not supervision.began and not self._closed and time.monotonic() < watch.start_by

    def close(self, timeout_s: float = 5.0) -> None:
        """Take no more jobs, give those under way `timeout_s` seconds to end, then kill them; no worker is left.

        A job that is killed so raises `ProcessDied`. Closing again does nothing new.
        """
        with self._changed:
            self._closed = True
            idle = tuple(self._idle)
            self._idle.clear()
        for worker in idle:
            self._drop(worker)
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while self._workers and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            late = set(self._workers)
        _end_workers(late)

    def stats(self) -> PoolStats:
        """Count the workers."""
        with self._changed:
            idle = len(self._idle)
            return PoolStats(idle, len(self._workers) - idle, self._started, self._killed)

    def _take(self) -> WorkerHandle:
        while (worker := self._pop()) is not None:
            if worker.healthy():
                return worker
            self._drop(worker)
        return self._start()

    def _start(self) -> WorkerHandle:
        worker = start_worker()
        with self._changed:
            self._workers.add(worker)
            self._started += 1
            closed = self._closed
        if closed:
            self._drop(worker)
            raise ProcessDied(_CLOSED, began=False)
        return worker

    def _pop(self) -> WorkerHandle | None:
        with self._changed:
            if self._closed:
                raise ProcessDied(_CLOSED, began=False)
            return self._idle.pop() if self._idle else None

    def _follow(self, worker: WorkerHandle, supervision: Supervision) -> ProcessError | None:
        failure: ProcessError | None = None
        answered = False
        try:
            ending = supervision.follow()
            answered = ending is Ending.ANSWERED
            if not answered:
                closed = self._closed and ending in {Ending.DIED, Ending.GARBLED}  # its connection may end first
                failure = ProcessDied(_CLOSED, began=supervision.began) if closed else supervision.failure(ending)
        finally:
            self._give_back(worker, answered=answered, fit=supervision.fit)
        return failure

    def _give_back(self, worker: WorkerHandle, *, answered: bool, fit: bool) -> None:
        worker.calls += 1
        with self._changed:
            keep = fit and answered and not self._closed and worker.calls < self._max_calls and len(self._idle) < self._max_idle
            if keep:
                self._idle.append(worker)
            self._killed += not answered
        if not keep:
            self._drop(worker)

    def _drop(self, worker: WorkerHandle) -> None:
        worker.end()
        worker.close()
        with self._changed:
            self._workers.discard(worker)
            self._changed.notify_all()

    def _forget(self) -> None:
        """Begin anew in a forked copy of this process: the workers, and perhaps a held lock, are the original's."""
        self._changed = threading.Condition()
        for worker in self._workers:
            worker.disown()
        self._workers.clear()
        self._idle.clear()


def _forget_in_forks(pool: "weakref.ref[ProcessPool]") -> None:
    def forget() -> None:
        if (alive := pool()) is not None:
            alive._forget()  # noqa: SLF001 - of this module

    os.register_at_fork(after_in_child=forget)


def _let_go(workers: set[WorkerHandle], idle: list[WorkerHandle]) -> None:
    """End all when the pool is dropped or its process exits, where threads may still be in jobs."""
    _end_workers(workers)
    for worker in idle:
        worker.close()


def _end_workers(workers: set[WorkerHandle]) -> None:
    """Kill all at once, then wait for each; the sockets of busy ones are left to the threads that look at them."""
    for worker in tuple(workers):
        worker.hang_up()
    for worker in tuple(workers):
        worker.end()
