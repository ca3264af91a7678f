"""The one pipeline, without I/O: `admit` → (a driver runs the tool) → `settle`, or `fail`, or `end_early`.

Every call of every tool takes this path, registered or brought by the call, from a coroutine or a blocked thread. The
drivers beside this file differ only in how they wait. Source: contract rows P1 to P12, docs/adr/0002.
"""

import contextlib
import itertools
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Final, TypeAlias, cast

from callgate.diagnostics import DiagnosticContext, ToolLate, original_error
from callgate.errors import (
    ApprovalRequiredError,
    InvalidInputError,
    InvalidOutputError,
    Problem,
    ToolDeniedError,
    ToolError,
    ToolUnavailableError,
)
from callgate.registry.catalog import Catalog
from callgate.registry.entry import Entry
from callgate.registry.judging import Aborted, check_authorization, code_of, denial_of, reason_of, status_of
from callgate.registry.log import CallLog
from callgate.registry.receipts import ended, tell_failed, tell_finished
from callgate.registry.requests import NO_OPTIONS, Call, ErrorPorts, Held
from callgate.reporting import ErrorReporter, ToolErrorReport, format_tool_error
from callgate.tools.asking import approved_parse
from callgate.tools.inputs import InputRefused, OutputRefused
from callgate.tools.limiting import limit_output
from callgate.tools.reading import read_arguments
from callgate.tools.repair import repair_arguments
from callgate.tools.spill import SpillStore
from callgate.tools.writing import Written, add_blocks, write_output, write_text
from callgate.values import (
    NO_ARTIFACTS,
    UNSET,
    CallStatus,
    EndedCall,
    ExecutionOptions,
    ToolAnswer,
    ToolCallRecord,
    ToolResult,
)

__all__ = ("Authorize", "Failure", "Pipeline", "Settings")

Authorize: TypeAlias = Callable[[Call], object]
_Refused: TypeAlias = tuple[tuple[Problem, ...], tuple[str, ...]]
"""What is wrong with arguments, and which of them the tool does not know."""

_log: Final = logging.getLogger("callgate")
_REPAIR_ROUNDS: Final = 8
_MOST_REPAIRS: Final = 100
_CLOSED: Final = "its registry was closed"
_HUNG: Final = "too many of its calls did not stop at their limit and still run; it takes calls again when one returns"


@dataclass(frozen=True, slots=True)
class Failure:
    """Be the end of a call that failed: the error to raise, its receipt, and the text that a model reads."""

    error: ToolError
    ended: EndedCall
    text: str

    @property
    def record(self) -> ToolCallRecord:
        """The receipt of the call."""
        return self.ended.record()

    @property
    def bare_error(self) -> ToolError:
        """The error without its trace: a tool may raise one for ever, and the trace would grow and keep each call alive."""
        return self.error.with_traceback(None)


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

    __slots__ = ("_ids", "_prefix", "_returned", "catalog", "closed", "diagnostics", "log", "running", "settings")

    def __init__(self, catalog: Catalog, settings: Settings, log: CallLog, diagnostics: DiagnosticContext) -> None:
        self.catalog = catalog
        self.settings = settings
        self.log = log
        self.diagnostics = diagnostics
        self.closed = False
        self.running: dict[str, Call] = {}
        self._ids = itertools.count(1)
        self._returned: set[str] = set()
        self._prefix = f"inv_{secrets.token_hex(6)}_"

    def admit(self, call: Call) -> Awaitable[object] | None:
        """Take a call in: offered, input, authorization. Give the authorization to wait for, when it is a coroutine's.

        Raises:
            ToolError: the refusal; the tool does not run.
            Aborted: when the caller has aborted already.
        """
        self.read(call)
        authorize = self.settings.authorize
        if authorize is None:
            return None
        try:
            answer = authorize(call)
        except BaseException as error:  # noqa: BLE001 - the host's own code
            denial = denial_of(call, error)
        else:
            return self._judge(call, answer)
        raise denial

    def read(self, call: Call) -> None:
        """Find the call's tool and parse its input; nothing else is judged.

        Raises:
            ToolError: the refusal.
            Aborted: when the caller has aborted already.
        """
        call.started_at = time.time()
        call.began = time.perf_counter()
        call.number = next(self._ids)
        call.prefix = self._prefix
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
        refused: _Refused | None = None
        try:
            call.arguments = _parse_of(call)(text, arguments)
        except InputRefused as error:
            refused = error.problems, error.unknown  # not the error: its trace refers to this frame, and this frame to it
        except ApprovalRequiredError as asked:
            raise _asked(call, asked) from None
        if refused is not None:
            self._repair(call, options, arguments, refused)
        call.parsed = True
        if call.signal is not None and call.signal.aborted:
            raise Aborted(reason_of(call))

    def _judge(self, call: Call, answer: object) -> Awaitable[object] | None:
        if answer is not None and answer is not True:
            if isawaitable(answer):
                return answer
            check_authorization(call, answer)
        if call.signal is not None and call.signal.aborted:
            raise Aborted(reason_of(call))
        return None

    def close(self) -> None:
        """Take no more calls and stop those that are waited for."""
        self.closed = True
        for entry in self.catalog.all_entries():
            entry.slots.close()
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

    def _repair(self, call: Call, options: ExecutionOptions, arguments: dict[str, object], refused: _Refused) -> None:
        """Mend refused arguments in rounds, for what was text may hold what is to be mended itself.

        Raises:
            InvalidInputError: what is left is not mendable, or is not after a few rounds.
        """
        entry, repairs = call.entry, list(call.repairs)
        for _ in range(_REPAIR_ROUNDS):
            mended, done = _mended(entry, options, arguments, refused)
            if not done:
                break
            call.text, arguments = read_arguments(entry.name, mended)
            repairs += done
            call.repairs = tuple(repairs[:_MOST_REPAIRS]) + _surplus(len(repairs) - _MOST_REPAIRS)
            try:
                call.arguments = _parse_of(call)(call.text, arguments)
            except InputRefused as again:
                refused = again.problems, again.unknown
            except ApprovalRequiredError as asked:
                raise _asked(call, asked) from None
            else:
                return
        raise InvalidInputError(entry.name, refused[0])

    def settle(self, call: Call, value: object) -> ToolResult[Any]:
        """Turn what the tool gave into the call's result: output, cap, receipt.

        Raises:
            ToolError: `InvalidOutputError` or `OutputTooLargeError`.
            Aborted: the caller aborted while the tool came to its end.
        """
        if call.signal is not None and call.signal.aborted:
            raise Aborted(reason_of(call))
        entry, artifacts = call.entry, NO_ARTIFACTS
        if issubclass(type(value), ToolAnswer):  # not isinstance: a hostile value would be asked for its class
            value, written, artifacts = self._answer(call, cast("ToolAnswer[object]", value))
        else:
            if entry.check_output is not None:
                value = _checked(call, value)
            written = write_output(entry.name, value)
        if entry.check_return is not None and entry.name not in self._returned:
            self._check_return(call, value)
        cap = entry.max_output_bytes if call.options.max_output_bytes is UNSET else self._cap_of(call)
        if written.blocks or (cap is not None and written.size_bytes > cap):
            written = limit_output(entry.name, written, cap, entry.on_oversize, self._spill_of(call))
        if written.notes:
            call.notes += written.notes
        end = ended(call, "succeeded", written)
        self.log.append(end)
        if call.observed:
            tell_finished(call, end.record(), written.text)
        return call.succeed(value, written.text, end, written.blocks, artifacts)

    def _check_return(self, call: Call, value: object) -> None:
        """Warn, at a tool's first result, when it is not what the return annotation says (case d15)."""
        self._returned.add(call.entry.name)
        assert call.entry.check_return is not None
        difference = call.entry.check_return(value)
        if difference is not None:
            call.notes += (difference,)
            _log.warning("callgate.return_differs tool=%s: %s", call.entry.name, difference)

    def _answer(self, call: Call, answer: ToolAnswer[object]) -> tuple[object, Written, Mapping[str, object]]:
        name = call.entry.name
        try:
            value, text, blocks, artifacts = answer.value, answer.text, answer.blocks, answer.artifacts
        except Exception as error:  # a subclass of the tool's own may do anything
            raise InvalidOutputError.of(name, "", "an answer that can be read", "one that fails when it is read") from error
        if call.entry.check_output is not None:
            value = _checked(call, value)
        if text is None:
            return value, add_blocks(name, write_output(name, value), blocks), artifacts
        call.reworded = True
        return value, write_text(name, text, blocks), artifacts

    def _cap_of(self, call: Call) -> int | None:
        """Give the cap where options say one: the call's own goes before the tool's, the registry's behind it."""
        own, stated = call.entry.tool.max_output_bytes, call.options.max_output_bytes
        if call.options is self.settings.options and own is not UNSET:
            return own
        return call.entry.max_output_bytes if stated is UNSET else stated

    def _spill_of(self, call: Call) -> Callable[[str], str | None]:
        def keep(text: str) -> str | None:
            try:
                handle: object = self.settings.spill.put(text, call.thread_id)
            except Exception:  # noqa: BLE001 - the store is the host's own code; the output is cut instead
                _log.warning("callgate.spill_failed tool=%s", call.entry.name, exc_info=True)
                return None
            return handle if isinstance(handle, str) else None

        return keep

    def fail(self, call: Call, error: ToolError) -> Failure:
        """End a call that was refused or that failed: receipt, log, report. Nothing here waits for anybody."""
        if not call.text and type(call.raw) is str:  # it could not be read: the receipt still tells how much it was
            call.text = call.raw.encode("utf-8", "surrogatepass")
        with contextlib.suppress(Exception):  # a tool's own error class may forbid it
            error.invocation_id = call.invocation_id
        status: CallStatus = "denied" if isinstance(error, ToolDeniedError) else "failed"
        end = ended(call, status, code=self._code(error), error_status=status_of(error))
        self.log.append(end)
        record = end.record()
        tell_failed(call, record, error)
        attempts_left = None if call.call_context is None else call.call_context.attempts_left
        text = format_tool_error(error, attempts_left=attempts_left)
        self.report(call, error, record, text)
        return Failure(error, end, text)

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

    def end_early(self, call: Call, status: CallStatus) -> EndedCall:
        """End a call that was stopped or held before its tool ran: a receipt, no failure, no report."""
        end = ended(call, status, code=status)
        self.log.append(end)
        tell_finished(call, end.record(), UNSET)
        return end

    def late(self, call: Call) -> None:
        """Note that a body which was given up has ended; what it brought is dropped."""
        call.entry.slots.take_back()
        call.late_ms = (time.perf_counter() - call.began) * 1000
        record = self.log.mark_late(call.number, call.late_ms)
        if record is not None:
            call.scope.emit("tool.late", lambda: ToolLate(record))

    def refused(self, entry: Entry) -> ToolError:
        """Make the error for a tool whose slots are refused: its registry is closed, or too many of its bodies hang."""
        return self.unavailable(entry, _CLOSED if self.closed else _HUNG)

    def unavailable(self, entry: Entry, reason: str) -> ToolError:
        """Make the error for a tool that cannot take the call (contract row R5)."""
        make = self.settings.errors.unavailable
        try:
            made: object = None if make is None else make(entry.name, reason)
        except Exception:  # noqa: BLE001 - the host's own code; the refusal stands without it
            made = None
        return made if isinstance(made, ToolError) else ToolUnavailableError(entry.name, reason)

    def _code(self, error: ToolError) -> str:
        name_code = self.settings.errors.error_code
        try:
            code: object = None if name_code is None else name_code(original_error(error))
        except Exception:  # noqa: BLE001 - the host's own code; the call has failed already, and the error's code is true
            code = None
        return code if type(code) is str and code else code_of(error)


def _parse_of(call: Call) -> Callable[[bytes, dict[str, object]], object]:
    return approved_parse(call.entry.parse) if call.approved else call.entry.parse


def _asked(call: Call, asked: ApprovalRequiredError) -> Exception:
    """Turn what an input parser asks for into what the door makes of it: a gate asks a person, without one it is refused."""
    return ApprovalRequiredError(call.entry.name, asked.reason) if call.guard is None else Held("pending", asked.reason)


def _mended(
    entry: Entry, options: ExecutionOptions, arguments: dict[str, object], refused: _Refused
) -> tuple[dict[str, object], tuple[str, ...]]:
    problems, unknown = refused
    ignored = options.ignored_arguments & arguments.keys() & set(unknown)
    kept = {key: value for key, value in arguments.items() if key not in ignored}
    done = tuple(f"{name}: ignored" for name in sorted(ignored))
    mended = repair_arguments(entry.schema, kept, problems) if options.repair else None
    return (kept, done) if mended is None else (mended.arguments, done + mended.repairs)


def _surplus(number: int) -> tuple[str, ...]:
    return (f"and {number} more",) if number > 0 else ()


def _checked(call: Call, value: object) -> object:
    check = call.entry.check_output
    assert check is not None
    try:
        return check(value)
    except OutputRefused as refused:
        raise InvalidOutputError(call.entry.name, refused.problems) from refused.__cause__
