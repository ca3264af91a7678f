"""The child's side of a worker process: take a job, run it, send what became of it, again and again.

The keeper (`process_keeper`) has forked this process, put it into a session of its own and calls `serve`.
"""

import asyncio
import contextlib
import inspect
import math
import os
import pickle
import resource
import socket
import sys
import threading
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from types import AsyncGeneratorType, GeneratorType
from typing import Final, cast

from callgate.running.process_channel import MAX_PAYLOAD_BYTES, Channel, Frame, Kind
from callgate.running.process_errors import ProcessDataError
from callgate.running.process_job import Order, load_job
from callgate.running.process_script import Script, adopt_script

__all__ = ("RETIRE", "STAY", "serve")

# The first byte of an answer: whether the worker can take another job, or left something behind.
STAY: Final = b"\x00"
RETIRE: Final = b"\x01"


def serve(connection: socket.socket, token: bytes, script: Script | None) -> None:
    """Answer jobs until the parent hangs up."""
    adopt_script(script)
    channel = Channel(connection, token)
    while (frame := channel.receive()) is not None:
        channel.send(Kind.TAKEN)  # loading the job may take long, and a worker that is stopped would look the same
        _answer(channel, frame.payload)


def _answer(channel: Channel, payload: bytes) -> None:
    try:
        order = load_job(payload)
    except Exception as error:  # noqa: BLE001 - loading runs the author's module, script and __setstate__
        channel.send(Kind.REFUSED, STAY + f"the job could not be loaded in the worker: {_summary(error)}".encode())
        return
    threads = threading.active_count()
    call = _Call(channel)
    frame = call.run(order)
    _flush()
    call.end(frame, RETIRE if call.worn or _left_behind(threads) else STAY)


class _Call:
    """Run one job and send its progress; what a thread that outlives the job sends later is dropped."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._open = True
        self.worn = False

    def progress(self, item: object) -> None:
        """Send an item to whoever follows the call."""
        self._send(Kind.PROGRESS, item)

    def item(self, item: object) -> None:
        """Send an item of a generator, which is part of its value too."""
        self._send(Kind.ITEM, item)

    def _send(self, kind: Kind, item: object) -> None:
        payload = _dump("a progress item", item)
        if os.getpid() != self._process:
            return  # in a forked child; the lock may have been held when it was forked
        with self._lock:
            if self._open:
                self._channel.send(kind, payload)

    def run(self, order: Order) -> Frame:
        """Run the body within its limits and give its end; nothing that it raises gets further."""
        # The limits end before an error is written down, which needs memory too.
        try:
            with _limited(order):
                self._channel.send(Kind.STARTED)
                frame = self._value(order)
        except _LimitRefusedError as refusal:
            return Frame(Kind.REFUSED, str(refusal).encode())
        except BaseException as error:  # noqa: BLE001 - the tool's own body
            frame = self._failure(error)
        if os.getpid() != self._process:
            os._exit(0)  # a tool forked and let the child return: the answer is the parent's
        return frame

    def _failure(self, error: BaseException) -> Frame:
        self.worn = isinstance(error, MemoryError)
        if isinstance(error, SystemExit):
            return Frame(Kind.EXIT, pickle.dumps((_exit_code(error), "the tool called sys.exit")))
        if isinstance(error, KeyboardInterrupt):
            return Frame(Kind.EXIT, pickle.dumps((None, "the tool was interrupted (KeyboardInterrupt)")))
        return Frame(Kind.ERROR, _dump_error(error))

    def _value(self, order: Order) -> Frame:
        kwargs = order.kwargs
        if order.context_parameter is not None and order.context_factory is not None:
            kwargs = {**kwargs, order.context_parameter: order.context_factory(order.context_data, self.progress)}
        value = order.function(*order.args, **kwargs)
        if inspect.isawaitable(value):
            return _result(asyncio.run(_awaited(value)))
        if isinstance(value, AsyncGeneratorType):
            return asyncio.run(_collect_async(cast("AsyncGenerator[object, None]", value), self.item))
        if isinstance(value, GeneratorType):
            return _collect(cast("Generator[object, None, object]", value), self.item)
        return _result(value)

    def end(self, frame: Frame, flag: bytes) -> None:
        """Send the answer; whoever sends progress from now on is too late."""
        with self._lock:
            self._open = False
            self._channel.send(frame.kind, flag + frame.payload)


async def _awaited(value: Awaitable[object]) -> object:
    return await value


async def _collect_async(items: AsyncGenerator[object, None], send: Callable[[object], None]) -> Frame:
    async with contextlib.aclosing(items):
        async for item in items:
            send(item)
    return Frame(Kind.COLLECTED, b"")


def _collect(items: Generator[object, None, object], send: Callable[[object], None]) -> Frame:
    with contextlib.closing(items):
        for item in items:
            send(item)
    return Frame(Kind.COLLECTED, b"")


def _result(value: object) -> Frame:
    try:
        return Frame(Kind.RESULT, _dump("the result", value))
    except ProcessDataError as error:
        return Frame(Kind.UNSENDABLE, error.reason.encode())


def _dump(what: str, value: object) -> bytes:
    try:
        payload = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise ProcessDataError(what, f"{type(value).__name__}: {_summary(error)}") from error
    if len(payload) >= MAX_PAYLOAD_BYTES:
        raise ProcessDataError(what, f"{type(value).__name__}: {len(payload)} bytes, the limit is {MAX_PAYLOAD_BYTES} bytes")
    return payload


def _dump_error(error: BaseException) -> bytes:
    trace = "".join(traceback.format_exception(error))
    return pickle.dumps((_portable(error), type(error).__qualname__, _text(error), trace.encode("utf-8", "replace").decode()))


def _portable(error: BaseException) -> bytes | None:
    """Pickle an exception that also loads; tried here, where loading that crashes or hangs harms nobody else."""
    try:
        payload = pickle.dumps(error, pickle.HIGHEST_PROTOCOL)
        return payload if type(pickle.loads(payload)) is type(error) else None  # noqa: S301 - our own bytes
    except BaseException:  # noqa: BLE001 - the tool's own __reduce__ and __init__
        return None


def _text(error: BaseException) -> str:
    try:
        return str(error).encode("utf-8", "replace").decode()
    except Exception:  # noqa: BLE001 - the tool's own __str__
        return "its text could not be had"


def _summary(error: BaseException) -> str:
    return f"{type(error).__name__}: {_text(error)}"


def _exit_code(error: SystemExit) -> int:
    return 0 if error.code is None else error.code if isinstance(error.code, int) else 1


class _LimitRefusedError(Exception):
    """Tell that the system did not accept a limit."""


@contextlib.contextmanager
def _limited(order: Order) -> Generator[None, None, None]:
    """Lower the soft limits for a call and raise them again, so that the worker can be used for the next."""
    if order.max_memory_bytes is None and order.max_cpu_s is None:
        yield
        return
    with contextlib.ExitStack() as undo:
        for kind, amount, name in _limits(order):
            before = resource.getrlimit(kind)
            _set_limit(kind, amount, before[1], name)
            undo.callback(resource.setrlimit, kind, before)
        yield


def _limits(order: Order) -> Generator[tuple[int, int, str], None, None]:
    if order.max_memory_bytes is not None:
        yield resource.RLIMIT_AS, order.max_memory_bytes, f"the memory limit of {order.max_memory_bytes} bytes"
    if order.max_cpu_s is not None:
        amount = math.ceil(_used_cpu_s() + order.max_cpu_s)
        yield resource.RLIMIT_CPU, amount, f"the CPU limit of {order.max_cpu_s:g} s"


def _used_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _set_limit(kind: int, amount: int, hard: int, name: str) -> None:
    try:
        resource.setrlimit(kind, (amount if hard == resource.RLIM_INFINITY else min(amount, hard), hard))
    except (OSError, ValueError, OverflowError) as error:
        raise _LimitRefusedError(f"{name} could not be set on this system: {error}") from error


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # A tool may have closed or replaced them.
        with contextlib.suppress(Exception):
            stream.flush()


def _left_behind(threads: int) -> bool:
    """Tell whether a thread or a child process, reaped or not, is there that was not before the call."""
    if threading.active_count() > threads:
        return True
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True
