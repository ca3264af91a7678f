"""Call a tool's function where its options say, and turn whatever it gives back into one value."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextvars import Context
from inspect import isasyncgen, isawaitable, iscoroutine, isgenerator
from typing import Any, Final, cast

from callgate.errors import ToolFailedError
from callgate.registry.requests import Call
from callgate.registry.starting import tell_progress
from callgate.running.flight import Flight
from callgate.running.processes import ProcessAborted, ProcessDied, ProcessJob, ProcessPool, ProcessTimeout
from callgate.running.stepping import Body
from callgate.signals import AbortController
from callgate.tools.context import ToolContext
from callgate.values import CallContext

__all__ = ("call_here", "needs_await", "process_work", "ready", "thread_work", "to_coroutine")

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
    except BaseException as error:
        flight.finish(None, error)
    else:
        flight.finish(value, None)


def process_work(pool: ProcessPool, call: Call, context: Context, flight: Flight, timeout_s: float | None) -> None:
    """Supervise a body in a worker process from a thread of the pool, and tell its flight how it ended."""
    stopper = AbortController()
    flight.interrupt = stopper.abort
    if flight.verdict is not None:
        stopper.abort()
    try:
        value = pool.run(_job(call, context), stop=stopper.signal, timeout_s=timeout_s)
    except ProcessTimeout:
        flight.stop("timeout")
        flight.finish(None, None)
    except ProcessAborted as aborted:
        flight.finish(None, aborted)
    except ProcessDied as died:
        failure = ToolFailedError(call.entry.name, "its process ended without an answer")
        failure.__cause__ = died
        flight.finish(None, failure)
    except BaseException as error:
        flight.finish(None, error)
    else:
        flight.finish(value, None)


def _job(call: Call, context: Context) -> ProcessJob:
    tool = call.entry.tool
    args, kwargs = tool.bind(call.arguments)
    return ProcessJob(
        function=tool.function,
        args=args,
        kwargs=kwargs,
        max_memory_bytes=tool.options.max_memory_bytes,
        max_cpu_s=tool.options.max_cpu_s,
        context_parameter=tool.context_parameter,
        context_factory=_context_there if tool.wants_context else None,
        context_data=_context_data(call) if tool.wants_context else {},
        on_progress=lambda item: context.run(tell_progress, call, item),
    )


def _context_data(call: Call) -> dict[str, object]:
    keys = ("tool", "invocation_id", "thread_id", "user_context", "call_context", "deadline")
    return {key: getattr(call.context, key) for key in keys}


def _context_there(data: Mapping[str, Any], progress: Callable[[object], None]) -> ToolContext:
    """Build the context anew in the worker; the monotonic clock is the machine's, so the deadline means the same there."""
    call_context: CallContext | None = data["call_context"]
    return ToolContext(**{**data, "call_context": call_context}, send_progress=progress)


def _collect(call: Call, items: Generator[object, object, object]) -> list[object]:
    collected = []
    for item in items:
        tell_progress(call, item)
        collected.append(item)
    return collected


async def _collect_async(call: Call, items: AsyncGenerator[object, object]) -> list[object]:
    collected = []
    try:
        async for item in items:
            tell_progress(call, item)
            collected.append(item)
    finally:
        await items.aclose()
    return collected


async def ready(value: object) -> object:
    """Give a value that an async callable returned without being awaited."""
    return value


async def _await(value: Awaitable[object]) -> object:
    return await value
