"""Wait in line for a slot, in a coroutine or in a blocked thread. Time in line is no time of the tool (case g1)."""

import asyncio
import threading
from functools import partial
from typing import Literal, TypeAlias

from callgate.running.driving import call_in_loop
from callgate.running.slots import Slots, Waiter
from callgate.signals import AbortSignal

__all__ = ("Place", "block_for_slot", "wait_for_slot")

Place: TypeAlias = Literal["given", "refused", "aborted", "too_late"]


async def wait_for_slot(slots: Slots, signal: AbortSignal | None, patience_s: float | None) -> Place:
    """Wait until a slot is given, refused, the signal is aborted, or `patience_s` seconds are over (None: no end).

    Raises:
        asyncio.CancelledError: when the waiting task was cancelled; no slot is held then.
    """
    if slots.take():
        return "given"
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    wake = partial(_resolve, future)
    remote_wake = partial(call_in_loop, loop, wake)
    waiter = slots.wait(remote_wake)
    timer = None if patience_s is None else loop.call_later(patience_s, wake)
    deaf = None if signal is None else signal.add_listener(remote_wake)
    try:
        await future
    except BaseException:
        slots.leave(waiter)
        raise
    finally:
        if timer is not None:
            timer.cancel()
        if deaf is not None:
            deaf()
    return _place(slots, waiter, signal)


def block_for_slot(slots: Slots, signal: AbortSignal | None, patience_s: float | None) -> Place:
    """Block this thread as `wait_for_slot` waits.

    Raises:
        KeyboardInterrupt: when it was pressed; no slot is held then.
    """
    if slots.take():
        return "given"
    woken = threading.Event()
    waiter = slots.wait(woken.set)
    deaf = None if signal is None else signal.add_listener(woken.set)
    try:
        woken.wait(patience_s)
    except BaseException:
        slots.leave(waiter)
        raise
    finally:
        if deaf is not None:
            deaf()
    return _place(slots, waiter, signal)


def _place(slots: Slots, waiter: Waiter, signal: AbortSignal | None) -> Place:
    aborted = signal is not None and signal.aborted
    if waiter.settled and not aborted:
        return "given" if waiter.given else "refused"
    slots.leave(waiter)
    return "aborted" if aborted else "too_late"


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
