"""One call on its way through the gate: where it comes from, which place in the journal it claims, and what it leaves there."""

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypedDict

from callgate.diagnostics import DiagnosticContext
from callgate.errors import UsageError
from callgate.gate.content import KeepContent, kept_arguments
from callgate.gate.outcomes import Succeeded
from callgate.policy.decision import Budget, Decision
from callgate.registry import Call
from callgate.registry.catalog import shown_name
from callgate.registry.requests import plain_name
from callgate.signals import AbortSignal
from callgate.store.records import ApprovalRecord, Grant, JournalRecord, digest_of_content, end_claim, key_of, start_claim
from callgate.tools.plain_arguments import plain_arguments
from callgate.values import CallContext, Caller, ContentBlock, EndedCall, ExecutionOptions, ToolCall, digest_of_input

__all__ = ("End", "GatedCall", "PlaceKeywords", "Unknown", "end_of", "gated_call")


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
_NOWHERE: Final[PlaceKeywords] = {}
_new: Final = object.__new__
"""Make what every call needs one of without `__init__`: Python is entered anew for that, which doubles the price."""

_FOLLOWING: Final = ("guard", "attempt", "approval", "approved_by", "grant", "asks", "ended")


class GatedCall(Call):
    """Be one attempt at a call: the registry's call, with what the gate knows of it.

    `claim` is the place in the journal that its next record takes, under the number `place`; `started` tells whether the tool's
    start has been recorded there, and `at` when the attempt began, in seconds since the epoch.
    `approval` is set for a call that a person has approved, `grant` for one that was approved in advance. `reserve` are the
    counters that its start takes a use of; the start of a further attempt takes none. `unusual`: there is more to judge than
    what the policy says.
    """

    call: ToolCall
    caller: Caller
    claim: str
    keep: KeepContent
    keywords: PlaceKeywords = _NOWHERE
    run_id: str | None = None
    step: int | None = None
    dry_run: bool = False
    where: str | None = None
    at: float = 0.0
    place: int = 0
    attempt: int = 1
    started: bool = False
    approval: ApprovalRecord | None = None
    approved_by: str | None = None
    grant: Grant | None = None
    asks: Decision | None = None
    budgets: tuple[Budget, ...] = ()
    reserve: tuple[tuple[str, int], ...] = ()
    ended: tuple[EndedCall, ...] = ()
    unusual: bool = False

    @property
    def key(self) -> str:
        """What names the call in the journal: its places are numbered behind it."""
        return key_of(self.claim)

    def take_place(self, keywords: PlaceKeywords) -> None:
        """Take in what is said of where the call comes from.

        Raises:
            UsageError: a keyword is unknown, or a value of another type.
        """
        self.keywords = keywords
        for name, value in keywords.items():
            if name not in _KNOWN:
                raise UsageError(f"unknown keyword {name!r}; a gated call takes {', '.join(sorted(_KNOWN))}")
            if name in _OWN:
                setattr(self, name, value)
            else:
                self._set(name, value)
        self.unusual = self.dry_run
        self.names = (self.call.id, self.run_id, 1, None)

    def _make_context(self) -> CallContext:
        return CallContext(
            run_id=self.run_id,
            call_id=self.call.id,
            step=self.step,
            attempt=self.attempt,
            approved_by=self.approved_by,
            key=self.key,
            caller=self.caller,
        )

    def succeed(  # type: ignore[override]  # who calls `begin` with such a call knows what it is given
        self,
        value: object,
        text: str,
        ended: EndedCall,
        blocks: tuple[ContentBlock, ...],
        artifacts: Mapping[str, object],
    ) -> Succeeded:
        """Make the outcome of a call whose tool has succeeded."""
        outcome: Succeeded = _new(Succeeded)
        outcome.call = self.call
        outcome.text = text
        outcome.value = value
        outcome.blocks = blocks
        outcome.artifacts = artifacts
        outcome.ended = (*self.ended, ended) if self.ended else (ended,)
        outcome.replayed = False
        return outcome

    def plain(self) -> Mapping[str, object]:
        """Give the parsed arguments in JSON form."""
        return plain_arguments(self.entry.tool, self.arguments, self.text)

    def with_call(self, call: ToolCall) -> "GatedCall":
        """Give the same call, not read and not started, with the arguments that a hook gave to it."""
        following = self.at_place(self.place)
        following.call = call
        following.raw = call.arguments
        return following

    def consent(self, by: str | None) -> None:
        """Note who has approved it, for its receipts."""
        self.approved_by = by
        self.names = (self.call.id, self.run_id, self.attempt, by)
        self._context = None

    def at_place(
        self,
        place: int,
        *,
        attempt: int | None = None,
        approval: ApprovalRecord | None = None,
        asks: Decision | None = None,
    ) -> "GatedCall":
        """Give the same call at a place of the journal, not read and not started, with what a person has approved of it.

        This one stays as it is, because a store may write its record later. An approved call has the arguments that were
        shown, or those that the person wrote instead. `asks` is what its input parser asked for.
        """
        call = self.call
        if approval is not None:
            call = replace(call, arguments=approval.arguments if approval.edited is None else approval.edited)
        following = gated_call(call, self.caller, start_claim(self.key, place), self.keep, self.keywords)
        for name in _FOLLOWING:
            if name in self.__dict__:
                setattr(following, name, self.__dict__[name])
        following.place = place
        if attempt is not None:
            following.attempt = attempt
        if asks is not None:
            following.asks = asks
        if approval is not None:
            following.approval = approval
            following.approved_by = approval.decided_by
        following.approved = following.asks is not None or following.approval is not None
        following.unusual = following.approved or following.dry_run
        following.consent(following.approved_by)
        return following

    # ── what a store asks of a start ─────────────────────────────────────────────────────────────────────────────────

    @property
    def tool_name(self) -> str:
        """The tool that is to run."""
        return self.entry.name

    @property
    def tool_kind(self) -> str:
        """Its kind."""
        return self.entry.kind

    @property
    def subject(self) -> str:
        """The subject on whose behalf it is to run."""
        return self.caller.subject

    def record(self) -> JournalRecord:
        """Write the record of the start."""
        return self._record("started", self.claim, self.at)

    def asked(self, approval: ApprovalRecord) -> JournalRecord:
        """Write the record of a request for approval."""
        return self._record("asked", self.claim, approval.created_at, approval_id=approval.id)

    def _record(
        self, event: Literal["started", "asked"], claim: str, at: float, *, approval_id: str | None = None
    ) -> JournalRecord:
        tool = self.entry.tool
        content, until = kept_arguments(self.keep, self, at)
        approval = self.approval
        return JournalRecord(
            claim=claim,
            key=self.key,
            number=self.place,
            event=event,
            at=at,
            tool=tool.name,
            kind=tool.kind,
            caller=self.subject,
            run_id=self.run_id,
            call_id=self.call.id,
            thread_id=self.thread_id,
            step=self.step,
            attempt=self.attempt,
            fingerprint=tool.fingerprint,
            invocation_id=self.invocation_id,
            approval_id=approval_id if approval is None else approval.id,
            approved_by=self.approved_by,
            repeatable=tool.kind == "read" or tool.options.idempotent,
            input_digest=digest_of_input(self.text) if self.text else None,
            input_bytes=len(self.text),
            where=self.where,
            content_digest=digest_of_content(content),
            content=content,
            content_until=until,
        )


def gated_call(call: ToolCall, caller: Caller, claim: str, keep: KeepContent, keywords: PlaceKeywords) -> GatedCall:
    """Make a call on its way, for a place in the journal. See `_new`."""
    gated = _new(GatedCall)
    gated.name = call.name if type(call.name) is str else plain_name(call.name)
    gated.raw = call.arguments
    gated.call = call
    gated.caller = caller
    gated.claim = claim
    gated.keep = keep
    gated.names = (call.id, None, 1, None)
    gated.run_id = gated.signal = gated.tools = None  # all are read often, and an attribute of the class is slow to read
    gated.unusual = False
    if keywords:
        gated.take_place(keywords)
    return gated


class End:
    """Be the end of a call that is to be recorded: under its start, or in the place of one when the tool never ran.

    `ends` is the place of that start. Made by `end_of`.
    """

    gated: GatedCall
    ends: str | None
    status: str
    at: float
    ended: EndedCall | None
    content: dict[str, object] | None = None
    labels: tuple[str, ...] = ()
    approval: ApprovalRecord | None = None

    @property
    def claim(self) -> str:
        """The place that it takes: of its start, or that of one when the tool never ran."""
        gated = self.gated
        return gated.claim if self.ends is None else end_claim(gated.key, gated.place)

    def record(self) -> JournalRecord:
        """Write the record."""
        gated, receipt = self.gated, None if self.ended is None else self.ended.record()
        approval = self.approval or gated.approval
        kept, for_run, until = gated.keep.of_result(self.content, gated.run_id, self.at)
        content = None if kept is None else json.dumps(kept, ensure_ascii=False)
        return JournalRecord(
            claim=self.claim,
            key=gated.key,
            number=gated.place,
            event="finished",
            at=self.at,
            tool=shown_name(gated.call.name) if receipt is None else receipt.tool,
            kind="" if receipt is None else receipt.kind,
            caller=gated.subject,
            run_id=gated.run_id,
            call_id=gated.call.id,
            thread_id=gated.thread_id,
            step=gated.step,
            attempt=gated.attempt if receipt is None else receipt.attempt,
            invocation_id=None if receipt is None else receipt.invocation_id,
            approval_id=None if approval is None else approval.id,
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


def end_of(  # noqa: PLR0913, PLR0917 - the facts of an end; every gated call makes one, by place
    gated: GatedCall,
    status: str,
    at: float,
    ended: EndedCall | None,
    content: dict[str, object] | None = None,
    labels: tuple[str, ...] = (),
    approval: ApprovalRecord | None = None,
) -> End:
    """Make the end of a call. See `_new`."""
    end = _new(End)
    end.gated = gated
    end.ends = gated.claim if gated.started else None
    end.status = status
    end.at = at
    end.ended = ended
    if content is not None:
        end.content = content
    if labels:
        end.labels = labels
    if approval is not None:
        end.approval = approval
    return end


@dataclass(frozen=True, slots=True)
class Unknown:
    """Be the record that a start has no end and never will: its process is gone."""

    start: JournalRecord
    at: float

    @property
    def claim(self) -> str:
        """The place of the end that did not come."""
        return end_claim(self.start.key, self.start.number)

    @property
    def ends(self) -> str:
        """The place of the start."""
        return self.start.claim

    def record(self) -> JournalRecord:
        """Write the record."""
        return replace(
            self.start, claim=self.claim, event="unknown", at=self.at, content=None, content_digest=None, content_until=None
        )
