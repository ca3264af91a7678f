"""Run a coroutine so that one that does not wait costs no task, and one that does not stop costs no caller.

The idea. `asyncio.create_task` for every call costs ten times what a small tool costs. Stepping the coroutine inside the
caller's task is cheap, but then everything the tool opens (a time-out, a task group, a cancel scope) is bound to the
caller's task: when the tool outlives its limit, its own timers later cancel the caller. So the first step is taken by the
caller *in the name of another task*: a parked one, taken from a pool, is made the current task for the length of that
step (`_enter_task` and `_leave_task`, which asyncio's documentation offers to extensions). A coroutine that ends within
the step is done, and the task goes back to the pool. One that waits is bound to the parked task already, which wakes up
and carries it on; to stop it is to cancel that task, and to give it up is to look away. Source: docs/adr/0003.
"""

import asyncio
import threading
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, Final, TypeAlias, cast

__all__ = ("Body", "Finish", "Host", "HostPool", "current_pool")

_MAX_PARKED: Final = 256

Body: TypeAlias = Coroutine[Any, Any, object]
Finish: TypeAlias = Callable[[object, BaseException | None], None]
_TaskHook: TypeAlias = Callable[[asyncio.AbstractEventLoop, object], None]

_enter_task = cast("_TaskHook", asyncio.tasks._enter_task)
_leave_task = cast("_TaskHook", asyncio.tasks._leave_task)
_register_task = cast("Callable[[object], None]", asyncio.tasks._register_task)
_unregister_task = cast("Callable[[object], None]", asyncio.tasks._unregister_task)


class Host:
    """Be a parked task that lends its identity to a coroutine, and carries it on when it has to wait."""

    __slots__ = ("_body", "_context", "_finish", "_pool", "_yielded", "gate", "task")

    def __init__(self, pool: "HostPool") -> None:
        self._pool = pool
        self._body: Body | None = None
        self._context: Context | None = None
        self._yielded: object = None
        self._finish: Finish | None = None
        self.gate: asyncio.Future[None] | None = None
        self.task: asyncio.Task[None] = asyncio.Task(self._live(), loop=pool.loop)
        # A task that is parked when its loop ends is no fault to be logged.
        self.task._log_destroy_pending = False  # type: ignore[attr-defined]

    def carry(self, body: Body, context: Context, yielded: object, finish: Finish) -> None:
        """Carry on `body`, which has just yielded `yielded`; `finish(value, error)` is called when it ends."""
        self._body, self._context, self._yielded, self._finish = body, context, yielded, finish
        _register_task(self.task)
        assert self.gate is not None
        if not self.gate.done():  # it is done when the body cancelled its own task within the first step
            self.gate.set_result(None)

    def cancel(self) -> None:
        """Ask the body to stop, by a `CancelledError` where it waits."""
        self.task.cancel()

    async def _live(self) -> None:
        while len(self._pool.parked) < _MAX_PARKED:
            cancelled = await self._park()
            finish = self._finish
            if finish is None:
                return
            value, error = await self._rest(cancelled)
            self._body = self._context = self._yielded = self._finish = self.gate = None
            finish(value, error)
            if self.task.cancelling():  # a task that was cancelled once would tell the next tool so
                return

    @types.coroutine
    def _park(self) -> Generator[object, None, asyncio.CancelledError | None]:
        _unregister_task(self.task)  # a task that does nothing is not among all_tasks()
        self.gate = self._pool.loop.create_future()
        self._pool.parked.append(self)
        try:
            yield from self.gate
        except asyncio.CancelledError as cancelled:
            return cancelled
        return None

    @types.coroutine
    def _rest(self, cancelled: asyncio.CancelledError | None) -> Generator[object, object, tuple[object, BaseException | None]]:
        body, context, waiting = self._body, self._context, self._yielded
        assert body is not None
        assert context is not None
        try:
            if cancelled is not None and not (asyncio.isfuture(waiting) and waiting.cancel()):
                waiting = context.run(body.throw, cancelled)
            while True:
                try:
                    sent = yield waiting
                except GeneratorExit:  # the loop is gone: end the body here and tell nobody
                    body.close()
                    raise
                except BaseException as error:
                    waiting = context.run(body.throw, error)
                else:
                    waiting = context.run(body.send, sent)
        except StopIteration as stop:
            return stop.value, None
        except GeneratorExit:
            raise
        except BaseException as error:
            return None, error


class HostPool:
    """Keep the parked tasks of one event loop."""

    __slots__ = ("loop", "parked")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.parked: deque[Host] = deque()

    def take(self) -> Host | None:
        """Take a parked task, if there is one."""
        while self.parked:
            host = self.parked.pop()
            if host.gate is not None and not host.gate.done():
                return host
        return None

    async def make(self) -> Host:
        """Make a task and wait the one turn of the loop that it needs to park."""
        while True:
            Host(self)
            await asyncio.sleep(0)
            host = self.take()
            if host is not None:
                return host

    def first_step(self, host: Host, body: Body, context: Context) -> object:
        """Take the first step of `body` in `context` as `host.task`, and give what it yielded.

        Raises:
            StopIteration: with the body's value, when it ended; any other exception is the body's own.
        """
        loop, caller = self.loop, asyncio.current_task(self.loop)
        _leave_task(loop, caller)
        _enter_task(loop, host.task)
        try:
            return context.run(body.send, None)
        finally:
            _leave_task(loop, host.task)
            _enter_task(loop, caller)


class _Local(threading.local):
    pool: HostPool | None = None


_local: Final = _Local()


def current_pool() -> HostPool:
    """Give the pool of the running event loop.

    Raises:
        RuntimeError: when no event loop runs in this thread.
    """
    loop = asyncio.get_running_loop()
    pool = _local.pool
    if pool is None or pool.loop is not loop:
        pool = _local.pool = HostPool(loop)
    return pool
