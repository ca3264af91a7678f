"""The one pipeline, without I/O: `admit` → (a driver runs the tool) → `settle`, or `fail`, or `end_early`.

Every call of every tool takes this path, registered or brought by the call, from a coroutine or a blocked thread. The
drivers beside this file differ only in how they wait. Source: contract rows P1 to P12, docs/adr/0002.
"""

import itertools
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from inspect import isawaitable
from typing import Final, TypeAlias

from callgate.diagnostics import DiagnosticContext, SpanEnding, ToolFailed, ToolFinished, ToolLate, original_error
from callgate.errors import (
    AbortedError,
    InvalidInputError,
    InvalidOutputError,
    ToolDeniedError,
    ToolError,
    ToolFailedError,
    ToolUnavailableError,
)
from callgate.registry.catalog import Catalog, shown_name
from callgate.registry.entry import Entry
from callgate.registry.log import CallLog
from callgate.registry.requests import NO_OPTIONS, Call, ErrorPorts
from callgate.reporting import ErrorReporter, ToolErrorReport, format_tool_error
from callgate.tools.inputs import InputRefused, OutputRefused
from callgate.tools.limiting import limit_output
from callgate.tools.reading import read_arguments
from callgate.tools.repair import repair_arguments
from callgate.tools.spill import SpillStore
from callgate.tools.writing import Written, add_blocks, write_output, write_text
from callgate.values import (
    NO_ARTIFACTS,
    UNSET,
    CallContext,
    CallStatus,
    ExecutionOptions,
    ToolAnswer,
    ToolCallRecord,
    ToolResult,
    digest_of_input,
    draft_of,
)

__all__ = ("Aborted", "Authorize", "Failure", "Pipeline", "Settings")

Authorize: TypeAlias = Callable[[Call], object]

_INPUT_KEPT: Final = 4096
_OUTPUT_KEPT: Final = 1024
_NOT_AUTHORIZED: Final = "it could not be authorized"
_NO_CONTEXT: Final = CallContext()
_CLOSED: Final = "its registry was closed"
_RecordDraft: Final = draft_of(ToolCallRecord)
_ResultDraft: Final = draft_of(ToolResult)


class Aborted(Exception):
    """Carry the reason of the caller's abort to the door, which raises it as it is."""

    def __init__(self, reason: BaseException) -> None:
        super().__init__()
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Failure:
    """Be the end of a call that failed: the error to raise, its receipt, and the text that a model reads."""

    error: ToolError
    record: ToolCallRecord
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Hold what a registry is configured with."""

    timeout_s: float | None
    options: ExecutionOptions
    errors: ErrorPorts
    authorize: Authorize | None
    reporter: ErrorReporter | None
    spill: SpillStore


class Pipeline:
    """Judge a call before its tool runs and after."""

    __slots__ = ("_ids", "_prefix", "catalog", "closed", "diagnostics", "log", "running", "settings")

    def __init__(self, catalog: Catalog, settings: Settings, log: CallLog, diagnostics: DiagnosticContext) -> None:
        self.catalog = catalog
        self.settings = settings
        self.log = log
        self.diagnostics = diagnostics
        self.closed = False
        self.running: dict[str, Call] = {}
        self._ids = itertools.count(1)
        self._prefix = f"inv_{secrets.token_hex(6)}_"

    def admit(self, call: Call) -> Awaitable[object] | None:
        """Take a call in: offered, input, authorization. Give the authorization to wait for, when it is a coroutine's.

        Raises:
            ToolError: the refusal; the tool does not run.
            Aborted: when the caller has aborted already.
        """
        call.started_at = time.time()
        call.began = time.perf_counter()
        call.invocation_id = f"{self._prefix}{next(self._ids):x}"
        call.scope = call.diagnostics or self.diagnostics
        options = call.options
        if options is NO_OPTIONS:
            options = call.options = self.settings.options
        # The common case is written out: a known name, without an offer.
        entry = self.catalog.entries.get(call.name) if call.tools is None and type(call.name) is str else None
        call.entry = entry = self._find(call, options) if entry is None else entry
        if self.closed:
            raise self.unavailable(entry, _CLOSED)
        text, arguments = read_arguments(entry.name, call.raw)
        call.text = text
        try:
            call.arguments = entry.parse(text, arguments)
        except InputRefused as refused:
            self._repair(call, options, arguments, refused)
        call.parsed = True
        if call.signal is not None and call.signal.aborted:
            raise Aborted(reason_of(call))
        authorize = self.settings.authorize
        if authorize is None:
            return None
        try:
            answer = authorize(call)
        except ToolError:
            raise
        except Exception as error:  # the host's own code; a policy that breaks must not let the call through
            raise ToolDeniedError(call.entry.name, _NOT_AUTHORIZED) from error
        if answer is None:
            return None
        if isawaitable(answer):
            return answer
        check_authorization(call, answer)
        return None

    async def authorized(self, call: Call, answer: Awaitable[object]) -> None:
        """Wait for an authorization that takes its time.

        Raises:
            ToolError, Aborted: as `admit`.
        """
        try:
            check_authorization(call, await answer)
        except ToolError:
            raise
        except Exception as error:  # the host's own code; a policy that breaks must not let the call through
            raise ToolDeniedError(call.entry.name, _NOT_AUTHORIZED) from error
        if call.signal is not None and call.signal.aborted:
            raise Aborted(reason_of(call))

    def close(self) -> None:
        """Take no more calls and stop those that are waited for."""
        self.closed = True
        for call in tuple(self.running.values()):
            if call.flight is not None:
                call.flight.stop("aborted")

    def _find(self, call: Call, options: ExecutionOptions) -> Entry:
        offer = None if call.tools is None else self.catalog.offer(call.tools)
        entry: Entry | None = None if offer is None else offer.get(call.name)
        if entry is None and options.repair:
            entry = self.catalog.find_loosely(call.name, offer)
            if entry is not None:
                call.repairs = (f"name: read as {entry.name!r}",)
        if entry is None:
            raise self.catalog.refusal(call.name, offer)
        return entry

    def _repair(self, call: Call, options: ExecutionOptions, arguments: dict[str, object], refused: InputRefused) -> None:
        entry = call.entry
        ignored = options.ignored_arguments & arguments.keys() & set(refused.unknown)
        repaired = {key: value for key, value in arguments.items() if key not in ignored}
        repairs = tuple(f"{name}: ignored" for name in sorted(ignored))
        mended = repair_arguments(entry.tool.input.schema, repaired, refused.problems) if options.repair else None
        if mended is not None:
            repaired, repairs = mended.arguments, repairs + mended.repairs
        if not repairs:
            raise InvalidInputError(entry.name, refused.problems)
        text, arguments = read_arguments(entry.name, repaired)
        call.text, call.repairs = text, call.repairs + repairs
        try:
            call.arguments = entry.parse(text, arguments)
        except InputRefused as again:  # what was text may hold what is to be repaired itself; each round repairs something
            self._repair(call, options, arguments, again)

    def settle(self, call: Call, value: object) -> ToolResult[object]:
        """Turn what the tool gave into the result: output, cap, receipt.

        Raises:
            ToolError: `InvalidOutputError` or `OutputTooLargeError`.
        """
        entry, artifacts = call.entry, NO_ARTIFACTS
        if isinstance(value, ToolAnswer):
            value, written, artifacts = self._answer(call, value)
        else:
            if entry.check_output is not None:
                value = _checked(call, value)
            written = write_output(entry.name, value)
        cap = call.options.max_output_bytes
        if cap is UNSET:
            cap = entry.max_output_bytes
        if written.blocks or (cap is not None and written.size_bytes > cap):
            written = limit_output(entry.name, written, cap, entry.on_oversize, self._spill_of(call))
        if written.notes:
            call.notes += written.notes
        record = _record(call, "succeeded", written=written)
        self.log.append(record)
        if call.observed:
            _tell_finished(call, record, written.text)
        result = _ResultDraft(value, written.text, record, written.blocks, artifacts)
        result.__class__ = ToolResult
        return result  # type: ignore[no-any-return]  # it is a ToolResult now

    def _answer(self, call: Call, answer: ToolAnswer[object]) -> tuple[object, Written, Mapping[str, object]]:
        name = call.entry.name
        value = answer.value if call.entry.check_output is None else _checked(call, answer.value)
        if answer.text is None:
            return value, add_blocks(name, write_output(name, value), answer.blocks), answer.artifacts
        return value, write_text(name, answer.text, answer.blocks), answer.artifacts

    def _spill_of(self, call: Call) -> Callable[[str], str | None]:
        return lambda text: self.settings.spill.put(text, call.thread_id)

    def fail(self, call: Call, error: ToolError) -> Failure:
        """End a call that was refused or that failed: receipt, log, report. Nothing here waits for anybody."""
        if error.invocation_id is None:
            error.invocation_id = call.invocation_id
        record = _record(call, "denied" if isinstance(error, ToolDeniedError) else "failed", error=error, code=self._code(error))
        self.log.append(record)
        _tell_failed(call, record, error)
        attempts_left = None if call.call_context is None else call.call_context.attempts_left
        text = format_tool_error(error, attempts_left=attempts_left)
        self.report(call, error, record, text)
        return Failure(error, record, text)

    def report(self, call: Call, error: BaseException, record: ToolCallRecord, text: str) -> None:
        """Hand a failed call to the host's handler, when there is one and the call has its context (contract row P10)."""
        if self.settings.reporter is None or call.call_context is None:
            return
        self.settings.reporter.report(
            ToolErrorReport(
                call_context=call.call_context,
                thread_id=call.thread_id,
                user_context=call.user_context,
                tool=record.tool,
                input=call.input,
                error=error,
                model_text=text,
                started_at=call.started_at,
                duration_ms=record.duration_ms,
                invocation_id=record.invocation_id,
            )
        )

    def end_early(self, call: Call, status: CallStatus, error: BaseException) -> None:
        """End a call that its caller stopped, or that the program's end stopped: a receipt, no failure, no report."""
        record = _record(call, status, error=error, code="aborted" if status == "aborted" else None)
        self.log.append(record)
        if call.span is not None or call.scope.enabled("tool.finished"):
            _tell_finished(call, record, UNSET)

    def late(self, call: Call) -> None:
        """Note that a body which was given up has ended; what it brought is dropped."""
        call.entry.slots.take_back()
        call.late_ms = (time.perf_counter() - call.began) * 1000
        record = self.log.mark_late(call.invocation_id, call.late_ms)
        if record is not None:
            call.scope.emit("tool.late", lambda: ToolLate(record))

    def unavailable(self, entry: Entry, reason: str) -> ToolError:
        """Make the error for a tool that cannot take the call (contract row R5)."""
        make = self.settings.errors.unavailable
        return ToolUnavailableError(entry.name, reason) if make is None else make(entry.name, reason)

    def _code(self, error: ToolError) -> str:
        name_code = self.settings.errors.error_code
        return (name_code and name_code(original_error(error))) or error.code


def check_authorization(call: Call, answer: object) -> None:
    """Take the answer of the host's authorization: None or True allows, anything else denies.

    Raises:
        ToolDeniedError: the call is not allowed.
    """
    if answer is not None and answer is not True:
        raise ToolDeniedError(call.entry.name)


def reason_of(call: Call) -> BaseException:
    """Give the caller's own reason for its abort (contract row P7)."""
    reason = None if call.signal is None else call.signal.reason
    return AbortedError() if reason is None else reason


def failure_of(call: Call, error: BaseException) -> ToolError:
    """Turn what a tool's body raised into what the registry raises (contract row P8).

    Raises:
        KeyboardInterrupt, SystemExit: as they are; they are the program's, not the tool's.
    """
    if isinstance(error, ToolError):
        return error
    if isinstance(error, KeyboardInterrupt | SystemExit):
        raise error
    failure = ToolFailedError(call.entry.name)
    failure.__cause__ = error
    return failure


def _checked(call: Call, value: object) -> object:
    check = call.entry.check_output
    assert check is not None
    try:
        return check(value)
    except OutputRefused as refused:
        raise InvalidOutputError(call.entry.name, refused.problems) from refused.__cause__


def _record(
    call: Call, status: CallStatus, *, written: Written | None = None, error: BaseException | None = None, code: str | None = None
) -> ToolCallRecord:
    entry: Entry | None = getattr(call, "entry", None)
    context = call.call_context or _NO_CONTEXT
    draft = _RecordDraft(
        call.invocation_id,
        shown_name(call.name) if entry is None else entry.name,
        "" if entry is None else entry.kind,
        status,
        call.started_at,
        (time.perf_counter() - call.began) * 1000,
        context.call_id,
        context.run_id,
        call.thread_id,
        context.attempt,
        context.approved_by,
        len(call.text),
        0 if written is None else written.size_bytes,
        code,
        None if error is None else getattr(error, "status", None),
        call.repairs,
        call.notes,
        call.late_ms,
    )
    draft._input = _input_source(call.text)
    draft._output = None if written is None else _output_source(written.text)
    draft.__class__ = ToolCallRecord
    return draft  # type: ignore[no-any-return]  # it is a ToolCallRecord now


def _input_source(text: bytes) -> bytes | str | None:
    if len(text) <= _INPUT_KEPT:
        return text or None
    return digest_of_input(text)


def _output_source(text: str) -> bytes | str:
    if len(text) <= _OUTPUT_KEPT:
        return text.encode()
    return sha256(text.encode()).hexdigest()


def _tell_finished(call: Call, record: ToolCallRecord, output: object) -> None:
    call.scope.emit("tool.finished", lambda: ToolFinished(record, call.arguments, output))
    if call.span is not None:
        call.span.end(SpanEnding(record, None, call.arguments, output))


def _tell_failed(call: Call, record: ToolCallRecord, error: BaseException) -> None:
    call.scope.emit("tool.failed", lambda: ToolFailed(record, error, call.input))
    if call.span is not None:
        call.span.end(SpanEnding(record, error, call.input))
