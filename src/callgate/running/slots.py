"""Count the calls that a tool has under way, bound them, and bound those that were given up and still hold a thread.

A slot is held from the start of a tool's body until the body has really ended, also when its caller was answered long
before. So `max_concurrency` is true for a tool that does not stop at its limit, and a tool that keeps hanging runs out of
slots instead of filling the process with threads. Source: cases c5, g1.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

__all__ = ("Slots", "Waiter")


class Waiter:
    """Wait for a slot: `wake` is called once, from any thread, when the slot was given (True) or will not come (False)."""

    __slots__ = ("given", "settled", "wake")

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        self.settled = False
        self.given = False


class Slots:
    """Give out the slots of one tool. Thread safe.

    `limit` bounds the bodies that run at a time (None: no bound); `max_abandoned` those that were given up. While that
    many are still running, `refusing` is true and nobody gets a slot.
    """

    __slots__ = ("_lock", "_waiters", "abandoned", "closed", "held", "limit", "max_abandoned", "refusing")

    def __init__(self, limit: int | None, max_abandoned: int) -> None:
        self.limit: Final = limit
        self.max_abandoned: Final = max_abandoned if limit is None else min(limit, max_abandoned)
        self.held = 0
        self.abandoned = 0
        self.refusing = False
        self.closed = False
        self._lock = threading.Lock()
        self._waiters: deque[Waiter] = deque()

    def take(self) -> bool:
        """Take a slot when one is free and nobody waits for it."""
        with self._lock:
            if self.refusing or self._waiters or (self.limit is not None and self.held >= self.limit):
                return False
            self.held += 1
            return True

    def hold(self) -> None:
        """Take a slot whatever the limit says: for a tool without one, whose bodies are counted only when they wait."""
        with self._lock:
            self.held += 1

    def wait(self, wake: Callable[[], None]) -> Waiter:
        """Queue for a slot; `wake` may be called before this returns."""
        waiter = Waiter(wake)
        with self._lock:
            self._waiters.append(waiter)
            woken = self._settle()
        _wake(woken)
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """Stop waiting; a slot that was given meanwhile goes to the next."""
        with self._lock:
            if waiter.settled and not waiter.given:
                return
            if waiter.given:
                self.held -= 1
            else:
                self._waiters.remove(waiter)
                waiter.settled = True
            woken = self._settle()
        _wake(woken)

    def release(self) -> None:
        """Give a slot back: its body has ended."""
        with self._lock:
            self.held -= 1
            woken = self._settle()
        _wake(woken)

    def abandon(self) -> None:
        """Note that the body of a held slot was given up and still runs; it keeps its slot."""
        with self._lock:
            self.abandoned += 1
            self.refusing = self.closed or self.abandoned >= self.max_abandoned
            woken = self._settle()
        _wake(woken)

    def take_back(self) -> None:
        """Note that a body that was given up has ended, and give its slot back."""
        with self._lock:
            self.abandoned -= 1
            self.held -= 1
            self.refusing = self.closed or self.abandoned >= self.max_abandoned
            woken = self._settle()
        _wake(woken)

    def close(self) -> None:
        """Give no slot any more, and tell so to everybody who waits for one."""
        with self._lock:
            self.closed = self.refusing = True
            woken = self._settle()
        _wake(woken)

    def _settle(self) -> list[Waiter]:
        woken: list[Waiter] = []
        while self._waiters and (self.refusing or self.limit is None or self.held < self.limit):
            waiter = self._waiters.popleft()
            waiter.settled = True
            waiter.given = not self.refusing
            self.held += waiter.given
            woken.append(waiter)
        return woken


def _wake(waiters: list[Waiter]) -> None:
    for waiter in waiters:
        waiter.wake()
