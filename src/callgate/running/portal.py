"""An event loop in a daemon thread, for async tools that are called from code without a loop."""

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from typing import Any, ClassVar, TypeVar

__all__ = ("Portal", "PortalError", "run_in_portal")

T = TypeVar("T")


class PortalError(Exception):
    """Tell that there is no event loop to run on; nothing has run."""


class Portal:
    """Run coroutines on a loop of its own and block until they end.

    One loop serves all, so that what tools keep open (connections, locks) stays on the loop that it belongs to.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="callgate-portal", daemon=True).start()

    def run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run the coroutine that `make` gives, in a copy of this thread's context, and give its value.

        Raises:
            BaseException: what the coroutine raised. An interrupt of this thread cancels it first.
        """
        ended: concurrent.futures.Future[T] = concurrent.futures.Future()
        context = copy_context()
        tasks: list[asyncio.Task[None]] = []

        async def carry() -> None:
            try:
                ended.set_result(await make())
            except BaseException as error:  # noqa: BLE001 - raised in the blocked thread
                ended.set_exception(error)

        self._loop.call_soon_threadsafe(lambda: tasks.append(self._loop.create_task(carry(), context=context)))
        try:
            return ended.result()
        except BaseException:
            self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
            raise


class _Shared:
    lock = threading.Lock()
    process = 0
    portals: ClassVar[list[Portal]] = []


_depth: ContextVar[int] = ContextVar("callgate_portal_depth", default=0)


def run_in_portal(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run the coroutine that `make` gives on a loop of callgate's own, and block until it ends.

    A tool on such a loop may itself call a tool and block; that call gets the next loop, because the first one is blocked.

    Raises:
        PortalError: the system has no means for a loop.
        BaseException: what the coroutine raised.
    """
    depth = _depth.get()
    token = _depth.set(depth + 1)  # for the coroutine, which gets a copy of this context
    try:
        return _portal(depth).run(make)
    finally:
        _depth.reset(token)


def _portal(depth: int) -> Portal:
    with _Shared.lock:
        if _Shared.process != os.getpid():  # a forked process has none of the threads
            _Shared.process, _Shared.portals = os.getpid(), []
        try:
            while len(_Shared.portals) <= depth:
                _Shared.portals.append(Portal())
        except (OSError, RuntimeError) as error:
            raise PortalError("the system gives no more files or threads") from error
        return _Shared.portals[depth]
