"""One body under way: it ends, or it is given up; whichever comes first is the call's outcome.

A flight joins three kinds of body (a coroutine carried by a host, a function in a thread, a job in a process) with two
kinds of caller (a coroutine and a blocked thread). Its owner learns of a late end through `on_late`.
"""

import threading
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

__all__ = ("CANCEL_GRACE_S", "GRACE_S", "Flight", "Verdict")

Verdict: TypeAlias = Literal["timeout", "aborted", "cancelled"]
Late: TypeAlias = Callable[[], None]

GRACE_S: Final = 0.02
CANCEL_GRACE_S: Final = 5.0


class Flight:
    """Be the meeting point of a body and its caller.

    `interrupt` asks the body to stop and must not block; `grace_s` is how long the caller waits for it to do so before
    it is answered without it, `cancel_grace_s` how long when the caller's task was cancelled. `verdict` says why the body
    was interrupted (None: it was not), `ended` whether it ended.
    """

    __slots__ = (
        "_lock",
        "_on_late",
        "_on_stop",
        "_wake",
        "cancel_grace_s",
        "ended",
        "error",
        "given_up",
        "grace_s",
        "interrupt",
        "value",
        "verdict",
    )

    def __init__(self, on_late: Late) -> None:
        self._lock = threading.Lock()
        self._on_late = on_late
        self._wake: Callable[[], None] | None = None
        self._on_stop: Callable[[], None] = _nothing
        self.interrupt: Callable[[], None] = _nothing
        self.grace_s = GRACE_S
        self.cancel_grace_s = CANCEL_GRACE_S
        self.ended = False
        self.given_up = False
        self.verdict: Verdict | None = None
        self.value: object = None
        self.error: BaseException | None = None

    def finish(self, value: object, error: BaseException | None) -> None:
        """Note the body's end; called once, from any thread."""
        with self._lock:
            self.ended = True
            late = self.given_up
            if not late:
                self.value, self.error = value, error
            wake = self._wake
        if late:
            self._on_late()
        elif wake is not None:
            wake()

    def on_end(self, wake: Callable[[], None]) -> None:
        """Call `wake` when the body has ended, from the body's thread, or at once when it has."""
        with self._lock:
            self._wake = wake
            ended = self.ended
        if ended:
            wake()

    def on_stop(self, told: Callable[[], None]) -> None:
        """Call `told` when the body is asked to stop, from the asking thread, or at once when it has been."""
        with self._lock:
            self._on_stop = told
            asked = self.verdict is not None
        if asked:
            told()

    def stop(self, verdict: Verdict) -> None:
        """Ask the body to stop, for the first reason given."""
        with self._lock:
            if self.ended or self.verdict is not None:
                return
            self.verdict = verdict
            told = self._on_stop
        try:
            self.interrupt()
        finally:
            told()

    def give_up(self) -> bool:
        """Stop waiting for a body that has not ended; tell whether it still runs, so that its end will come late."""
        with self._lock:
            self.given_up = not self.ended
            self._wake = None
            return self.given_up


def _nothing() -> None:
    return None
