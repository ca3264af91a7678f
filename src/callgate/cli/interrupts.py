"""Run a command's work so that Ctrl-C stops it and what has ended is still stored."""

import asyncio
import itertools
import signal
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from callgate.gate import Gate

__all__ = ("closed", "run_closing", "run_stoppable")

T = TypeVar("T")
_PATIENCE_S: Final = 5.0
_PATIENT_CTRL_CS: Final = 2


def run_closing(gate: Gate, work: Coroutine[Any, Any, T]) -> T:
    """Do work and close the gate behind it."""
    with asyncio.Runner() as runner:
        try:
            return run_stoppable(runner, work)
        finally:
            runner.run(closed(gate))


def run_stoppable(runner: asyncio.Runner, work: Coroutine[Any, Any, T]) -> T:
    """Do work that Ctrl-C cancels.

    Raises:
        KeyboardInterrupt: when it was pressed, and the work has ended.
    """
    try:
        return runner.run(_until_ctrl_c(work))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _until_ctrl_c(work: Coroutine[Any, Any, T]) -> T:
    """Cancel work at Ctrl-C. The third one breaks in wherever the program is, so that a loop that stands still can be left, too.

    The handler of `asyncio.Runner` does so at the second one, and in the middle of some other task, whose end is then not stored.
    """
    task, loop, pressed = asyncio.current_task(), asyncio.get_running_loop(), itertools.count(1)
    assert task is not None

    def on_ctrl_c(*_: object) -> None:
        if next(pressed) > _PATIENT_CTRL_CS:
            raise KeyboardInterrupt
        loop.call_soon_threadsafe(task.cancel)

    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:  # started in the background of a script
        return await work
    signal.signal(signal.SIGINT, on_ctrl_c)
    try:
        return await work
    finally:
        signal.signal(signal.SIGINT, before)


async def closed(gate: Gate) -> None:
    """Close a gate when what a second Ctrl-C has left is over: until then its ends are still to be stored."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        done, _ = await asyncio.wait(left, timeout=_PATIENCE_S)
        for task in done:
            if not task.cancelled():
                task.exception()  # the run is stored; what ended it was the person's own doing
    await gate.aclose()
