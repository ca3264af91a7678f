"""`assured`: wait for what must not be left half known, however often the waiting task is cancelled meanwhile."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

__all__ = ("assured",)

T = TypeVar("T")


async def assured(waiting: Awaitable[T]) -> T:
    """Wait to the end, and raise a cancellation that came meanwhile only then.

    Raises:
        asyncio.CancelledError: this task was cancelled; `waiting` has come to its end all the same.
    """
    task = asyncio.ensure_future(waiting)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
        except BaseException:
            if not task.done():
                raise
    if cancelled is not None:
        raise cancelled
    return task.result()
