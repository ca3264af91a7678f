"""The facts that a call leaves: its receipt, and what diagnostics are told. Source: contract rows P11, D1, docs/adr/0007."""

import time
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from callgate.diagnostics import NOT_RECORDED, CallFacts, SpanEnding, ToolFailed, ToolFinished
from callgate.registry.catalog import shown_name
from callgate.registry.entry import Entry
from callgate.registry.requests import Call, Names
from callgate.tools.secrecy import takes_secrets
from callgate.tools.writing import Written
from callgate.values import CallStatus, EndedCall, ToolCallRecord, digest_of_input

__all__ = ("ended", "facts_of", "tell_failed", "tell_finished")

_INPUT_KEPT: Final = 4096
_OUTPUT_KEPT: Final = 1024


def ended(
    call: Call, status: CallStatus, written: Written | None = None, *, code: str | None = None, error_status: int | None = None
) -> EndedCall:
    """Gather the facts of the receipt. Content that is not small is digested now, so that it need not be kept."""
    entry: Entry | None = getattr(call, "entry", None)
    text = call.text
    source = text if len(text) <= _INPUT_KEPT else digest_of_input(text)
    output = None if written is None else written.text if len(written.text) <= _OUTPUT_KEPT else _digest(written.text)
    return EndedCall(
        _write_record,
        call.number,
        (
            call.prefix,
            call.number,
            shown_name(call.name) if entry is None else entry.name,
            "" if entry is None else entry.kind,
            status,
            call.started_at,
            (time.perf_counter() - call.began) * 1000,
            call.names,
            call.thread_id,
            len(text),
            source,
            0 if written is None else written.size_bytes,
            output,
            code,
            error_status,
            call.repairs,
            call.notes,
            call.late_ms,
        ),
    )


def _write_record(  # noqa: PLR0913, PLR0917 - the facts that `ended` gathers, in their order
    prefix: str,
    number: int,
    tool: str,
    kind: str,
    status: CallStatus,
    started_at: float,
    duration_ms: float,
    names: Names,
    thread_id: str | None,
    input_bytes: int,
    arguments: bytes | str,
    output_bytes: int,
    output: str | bytes | None,
    code: str | None,
    error_status: int | None,
    repairs: tuple[str, ...],
    notes: tuple[str, ...],
    late_ms: float | None,
) -> ToolCallRecord:
    call_id, run_id, attempt, approved_by = names
    return ToolCallRecord(
        invocation_id=f"{prefix}{number:x}",
        tool=tool,
        kind=kind,
        status=status,
        started_at=started_at,
        duration_ms=duration_ms,
        call_id=call_id,
        run_id=run_id,
        thread_id=thread_id,
        attempt=attempt,
        approved_by=approved_by,
        input_bytes=input_bytes,
        output_bytes=output_bytes,
        input_digest=arguments if isinstance(arguments, str) else digest_of_input(arguments) if arguments else None,
        output_digest=_digest(output).hex() if isinstance(output, str) else None if output is None else output.hex(),
        error_code=code,
        error_status=error_status,
        repairs=repairs,
        notes=notes,
        late_ms=late_ms,
    )


def _digest(text: str) -> bytes:
    return sha256(text.encode()).digest()


def facts_of(call: Call) -> CallFacts:
    """Gather what diagnostics may know of a call before its end."""
    entry: Entry | None = getattr(call, "entry", None)
    call_id, run_id, attempt, _ = call.names
    return CallFacts(
        invocation_id=call.invocation_id,
        tool=shown_name(call.name) if entry is None else entry.name,
        kind="" if entry is None else entry.kind,
        description=None if entry is None else entry.tool.description,
        call_id=call_id,
        run_id=run_id,
        thread_id=call.thread_id,
        attempt=attempt,
        limit_s=call.limit_s,
    )


def tell_finished(call: Call, record: ToolCallRecord, output: object) -> None:
    """Tell that a call ended without a failure, and end its span."""
    call.scope.emit("tool.finished", lambda: ToolFinished(record, call.arguments, output))
    _end_span(call, lambda: SpanEnding(record, None, call.arguments, output))


def tell_failed(call: Call, record: ToolCallRecord, error: BaseException) -> None:
    """Tell that a call failed, and end its span."""
    call.scope.emit("tool.failed", lambda: ToolFailed(record, error, _shown_input(call)))
    _end_span(call, lambda: SpanEnding(record, error, _shown_input(call)))


def _shown_input(call: Call) -> object:
    """Give the input as it may be recorded: of one that was refused, nothing tells where the secrets stand in it."""
    entry: Entry | None = getattr(call, "entry", None)
    return NOT_RECORDED if entry is not None and not call.parsed and takes_secrets(entry.schema) else call.input


def _end_span(call: Call, ending: Callable[[], SpanEnding]) -> None:
    """End the call's span; a call that never came to run its tool gets one here, so that each call has one (case h9)."""
    if call.span is None and call.scope.opens_spans:
        call.span = call.scope.open_span(facts_of(call))
    if call.span is not None:
        call.span.end(ending())
