"""`Gate`: policy, approvals and journal around a registry; the door that every call of a model goes through.

Source: contract rows A2, A3, A5, L2, P13.
"""

import copy
import itertools
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Unpack, cast

from callgate.approvals import Approve, Decided, Deny, Edit, approval_digest, check_decision
from callgate.errors import ConflictError, NotFoundError, ToolDeniedError, UsageError
from callgate.gate.asking import shown_arguments
from callgate.gate.carrying import Carrier
from callgate.gate.content import KeepContent
from callgate.gate.gated import GatedCall, PlaceKeywords, Unknown, gated_call
from callgate.gate.hooks import GateHook, HookCall, through_hooks
from callgate.gate.judge import check_bound, decided, policy_call
from callgate.gate.narrowing import Narrowed
from callgate.gate.outcomes import Outcome, Pending, Succeeded
from callgate.gate.retrying import Backoff
from callgate.gate.steps import run_step, with_ids
from callgate.gate.waiting import assured
from callgate.policy.conditions import Condition
from callgate.policy.decision import OfferRequest, Verdict
from callgate.policy.protocol import ToolPolicy
from callgate.registry import ToolRegistry
from callgate.running.portal import run_in_portal
from callgate.store.memory import MemoryStore
from callgate.store.protocol import Store
from callgate.store.records import ApprovalRecord, ApprovalState, Grant, JournalRecord, KillSwitch, call_key, start_claim
from callgate.tools.options import check_name
from callgate.tools.tool import Tool
from callgate.values import Caller, ToolCall, check_limit

__all__ = ("Gate",)

_WEEK_S: Final = 7 * 24 * 3600.0
_MAX_PARALLEL: Final = 32
_STALE_AFTER_S: Final = 60.0


def _nothing(_place: int, _outcome: Outcome) -> None:
    return None


class Gate:
    """Let the calls of models through to a registry: judged by a policy, approved by people, written down.

    Without a `store` the journal is kept in memory and ends with the process. `hooks` go around every call, the first one
    outermost. `content` says which arguments and results the journal keeps. A request for approval expires after
    `approval_ttl_s` seconds (None: never); `asker_may_approve=False` bars a caller from approving what was asked for on their
    own behalf. At most `max_parallel` calls of a step run at a time. `backoff` is the wait between the attempts of tools that
    have `retries`. The tools named in `dry_run` are never run: everything but their body happens. `clock` gives seconds since
    the epoch.

    Raises:
        UsageError: a setting is of another type; a policy that names unknown tools or words is a `PolicyError`.
    """

    def __init__(  # noqa: PLR0913 - the settings of a gate, keywords all
        self,
        registry: ToolRegistry,
        *,
        policy: ToolPolicy,
        store: Store | None = None,
        hooks: Sequence[GateHook] = (),
        content: KeepContent | None = None,
        approval_ttl_s: float | None = _WEEK_S,
        asker_may_approve: bool = True,
        max_parallel: int = _MAX_PARALLEL,
        backoff: Backoff | None = None,
        dry_run: Collection[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        _check_parts(registry, policy)
        check_limit("approval_ttl_s", approval_ttl_s)
        check_limit("max_parallel", max_parallel, whole=True)
        check_bound(policy, registry.list())
        _check_dry_run(dry_run, registry)
        self._carrier = Carrier(
            registry=registry,
            policy=policy,
            store=MemoryStore() if store is None else store,
            keep=content or KeepContent(),
            backoff=backoff or Backoff(),
            clock=clock,
            approval_ttl_s=approval_ttl_s,
            dry_run=frozenset(dry_run),
        )
        self._hooks = tuple(hooks)
        self._asker_may_approve = asker_may_approve
        self._max_parallel = max_parallel
        self._active_runs: set[str] = set()
        self._ids = itertools.count(1)
        self._prefix = f"~{secrets.token_hex(8)}."

    @property
    def active_runs(self) -> set[str]:
        """The runs that a loop of this process is at; loops note themselves here."""
        return self._active_runs

    @property
    def registry(self) -> ToolRegistry:
        """The registry behind the gate."""
        return self._carrier.registry

    @property
    def policy(self) -> ToolPolicy:
        """The policy that judges every call."""
        return self._carrier.policy

    @property
    def store(self) -> Store:
        """Where the journal is."""
        return self._carrier.store

    # ── calls ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def call(self, call: ToolCall, /, *, caller: Caller, **place: Unpack[PlaceKeywords]) -> Outcome:
        """Bring one call to its outcome, whatever the model has made of it.

        In a run (`run_id`), a call of the same id is started once: asked again, it is answered from the journal.

        Raises:
            BaseException: the reason of the call's abort signal; its end is journalled first.
            StoreError: the journal did not take a record. A call whose start it did not take has not run.
            UsageError: for a mistake of the calling program, or of its policy or hooks.
        """
        gated = self._gated(call, caller, place)
        if not self._hooks:
            outcome = self._carrier.carry(gated)
            return outcome if type(outcome) is Succeeded else await cast("Awaitable[Outcome]", outcome)
        if gated.run_id is not None:  # hooks have to see what a person has approved, not what the model had asked for
            gated = await self._approved_by_now(gated)
        return await self._through_hooks(gated)

    async def call_many(
        self,
        calls: Sequence[ToolCall],
        /,
        *,
        caller: Caller,
        on_outcome: Callable[[int, Outcome], None] = _nothing,
        **place: Unpack[PlaceKeywords],
    ) -> list[Outcome]:
        """Bring the calls of one step to their outcomes, in the order of the calls; they run side by side (contract row P13).

        An `exclusive` tool runs alone: those before it have ended, those behind it wait. Calls without an id get one, and
        repeated ids are made different. `on_outcome` is told of each end as it comes, with the call's place in the step.

        Raises:
            BaseException: as `call`; every call of the step has come to its end then.
        """
        if isinstance(calls, ToolCall):
            raise UsageError("call_many takes a list of calls; for one call use call(…)")

        tools = place.get("tools")
        offer = None if tools is None else self.registry.offer(tools)
        if offer is not None:
            place["tools"] = offer

        async def run(call: ToolCall) -> Outcome:
            return await self.call(call, caller=caller, **place)

        def is_exclusive(call: ToolCall) -> bool:
            tool = self.registry.find(call.name, offer)
            return tool is not None and tool.options.exclusive

        step = with_ids(calls)
        return await run_step(step, run, is_exclusive=is_exclusive, limit=self._max_parallel, on_outcome=on_outcome)

    def call_blocking(self, call: ToolCall, /, *, caller: Caller, **place: Unpack[PlaceKeywords]) -> Outcome:
        """Do what `call` does from code without an event loop, and block this thread until the end.

        Raises:
            BaseException: as `call`.
        """
        return run_in_portal(lambda: self.call(call, caller=caller, **place))

    def _gated(self, call: ToolCall, caller: Caller, place: PlaceKeywords) -> GatedCall:
        if type(call) is not ToolCall or type(caller) is not Caller:
            raise UsageError("a gate takes a ToolCall(name, arguments, id) and caller=Caller(subject, roles)")
        if call.id is not None and type(call.id) is not str:
            raise UsageError(f"a call's id must be a text or None, not {type(call.id).__name__}")
        run_id = cast("object", place.get("run_id"))
        if run_id is None:
            claim = f"{self._prefix}{next(self._ids)}#0000"
        elif not isinstance(run_id, str) or not run_id:
            raise UsageError(f"run_id must be a text that is not empty, or None, not {run_id!r}")
        elif not call.id:
            raise UsageError("a call of a run needs an id: ToolCall(name, arguments, id=…) with run_id=…; call_many gives ids")
        else:
            claim = start_claim(call_key(run_id, call.id), 0)
        tools = place.get("tools")
        if tools is not None:  # it is read more than once
            place["tools"] = self.registry.offer(tools)
        return gated_call(call, caller, claim, self._carrier.keep, place)

    async def _through_hooks(self, gated: GatedCall) -> Outcome:
        reached: list[GatedCall] = []

        async def last(call: ToolCall) -> Outcome:
            attempt = gated.with_call(call)  # one for each time that a hook goes on: two at once must not share what is judged
            reached.append(attempt)
            return await self._carrier.carried(attempt)

        seen = HookCall(
            call=gated.call,
            tool=self.registry.find(gated.call.name, gated.tools),
            caller=gated.caller,
            run_id=gated.run_id,
            step=gated.step,
            approval=gated.approval,
        )
        outcome = await through_hooks(self._hooks, seen, last)
        if not (reached or isinstance(outcome, Pending)):
            await self._carrier.record_blocked(gated, outcome)
        return outcome

    async def _approved_by_now(self, gated: GatedCall) -> GatedCall:
        """Give a call with its approval, when a person has approved it since it was asked for."""
        approval = await self.store.approval_of(gated.key)
        if approval is None or approval.state != "approved":
            return gated
        following = await self._carrier.from_journal(gated)
        return following if isinstance(following, GatedCall) else gated

    # ── offers ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def resolve(
        self, *, caller: Caller, run_id: str | None = None, thread_id: str | None = None, step: int | None = None
    ) -> list[Tool[Any, Any]]:
        """Give the tools that the policy offers, without those whose budget in the run is used up (contract row A1)."""
        labels = self._carrier.labels.known(run_id)
        if labels is None and run_id is not None:
            labels = self._carrier.labels.learn(run_id, await self.store.labels(run_id))
        request = OfferRequest(
            caller=caller,
            now=self._carrier.clock(),
            run_id=run_id,
            thread_id=thread_id,
            step=step,
            labels=labels or frozenset(),
        )
        spent = self._carrier.exhausted.get(run_id or "", set())
        return [tool for tool in self.policy.resolve(self.registry.list(), request) if tool.name not in spent]

    # ── approvals ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def approval(self, approval_id: str) -> ApprovalRecord:
        """Give a request for approval.

        Raises:
            NotFoundError: there is none of that id.
        """
        found = await self.store.approval(approval_id)
        if found is None:
            raise NotFoundError("approval", approval_id, "list them with approvals()")
        return found

    async def approvals(self, *, state: ApprovalState | None = "pending", run_id: str | None = None) -> list[ApprovalRecord]:
        """Give the requests in that state (None: all), oldest first."""
        return await self.store.approvals(state=state, run_id=run_id)

    async def record(self, approval_id: str, decision: Decided) -> ApprovalRecord:
        """Store what a person has decided, and run nothing: whoever goes on with the call finds it (contract row A5).

        Raises:
            ConflictError: somebody decided before, or it has expired; `decided_by` says who.
            NotFoundError: there is no such request.
            InvalidInputError, ToolDeniedError: edited arguments that the tool or the policy refuses; nothing was decided.
            UsageError: what is given is no decision, or the asker may not approve.
        """
        decision = check_decision(decision)
        approval = await self.approval(approval_id)
        self._check_reviewer(approval, decision)
        if isinstance(decision, Approve) and decision.remember == "run" and approval.run_id is None:
            raise UsageError('this call belongs to no run: remember="run" would hold for nothing; nothing was decided')
        now = self._carrier.clock()
        if approval.state == "pending" and approval.expires_at is not None and approval.expires_at <= now:
            await self.store.decide(replace(approval, state="expired", decided_at=now))
            approval = await self.approval(approval_id)
        if approval.state != "pending":
            raise _decided_already(approval)
        decided = await self._decided(approval, decision, now)
        if not await self.store.decide(decided):
            raise _decided_already(await self.approval(approval_id))
        if isinstance(decision, Approve) and decision.remember is not None:
            await self._remember(decided, decision.remember)
        return decided

    def _check_reviewer(self, approval: ApprovalRecord, decision: Decided) -> None:
        if not self._asker_may_approve and not isinstance(decision, Deny) and decision.by == approval.caller:
            raise UsageError(f"{decision.by!r} asked for this call and may not approve it: somebody else has to decide")

    async def _decided(self, approval: ApprovalRecord, decision: Decided, now: float) -> ApprovalRecord:
        made = replace(approval, decided_by=decision.by, decided_at=now)
        match decision:
            case Approve():
                return replace(made, state="approved")
            case Deny(reason=reason):
                return replace(made, state="denied", decision_reason=reason)
            case Edit(arguments=arguments):
                text, digest = await self._edited(approval, arguments, now)
                return replace(made, state="approved", edited=text, edited_digest=digest)

    async def _edited(self, approval: ApprovalRecord, arguments: str | Mapping[str, object], now: float) -> tuple[str, str]:
        """Validate edited arguments and let the policy judge them; give them as text, and the digest that covers them."""
        caller = Caller(approval.caller, approval.roles)
        called = ToolCall(approval.tool, arguments, approval.call_id)
        gated = gated_call(called, caller, start_claim(approval.key, 0), self._carrier.keep, {})
        gated.approved = True
        self.registry.read(gated)
        labels = await self.store.labels(approval.run_id) if approval.run_id is not None else frozenset[str]()
        call = policy_call(gated, now, labels)
        decision = await decided(self.policy, call)
        if decision.verdict is Verdict.DENY:
            raise ToolDeniedError(approval.tool, decision.reason)
        shown_arguments(call)
        digest = approval_digest(approval.key, approval.tool, gated.entry.tool.fingerprint, call.arguments, gated.text)
        return gated.text.decode("utf-8", "surrogatepass"), digest

    async def _remember(self, approval: ApprovalRecord, scope: str) -> None:
        await self.grant(
            approval.tool,
            by=approval.decided_by or "",
            caller=approval.caller,
            run_id=approval.run_id if scope == "run" else None,
        )

    async def proceed(self, approval_id: str, /, **place: Unpack[PlaceKeywords]) -> Outcome:
        """Go on with a call as it was decided: run it, or give its end; `Pending` while nobody has decided.

        Raises:
            ConflictError: it is being run elsewhere at the moment.
            NotFoundError: there is no such request.
            BaseException: as `call`.
        """
        approval = await self.approval(approval_id)
        called = ToolCall(approval.tool, approval.arguments, approval.call_id)
        whence: PlaceKeywords = {"run_id": approval.run_id, "step": approval.step, "thread_id": approval.thread_id}
        caller = Caller(approval.caller, approval.roles)
        gated = gated_call(called, caller, start_claim(approval.key, 0), self._carrier.keep, {**whence, **place})
        outcome = await self._carrier.from_journal(gated)
        if isinstance(outcome, GatedCall):
            return await self._through_hooks(outcome) if self._hooks else await self._carrier.carried(outcome)
        error = getattr(outcome, "error", None)
        if isinstance(error, ConflictError):
            raise ConflictError(error.user_message, decided_by=approval.decided_by)
        return outcome

    async def decide(self, approval_id: str, decision: Decided, /, **place: Unpack[PlaceKeywords]) -> Outcome:
        """Decide, and go on with the call at once (contract rows A3, A5).

        Raises:
            ConflictError, NotFoundError, InvalidInputError, ToolDeniedError, UsageError: as `record`.
            BaseException: as `call`.
        """
        await self.record(approval_id, decision)
        return await self.proceed(approval_id, **place)

    # ── standing grants and switches ─────────────────────────────────────────────────────────────────────────────────

    async def grant(  # noqa: PLR0913 - the facts of a grant, keywords most
        self,
        tool: str,
        *,
        by: str,
        caller: str | None = None,
        run_id: str | None = None,
        when: Sequence[Mapping[str, object] | Condition] = (),
        expires_at: float | None = None,
        max_uses: int | None = None,
    ) -> Grant:
        """Approve in advance what the policy would ask about: calls of a tool (a name or glob) that fit; a denial beats it.

        Raises:
            UsageError: a value is out of range or of another type; a condition that cannot be is a `PolicyError`.
        """
        _check_texts(tool=tool, by=by, caller=caller, run_id=run_id)
        check_limit("expires_at", expires_at)
        check_limit("max_uses", max_uses, whole=True)
        conditions = [each if isinstance(each, Condition) else Condition.of(each) for each in when]
        grant = Grant(
            id=f"grt_{secrets.token_hex(8)}",
            tool=tool,
            granted_by=by,
            created_at=self._carrier.clock(),
            caller=caller,
            run_id=run_id,
            when=json.dumps([each.facts() for each in conditions]),
            expires_at=expires_at,
            max_uses=max_uses,
        )
        await self.store.add_grant(grant)
        return grant

    async def grants(self, *, active: bool = True) -> list[Grant]:
        """Give the grants that hold at the moment, or all that there ever were."""
        return await self.store.grants(active_at=self._carrier.clock() if active else None)

    async def revoke_grant(self, grant_id: str, *, by: str) -> None:
        """Take a grant back.

        Raises:
            NotFoundError: there is none of that id, or it is revoked already.
        """
        if not await self.store.revoke_grant(grant_id, by, self._carrier.clock()):
            raise NotFoundError("grant", grant_id, "it may be revoked already")

    async def switch_off(self, scope: str = "gate", *, by: str, reason: str, spares_reads: bool = False) -> KillSwitch:
        """Let nothing start any more: `scope` is "gate", "tool:NAME" or "caller:SUBJECT". It outranks every consent.

        It holds in every process that uses the store, from the next start on; `spares_reads` lets tools of kind "read" run.

        Raises:
            UsageError: another scope, or one that no tool can have: a switch takes names, no globs.
        """
        kind, _, name = scope.partition(":")
        if not (scope == "gate" or (kind in {"tool", "caller"} and name)):
            raise UsageError(f'scope must be "gate", "tool:NAME" or "caller:SUBJECT", not {scope!r}')
        if kind == "tool":
            check_name(name)
        switch = KillSwitch(scope=scope, by=by, reason=reason, at=self._carrier.clock(), spares_reads=spares_reads)
        await self.store.switch_off(switch)
        return switch

    async def switch_on(self, scope: str = "gate") -> None:
        """Take a switch back.

        Raises:
            NotFoundError: it was not thrown.
        """
        if not await self.store.switch_on(scope):
            raise NotFoundError("switch", scope, "it is not thrown")

    async def switches(self) -> list[KillSwitch]:
        """Give the switches that are thrown."""
        return await self.store.switches()

    def narrowed(self, policy: ToolPolicy) -> "Gate":
        """Give a gate to the same registry and store whose calls have to satisfy this policy as well.

        Raises:
            PolicyError: the policy names what there is not.
        """
        check_bound(policy, self.registry.list())
        gate = copy.copy(self)
        gate._carrier = replace(self._carrier, policy=Narrowed(self.policy, policy))  # noqa: SLF001 - a copy of this very object
        return gate

    # ── runs and recovery ────────────────────────────────────────────────────────────────────────────────────────────

    def begin_run(self, run_id: str) -> None:
        """Tell that a run of that id is new, so that the store need not be asked what it has read."""
        self._carrier.labels.learn(run_id, ())

    def take_run_over(self, run_id: str) -> None:
        """Tell that others may have been at a run meanwhile, so that the store is asked again what it has read."""
        self._carrier.labels.forget(run_id)

    async def end_run(self, run_id: str) -> None:
        """Forget what was kept only so that the run could be resumed."""
        self._carrier.labels.forget(run_id)
        self._carrier.exhausted.pop(run_id, None)
        await self.store.forget(run_id)

    async def recover(self, *, stale_after_s: float = _STALE_AFTER_S) -> list[JournalRecord]:
        """Mark as unknown what was started by processes that are gone and never ended; give those starts.

        A process is gone when it has ended, or was silent for `stale_after_s` seconds. Tools of kind "read" and idempotent
        ones may be run again when their call is asked for again; others never by themselves.
        """
        lost: list[JournalRecord] = []
        for start in await self.store.unfinished(stale_after_s=stale_after_s):
            marked = self.store.finish(Unknown(start, self._carrier.clock()))
            if marked if isinstance(marked, bool) else await assured(marked):
                lost.append(start)
        return lost

    async def aclose(self) -> None:
        """Take no more calls, stop those that run, and let go of the store."""
        self.registry.close()
        await self.store.aclose()


def _check_parts(registry: object, policy: object) -> None:
    if not isinstance(registry, ToolRegistry):
        raise UsageError(f"a gate goes around a ToolRegistry, not {type(registry).__name__}")
    if policy is None:
        raise UsageError("a gate needs a policy; to let every call through, write policy=AllowAll()")
    for name in ("bind", "resolve", "decide", "assert_offered_in_step"):
        if not callable(getattr(policy, name, None)):
            raise UsageError(f"a policy needs {name}(…): make {type(policy).__name__} a subclass of ToolPolicy")


def _check_dry_run(names: object, registry: ToolRegistry) -> None:
    """Refuse a name that is misspelt: its tool would run. As with policies, an empty registry closes nothing."""
    if isinstance(names, str) or not isinstance(names, Collection):
        raise UsageError(f"dry_run must be a list of tool names, such as ['pay'], not {names!r}")
    for name in cast("Collection[object]", names):
        if not isinstance(name, str) or (len(registry) and not registry.has(name)):
            raise UsageError(f"dry_run holds names of the registry's tools, not {name!r}: {', '.join(registry.ids()[:10])}")


def _check_texts(*, caller: object, run_id: object, **needed: object) -> None:
    """Check what names the calls of a grant: one that cannot be compared would break every call that asks."""
    optional = {"caller": caller, "run_id": run_id}
    for name, text in {**needed, **{name: text for name, text in optional.items() if text is not None}}.items():
        if not isinstance(text, str) or not text:
            raise UsageError(f"{name}= must be a text that is not empty, not {text!r}")


def _decided_already(approval: ApprovalRecord) -> ConflictError:
    if approval.state == "expired":
        return ConflictError(f"request {approval.id} has expired; the call has to be made again")
    who = approval.decided_by
    return ConflictError(f"request {approval.id} was {approval.state} already, by {who}", decided_by=who)
