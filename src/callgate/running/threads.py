"""Run sync functions in daemon threads, which a hung tool can hold for ever without holding the process.

`concurrent.futures` joins its threads at exit and `asyncio.to_thread` has one pool for all, so one hung tool stops both.
Here a thread that is held is replaced, and at exit nobody waits for it. How many a tool may hold is bounded by its
`Slots`. Source: cases c4, c5, c6.
"""

import os
import queue
import threading
import weakref
from collections.abc import Callable
from typing import Final

__all__ = ("ThreadPool",)

Work = Callable[[], None]

_IDLE_S: Final = 10.0


class ThreadPool:
    """Keep idle threads for the next work; start another when none is idle."""

    __slots__ = ("__weakref__", "_idle", "_lock", "_started", "_work")

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._started = 0
        _forget_in_forks(weakref.ref(self))

    def _forget(self) -> None:
        """Start anew in a forked process, which has none of the threads."""
        self._work = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0

    def submit(self, work: Work) -> None:
        """Run `work` in a thread at once; it must not raise.

        Raises:
            RuntimeError: when the system gives no more threads; `work` will not run.
        """
        with self._lock:
            if self._idle:
                self._idle -= 1
                self._work.put(work)
                return
            self._started += 1
            number = self._started
        threading.Thread(target=self._serve, args=(work,), name=f"callgate-tool-{number}", daemon=True).start()

    def _serve(self, work: Work) -> None:
        following: Work | None = work
        while following is not None:
            following()
            following = None  # what the tool held must not live as long as the idle thread
            with self._lock:
                self._idle += 1
            following = self._next()

    def _next(self) -> Work | None:
        while True:
            try:
                return self._work.get(timeout=_IDLE_S)
            except queue.Empty:
                with self._lock:
                    if self._work.empty():
                        self._idle -= 1
                        return None


def _forget_in_forks(pool: "weakref.ref[ThreadPool]") -> None:
    def forget() -> None:
        forked = pool()
        if forked is not None:
            forked._forget()  # noqa: SLF001 - the pool's own hook

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget)
