"""Run a tool's body in a worker process, from a thread that supervises it."""

import threading
from collections.abc import Callable, Mapping
from contextvars import Context
from typing import Any

from callgate.errors import OutputTooLargeError, ToolFailedError
from callgate.registry.requests import Call
from callgate.registry.starting import tell_progress
from callgate.running.flight import Flight
from callgate.running.processes import (
    ProcessAborted,
    ProcessDied,
    ProcessJob,
    ProcessOutputTooLarge,
    ProcessPool,
    ProcessTimeout,
)
from callgate.signals import AbortController
from callgate.tools.context import ToolContext

__all__ = ("process_work", "shared_processes")


class _Shared:
    lock = threading.Lock()
    processes: ProcessPool | None = None


def shared_processes() -> ProcessPool:
    """Give the pool of worker processes that all registries of this process share, made at its first use."""
    with _Shared.lock:
        if _Shared.processes is None:
            _Shared.processes = ProcessPool()
        return _Shared.processes


def process_work(call: Call, context: Context, flight: Flight, timeout_s: float | None) -> None:
    """Supervise a body in a worker process from a thread of the pool, and tell its flight how it ended."""
    stopper = AbortController()
    flight.interrupt = stopper.abort
    if flight.verdict is not None:
        stopper.abort()
    try:
        job, deadline = _job(call, context), call.options.deadline
        value = shared_processes().run(job, stop=stopper.signal, timeout_s=timeout_s, deadline=deadline)
    except ProcessTimeout as late:
        # A start that took long can let the deadline come before a limit that was the shorter one when the call came.
        if late.by_deadline and call.limit_source != "deadline":
            call.limit_s, call.limit_source = late.limit_s, "deadline"
        flight.stop("timeout")
        flight.finish(None, None)
    except ProcessAborted as aborted:
        flight.finish(None, aborted)
    except ProcessOutputTooLarge as large:
        too_large = OutputTooLargeError(call.entry.name, large.size_bytes, large.limit_bytes)
        too_large.__cause__ = large
        flight.finish(None, too_large)
    except ProcessDied as died:
        failure = ToolFailedError(call.entry.name, "its process ended without an answer")
        failure.__cause__ = died
        flight.finish(None, failure)
    except BaseException as error:  # noqa: BLE001 - the tool's own body
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
    keys = ("tool", "invocation_id", "thread_id", "user_context", "call_context", "deadline", "arguments")
    return {key: getattr(call.context, key) for key in keys}


def _context_there(data: Mapping[str, Any], progress: Callable[[object], None]) -> ToolContext:
    """Build the context anew in the worker; the monotonic clock is the machine's, so the deadline means the same there."""
    return ToolContext(**data, send_progress=progress)
