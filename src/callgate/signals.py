"""Abort signals: one side says stop and why, any thread or task hears it.

`AbortController` is held by the caller, its `signal` is handed down. Signals merge with `AbortSignal.any`, so a call
can only shorten the life that it was given. Source: contract row P7.
"""

import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import Self

from callgate.errors import AbortedError, UsageError

__all__ = ("AbortController", "AbortSignal")

Listener = Callable[[], None]


class AbortSignal:
    """Tell whether, and why, a call is to stop. Thread safe; it goes from open to aborted once."""

    __slots__ = ("__weakref__", "_event", "_listeners", "_lock", "_reason", "_sources")

    def __init__(self) -> None:
        self._reason: BaseException | None = None
        self._lock = threading.Lock()
        self._listeners: dict[object, Listener] = {}
        self._event: threading.Event | None = None
        self._sources: tuple[Callable[[], None], ...] = ()

    @property
    def aborted(self) -> bool:
        """Whether the signal was given."""
        return self._reason is not None

    @property
    def reason(self) -> BaseException | None:
        """The exception that the aborting side gave, or None while the signal is open."""
        return self._reason

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block this thread until the abort or for `timeout_s` seconds (None: without end); tell whether it came."""
        with self._lock:
            if self._reason is not None:
                return True
            event = self._event = self._event or threading.Event()
        return event.wait(timeout_s)

    def raise_if_aborted(self) -> None:
        """Raise the signal's own reason when it was given."""
        if self._reason is not None:
            raise self._reason

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` once at the abort, in the aborting thread, or now when it has come; give its removal.

        A listener must not block and must not raise; what it raises is dropped, so that every other one is called.
        """
        with self._lock:
            if self._reason is None:
                key = object()  # one for each time: a listener may be added twice
                self._listeners[key] = listener
                return lambda: self._forget(key)
        _call(listener)
        return lambda: None

    @classmethod
    def any(cls, *signals: "AbortSignal | None") -> Self:
        """Merge: the result is aborted, with the first one's reason, as soon as one of `signals` is."""
        merged = cls()
        merged._sources = tuple(signal.add_listener(partial(merged._take, signal)) for signal in signals if signal is not None)
        return merged

    def release(self) -> None:
        """Stop listening to the signals this one was merged from; call it when the merged signal is done with."""
        for remove in self._sources:
            remove()
        self._sources = ()

    def _take(self, source: "AbortSignal") -> None:
        self._give(source.reason)

    def _forget(self, key: object) -> None:
        with self._lock:
            self._listeners.pop(key, None)

    def _give(self, reason: BaseException | None) -> None:
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason if reason is not None else AbortedError()
            listeners, self._listeners = tuple(self._listeners.values()), {}
            event = self._event
        if event is not None:
            event.set()
        for listener in listeners:
            _call(listener)


class AbortController:
    """Hold the right to abort the calls that were given `signal`."""

    __slots__ = ("signal",)

    def __init__(self) -> None:
        self.signal = AbortSignal()

    def abort(self, reason: BaseException | str | None = None) -> None:
        """Give the signal, with an exception as its reason or a text for an `AbortedError`; later calls do nothing.

        Raises:
            UsageError: the reason cannot be raised, or is a `StopIteration`, which no coroutine can raise.
        """
        given = AbortedError(reason) if isinstance(reason, str) else reason
        if given is not None and not _can_be_raised(given):
            raise UsageError(f"the reason of an abort is an exception or a text, not {type(given).__name__}")
        self.signal._give(given)  # noqa: SLF001 - of this module: the controller alone may give its signal


def _can_be_raised(reason: object) -> bool:
    return isinstance(reason, BaseException) and not isinstance(reason, StopIteration)


def _call(listener: Listener) -> None:
    with contextlib.suppress(BaseException):  # not even what is no Exception may keep the others from hearing
        listener()
