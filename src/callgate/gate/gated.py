"""One call on its way through the gate: where it comes from, which place in the journal it claims, and what it leaves there."""

import copy
import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypedDict

from callgate.diagnostics import DiagnosticContext
from callgate.errors import UsageError
from callgate.gate.content import KeepContent, kept_arguments
from callgate.policy.decision import Budget, Decision
from callgate.registry import Call
from callgate.registry.catalog import shown_name
from callgate.signals import AbortSignal
from callgate.store.records import ApprovalRecord, JournalRecord, digest_of_content, end_claim, start_claim
from callgate.values import CallContext, Caller, EndedCall, ExecutionOptions, ToolCall, digest_of_input

__all__ = ("End", "GatedCall", "PlaceKeywords", "Unknown")


class PlaceKeywords(TypedDict, total=False):
    """Say where a call comes from and how far it may go.

    `run_id` and the call's id name it: within a run a call is started once. `tools` is what the step offered (names, tools
    or an `Offer`; None: the catalog). `dry_run` does everything but the tool's body. `where` is a word for the receipt in
    the journal, such as the node of a workflow. The others are those of `ToolInvocationRequest`.
    """

    run_id: str | None
    step: int | None
    thread_id: str | None
    user_context: object
    signal: AbortSignal | None
    tools: Iterable[Any] | None
    options: ExecutionOptions | None
    diagnostics: DiagnosticContext | None
    logger: logging.Logger | None
    dry_run: bool
    where: str | None


_OWN: Final = frozenset({"run_id", "step", "dry_run", "where"})
_KNOWN: Final = frozenset(PlaceKeywords.__annotations__)


class GatedCall:
    """Be one call under way. The attributes that most calls do not set are class attributes, as in `Call`.

    `claim` is the place in the journal that its next record takes, with that `number`; `started` tells whether the tool's
    start has been recorded under it, `judged` whether it may be, and `at` when the attempt began, in seconds since the epoch.
    `approval` is set for a call that a person has approved.
    """

    run_id: str | None = None
    step: int | None = None
    thread_id: str | None = None
    dry_run: bool = False
    where: str | None = None
    at: float = 0.0
    number: int = 0
    attempt: int = 1
    started: bool = False
    judged: bool = False
    approval: ApprovalRecord | None = None
    approved_by: str | None = None
    asks: Decision | None = None
    budgets: tuple[Budget, ...] = ()
    ended: tuple[EndedCall, ...] = ()
    inner: Call

    def __init__(self, call: ToolCall, caller: Caller, key: str, keep: KeepContent, place: PlaceKeywords) -> None:
        self.call = call
        self.caller_ = caller
        self.key = key
        self.claim = start_claim(key, 0)
        self.keep = keep
        self.keywords: dict[str, Any] = {}
        for name, value in place.items():
            if name not in _KNOWN:
                raise UsageError(f"unknown keyword {name!r}; a gated call takes {', '.join(sorted(_KNOWN))}")
            if name in _OWN:
                setattr(self, name, value)
            elif value is not None:
                self.keywords[name] = value
        self.thread_id = self.keywords.get("thread_id")

    def request(self) -> Call:
        """Make the registry's call for the next attempt."""
        context = CallContext(
            run_id=self.run_id,
            call_id=self.call.id,
            step=self.step,
            attempt=self.attempt,
            approved_by=self.approved_by,
            key=self.key,
            caller=self.caller_,
        )
        inner = self.inner = Call(self.call.name, self.call.arguments, self.keywords)  # type: ignore[arg-type]  # keys of CallKeywords
        inner.call_context = context
        return inner

    def read_call(self) -> Call | None:
        """Give the registry's call, when there has been one."""
        return self.__dict__.get("inner")

    def at_place(self, number: int, *, attempt: int | None = None, approval: ApprovalRecord | None = None) -> "GatedCall":
        """Give the same call at another place of the journal, with what a person has approved of it.

        This one stays as it is, because a store may write its record later. An approved call has the arguments that were
        shown, or those that the person wrote instead.
        """
        following = copy.copy(self)
        following.number = number
        following.claim = start_claim(self.key, number)
        following.started = False
        following.attempt = self.attempt if attempt is None else attempt
        if approval is not None:
            arguments = approval.arguments if approval.edited is None else approval.edited
            following.approval = approval
            following.approved_by = approval.decided_by
            following.judged = False
            following.call = replace(self.call, arguments=arguments)
        return following

    # ── what a store asks of a start ─────────────────────────────────────────────────────────────────────────────────

    @property
    def tool(self) -> str:
        """The tool that is to run."""
        return self.inner.entry.name

    @property
    def kind(self) -> str:
        """Its kind."""
        return self.inner.entry.kind

    @property
    def caller(self) -> str:
        """The subject on whose behalf it is to run."""
        return self.caller_.subject

    @property
    def reserve(self) -> tuple[tuple[str, int], ...]:
        """The counters that a first start takes a use of; a further attempt is the same use."""
        return () if self.attempt > 1 else tuple((each.counter, each.limit) for each in self.budgets)

    def record(self) -> JournalRecord:
        """Write the record of the start."""
        return self._record("started", self.claim, self.at)

    def asked(self, approval: ApprovalRecord) -> JournalRecord:
        """Write the record of a request for approval."""
        return self._record("asked", self.claim, approval.created_at, approval_id=approval.id)

    def _record(
        self, event: Literal["started", "asked"], claim: str, at: float, *, approval_id: str | None = None
    ) -> JournalRecord:
        options = self.inner.entry.tool.options
        content, until = kept_arguments(self.keep, self.inner, at)
        approval = self.approval
        return JournalRecord(
            claim=claim,
            key=self.key,
            number=self.number,
            event=event,
            at=at,
            tool=self.tool,
            kind=self.kind,
            caller=self.caller,
            run_id=self.run_id,
            call_id=self.call.id,
            thread_id=self.thread_id,
            step=self.step,
            attempt=self.attempt,
            fingerprint=self.inner.entry.tool.fingerprint,
            invocation_id=self.inner.invocation_id,
            approval_id=approval_id if approval is None else approval.id,
            approved_by=self.approved_by,
            repeatable=options.kind == "read" or options.idempotent,
            input_digest=digest_of_input(self.inner.text) if self.inner.text else None,
            input_bytes=len(self.inner.text),
            where=self.where,
            content_digest=digest_of_content(content),
            content=content,
            content_until=until,
        )


@dataclass(slots=True, eq=False)
class End:
    """Be the end of a call that is to be recorded: after its start, or in the place of one when the tool never ran."""

    gated: GatedCall
    claim: str
    number: int
    status: str
    at: float
    ended: EndedCall | None
    content: dict[str, object] | None
    labels: tuple[str, ...] = ()
    approval: ApprovalRecord | None = None

    @classmethod
    def of(  # noqa: PLR0913, PLR0917 - the facts of an end
        cls,
        gated: GatedCall,
        status: str,
        at: float,
        ended: EndedCall | None,
        content: dict[str, object] | None,
        labels: tuple[str, ...] = (),
        *,
        approval: ApprovalRecord | None = None,
    ) -> "End":
        """Take the end's place: under the start when there was one."""
        claim = f"{gated.claim}!" if gated.started else gated.claim
        return cls(gated, claim, gated.number, status, at, ended, content, labels, approval or gated.approval)

    def record(self) -> JournalRecord:
        """Write the record."""
        gated, receipt = self.gated, None if self.ended is None else self.ended.record()
        kept, for_run, until = gated.keep.of_result(self.content, gated.run_id, self.at)
        content = None if kept is None else json.dumps(kept, ensure_ascii=False)
        return JournalRecord(
            claim=self.claim,
            key=gated.key,
            number=self.number,
            event="finished",
            at=self.at,
            tool=shown_name(gated.call.name) if receipt is None else receipt.tool,
            kind="" if receipt is None else receipt.kind,
            caller=gated.caller,
            run_id=gated.run_id,
            call_id=gated.call.id,
            thread_id=gated.thread_id,
            step=gated.step,
            attempt=gated.attempt if receipt is None else receipt.attempt,
            invocation_id=None if receipt is None else receipt.invocation_id,
            approval_id=None if self.approval is None else self.approval.id,
            approved_by=gated.approved_by,
            input_digest=None if receipt is None else receipt.input_digest,
            input_bytes=0 if receipt is None else receipt.input_bytes,
            status=self.status,
            output_digest=None if receipt is None else receipt.output_digest,
            output_bytes=0 if receipt is None else receipt.output_bytes,
            error_code=None if receipt is None else receipt.error_code,
            error_status=None if receipt is None else receipt.error_status,
            duration_ms=None if receipt is None else receipt.duration_ms,
            labels=self.labels,
            notes=() if receipt is None else receipt.repairs + receipt.notes,
            where=gated.where,
            content_digest=digest_of_content(content),
            content=content,
            content_for_run=for_run,
            content_until=until,
        )


@dataclass(frozen=True, slots=True)
class Unknown:
    """Be the record that a start has no end and never will: its process is gone."""

    start: JournalRecord
    at: float

    @property
    def claim(self) -> str:
        """The place of the end that did not come."""
        return end_claim(self.start.key, self.start.number)

    def record(self) -> JournalRecord:
        """Write the record."""
        return replace(
            self.start, claim=self.claim, event="unknown", at=self.at, content=None, content_digest=None, content_until=None
        )
