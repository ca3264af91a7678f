"""The way of one call through the gate, from the registry's door to its outcome.

    registry.begin → guard (judge → start is durable) → the tool → end is durable → outcome
                     │ ASK   → a stored request → Pending
                     │ taken → the journal answers: nothing runs twice
                     │ DENY, a switch, a budget → Denied
    a failure that is declared transient → wait → the next attempt, under the next place of the journal

Source: contract rows A3, A5, L2; docs/adr/0009, 0012.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn, cast

from callgate.errors import (
    BudgetExceededError,
    ConflictError,
    OutputTooLargeError,
    StoreError,
    ToolDeniedError,
    ToolError,
    ToolFailedError,
    ToolTimeoutError,
    ToolUnavailableError,
)
from callgate.gate.asking import (
    Asked,
    AskingParts,
    DeniedByReviewer,
    covered_by_grant,
    denied_before,
    new_approval,
    still_covered,
)
from callgate.gate.content import KeepContent, content_of_error, content_of_outcome, content_of_result
from callgate.gate.gated import End, GatedCall, Unknown, end_of
from callgate.gate.judge import (
    INPUT_RULE,
    check_approved,
    check_offered,
    checked,
    decision_for,
    failed_closed,
    policy_call,
    policy_decision,
)
from callgate.gate.labels import NO_LABELS, RunLabels
from callgate.gate.narrowing import always_allowed
from callgate.gate.outcomes import Denied, Failed, Outcome, Pending, Succeeded
from callgate.gate.replay import Past, past_of, replayed
from callgate.gate.retrying import Backoff, is_transient
from callgate.gate.waiting import assured
from callgate.policy.decision import Decision, PolicyCall, Verdict
from callgate.policy.protocol import ToolPolicy
from callgate.registry import Failure, Held, ToolRegistry
from callgate.registry.judging import Aborted, reason_of
from callgate.registry.requests import Guard
from callgate.store.protocol import Store
from callgate.store.records import ApprovalRecord, Refusal
from callgate.tools.tool import Tool
from callgate.values import digest_of_input

__all__ = ("Carrier",)

_log: Final = logging.getLogger("callgate")
_ALLOW: Final = Verdict.ALLOW
_ASK: Final = Verdict.ASK
_DENY: Final = Verdict.DENY
_STALE_AFTER_S: Final = 60.0
_OUR_WORDS: Final = (ToolFailedError, ToolTimeoutError, ToolUnavailableError, OutputTooLargeError)
"""Failures of a tool whose text has nothing of the tool's own in it."""
_OTHER_CALL: Final = "Another call of this run has the same id. It was not run: give every call an id of its own."
_TEXTS: Final = {
    "aborted": "The call was aborted. What the tool did until then stands.",
    "cancelled": "The call was cancelled before it ended. What the tool did until then stands.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier:
    """Carry calls with what a gate was made of. `exhausted` notes, by run, the tools whose budget there is used up.

    `allowed` are the tools of which every call is allowed, whatever its arguments are and whoever makes it.
    """

    registry: ToolRegistry
    policy: ToolPolicy
    store: Store
    keep: KeepContent
    backoff: Backoff
    clock: Callable[[], float]
    approval_ttl_s: float | None
    dry_run: frozenset[str]
    labels: RunLabels = field(default_factory=RunLabels)
    exhausted: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    allowed: Mapping[str, Tool[Any, Any]] = field(init=False)
    guard: Guard = field(init=False)

    def __post_init__(self) -> None:
        tools = (tool for tool in self.registry.list() if tool.name not in self.dry_run)
        object.__setattr__(self, "allowed", {tool.name: tool for tool in tools if always_allowed(self.policy, tool)})
        object.__setattr__(self, "guard", cast("Guard", self._guard))  # bound once; a call is given itself

    async def carried(self, gated: GatedCall) -> Outcome:
        """Bring a call to its outcome, and wait for it.

        Raises:
            BaseException: as `carry`.
        """
        outcome = self.carry(gated)
        return outcome if type(outcome) is Succeeded else await cast("Awaitable[Outcome]", outcome)

    def carry(self, gated: GatedCall) -> Succeeded | Awaitable[Outcome]:
        """Bring a call to its outcome as far as it goes without waiting; what has to be awaited for it is given back.

        Raises:
            BaseException: the reason of the call's abort signal, or the cancellation of this task; the end is journalled.
            StoreError: the journal did not take a record. A call whose start it did not take has not run.
        """
        gated.guard = self.guard
        try:
            end: Any = self.registry.begin(gated)
        except BaseException as stop:
            if not gated.started:
                raise
            return self._stop(gated, stop)
        return self._succeeded(gated, end) if type(end) is Succeeded else self._carry_on(gated, end)

    async def _carry_on(self, gated: GatedCall, end: Any) -> Outcome:
        """Wait for the end of a call, and for those of the attempts that follow it."""
        while True:
            try:
                if end is None:
                    end = self.registry.begin(gated)
                if not isinstance(end, (Succeeded, Failure, Held)):
                    end = await end
            except BaseException as stop:
                if gated.started:
                    await self._record_stop(gated, stop)
                raise
            if isinstance(end, Succeeded):
                outcome = self._succeeded(gated, end)
                return outcome if isinstance(outcome, Succeeded) else await outcome
            following = await (self._held(gated, end) if isinstance(end, Held) else self._failed(gated, end))
            if not isinstance(following, GatedCall):
                return following
            gated, end = following, None

    async def _stop(self, gated: GatedCall, stop: BaseException) -> NoReturn:
        try:
            await self._record_stop(gated, stop)
            raise stop
        finally:
            del stop  # its trace has this frame: free both without the collector

    # ── before the tool ──────────────────────────────────────────────────────────────────────────────────────────────

    def _guard(self, gated: GatedCall) -> Awaitable[None] | None:
        """Judge a call that was read, and record its start; what has to be waited for is given back."""
        gated.at = self.clock()
        tool = gated.entry.tool
        if gated.tools is not None:
            check_offered(self.policy, tool.name, self.registry.offer(gated.tools))
        labels = NO_LABELS if gated.run_id is None else self.labels.known(gated.run_id)
        if labels is None:
            return self._guard_unknown(gated)
        if self.allowed.get(tool.name) is tool and not gated.unusual:
            return self._start(gated)
        return self._decide(gated, labels)

    def _decide(self, gated: GatedCall, labels: frozenset[str]) -> Awaitable[None] | None:
        call = policy_call(gated, gated.at, labels)
        decision = policy_decision(self.policy, call)
        return self._judged(gated, call, decision) if isinstance(decision, Decision) else self._wait(gated, call, decision)

    async def _guard_unknown(self, gated: GatedCall) -> None:
        assert gated.run_id is not None
        labels = self.labels.learn(gated.run_id, await self.store.labels(gated.run_id))
        waiting = self._decide(gated, labels)
        if waiting is not None:
            await waiting

    async def _wait(self, gated: GatedCall, call: PolicyCall, answer: Awaitable[Decision]) -> None:
        try:
            decision = await self.registry.in_time(gated, answer)
        except Aborted:
            raise
        except Exception as error:  # noqa: BLE001 - the host's own code
            decision = failed_closed(gated.entry.name, error)
        waiting = self._judged(gated, call, checked(decision))
        if waiting is not None:
            await waiting

    def _judged(self, gated: GatedCall, call: PolicyCall, decision: Decision) -> Awaitable[None] | None:
        tool = gated.entry.tool
        if decision.verdict is _ALLOW and not (tool.options.needs_approval or gated.unusual or decision.budgets or self.dry_run):
            return self._start(gated)
        call = policy_call(gated, gated.at, call.labels)  # what the policy may have made of its own is not what runs
        decision = decision_for(gated, call, decision)
        if decision.verdict is _DENY:
            raise ToolDeniedError(tool.name, decision.reason)
        asks = decision.verdict is _ASK
        if gated.approval is not None:
            asks = check_approved(gated, call, decision, self.clock())
        if gated.dry_run or tool.name in self.dry_run:
            raise Held("dry_run", decision)
        if gated.attempt == 1:
            gated.reserve = tuple((each.counter, each.limit) for each in decision.budgets)
        gated.budgets = decision.budgets
        if asks:
            return self._ask(gated, call, decision)
        return self._start(gated)

    def _start(self, gated: GatedCall) -> Awaitable[None] | None:
        if gated.signal is not None:
            _check_aborted(gated)
        answer = self.store.start(gated)
        if answer is None:
            gated.started = True
            return None
        if isinstance(answer, Refusal):
            self._refuse(gated, answer)
        return self._start_later(gated, cast("Awaitable[Refusal | None]", answer))

    async def _start_later(self, gated: GatedCall, answer: Awaitable[Refusal | None]) -> None:
        task = asyncio.ensure_future(answer)
        try:
            refusal = await assured(task)
        except asyncio.CancelledError:  # the start may stand all the same: then it has to be ended
            gated.started = not task.cancelled() and task.exception() is None and task.result() is None
            raise
        if refusal is not None:
            self._refuse(gated, refusal)
        gated.started = True
        _check_aborted(gated)

    def _refuse(self, gated: GatedCall, refusal: Refusal) -> None:
        """End a call whose start the store did not take.

        Raises:
            Held: its place in the journal is taken.
            ToolDeniedError: a switch is thrown, or a budget is used up.
        """
        if refusal.kind == "claimed":
            raise Held(None)
        if refusal.kind == "switched_off":
            raise ToolDeniedError(gated.entry.name, f"it is switched off: {refusal.detail}")
        budget = next(each for each in gated.budgets if each.counter == refusal.detail)
        if budget.hides and gated.run_id is not None:
            self.exhausted.setdefault(gated.run_id, set()).add(gated.entry.name)
        raise BudgetExceededError(gated.entry.name, budget.text)

    async def _ask(self, gated: GatedCall, call: PolicyCall, decision: Decision) -> None:
        """Look for a standing grant, or for the same call that a person has denied; without either a person is asked."""
        if gated.run_id is not None and any(each.claim == gated.claim for each in await self.store.call(gated.key)):
            raise Held(None)  # the journal answers it, and no use of a grant is taken for that
        if gated.grant is None or not await still_covered(self.store, gated.grant, call):
            gated.grant = await covered_by_grant(self.store, call)
        if gated.grant is None:
            denial = await denied_before(self.store, call)
            raise Held("pending", (call, decision)) if denial is None else DeniedByReviewer.of(denial)
        gated.consent(gated.grant.granted_by)
        waiting = self._start(gated)
        if waiting is not None:
            await waiting

    # ── after the tool, or instead of it ─────────────────────────────────────────────────────────────────────────────

    def _succeeded(self, gated: GatedCall, outcome: Succeeded) -> Succeeded | Awaitable[Outcome]:
        labels, ended = gated.entry.tool.options.emits, outcome.ended[-1]
        wanted = gated.run_id is not None or self.keep.results
        content = content_of_result(gated, outcome) if wanted else None
        end = end_of(gated, "succeeded", self.clock(), ended, content, tuple(sorted(labels)) if labels else ())
        if labels:  # first of all, because the model may read the result from the journal, whatever becomes of this task
            self.labels.collect(gated.run_id, labels)
        taken = self.store.finish(end)
        if taken is True:
            return outcome
        return self._overtaken(gated) if taken is False else self._confirmed(gated, outcome, taken)

    async def _confirmed(self, gated: GatedCall, outcome: Outcome, taken: Awaitable[bool]) -> Outcome:
        """Give an outcome once the journal has taken its end."""
        return outcome if await assured(taken) else await self._overtaken(gated)

    async def _failed(self, gated: GatedCall, failure: Failure) -> Outcome | GatedCall:
        """Record a failure and give its outcome, or the next attempt that is to be made."""
        error = failure.bare_error
        gated.ended = (*gated.ended, failure.ended)
        if self._may_retry(gated, error):
            return await self._prepare_retry(gated, failure)
        denied = isinstance(error, ToolDeniedError)
        by, reason = (error.by, error.words) if isinstance(error, DeniedByReviewer) else (None, _reason(error))
        content = content_of_error(failure.text, error, by, reason)
        labels = gated.entry.tool.options.emits if gated.started and not isinstance(error, _OUR_WORDS) else NO_LABELS
        self.labels.collect(gated.run_id, labels)
        status = "denied" if denied else "failed"
        if not await self._recorded(end_of(gated, status, self.clock(), failure.ended, content, tuple(sorted(labels)))):
            return await self._overtaken(gated) if gated.started else await self.from_journal(gated)
        if denied:
            return Denied(gated.call, failure.text, error, by, reason, gated.ended)
        return Failed(gated.call, failure.text, error, gated.ended)

    def _may_retry(self, gated: GatedCall, error: ToolError) -> bool:
        if not gated.started:
            return False
        options = gated.entry.tool.options
        return gated.attempt <= options.retries and options.idempotent and is_transient(error, options.transient)

    async def _prepare_retry(self, gated: GatedCall, failure: Failure) -> Outcome | GatedCall:
        if not await self._recorded(end_of(gated, "retried", self.clock(), failure.ended, None)):
            return await self._overtaken(gated)
        await self.backoff.wait(gated.attempt, gated)
        return gated.at_place(gated.place + 1, attempt=gated.attempt + 1)

    async def _held(self, gated: GatedCall, held: Held) -> Outcome | GatedCall:
        """Answer a call that was held before its tool ran, or give it as it is to be tried once more."""
        if held.status is None:
            return await self.from_journal(gated)
        if held.status == "dry_run":
            return await self._dry(gated, held)
        if isinstance(held.detail, str):  # its input parser asked: the policy judges it with that in mind
            return gated.at_place(gated.place, asks=Decision.ask(held.detail, rules=(INPUT_RULE,)))
        call, decision = cast("tuple[PolicyCall, Decision]", held.detail)
        approval = new_approval(gated, call, decision, AskingParts(self.clock(), self.approval_ttl_s))
        if not await self.store.ask(Asked(gated, approval), approval):
            return await self.from_journal(gated)
        return Pending(gated.call, pending_text(approval), approval, () if held.ended is None else (held.ended,))

    async def _dry(self, gated: GatedCall, held: Held) -> Outcome:
        decision = cast("Decision", held.detail)
        asks = " A person would be asked first." if decision.verdict is Verdict.ASK else ""
        text = f"Dry run: tool {gated.entry.name!r} was not run; its arguments are valid and the policy lets it.{asks}"
        ended = () if held.ended is None else (held.ended,)
        end = end_of(gated, "dry_run", self.clock(), held.ended, {"text": text})
        return Succeeded(gated.call, text, ended=ended) if await self._recorded(end) else await self._overtaken(gated)

    async def _record_stop(self, gated: GatedCall, stop: BaseException) -> None:
        """Record the end of a call whose tool had been started when its caller stopped it, or the program ended."""
        ends = isinstance(stop, asyncio.CancelledError | KeyboardInterrupt | SystemExit)
        status = "cancelled" if ends else "aborted"
        content: dict[str, object] = {"text": _TEXTS[status], "error": {"code": status, "status": 499, "message": _TEXTS[status]}}
        try:
            await self._recorded(end_of(gated, status, self.clock(), None, content))
        except StoreError as error:  # what stopped the call is to be raised all the same
            _log.error("callgate.end_not_recorded tool=%s status=%s: %s", gated.entry.name, status, type(error).__name__)

    async def record_blocked(self, gated: GatedCall, outcome: Succeeded | Failed | Denied) -> None:
        """Record the end of a call that never came through its hooks."""
        status = "denied" if isinstance(outcome, Denied) else "failed" if isinstance(outcome, Failed) else "succeeded"
        await self._recorded(end_of(gated, status, self.clock(), None, content_of_outcome(outcome)))

    async def _recorded(self, end: End) -> bool:
        taken = self.store.finish(end)
        return taken if isinstance(taken, bool) else await assured(taken)

    # ── from the journal ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _overtaken(self, gated: GatedCall) -> Outcome:
        """Answer a call whose end somebody else has recorded meanwhile: the journal's end stands."""
        return self._replayed(gated, past_of(await self.store.call(gated.key)))

    def _replayed(self, gated: GatedCall, past: Past) -> Outcome:
        """Give the journal's answer. It may have come about elsewhere: the run has read it from now on all the same."""
        if past.last is not None:
            self.labels.collect(gated.run_id, past.last.labels)
        return replayed(gated.call, past)

    async def from_journal(self, gated: GatedCall) -> Outcome | GatedCall:
        """Answer a call that the journal knows, or give it as it is to run now: approved, or interrupted and repeatable."""
        past = past_of(await self.store.call(gated.key))
        if not self._is_same(gated, past):
            return Failed(gated.call, _OTHER_CALL, ConflictError(_OTHER_CALL))
        if past.state == "running":
            past = await self._mark_if_gone(gated, past)
        if past.state == "asked":
            return await self._from_approval(gated, past)
        if past.state == "interrupted" and past.repeatable:
            approval = await self.store.approval_of(gated.key)
            covers = approval if approval is not None and approval.state == "approved" else None
            return gated.at_place(past.next_number, attempt=past.attempts + 1, approval=covers)
        return self._replayed(gated, past)

    def _is_same(self, gated: GatedCall, past: Past) -> bool:
        """Tell whether the journal's call is this one, and not another one with the same id."""
        first = past.first
        if first is None or gated.approval is not None or not gated.text or first.input_digest is None:
            return first is not None
        return first.input_digest == digest_of_input(gated.text) and (not gated.parsed or first.tool == gated.entry.name)

    async def _mark_if_gone(self, gated: GatedCall, past: Past) -> Past:
        """Mark a start as unknown whose process has ended without anybody having cleaned up after it."""
        for record in await self.store.unfinished(stale_after_s=_STALE_AFTER_S):
            if record.key == gated.key:
                done = self.store.finish(Unknown(record, self.clock()))
                if not isinstance(done, bool):
                    await assured(done)
                return past_of(await self.store.call(gated.key))
        return past

    async def _from_approval(self, gated: GatedCall, past: Past) -> Outcome | GatedCall:
        approval = await self.store.approval_of(gated.key)
        assert approval is not None  # a request and its record are stored together
        if approval.state == "pending" and self._is_over(approval):
            expired = replace(approval, state="expired", decided_at=self.clock())
            await self.store.decide(expired)
            approval = await self.store.approval_of(gated.key) or expired
        if approval.state == "pending":
            return Pending(gated.call, pending_text(approval), approval)
        if approval.state == "approved":
            return gated.at_place(past.next_number, approval=approval)
        return await self._deny(gated.at_place(past.next_number), approval)

    def _is_over(self, approval: ApprovalRecord) -> bool:
        return approval.expires_at is not None and approval.expires_at <= self.clock()

    async def _deny(self, gated: GatedCall, approval: ApprovalRecord) -> Outcome:
        error = DeniedByReviewer.of(approval)
        content = content_of_error(error.user_message, error, error.by, error.words)
        if not await self._recorded(end_of(gated, "denied", self.clock(), None, content, approval=approval)):
            return await self._overtaken(gated)
        return Denied(gated.call, error.user_message, error, error.by, error.words)


def _check_aborted(gated: GatedCall) -> None:
    if gated.signal is not None and gated.signal.aborted:
        raise Aborted(reason_of(gated))


def pending_text(approval: ApprovalRecord) -> str:
    """Write what a model reads of a call that waits, where its run does not wait with it."""
    why = f" ({approval.reason})" if approval.reason else ""
    return f"The call of tool {approval.tool!r} waits for a person's approval{why}; it was not executed. Request {approval.id}."


def _reason(error: ToolError) -> str:
    return error.reason if isinstance(error, ToolDeniedError) else ""
