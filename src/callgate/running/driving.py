"""Wait for a flight, in a coroutine or in a blocked thread, under a limit and an abort signal.

Both drivers keep the same promise: they return when the body has ended, or a grace after its limit or its abort, never
later. What the flight holds then (`verdict`, `error`, `value`, or neither) is for the caller to judge.
"""

import asyncio
import threading
from collections.abc import Callable
from functools import partial

from callgate.running.flight import Flight
from callgate.signals import AbortSignal

__all__ = ("await_flight", "block_on_flight", "call_in_loop", "settle_cancelled")


async def await_flight(flight: Flight, limit_s: float | None, signal: AbortSignal | None, *, same_thread: bool) -> None:
    """Wait until `flight` has ended or is to be given up; `same_thread` says that its body runs on this event loop.

    Raises:
        asyncio.CancelledError: when the waiting task was cancelled from outside. The body has then been interrupted and
            has ended, or has had `cancel_grace_s` seconds to do so.
    """
    loop = asyncio.get_running_loop()
    watch = _Watch(loop, flight)
    flight.on_end(watch.wake if same_thread else partial(call_in_loop, loop, watch.wake))
    flight.on_stop(partial(call_in_loop, loop, watch.start_grace))
    timer = None if limit_s is None else loop.call_later(limit_s, flight.stop, "timeout")
    deaf = None if signal is None else signal.add_listener(partial(call_in_loop, loop, flight.stop, "aborted"))
    try:
        await watch.future
    except asyncio.CancelledError:
        await settle_cancelled(flight)
        raise
    finally:
        watch.close()
        if timer is not None:
            timer.cancel()
        if deaf is not None:
            deaf()


async def settle_cancelled(flight: Flight) -> None:
    """Wait, after the waiting task was cancelled, until the interrupted body has ended, or its time to do so is over.

    Raises:
        asyncio.CancelledError: when the task was cancelled once more; it waits no longer then.
    """
    flight.stop("cancelled")
    loop = asyncio.get_running_loop()
    watch = _Watch(loop, flight)
    flight.on_end(partial(call_in_loop, loop, watch.wake))
    watch.wake_in(flight.cancel_grace_s)
    try:
        await watch.future
    finally:
        watch.close()


def block_on_flight(flight: Flight, limit_s: float | None, signal: AbortSignal | None) -> None:
    """Block this thread until `flight` has ended or is to be given up.

    Raises:
        KeyboardInterrupt: when it was pressed; the body has then been interrupted.
    """
    ended, noticed = threading.Event(), threading.Event()
    flight.on_end(partial(_set, ended, noticed))
    flight.on_stop(noticed.set)
    deaf = None if signal is None else signal.add_listener(partial(flight.stop, "aborted"))
    try:
        if not noticed.wait(None if limit_s is None else min(limit_s, threading.TIMEOUT_MAX)):
            flight.stop("timeout")
        if not ended.is_set():
            ended.wait(flight.grace_s)
    except BaseException:
        flight.stop("cancelled")
        raise
    finally:
        if deaf is not None:
            deaf()


class _Watch:
    __slots__ = ("_flight", "_grace", "_loop", "future")

    def __init__(self, loop: asyncio.AbstractEventLoop, flight: Flight) -> None:
        self._loop = loop
        self._flight = flight
        self._grace: asyncio.TimerHandle | None = None
        self.future: asyncio.Future[None] = loop.create_future()

    def wake(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def start_grace(self) -> None:
        flight = self._flight
        self.wake_in(flight.cancel_grace_s if flight.verdict == "cancelled" else flight.grace_s)

    def close(self) -> None:
        if self._grace is not None:
            self._grace.cancel()

    def wake_in(self, delay_s: float) -> None:
        self.close()
        self._grace = self._loop.call_later(delay_s, self.wake)


def call_in_loop(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: object) -> None:
    """Call `callback` on `loop`, from any thread; nothing happens when the loop is closed, for nobody waits there then."""
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:
        return


def _set(*events: threading.Event) -> None:
    for event in events:
        event.set()
