"""Call a tool's function where its options say, and turn whatever it gives back into one value."""

from collections.abc import AsyncGenerator, Awaitable, Generator
from contextvars import Context
from inspect import isasyncgen, isawaitable, iscoroutine, isgenerator
from sys import getsizeof
from typing import Final, cast

from callgate.errors import AbortedError, OutputTooLargeError
from callgate.registry.requests import Call
from callgate.registry.starting import tell_progress
from callgate.running.flight import Flight
from callgate.running.stepping import Body

__all__ = ("MAX_COLLECTED_BYTES", "call_here", "needs_await", "ready", "thread_work", "to_coroutine")

MAX_COLLECTED_BYTES: Final = 64 * 1024 * 1024
"""The most that the items of one generator may take, as Python counts them without what they refer to."""

_ITEM_BYTES: Final = 8
_FINAL_KINDS: Final = frozenset({str, int, float, bool, type(None), dict, list, tuple})


def call_here(call: Call) -> object:
    """Call the tool's function in this thread; of a generator, collect the items and tell each as progress."""
    value = call.entry.call(call.arguments, call.context)
    return _collect(call, cast("Generator[object, object, object]", value)) if isgenerator(value) else value


def needs_await(value: object) -> bool:
    """Tell whether a function gave back what must be awaited, whether or not it was declared async (case d16)."""
    return type(value) not in _FINAL_KINDS and (iscoroutine(value) or isasyncgen(value) or isawaitable(value))


def to_coroutine(call: Call, value: object) -> Body:
    """Make a coroutine of what must be awaited; of an async generator, one that collects its items."""
    if iscoroutine(value):
        return value
    if isasyncgen(value):
        return _collect_async(call, cast("AsyncGenerator[object, object]", value))
    return _await(cast("Awaitable[object]", value))


def thread_work(call: Call, context: Context, flight: Flight) -> None:
    """Do the whole of a sync body in a thread of the pool, and tell its flight how it ended."""
    try:
        value = context.run(call_here, call)
    except BaseException as error:  # noqa: BLE001 - the tool's own body
        flight.finish(None, error)
    else:
        flight.finish(value, None)


def _collect(call: Call, items: Generator[object, object, object]) -> list[object]:
    collected = _Collected(call)
    try:
        for item in items:
            collected.add(item)
    finally:
        items.close()
    return collected.items


async def _collect_async(call: Call, items: AsyncGenerator[object, object]) -> list[object]:
    collected = _Collected(call)
    try:
        async for item in items:
            collected.add(item)
    finally:
        await items.aclose()
    return collected.items


class _Collected:
    """Collect what a generator gives, and tell each item as progress, no longer than somebody waits for it."""

    __slots__ = ("_call", "_size", "items")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._size = 0
        self.items: list[object] = []

    def add(self, item: object) -> None:
        """Take one item.

        Raises:
            ToolTimeoutError, AbortedError: the call was stopped; the generator is to be closed.
            OutputTooLargeError: the items together are larger than any answer.
        """
        flight = self._call.flight
        if flight is not None and flight.verdict is not None:
            raise AbortedError("the call was stopped while its generator went on")
        self._size += _ITEM_BYTES + getsizeof(item, 0)
        if self._size > MAX_COLLECTED_BYTES:
            raise OutputTooLargeError(self._call.entry.name, self._size, MAX_COLLECTED_BYTES)
        tell_progress(self._call, item)
        self.items.append(item)


async def ready(value: object) -> object:
    """Give a value that an async callable returned without being awaited."""
    return value


async def _await(value: Awaitable[object]) -> object:
    return await value
