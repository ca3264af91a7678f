"""Who hears of a failed call: the model, by one formatter; the developer, by a report that nobody waits for.

How a report reaches its handler::

    report() ── async handler, a loop runs here ──► a task of that loop ─────────────────────┐
             └─ otherwise ──► queue (bounded) ──► dispatcher ──► daemon thread (bounded) ────┤
                              full: dropped, counted, logged     │  awaitable? one loop thread
                                                                 └► over its limit ──────────┴► settled once, logged if it failed

A handler that has gone over its limit keeps its thread, because a thread cannot be stopped, but is waited for by nobody.
Every thread is a daemon, so a hanging handler does not keep the process. Source: contract rows P8 to P10 and L4.
"""

import asyncio
import contextvars
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from typing import TypeAlias, cast

from callgate.diagnostics import DiagnosticContext, LoggingDestination, ReportFailure, ReportHandlerFailed
from callgate.errors import ToolError, UsageError
from callgate.values import CallContext

__all__ = ("ErrorReporter", "ReportHandler", "ToolErrorReport", "format_tool_error")

_MAX_TEXT_CHARS = 4_000
_GENERIC = "The tool failed with an internal error; its details are not shown."
_IDLE_S = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class ToolErrorReport:
    """Give the whole picture of one failed call to its developer. Source: contract row P10.

    `input` is parsed when the schema accepted it and raw otherwise. `error` is the error as the registry raised it, with
    the code and status that the caller sees; `cause` is the very exception that the tool raised, None when none did.
    `started_at` is in seconds since the epoch. `invocation_id` finds the receipt; it is None for a call that was refused
    before it reached the registry. `repr` leaves out what the user and the model said.
    """

    call_context: CallContext
    tool: str
    error: BaseException
    model_text: str
    started_at: float
    duration_ms: float
    input: object = field(default=None, repr=False)
    thread_id: str | None = None
    user_context: object = field(default=None, repr=False)
    invocation_id: str | None = None

    @property
    def cause(self) -> BaseException | None:
        """The exception behind `error`: what the tool itself raised, with its traceback."""
        return self.error.__cause__


ReportHandler: TypeAlias = Callable[[ToolErrorReport], Awaitable[object] | object]


def format_tool_error(error: BaseException, *, attempts_left: int | None = None) -> str:
    """Write the text that a model reads for a failed call: never empty, at most 4,000 characters.

    A `ToolError` gives its `user_message` and whether other arguments make sense; anything else gives a generic text
    without a word of its own. `attempts_left` is what the host still grants (None: not said).
    """
    advice = _advice(error, attempts_left)
    message = _shortened(_message(error), _MAX_TEXT_CHARS - len(advice))
    return f"{message}{advice}"


def _message(error: BaseException) -> str:
    if not isinstance(error, ToolError):
        return _GENERIC
    said = _said(error, "user_message")
    message = str.__str__(cast("str", said)) if issubclass(type(said), str) else ""
    if not message.strip():
        return "The tool refused the call and gave no reason."
    # A lone surrogate cannot be sent as UTF-8; a pair in two halves is one character.
    return message.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _advice(error: BaseException, attempts_left: int | None) -> str:
    if attempts_left is not None and attempts_left <= 0:
        return "\nThis was the last attempt: do not call it again."
    other = _said(error, "try_other_arguments") if isinstance(error, ToolError) else None
    sentences = {True: "Another call with other arguments may succeed.", False: "Other arguments will not help."}
    advice = f"\n{sentences[other]}" if isinstance(other, bool) else ""
    return advice if attempts_left is None else f"{advice}\nAttempts left: {attempts_left}."


def _said(error: ToolError, name: str) -> object:
    try:
        return getattr(error, name, None)
    except Exception:  # noqa: BLE001 - a property of the author's
        return None


def _shortened(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    marker = f"… [cut, {len(text)} characters]"
    return text[: most - len(marker)] + marker


class _Delivery:
    """Be one report on its way; open until it is taken, has failed, or is given up."""

    __slots__ = ("context", "deadline", "report", "settled")

    def __init__(self, report: ToolErrorReport) -> None:
        self.report = report
        self.context = contextvars.copy_context()
        self.deadline = float("inf")
        self.settled = False


class _LoopThread:
    """Run what handlers give to await where no loop runs: one event loop in one daemon thread, started when needed."""

    __slots__ = ("_lock", "_loop")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, awaitable: Awaitable[object]) -> None:
        """Await `awaitable` over there and raise here what it raised."""
        error = asyncio.run_coroutine_threadsafe(_outcome(awaitable), self._running()).result()
        if error is not None:
            raise error

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="callgate-report-loop", daemon=True).start()
            return self._loop


async def _outcome(awaitable: Awaitable[object]) -> BaseException | None:
    try:
        await awaitable
    except BaseException as error:  # noqa: BLE001 - run() raises it; a SystemExit would end the shared loop
        return error
    return None


class ErrorReporter:
    """Hand failure reports to `handler`, sync or async, and never wait for it.

    A handler that raises, or gives no answer within `limit_s` seconds, is logged under `callgate.report_handler_failed`
    in the scope that `diagnostics` gives at that moment, and ignored. At most `max_threads` handlers run in threads and
    `max_queued` reports wait for one; further reports are dropped and counted. A daemon thread ends with its process: call
    `flush` before the end when reports must not be lost.

    An async function runs on the loop of the failing call, where there is one, so it may use what belongs to that loop.

    Raises:
        UsageError: the handler cannot be called, or a limit is not positive.
    """

    def __init__(
        self,
        handler: ReportHandler,
        diagnostics: Callable[[], DiagnosticContext],
        *,
        limit_s: float = 30.0,
        max_threads: int = 8,
        max_queued: int = 1_000,
    ) -> None:
        _check_settings(handler, (limit_s, max_threads, max_queued))
        self._handler = handler
        self._diagnostics = diagnostics
        self._limit_s = limit_s
        self._max_threads = max_threads
        self._max_queued = max_queued
        self._is_async = iscoroutinefunction(handler) or iscoroutinefunction(type(handler).__call__)
        self._loop_thread = _LoopThread()
        self._changed = threading.Condition()
        self._queue: deque[_Delivery] = deque()
        self._open: set[_Delivery] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy_threads = 0
        self._dropped = 0
        self._dispatcher: threading.Thread | None = None

    @property
    def dropped(self) -> int:
        """How many reports were dropped because too many were waiting."""
        return self._dropped

    def report(self, report: ToolErrorReport) -> None:
        """Start the delivery of `report` and return at once; raises nothing."""
        delivery = _Delivery(report)
        loop = _running_loop() if self._is_async else None
        if loop is not None:
            self._start_task(delivery, loop)
        elif not self._enqueue(delivery):
            self._drop(delivery)

    def flush(self, timeout_s: float) -> bool:
        """Wait until no report is on its way, for `timeout_s` seconds at most; tell whether that came.

        A handler over its limit is not waited for. On a loop whose tasks deliver reports, use `aflush`.
        """
        with self._changed:
            return self._changed.wait_for(lambda: not self._open, timeout_s)

    async def aflush(self, timeout_s: float) -> bool:
        """Do the same without blocking the running loop."""
        return await asyncio.to_thread(self.flush, timeout_s)

    # ── on the loop of the call ──────────────────────────────────────────────────────────────────────────────────────

    def _start_task(self, delivery: _Delivery, loop: asyncio.AbstractEventLoop) -> None:
        with self._changed:
            full = len(self._tasks) >= self._max_queued
            if not full:
                self._open.add(delivery)
        if full:
            self._drop(delivery)
            return
        # Not loop.create_task: an eager task factory would run the handler's first step in the failing call.
        task = asyncio.Task(self._await_handler(delivery), loop=loop, context=delivery.context)
        timer = loop.call_later(self._limit_s, self._give_up_task, delivery, task)
        self._tasks.add(task)
        task.add_done_callback(partial(self._end_task, delivery, timer))

    async def _await_handler(self, delivery: _Delivery) -> None:
        try:
            taking = self._handler(delivery.report)
            if isawaitable(taking):
                await taking
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except KeyboardInterrupt as error:
            self._settle(delivery, "raised", error)
            raise
        except BaseException as error:  # noqa: BLE001 - the handler's own code; its SystemExit must not end the loop
            self._settle(delivery, "raised", error)
        else:
            self._settle(delivery)

    def _end_task(self, delivery: _Delivery, timer: asyncio.TimerHandle, task: "asyncio.Task[None]") -> None:
        timer.cancel()
        self._tasks.discard(task)
        # Here, not in the task: a loop that ends may cancel a task before its first step.
        self._settle(delivery, "cancelled" if task.cancelled() else None)

    def _give_up_task(self, delivery: _Delivery, task: "asyncio.Task[None]") -> None:
        self._settle(delivery, "timed_out")
        task.cancel()

    # ── in threads ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _enqueue(self, delivery: _Delivery) -> bool:
        with self._changed:
            if len(self._queue) >= self._max_queued or not self._wake_dispatcher():
                return False
            self._queue.append(delivery)
            self._open.add(delivery)
            self._changed.notify_all()
            return True

    def _wake_dispatcher(self) -> bool:
        """Start the dispatcher unless it runs; tell whether it does now."""
        # is_alive, not a flag: after a fork the thread exists in the parent only.
        if self._dispatcher is None or not self._dispatcher.is_alive():
            self._dispatcher = _started(self._dispatch, "callgate-reports")
        return self._dispatcher is not None

    def _dispatch(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(self._can_start, self._wait_s()) and self._is_idle():
                    self._dispatcher = None
                    return
                starting = self._take_next()
                overdue = [delivery for delivery in self._open if delivery.deadline <= time.monotonic()]
            if starting is not None and _started(partial(self._run, starting), "callgate-report") is None:
                self._free_thread()
                self._drop(starting)
            for delivery in overdue:
                self._settle(delivery, "timed_out")

    def _can_start(self) -> bool:
        return bool(self._queue) and self._busy_threads < self._max_threads

    def _is_idle(self) -> bool:
        return not self._queue and self._deadline() == float("inf")

    def _deadline(self) -> float:
        return min((delivery.deadline for delivery in self._open), default=float("inf"))

    def _wait_s(self) -> float:
        return max(0.0, min(_IDLE_S, self._deadline() - time.monotonic()))

    def _take_next(self) -> _Delivery | None:
        if not self._can_start():
            return None
        self._busy_threads += 1
        delivery = self._queue.popleft()
        delivery.deadline = time.monotonic() + self._limit_s
        return delivery

    def _run(self, delivery: _Delivery) -> None:
        try:
            delivery.context.run(self._call_handler, delivery.report)
        except BaseException as error:  # noqa: BLE001 - the handler's own code, logged and ignored
            self._settle(delivery, "raised", error)
        else:
            self._settle(delivery)
        finally:
            self._free_thread()

    def _call_handler(self, report: ToolErrorReport) -> None:
        taking = self._handler(report)
        if isawaitable(taking):
            self._loop_thread.run(taking)

    def _free_thread(self) -> None:
        with self._changed:
            self._busy_threads -= 1
            self._changed.notify_all()

    # ── both ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _settle(self, delivery: _Delivery, failure: ReportFailure | None = None, error: BaseException | None = None) -> None:
        with self._changed:
            if delivery.settled:
                return
            delivery.settled = True
            delivery.deadline = float("inf")
        try:
            if failure is not None:
                self._log(delivery.report, failure, error)
        finally:
            self._close(delivery)

    def _close(self, delivery: _Delivery) -> None:
        with self._changed:
            self._open.discard(delivery)
            self._changed.notify_all()

    def _drop(self, delivery: _Delivery) -> None:
        with self._changed:
            self._dropped += 1
            dropped = self._dropped
        # The first, the second, the fourth, …: the log shows the size of a flood without being one.
        if dropped & (dropped - 1) == 0:
            self._log(delivery.report, "dropped", None)
        self._close(delivery)

    def _log(self, report: ToolErrorReport, failure: ReportFailure, error: BaseException | None) -> None:
        scope = self._diagnostics()
        fact = ReportHandlerFailed(
            tool=report.tool,
            reason=failure,
            invocation_id=report.invocation_id,
            call_id=report.call_context.call_id,
            limit_s=self._limit_s if failure == "timed_out" else None,
            dropped=self._dropped,
            error=error,
        )
        if scope.enabled("report.handler_failed"):
            scope.emit("report.handler_failed", lambda: fact)
        else:
            _log_anyway(fact)


def _log_anyway(fact: ReportHandlerFailed) -> None:
    """Log a broken handler by standard logging when no destination takes it: nobody else would ever tell."""
    fallback = DiagnosticContext.of(LoggingDestination())
    fallback.emit("report.handler_failed", lambda: fact)


def _check_settings(handler: object, limits: tuple[float, ...]) -> None:
    if not callable(handler) or min(limits) <= 0:
        msg = f"on_tool_error expects a function of one report and limits over 0, got {type(handler).__name__} and {limits}"
        raise UsageError(msg)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _started(target: Callable[[], None], name: str) -> threading.Thread | None:
    thread = threading.Thread(target=target, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no more threads, or the interpreter is going down
        return None
    return thread
