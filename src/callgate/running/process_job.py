"""What is sent to a worker process: a function by its name, its arguments, its limits and its context."""

import inspect
import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from types import MappingProxyType
from typing import NamedTuple, cast

from callgate.errors import UsageError
from callgate.running.process_errors import ProcessDataError
from callgate.running.process_script import ALIAS, find_script, load_script

__all__ = ("ContextFactory", "Order", "ProcessJob", "dump_job", "load_job", "require_picklable")

ContextFactory = Callable[[Mapping[str, object], Callable[[object], None]], object]

_NOTHING: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessJob:
    """Say what a worker process is to run, and within which limits.

    `function`, `args`, `kwargs`, `context_factory` and `context_data` are pickled. `max_memory_bytes` bounds the address
    space of the worker (RLIMIT_AS: the interpreter and its libraries count too, some 50 MB and more), `max_cpu_s` the CPU
    seconds of this call, rounded up to whole ones (RLIMIT_CPU); None is no limit. Processes that the tool starts inherit
    both, each for itself.

    With `context_parameter`, `context_factory(context_data, progress)` is called in the worker and its result passed
    under that keyword; whatever the tool hands to `progress` arrives at `on_progress` here, as do the items of a
    generator. `on_progress` runs in the supervising thread, before anything else is looked at: it must not block.

    Raises:
        UsageError: when a limit is not above 0.
    """

    function: Callable[..., object]
    args: tuple[object, ...] = ()
    kwargs: Mapping[str, object] = field(default_factory=lambda: _NOTHING)
    max_memory_bytes: int | None = None
    max_cpu_s: float | None = None
    context_parameter: str | None = None
    context_factory: ContextFactory | None = None
    context_data: Mapping[str, object] = field(default_factory=lambda: _NOTHING)
    on_progress: Callable[[object], None] | None = None

    def __post_init__(self) -> None:
        for name, limit in (("max_memory_bytes", self.max_memory_bytes), ("max_cpu_s", self.max_cpu_s)):
            if limit is not None and not 0 < limit < float("inf"):
                raise UsageError(f"{name} must be a number above 0 or None, not {limit!r}")


class Order(NamedTuple):
    """Be a job as the worker has it."""

    function: Callable[..., object]
    args: tuple[object, ...]
    kwargs: dict[str, object]
    max_memory_bytes: int | None
    max_cpu_s: float | None
    context_parameter: str | None
    context_factory: ContextFactory | None
    context_data: dict[str, object]


def dump_job(job: ProcessJob) -> bytes:
    """Pickle a job.

    Raises:
        ProcessDataError: when the function, an argument or the context cannot be pickled; nothing has run.
    """
    context = (job.context_parameter, job.context_factory, dict(job.context_data))
    order = (job.function, job.args, dict(job.kwargs), job.max_memory_bytes, job.max_cpu_s, *context)
    try:
        return pickle.dumps(order, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise ProcessDataError("the function or its arguments", f"{type(error).__name__}: {error}") from error


def load_job(payload: bytes) -> Order:
    """Load a job in the worker, and the parent's script first when something of it is named there.

    Raises:
        Exception: whatever loading raises: a module that is not there, a script that fails, a class that refuses.
    """
    return Order(*_JobUnpickler(BytesIO(payload)).load())


class _JobUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> object:
        if module_name in ("__main__", ALIAS):
            load_script()
        return super().find_class(module_name, global_name)


def require_picklable(function: Callable[..., object]) -> None:
    """Check that a worker process can be told by name what to call.

    Raises:
        ProcessDataError: when it cannot; `reason` says why and what to do, ready for a `ToolDefinitionError`.
    """
    reason = _why_not_by_name(_inner(function)) or _why_not_pickled(function)
    if reason is not None:
        raise ProcessDataError("the function", reason)


def _inner(function: object) -> object:
    while isinstance(function, partial):
        function = cast("partial[object]", function).func
    return getattr(function, "__func__", function)


def _why_not_by_name(function: object) -> str | None:
    if not inspect.isfunction(function):
        return None
    module, path = function.__module__, function.__qualname__
    if function.__name__ == "<lambda>":
        return "a lambda has no name by which a worker process could find it; write it with `def` at the top level of a module"
    if "<locals>" in path:
        return f"{path} is defined inside a function, where a worker process cannot find it; move it to the top level of a module"
    if module == "__main__" and (find_script() is None or function.__code__.co_filename.startswith("<")):
        return f"{path} is defined in a shell or in `python -c`, which a worker process cannot load; put it in a file"
    if _lookup(module, path) is not function:
        return f"{module}.{path} is something else than the function, so a worker process cannot find it by that name"
    return None


def _lookup(module: str, path: str) -> object:
    found: object = sys.modules.get(module)
    for name in path.split("."):
        found = inspect.getattr_static(found, name, None)
        found = getattr(found, "__func__", found)  # a static or class method
    return found


def _why_not_pickled(function: Callable[..., object]) -> str | None:
    try:
        pickle.dumps(function, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001 - pickling runs the author's own __reduce__ and __getstate__
        bound = "the object that it belongs to or was bound to" if _inner(function) is not function else "it"
        return f"{bound} cannot be pickled ({type(error).__name__}: {error}); a worker process needs a function of a module"
    return None
