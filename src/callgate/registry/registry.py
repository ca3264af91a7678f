"""`ToolRegistry`: the catalog of tools, and the only door through which one runs. Source: contract rows R1 to R8, P1 to P12."""

import asyncio
import time
from collections.abc import Awaitable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias, TypeVar, Unpack

from callgate.diagnostics import DiagnosticContext, default_diagnostics
from callgate.errors import ToolError, UsageError
from callgate.registry.catalog import Catalog, Offer
from callgate.registry.drivers import WAITING, in_time, run_async, run_at_once, run_sync, wait_for_authorization
from callgate.registry.entry import Limits
from callgate.registry.judging import Aborted
from callgate.registry.log import CallLog
from callgate.registry.pipeline import Authorize, Failure, Pipeline, Settings
from callgate.registry.requests import Call, CallKeywords, ErrorPorts, Held, ToolInvocationRequest
from callgate.registry.spilling import reader_tool
from callgate.reporting import ErrorReporter, ReportHandler, ToolErrorReport, format_tool_error
from callgate.running.portal import PortalError, run_in_portal
from callgate.tools.spill import MemorySpill, SpillStore
from callgate.tools.tool import Tool
from callgate.values import CallContext, ExecutionOptions, ToolCallRecord, ToolReply, ToolResult, check_limit

__all__ = ("End", "RunningCall", "ToolRegistry")

T = TypeVar("T")

_TIMEOUT_S: Final = 60.0
_MAX_OUTPUT_BYTES: Final = 64 * 1024
_KEPT_EVENTS: Final = 1000
_MAX_ABANDONED: Final = 8


@dataclass(frozen=True, slots=True)
class RunningCall:
    """Show a call whose tool is at work: since when (seconds since the epoch), and how many seconds it has left.

    `remaining_s` is None without a limit. `call_id`, `run_id` and `thread_id` say whose call it is.
    """

    invocation_id: str
    tool: str
    started_at: float
    remaining_s: float | None
    call_id: str | None
    run_id: str | None
    thread_id: str | None


End: TypeAlias = ToolResult[Any] | Failure | Held
"""How a call comes to its end: with a result, as a failure, or held by a guard before its tool ran."""


class ToolRegistry:
    """Keep tools by name and run them, each call through the one pipeline.

    With `tools` the catalog is fixed: sealed at construction. Without, it takes tools until `seal()`.

    `default_timeout_s` and `default_max_output_bytes` hold for tools that do not say their own (None: no limit).
    `max_abandoned` bounds, for each tool, the bodies that were given up at their limit and still run; at that number the tool
    is refused with a 503 until one returns. `authorize` is asked with every call once its input is parsed: it returns None
    or True to allow, raises `ToolDeniedError` to deny, may be async, and anything else that it does denies. `on_tool_error`
    is told of every failure of a call that has its context. `kept_events` bounds `events`.

    Raises:
        ToolDefinitionError, DuplicateToolError: for `tools` that cannot be registered.
        UsageError: a setting is out of range or of another type.
    """

    def __init__(  # noqa: PLR0913 - the settings of a registry, keywords all
        self,
        tools: Iterable[object] | None = None,
        *,
        default_timeout_s: float | None = _TIMEOUT_S,
        default_max_output_bytes: int | None = _MAX_OUTPUT_BYTES,
        max_abandoned: int = _MAX_ABANDONED,
        errors: ErrorPorts | None = None,
        execution: ExecutionOptions | None = None,
        authorize: Authorize | None = None,
        on_tool_error: ReportHandler | None = None,
        diagnostics: DiagnosticContext | None = None,
        spill: SpillStore | None = None,
        kept_events: int = _KEPT_EVENTS,
    ) -> None:
        check_limit("default_timeout_s", default_timeout_s)
        check_limit("default_max_output_bytes", default_max_output_bytes, whole=True)
        _check_count("max_abandoned", max_abandoned)
        _check_count("kept_events", kept_events)
        _check_kind("execution", execution, ExecutionOptions)
        _check_kind("errors", errors, ErrorPorts)
        if authorize is not None and not callable(authorize):
            raise UsageError(f"authorize must be a function of one call, not {type(authorize).__name__}")
        store = spill or MemorySpill()
        catalog = Catalog(Limits(default_timeout_s, default_max_output_bytes, max_abandoned), lambda: reader_tool(store))
        settings = Settings(
            timeout_s=default_timeout_s,
            options=execution or ExecutionOptions(),
            errors=errors or ErrorPorts(),
            authorize=authorize,
            reporter=None if on_tool_error is None else ErrorReporter(on_tool_error, lambda: self._pipeline.diagnostics),
            spill=store,
        )
        self._catalog = catalog
        self._pipeline = Pipeline(catalog, settings, CallLog(kept_events), diagnostics or default_diagnostics())
        if tools is not None:
            self.register_all(tools).seal()

    # ── the catalog ──────────────────────────────────────────────────────────────────────────────────────────────────

    def register(self, tool: object) -> Self:
        """Add one tool: a `Tool`, a function decorated with `@tool`, or anything that `Tool.of` takes.

        Raises:
            RegistrySealedError, DuplicateToolError, ToolDefinitionError: nothing was registered.
        """
        return self.register_all((tool,))

    def register_all(self, tools: Iterable[object]) -> Self:
        """Add all of `tools`, or none when one of them cannot be added.

        Raises:
            RegistrySealedError, DuplicateToolError, ToolDefinitionError: nothing was registered.
        """
        self._catalog.add(tools)
        return self

    def seal(self) -> Self:
        """Take no more tools; sealing again does nothing. Tools that are registered stay as they are."""
        self._catalog.seal()
        return self

    @property
    def sealed(self) -> bool:
        """Whether the registry takes no more tools."""
        return self._catalog.sealed

    def get(self, name: str) -> Tool[Any, Any] | None:
        """Give the tool of that name, or None."""
        entry = self._catalog.entries.get(name)
        return None if entry is None else entry.tool

    def require(self, name: str) -> Tool[Any, Any]:
        """Give the tool of that name.

        Raises:
            ToolNotFoundError: there is none (404).
        """
        tool = self.get(name)
        if tool is None:
            raise self._catalog.refusal(name, None)
        return tool

    def find(self, name: object, tools: Iterable[Any] | None = None) -> Tool[Any, Any] | None:
        """Give the tool that a call of that name would run, oddly spelt or not, or None; `tools` is what the call is offered."""
        offer = None if tools is None else self._catalog.offer(tools)
        known = self._catalog.entries if offer is None else offer
        entry = known.get(name) if type(name) is str else None
        entry = entry or self._catalog.find_loosely(name, offer)
        return None if entry is None else entry.tool

    def has(self, name: str) -> bool:
        """Tell whether there is a tool of that name."""
        return name in self._catalog.entries

    def __contains__(self, name: object) -> bool:
        return name in self._catalog.entries

    def __len__(self) -> int:
        return len(self._catalog.entries)

    def ids(self) -> tuple[str, ...]:
        """Give the names in the order of registration."""
        return tuple(self._catalog.entries)

    def list(self) -> list[Tool[Any, Any]]:
        """Give the whole catalog, unfiltered, in the order of registration."""
        return [entry.tool for entry in self._catalog.entries.values()]

    @property
    def definitions(self) -> tuple[Tool[Any, Any], ...]:
        """A frozen snapshot of the tools, in the order of registration."""
        return tuple(self.list())

    def entries(self) -> Iterator[tuple[str, Tool[Any, Any]]]:
        """Iterate live over names and tools, those included that are registered meanwhile."""
        position = 0
        while position < len(self._catalog.entries):
            for entry in tuple(self._catalog.entries.values())[position:]:
                position += 1
                yield entry.name, entry.tool

    def values(self) -> Iterator[Tool[Any, Any]]:
        """Iterate live over the tools, those included that are registered meanwhile."""
        return (tool for _, tool in self.entries())

    def __repr__(self) -> str:
        return f"<ToolRegistry of {len(self)} tools, {'sealed' if self.sealed else 'open'}>"

    def offer(self, tools: Iterable[object]) -> Offer:
        """Make an offer once that many calls pass as `tools=`, so that none of them has to read the list again."""
        return self._catalog.offer(tools)

    # ── observing ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def events(self) -> tuple[ToolCallRecord, ...]:
        """A frozen snapshot of the newest receipts, oldest first, one for each call that ended."""
        return self._pipeline.log.snapshot()

    @property
    def dropped_events(self) -> int:
        """How many receipts had to go from `events`."""
        return self._pipeline.log.dropped

    def running(self) -> tuple[RunningCall, ...]:
        """Show the calls whose tools are waited for at this moment."""
        now = time.monotonic()
        return tuple(_shown(call, now) for call in tuple(self._pipeline.running.values()))

    def abandoned(self) -> dict[str, int]:
        """Count, by tool, the bodies that were given up and still run; tools without any are left out."""
        counts: dict[str, int] = {}
        for entry in self._catalog.all_entries():
            if entry.slots.abandoned:
                counts[entry.name] = counts.get(entry.name, 0) + entry.slots.abandoned
        return counts

    def flush(self, timeout_s: float) -> bool:
        """Wait until `on_tool_error` has taken every report, for `timeout_s` seconds at most; tell whether it has.

        A report that is still on its way when the program ends is lost. From a coroutine, use `aflush`.
        """
        reporter = self._pipeline.settings.reporter
        return reporter is None or reporter.flush(timeout_s)

    async def aflush(self, timeout_s: float) -> bool:
        """Do what `flush` does without blocking the running loop."""
        reporter = self._pipeline.settings.reporter
        return reporter is None or await reporter.aflush(timeout_s)

    @property
    def diagnostics(self) -> DiagnosticContext:
        """The scope that calls start with which bring none."""
        return self._pipeline.diagnostics

    def set_diagnostics(self, diagnostics: DiagnosticContext | None) -> None:
        """Replace the scope for later calls (None: the default); calls in flight keep the one that they started with."""
        self._pipeline.diagnostics = diagnostics or default_diagnostics()

    def report_failure(  # noqa: PLR0913 - the facts of a report, keywords most
        self,
        name: str,
        error: BaseException,
        *,
        started_at: float,
        input: object = None,  # noqa: A002 - the contract's word
        call_context: CallContext | None = None,
        thread_id: str | None = None,
        user_context: object = None,
    ) -> None:
        """Report a refusal that never reached the registry like every failed call; without a call context do nothing.

        `started_at` is in seconds since the epoch. Nobody waits for the handler (contract row P10).
        """
        reporter = self._pipeline.settings.reporter
        if reporter is None or call_context is None:
            return
        reporter.report(
            ToolErrorReport(
                call_context=call_context,
                thread_id=thread_id,
                user_context=user_context,
                tool=name,
                input=input,
                error=error,
                model_text=format_tool_error(error, attempts_left=call_context.attempts_left),
                started_at=started_at,
                duration_ms=(time.time() - started_at) * 1000,
            )
        )

    # ── calling ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def ainvoke(
        self, request: ToolInvocationRequest | str, arguments: object = None, /, **keywords: Unpack[CallKeywords]
    ) -> ToolResult[Any]:
        """Run one call, named by a request or by a tool's name and its input, and give value, text and receipt.

        Raises:
            ToolError: the call was refused or failed; `code` and `status` say how.
            BaseException: the reason of the call's abort signal, as it is.
        """
        end = self.begin(Call(request, arguments, keywords))
        if not isinstance(end, (ToolResult, Failure, Held)):
            end = await end
        if isinstance(end, ToolResult):
            return end
        raise _raised(end)

    def invoke(
        self, request: ToolInvocationRequest | str, arguments: object = None, /, **keywords: Unpack[CallKeywords]
    ) -> ToolResult[Any]:
        """Do what `ainvoke` does from code without an event loop, and block this thread until the end.

        An async tool runs on an event loop of callgate's own, in another thread.

        Raises:
            ToolError, BaseException: as `ainvoke`.
        """
        end = self._drive_blocking(Call(request, arguments, keywords))
        if isinstance(end, Failure):
            raise _raised(end)
        return end

    async def execute(
        self, request: ToolInvocationRequest | str, arguments: object = None, /, **keywords: Unpack[CallKeywords]
    ) -> Any:
        """Run one call and give the tool's value alone.

        Raises:
            ToolError, BaseException: as `ainvoke`.
        """
        return (await self.ainvoke(request, arguments, **keywords)).value

    async def answer(
        self, request: ToolInvocationRequest | str, arguments: object = None, /, **keywords: Unpack[CallKeywords]
    ) -> ToolReply:
        """Run one call and give what the model reads, whether it succeeded or not.

        Raises:
            BaseException: the reason of the call's abort signal; no refusal and no failure is raised.
            UsageError: for a mistake of the calling program: an unknown keyword, an offer that cannot work.
        """
        end = self.begin(Call(request, arguments, keywords))
        if not isinstance(end, (ToolResult, Failure, Held)):
            end = await end
        if isinstance(end, ToolResult):
            return ToolReply(end.text, is_error=False, invocation=end.invocation, blocks=end.blocks, value=end.value)
        if isinstance(end, Failure):
            return ToolReply(end.text, is_error=True, invocation=end.record, error=end.bare_error)
        raise _raised(end)

    def read(self, call: Call) -> None:
        """Find the tool of a call and parse its input; nothing runs, and no receipt is made.

        Raises:
            ToolError: the refusal that the call would meet.
        """
        self._pipeline.read(call)

    async def in_time(self, call: Call, answer: Awaitable[T]) -> T:
        """Wait for what a gate's policy has to say of a call, no longer than the call's deadline and its caller do.

        Raises:
            ToolTimeoutError, Aborted: one of them came first.
            BaseException: what `answer` raises.
        """
        return await in_time(self._pipeline, call, answer)

    def begin(self, call: Call) -> End | Awaitable[End]:
        """Run a call as far as it goes without waiting, and give its end, or what has to be awaited at once for it.

        For a gate, which sets `call.guard`: a call that never waits costs no coroutine and no task.

        Raises:
            BaseException: the reason of the call's abort signal, and what the guard raises that is no `ToolError`.
        """
        pipeline = self._pipeline
        try:
            waiting = pipeline.admit(call)
            if waiting is not None:
                return self._drive(call, waiting, None)
            if call.guard is not None:
                waiting = call.guard(call)
                if waiting is not None:
                    return self._drive(call, None, waiting)
            value = run_at_once(pipeline, call)
            return self._drive(call, None, None) if value is WAITING else pipeline.settle(call, value)
        except BaseException as error:  # noqa: BLE001 - all of it is judged there
            stop = error
        try:
            return self._end_by(call, stop)
        finally:
            del stop  # its trace has this frame: free both without the collector

    async def _drive(self, call: Call, authorizing: Awaitable[object] | None, guarding: Awaitable[None] | None) -> End:
        """Carry on with a call that has to wait: for its authorization, its guard, or its tool, which may be under way."""
        pipeline = self._pipeline
        try:
            began = authorizing is None and guarding is None
            if authorizing is not None:
                await wait_for_authorization(pipeline, call, authorizing)
                guarding = None if call.guard is None else call.guard(call)
            if guarding is not None:
                await guarding
            value = WAITING if began else run_at_once(pipeline, call)
            return pipeline.settle(call, await run_async(pipeline, call) if value is WAITING else value)
        except BaseException as error:  # noqa: BLE001 - all of it is judged there
            stop = error
        try:
            return self._end_by(call, stop)
        finally:
            del stop

    def _end_by(self, call: Call, stop: BaseException) -> Failure | Held:
        """Make the end of a call that something was raised in.

        Raises:
            BaseException: the reason of the caller's abort, what ends the program, a mistake of the host.
        """
        if isinstance(stop, ToolError):
            return self._pipeline.fail(call, stop)
        if isinstance(stop, Held):
            if stop.status is not None:
                stop.ended = self._pipeline.end_early(call, stop.status)
            return stop.with_traceback(None)
        if isinstance(stop, Aborted):
            self._pipeline.end_early(call, "aborted")
            raise stop.reason.with_traceback(None)
        if isinstance(stop, asyncio.CancelledError | KeyboardInterrupt | SystemExit):
            self._pipeline.end_early(call, "cancelled")
        raise stop

    def _drive_blocking(self, call: Call) -> ToolResult[Any] | Failure:
        pipeline = self._pipeline
        try:
            waiting = pipeline.admit(call)
            if waiting is not None:
                run_in_portal(lambda: wait_for_authorization(pipeline, call, waiting))
            return pipeline.settle(call, run_sync(pipeline, call))
        except ToolError as error:
            return pipeline.fail(call, error)
        except PortalError as error:
            return pipeline.fail(call, pipeline.unavailable(call.entry, str(error)))
        except Aborted as aborted:
            reason = aborted.reason
            pipeline.end_early(call, "aborted")
        except (KeyboardInterrupt, SystemExit):
            pipeline.end_early(call, "cancelled")
            raise
        raise reason.with_traceback(None)

    # ── closing ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """Take no more calls, and stop those that run: they end as aborted, within their grace.

        Nobody waits here: a tool that does not stop is given up, and a process is killed. Closing again does nothing.
        """
        self._pipeline.close()


def _raised(end: Failure | Held) -> BaseException:
    if isinstance(end, Held):
        return UsageError("the call was held by its guard, and nobody asked for that: a guard needs registry.begin(call)")
    return end.bare_error


def _check_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"{name} must be a whole number above 0, not {value!r}")


def _check_kind(name: str, value: object, kind: type) -> None:
    if value is not None and not isinstance(value, kind):
        raise UsageError(f"{name} must be {kind.__name__}(…), not {type(value).__name__}")


def _shown(call: Call, now: float) -> RunningCall:
    context = call.call_context or CallContext()
    return RunningCall(
        invocation_id=call.invocation_id,
        tool=call.entry.name,
        started_at=call.started_at,
        remaining_s=None if call.ends_at is None else max(0.0, call.ends_at - now),
        call_id=context.call_id,
        run_id=context.run_id,
        thread_id=call.thread_id,
    )
