"""`RunHooks`: what the loop calls back for, and `create_run_hooks`, which answers with a gate. Source: contract rows L1, L2.

The loop knows models and messages; the hooks know tools, policy, people and the store. Between them go a run's state and values.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from pydantic import ValidationError

from callgate.agent.model_layer import OfferedTool, dump_messages, open_calls, user_message
from callgate.agent.prepared import PreparedCall
from callgate.agent.state import CallState, RunState, StoredLimits
from callgate.agent.tools import RunTools, split_run_tools
from callgate.approvals import Decided, check_decision
from callgate.diagnostics import DiagnosticEvent, ToolProgress
from callgate.errors import NotFoundError, UsageError
from callgate.gate import Gate, Outcome, PlaceKeywords
from callgate.gate.stored_runs import StoredRuns, checked_state, is_at_work, known, refused
from callgate.profiles import Profile, load_policy
from callgate.signals import AbortSignal
from callgate.store.records import RunRecord, RunStatus
from callgate.tools.dialects import name_map
from callgate.tools.tool import Tool, as_tool
from callgate.values import Caller, ExecutionOptions, ToolCall

__all__ = ("OpenRun", "RunHooks", "create_run_hooks")


@dataclass(slots=True, eq=False)
class OpenRun:
    """Be a run while a loop is at it: its state, the record of it that is stored, and what cannot be stored."""

    state: RunState
    record: RunRecord
    tools: tuple[Tool[Any, Any], ...] = ()
    signal: AbortSignal | None = None
    user_context: object = field(default=None, repr=False)

    @property
    def caller(self) -> Caller:
        """On whose behalf the run is."""
        return Caller(self.state.subject, tuple(self.state.roles))

    def remaining_s(self) -> float | None:
        """Tell the seconds until the run's deadline, never below 0, or None without one."""
        ends_at = self.state.limits.ends_at
        return None if ends_at is None else max(0.0, ends_at - time.time())


class RunHooks(Protocol):
    """Answer the loop. Whoever wants other storage or other tools writes another one."""

    async def begin(self, prepared: PreparedCall, /) -> OpenRun:
        """Store a new run, and give it."""
        ...

    async def load(self, run_id: str, /) -> OpenRun:
        """Give a run as it is stored.

        Raises:
            NotFoundError: there is none of that id.
            RunStateError: it is damaged, or a newer release wrote it.
        """
        ...

    async def claim(self, run: OpenRun, /) -> None:
        """Take a run over, to go on with it.

        Raises:
            ConflictError: somebody else has it, or it is over.
            UsageError: it cannot be gone on with here, because its policy is not to be had.
        """
        ...

    def release(self, run: OpenRun, /) -> None:
        """Let go of a run that was begun or claimed: no loop of this process is at it any more."""
        ...

    async def save(self, run: OpenRun, status: RunStatus, /) -> None:
        """Store a run as it is now.

        Raises:
            ConflictError: somebody else has changed it; nothing was stored.
        """
        ...

    async def offer(self, run: OpenRun, /) -> list[OfferedTool]:
        """Give what the next step offers, and note it in the run."""
        ...

    async def execute(
        self,
        run: OpenRun,
        calls: Sequence[ToolCall],
        /,
        *,
        on_outcome: Callable[[int, Outcome], None],
        on_progress: Callable[[str | None, object], None],
    ) -> list[Outcome]:
        """Bring the calls of a step to their outcomes, in their order.

        Raises:
            BaseException: the reason of the run's abort signal.
        """
        ...

    async def decide(self, run: OpenRun, approval_id: str, decision: Decided, /) -> None:
        """Store what a person has decided about a call of the run.

        Raises:
            ConflictError: somebody decided before.
            NotFoundError: no call of the run waits for that.
        """
        ...


class _GateHooks(RunHooks):
    """Answer with a gate."""

    def __init__(self, gate: Gate, tools: tuple[Tool[Any, Any], ...], signal: AbortSignal | None, user_context: object) -> None:
        self._gate = gate
        self._tools = tools
        self._signal = signal
        self._user_context = user_context
        self._narrowed: dict[str, Gate] = {}
        self._runs = StoredRuns(gate)

    # ── the stored run ───────────────────────────────────────────────────────────────────────────────────────────────

    async def begin(self, prepared: PreparedCall, /) -> OpenRun:
        """Store a new run; see `RunHooks.begin`."""
        if prepared.gate is not self._gate:
            raise UsageError("the run was prepared with another gate than these hooks have: use one gate for both")
        profile = await prepared.resolved()
        try:
            state = _new_state(prepared, profile)
        except ValidationError as error:
            raise refused(error) from None
        self._gate_of(state)
        tools = tuple({tool.name: tool for tool in (*self._tools, *prepared.tools)}.values())
        record = await self._runs.begin(state, caller=state.subject, name=state.profile, thread_id=state.thread_id)
        signal = prepared.signal or self._signal
        context = self._user_context if prepared.user_context is None else prepared.user_context
        return OpenRun(state, record, tools, signal, context)

    async def load(self, run_id: str, /) -> OpenRun:
        """Give a run as it is stored; see `RunHooks.load`."""
        record = await self._runs.record(run_id)
        return OpenRun(checked_state(RunState, record), record, self._tools, self._signal, self._user_context)

    async def claim(self, run: OpenRun, /) -> None:
        """Take a run over; see `RunHooks.claim`."""
        self._gate_of(run.state)
        run.state.error = None
        await self._runs.claim(run)

    def release(self, run: OpenRun, /) -> None:
        """Let go of a run; see `RunHooks.release`."""
        self._runs.release(run.state.run_id)

    async def save(self, run: OpenRun, status: RunStatus, /) -> None:
        """Store a run as it is now; see `RunHooks.save`."""
        await self._runs.save(run, status)

    async def decide(self, run: OpenRun, approval_id: str, decision: Decided, /) -> None:
        """Store a decision; see `RunHooks.decide`."""
        decision = check_decision(decision)
        approval = await self._gate.approval(approval_id)
        if approval.run_id != run.state.run_id:
            raise NotFoundError("approval", approval_id, f"run {run.state.run_id!r} has no call that waits for it")
        await self._gate_of(run.state).record(approval_id, decision)

    # ── the tools of a step ──────────────────────────────────────────────────────────────────────────────────────────

    def _gate_of(self, state: RunState) -> Gate:
        """Give the gate of a run: narrowed by the policy of its profile, where there is one."""
        if state.narrowed_by is None:
            return self._gate
        if state.narrowed_by not in self._narrowed:
            self._narrowed[state.narrowed_by] = self._gate.narrowed(load_policy(state.narrowed_by))
        return self._narrowed[state.narrowed_by]

    async def offer(self, run: OpenRun, /) -> list[OfferedTool]:
        """Give what the next step offers; see `RunHooks.offer`."""
        state = run.state
        gate = self._gate_of(state)
        offered = await gate.resolve(caller=run.caller, run_id=state.run_id, thread_id=state.thread_id, step=state.step)
        chosen = Profile(name="(run)", tools=None if state.only is None else tuple(state.only)).chosen(offered)
        tools = (*chosen, *run.tools)
        state.offered = [tool.name for tool in tools]
        state.additional = [tool.name for tool in run.tools]
        names = name_map(state.offered, "openai")  # the strictest of the providers' rules for names
        return [OfferedTool(tool.name, names.wires[tool.name], tool.description, tool.input.schema) for tool in tools]

    async def execute(
        self,
        run: OpenRun,
        calls: Sequence[ToolCall],
        /,
        *,
        on_outcome: Callable[[int, Outcome], None],
        on_progress: Callable[[str | None, object], None],
    ) -> list[Outcome]:
        """Bring the calls of a step to their outcomes; see `RunHooks.execute`."""
        told = on_outcome

        def tell(number: int, outcome: Outcome) -> None:
            if not is_at_work(outcome):
                told(number, outcome)

        ends, ask = await self._made(run, calls, tell, on_progress)
        for number, call in enumerate(calls):
            if is_at_work(ends[number]):
                ends[number] = await known(partial(ask, call), signal=run.signal, remaining_s=run.remaining_s)
                told(number, ends[number])
        return ends

    async def _made(
        self,
        run: OpenRun,
        calls: Sequence[ToolCall],
        on_outcome: Callable[[int, Outcome], None],
        on_progress: Callable[[str | None, object], None],
    ) -> tuple[list[Outcome], Callable[[ToolCall], Awaitable[Outcome]]]:
        """Make the calls of a step, and give their outcomes and what asks for one of them again."""
        state = run.state
        tools = split_run_tools(self._still_meant(run), self._gate.registry, run.tools)
        gate, place = self._gate_of(state), self._place(run, tools, on_progress)

        async def ask(call: ToolCall) -> Outcome:
            return await gate.call(call, caller=run.caller, **place)

        if not tools.missing:
            return await gate.call_many(calls, caller=run.caller, on_outcome=on_outcome, **place), ask
        gone = [call for call in calls if call.name in tools.missing]
        there = [call for call in calls if call.name not in tools.missing]
        places = {id(call): number for number, call in enumerate(calls)}

        def tell(group: list[ToolCall]) -> Callable[[int, Outcome], None]:
            return lambda number, outcome: on_outcome(places[id(group[number])], outcome)

        bare: PlaceKeywords = {**place, "tools": None}  # without an offer a name that is gone is a 404
        ends = await gate.call_many(gone, caller=run.caller, on_outcome=tell(gone), **bare)
        ends += await gate.call_many(there, caller=run.caller, on_outcome=tell(there), **place)
        by_call = dict(zip(map(id, [*gone, *there]), ends, strict=True))
        return [by_call[id(call)] for call in calls], ask

    def _still_meant(self, run: OpenRun) -> list[str]:
        """Give the names that the step offered, but those that the run had brought along and the registry has taken since."""
        brought, state = {tool.name for tool in run.tools}, run.state
        taken = {name for name in state.additional if name not in brought and name in self._gate.registry}
        return [name for name in state.offered if name not in taken]

    def _place(self, run: OpenRun, tools: RunTools, on_progress: Callable[[str | None, object], None]) -> PlaceKeywords:
        state = run.state
        left = run.remaining_s()

        def observe(event: DiagnosticEvent) -> None:
            if isinstance(event.payload, ToolProgress):
                on_progress(event.payload.call.call_id, event.payload.item)

        return PlaceKeywords(
            run_id=state.run_id,
            step=state.step,
            thread_id=state.thread_id,
            user_context=run.user_context,
            signal=run.signal,
            tools=self._gate.registry.offer(tools.all),
            options=None if left is None else ExecutionOptions(deadline=time.monotonic() + left),
            diagnostics=self._gate.registry.diagnostics.with_observer(observe, "content"),
            dry_run=state.dry_run,
        )


def _new_state(prepared: PreparedCall, profile: Profile) -> RunState:
    messages = list(prepared.messages)
    calls, _ = open_calls(messages)
    waiting = prepared.prompt if calls else None
    if prepared.prompt is not None and not calls:
        messages.append(user_message(prepared.prompt))
    limits = profile.limits
    return RunState(
        run_id=prepared.run_id,
        subject=prepared.caller.subject,
        roles=list(prepared.caller.roles),
        thread_id=prepared.thread_id,
        profile=None if profile.name == "(none)" else profile.name,
        model=profile.model,
        instructions=profile.instructions,
        settings=dict(profile.settings),
        only=None if profile.tools is None else list(profile.tools),
        narrowed_by=profile.policy,
        dry_run=prepared.dry_run,
        limits=StoredLimits(
            steps=limits.steps,
            ends_at=None if limits.time_s is None else time.time() + limits.time_s,
            tokens=limits.tokens,
            cost=limits.cost,
        ),
        messages=dump_messages(messages),
        calls=[CallState(id=call.id, name=call.name, arguments=call.arguments, cut_off=call.cut_off) for call in calls],
        waiting=waiting,
    )


def create_run_hooks(
    gate: Gate, *, tools: Iterable[object] = (), signal: AbortSignal | None = None, user_context: object = None
) -> RunHooks:
    """Give the loop a gate: its policy's offers, its approvals, its journal, its registry (contract row L2).

    `tools` are the additional tools of runs that are resumed, handed in again. `signal` and `user_context` are for runs that
    were not prepared with their own.

    Raises:
        UsageError: an additional tool has the name of a registered one.
    """
    additional = tuple(map(as_tool, tools))
    gate.registry.offer(additional)
    return _GateHooks(gate, additional, signal, user_context)
