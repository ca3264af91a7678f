"""`told_by`: a stream of what a coroutine tells while it runs, in a task of its own."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeVar

__all__ = ("told_by",)

E = TypeVar("E")


async def told_by(go: Callable[[Callable[[E], None]], Coroutine[Any, Any, object]]) -> AsyncGenerator[E, None]:
    """Run `go(tell)`, and give what it tells, from whichever thread. Leaving early cancels it and waits for its end.

    Raises:
        BaseException: what `go` raises, when everything that it told has been given.
    """
    queue: asyncio.Queue[tuple[E] | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def tell(event: E) -> None:
        try:
            here = asyncio.get_running_loop() is loop
        except RuntimeError:  # progress of a tool comes from its thread
            here = False
        if here:
            queue.put_nowait((event,))
        else:
            loop.call_soon_threadsafe(queue.put_nowait, (event,))

    def end(_task: "asyncio.Future[object]") -> None:
        queue.put_nowait(None)

    task: asyncio.Task[object] = asyncio.ensure_future(go(tell))
    task.add_done_callback(end)
    try:
        while (told := await queue.get()) is not None:
            yield told[0]
        await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
