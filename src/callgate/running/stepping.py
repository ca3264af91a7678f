"""Run a coroutine so that one that does not wait costs no task, and one that does not stop costs no caller.

The idea. `asyncio.create_task` for every call costs ten times what a small tool costs. Stepping the coroutine inside the
caller's task is cheap, but then everything the tool opens (a time-out, a task group, a cancel scope) is bound to the
caller's task: when the tool outlives its limit, its own timers later cancel the caller. So the caller takes the steps *in the
name of another task*: a parked one, its host, is made the current task for the length of each step (`_enter_task` and
`_leave_task`, which asyncio's documentation offers to extensions). What the tool opens is bound to the host.

    Host, parked ──taken──► first step in its name ──ends──► back to the pool
                                  │ waits
                                  ▼
                            Ride: the caller's task waits for the same future, and takes the next step in the host's name
                                  │ waits for a task, or waits on after it was asked to stop
                                  ▼
                            carried: the host wakes up and goes on with the coroutine alone; the caller may look away

To stop a tool is to cancel its host, whoever does it: the gate that the host is parked at is cancelled with it, which the
caller's task sees before its next step, and which wakes it when it waits. Source: docs/adr/0003.
"""

import asyncio
import threading
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from sys import getrefcount
from typing import Any, Final, TypeAlias, cast

from callgate.running.flight import Flight

__all__ = ("Body", "Finish", "Host", "HostPool", "Ride", "current_pool")

_MAX_PARKED: Final = 1024

Body: TypeAlias = Coroutine[Any, Any, object]
Finish: TypeAlias = Callable[[object, BaseException | None], None]
_TaskHook: TypeAlias = Callable[[asyncio.AbstractEventLoop, object], None]

# asyncio documents these four for extensions.
_enter_task = cast("_TaskHook", asyncio.tasks._enter_task)  # noqa: SLF001
_leave_task = cast("_TaskHook", asyncio.tasks._leave_task)  # noqa: SLF001
_register_task = cast("Callable[[object], None]", asyncio.tasks._register_task)  # noqa: SLF001
_unregister_task = cast("Callable[[object], None]", asyncio.tasks._unregister_task)  # noqa: SLF001


class Host:
    """Be a parked task that lends its identity to a coroutine, and carries it on when the caller does not."""

    __slots__ = (
        "__weakref__",
        "_asked",
        "_body",
        "_context",
        "_finish",
        "_pool",
        "_told",
        "_yielded",
        "gate",
        "lent",
        "references",
        "task",
        "waiting",
    )

    def __init__(self, pool: "HostPool") -> None:
        self._pool = pool
        self._body: Body | None = None
        self._context: Context | None = None
        self._yielded: object = None
        self._finish: Finish | None = None
        self._asked: asyncio.CancelledError | None = None
        self._told: asyncio.Future[None] | None = None
        self.lent = False
        self.references = 0
        self.waiting: asyncio.Future[Any] | None = None
        self.gate: asyncio.Future[None] = pool.loop.create_future()
        self.task: asyncio.Task[None] = asyncio.Task(self._live(), loop=pool.loop)
        # A task that is parked when its loop ends is no fault to be logged.
        self.task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001

    def cancel(self) -> None:
        """Ask the body to stop, by a `CancelledError` where it waits. On the loop's own thread only."""
        self.task.cancel()

    def take_request(self) -> asyncio.CancelledError | None:
        """Give, once for each time that somebody asked the body to stop, what is to be thrown into it now."""
        asked, self._asked = self._asked, None
        if self.gate.cancelled() and self.gate is not self._told:
            self._told = self.gate
            asked = asked or _cancellation_of(self.gate)
        return asked

    def disown(self) -> None:
        """Let the loop forget the body that is carried: whoever ends the loop must not wait for one that does not stop."""
        _unregister_task(self.task)

    def carry(self, body: Body, context: Context, yielded: object, finish: Finish) -> None:
        """Carry on `body`, which has just yielded `yielded`, alone; `finish(value, error)` is called when it ends."""
        self._body, self._context, self._yielded, self._finish = body, context, yielded, finish
        _register_task(self.task)
        if not self.gate.done():  # it is done when the body was asked to stop within its last step
            self.gate.set_result(None)

    def give_back(self) -> None:
        """Take the host back when its body has ended without being carried.

        A host that was ever cancelled would tell so to the next body, and one that somebody still holds (a timer that will
        call `task.cancel`) could be cancelled in its name; one with callbacks has to end for them to run. All end here.
        """
        self.lent = False
        if self.gate.done():
            return
        if self._is_spent():
            self.gate.set_result(None)
        else:
            self._pool.parked.append(self)

    def _is_spent(self) -> bool:
        """Tell whether the task was marked by a body: cancelled once, held by somebody, or waited for by callbacks."""
        callbacks: object = getattr(self.task, "_callbacks", None)
        return bool(callbacks) or bool(self.task.cancelling()) or getrefcount(self.task) > self.references

    async def _live(self) -> None:
        while len(self._pool.parked) < _MAX_PARKED:
            cancelled = await self._park()
            finish = self._finish
            if finish is None:
                return
            value, error = await self._rest(cancelled)
            self._body = self._context = self._yielded = self._finish = None
            self.lent = False
            finish(value, error)
            if self._is_spent():
                return

    @types.coroutine
    def _park(self) -> Generator[object, None, asyncio.CancelledError | None]:
        """Wait for a body to carry; give the cancellation that came meanwhile and that the body does not know of yet."""
        _unregister_task(self.task)  # a task that does nothing is not among all_tasks()
        self.gate = self._pool.loop.create_future()
        self._pool.parked.append(self)
        while True:
            try:
                yield from self.gate
            except asyncio.CancelledError as cancelled:
                untold = self.gate is not self._told
                if self._finish is not None:
                    return cancelled if untold else None
                if not self.lent:
                    raise
                self._pass_on(cancelled if untold else None)
            else:
                return None

    def _pass_on(self, untold: asyncio.CancelledError | None) -> None:
        """Wake the ride, so that it tells the body to stop, in the words that were used; then go on waiting."""
        if untold is not None:
            self._asked = untold
            if self.waiting is not None:
                self.waiting.cancel()
        self.gate = self._pool.loop.create_future()

    def _tell_gone(self, error: BaseException) -> None:
        if self._finish is not None and not self._pool.loop.is_running():
            self._finish(None, error)

    @types.coroutine
    def _rest(self, cancelled: asyncio.CancelledError | None) -> Generator[object, object, tuple[object, BaseException | None]]:
        body, context, waiting = self._body, self._context, self._yielded
        assert body is not None
        assert context is not None
        gone = False
        try:
            if cancelled is not None and not (asyncio.isfuture(waiting) and waiting.cancel(*cancelled.args)):
                waiting = context.run(body.throw, cancelled)
            while True:
                try:
                    sent = yield waiting
                except GeneratorExit:  # the loop is gone: end the body here and tell nobody
                    gone = True
                    body.close()
                    raise
                except BaseException as error:  # noqa: BLE001 - whatever reaches the task belongs to the body
                    waiting = context.run(body.throw, error)
                else:
                    waiting = context.run(body.send, sent)
        except StopIteration as stop:
            return stop.value, None
        except BaseException as error:
            if gone:
                self._tell_gone(error)
                raise
            return None, error  # the body's end, told to whoever waits for it


class Ride:
    """Take the steps of a body that waits, in its host's name, inside the task of the caller.

    Its flight is told when the body ends, here or later in its host.
    """

    __slots__ = ("_body", "_context", "_flight", "_host", "_pool", "_yielded")

    def __init__(self, pool: "HostPool", host: Host, body: Body, context: Context) -> None:
        self._pool = pool
        self._host = host
        self._body = body
        self._context = context
        self._yielded: object = None
        self._flight: Flight | None = None

    def begin(self, yielded: object, flight: Flight) -> None:
        """Note what the first step yielded, and which flight is to hear of the end."""
        self._yielded, self._flight = yielded, flight
        self._host.lent = True

    def disown(self) -> None:
        """Let the loop forget the body; see `Host.disown`."""
        self._host.disown()

    @types.coroutine
    def steps(self) -> Generator[object, object, bool]:
        """Take steps until the body ends (True) or its host carries it on (False).

        The caller's task waits for plain futures only: to cancel one is to be woken by it at once. A task that the body
        waits for may take its time to end, and a body that was asked to stop and waits on may never end; the host waits
        for those.

        Raises:
            asyncio.CancelledError: the caller's task was cancelled; the body was told, and has ended or is carried on.
        """
        caller = asyncio.current_task(self._pool.loop)
        assert caller is not None
        cancels = caller.cancelling()
        while _is_plain(self._yielded):
            thrown: BaseException | None = None
            sent: object = None
            self._host.waiting = cast("asyncio.Future[Any] | None", self._yielded)
            try:
                sent = yield self._yielded
            except GeneratorExit as gone:  # the caller's loop is gone
                self._body.close()
                self._end(None, gone)
                raise
            except BaseException as error:  # noqa: BLE001 - whatever reaches the task is looked at below
                thrown = error
            self._host.waiting = None
            if caller.cancelling() > cancels:
                self._host.cancel()
                request = self._host.take_request()
                if self._flight is not None:
                    self._flight.stop("cancelled")  # so that the tool's signal speaks before it is told
                self._last_step(request)
                raise thrown if isinstance(thrown, asyncio.CancelledError) else asyncio.CancelledError
            request = self._host.take_request()
            if request is not None:
                return self._last_step(request)
            if self._step(sent, thrown):
                return True
        return self._hand_over()

    def _step(self, sent: object, thrown: BaseException | None) -> bool:
        """Take one step; tell whether the body has ended with it."""
        try:
            if thrown is None:
                self._yielded = self._pool.step(self._host, self._context, self._body.send, sent)
            else:
                self._yielded = self._pool.step(self._host, self._context, self._body.throw, thrown)
        except StopIteration as stop:
            return self._end(stop.value, None)
        except BaseException as error:  # noqa: BLE001 - the tool's own body
            return self._end(None, error)
        return False

    def _last_step(self, request: asyncio.CancelledError | None) -> bool:
        """Tell the body that it is to stop; when it waits on nevertheless, leave it to its host."""
        return self._step(None, request or asyncio.CancelledError()) or self._hand_over()

    def _hand_over(self) -> bool:
        assert self._flight is not None
        self._host.carry(self._body, self._context, self._yielded, self._flight.finish)
        return False

    def _end(self, value: object, error: BaseException | None) -> bool:
        self._host.give_back()
        assert self._flight is not None
        self._flight.finish(value, error)
        return True


def _cancellation_of(cancelled: "asyncio.Future[None]") -> asyncio.CancelledError:
    try:
        cancelled.result()
    except asyncio.CancelledError as request:  # with the words of whoever cancelled, which anyio reads
        return request
    return asyncio.CancelledError()


def _is_plain(yielded: object) -> bool:
    return yielded is None or type(yielded) is asyncio.Future


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
            if not host.gate.done():
                host.references = host.references or getrefcount(host.task)
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

    def step(self, host: Host, context: Context, method: Callable[[Any], object], argument: object) -> object:
        """Take one step of a body in `context` as `host.task`, and give what it yielded.

        Raises:
            StopIteration: with the body's value, when it ended; any other exception is the body's own.
        """
        loop, caller = self.loop, asyncio.current_task(self.loop)
        _leave_task(loop, caller)
        _enter_task(loop, host.task)
        try:
            return context.run(method, argument)
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
