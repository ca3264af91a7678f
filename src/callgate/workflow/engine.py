"""`Engine`: run a workflow, follow it, stop it, and go on with it from its last finished node. Source: contract rows W2, W3.

    state, node → run the node → patch the state → choose the route → store → the next node | deliver

What is stored is stored once, after the node: a node that was interrupted runs again from its beginning, and its tool calls are
answered from the journal by the ids that they had (see `NodeTools`).
"""

import asyncio
import inspect
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Self, TypedDict, Unpack, cast

from pydantic import ValidationError

from callgate.approvals import Decided, check_decision
from callgate.errors import ConflictError, NotFoundError, RunPausedError, RunStateError, UsageError, WorkflowError
from callgate.gate import Gate, Outcome, PlaceKeywords
from callgate.gate.stored_runs import OVER, StoredRuns, checked_state, entered, is_stop, refused
from callgate.gate.telling import told_by
from callgate.gate.waiting import assured
from callgate.policy import AllowAll
from callgate.registry import ToolRegistry
from callgate.signals import AbortSignal
from callgate.store.records import RunRecord, RunStatus
from callgate.values import Caller, ExecutionOptions, check_limit
from callgate.workflow.definition import Node, Workflow
from callgate.workflow.events import Delivered, NodeFinished, NodeStarted, Paused, RoundStarted, ToolCalled, WorkflowEvent
from callgate.workflow.runtime import AgentRunner, NodePaused, NodeTools, Runtime
from callgate.workflow.states import PatchError, WorkflowState, check_fits, patched, seen

__all__ = ("Engine", "RunKeywords", "WorkflowLimits")

_ANYBODY: Final = Caller("workflow")
_TRIES: Final = 10
_log: Final = logging.getLogger("callgate")

Tell = Callable[[WorkflowEvent], None]
Migration = Callable[[dict[str, Any], str], tuple[dict[str, Any], str]]


def _nobody(_event: WorkflowEvent) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowLimits:
    """Bound a run: `rounds`, `steps` (nodes that have run), and `time_s` seconds from its start. None is no bound.

    Raises:
        UsageError: a value is out of range.
    """

    rounds: int | None = 20
    steps: int | None = 200
    time_s: float | None = None

    def __post_init__(self) -> None:
        check_limit("rounds", self.rounds, whole=True)
        check_limit("steps", self.steps, whole=True)
        check_limit("time_s", self.time_s)


class RunKeywords(TypedDict, total=False):
    """Say for whom a run is, under which id and in which thread, and what can abort it."""

    run_id: str | None
    caller: Caller
    thread_id: str | None
    signal: AbortSignal | None
    user_context: object


@dataclass(slots=True, eq=False)
class _Open:
    """Be a run while the engine is at it."""

    state: WorkflowState
    record: RunRecord
    tell: Tell
    signal: AbortSignal | None = None
    user_context: object = None

    def remaining_s(self) -> float | None:
        ends_at = self.state.ends_at
        return None if ends_at is None else max(0.0, ends_at - time.time())


class Engine:
    """Run a workflow. Tools are bound once, for all its nodes: `Engine(workflow).bind_tool_runtime(gate)`."""

    def __init__(self, workflow: Workflow, *, limits: WorkflowLimits | None = None) -> None:
        self._workflow = workflow
        self._limits = limits or WorkflowLimits()
        self._gate: Gate | None = None
        self._runner: AgentRunner | None = None

    def bind_tool_runtime(self, tools: Gate | ToolRegistry) -> Self:
        """Let the nodes call tools through a gate; a registry gets one that allows everything and remembers in memory."""
        self._gate = tools if isinstance(tools, Gate) else Gate(tools, policy=AllowAll())
        return self

    def bind_agent(self, runner: AgentRunner) -> Self:
        """Let the nodes run agents: `callgate.workflow.agent_runner(client)` makes a runner of an `LLMClient`."""
        self._runner = runner
        return self

    def _bound(self) -> Gate:
        if self._gate is None:
            raise UsageError("bind tools first: Engine(workflow).bind_tool_runtime(gate)")
        return self._gate

    # ── doors ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self, state: Mapping[str, Any] | object, /, **place: Unpack[RunKeywords]) -> Any:
        """Run the workflow, and give what it delivers. `state` are the fields that the run begins with.

        Raises:
            RunPausedError: a call waits for people; decide, and `resume` the run.
            WorkflowError: a node failed, or a bound is reached; the run is stored as it was after its last finished node.
            UsageError: the state does not fit the workflow's, or no tools are bound; nothing ran.
            BaseException: the reason of the abort signal, or a cancellation; the run is stored as stopped. What else is raised
                is a fault of the program; the run is stored as failed, and can be resumed.
        """
        return await self._go(await self._begun(state, place, _nobody))

    def stream(self, state: Mapping[str, Any] | object, /, **place: Unpack[RunKeywords]) -> AsyncGenerator[WorkflowEvent, None]:
        """Run the workflow, and give what happens; the last event has what it delivers. To leave the stream stops the run.

        Raises:
            WorkflowError, UsageError, BaseException: as `run`; a pause is an event.
        """

        async def go(tell: Tell) -> None:
            await self._until_paused(await self._begun(state, place, tell))

        return told_by(go)

    async def resume(
        self,
        run_id: str,
        /,
        *,
        decisions: Mapping[str, Decided] | None = None,
        migration: Migration | None = None,
        signal: AbortSignal | None = None,
        user_context: object = None,
    ) -> Any:
        """Go on with a run that is paused, has failed, or whose process is gone, and give what it delivers.

        A run of a workflow that was changed since is refused, unless `migration(state, node)` gives the state and the node to go
        on with.

        Raises:
            ConflictError: it is over or at work elsewhere, or somebody decided before; nothing ran.
            NotFoundError: there is no such run.
            RunStateError: it is damaged, newer, or of another shape of the workflow; nothing ran.
            RunPausedError, WorkflowError, BaseException: as `run`.
        """
        given = {approval_id: check_decision(decision) for approval_id, decision in (decisions or {}).items()}
        run = await self._load(run_id, _nobody)
        run.signal, run.user_context = signal, user_context
        StoredRuns.check_not_over(run.record)
        self._check_shape(run, migration)
        await self._decide(run_id, given)
        run.state.error = None
        await entered(self._runs().claim(run), lambda _, stop: self._leave(run, stop))
        return await self._go(run)

    async def _decide(self, run_id: str, decisions: Mapping[str, Decided]) -> None:
        """Store decisions, when all of them are about calls of the run, or of agents' runs within it.

        Raises:
            NotFoundError: one is not; nothing was decided.
        """
        gate = self._bound()
        for approval_id in decisions:
            of_run = (await gate.approval(approval_id)).run_id or ""
            if of_run != run_id and not of_run.startswith(f"{run_id}/"):
                raise NotFoundError("approval", approval_id, f"run {run_id!r} has no call that waits for it")
        for approval_id, decision in decisions.items():
            await assured(gate.record(approval_id, decision))

    async def stop(self, run_id: str, /, *, reason: str = "it was stopped") -> None:
        """End a run for good, wherever it is: an engine that is at it elsewhere ends at its next node.

        Raises:
            ConflictError: it is over already.
            NotFoundError, RunStateError: as `resume`.
        """
        for tried in range(1, _TRIES + 1):  # an engine may store its next node between our reading and our writing
            run = await self._load(run_id, _nobody)
            StoredRuns.check_not_over(run.record)
            run.state.error = reason
            try:
                return await self._save(run, "stopped")
            except ConflictError:
                if tried == _TRIES:
                    raise
        return None

    # ── the stored run ───────────────────────────────────────────────────────────────────────────────────────────────

    def _runs(self) -> StoredRuns:
        return StoredRuns(self._bound())

    async def _begun(self, state: object, place: RunKeywords, tell: Tell) -> _Open:
        return await entered(self._begin(state, place, tell), self._leave)

    async def _begin(self, state: object, place: RunKeywords, tell: Tell) -> _Open:
        workflow, runs = self._workflow, self._runs()
        caller = place.get("caller") or _ANYBODY
        if type(caller) is not Caller:
            raise UsageError(f"caller= must be Caller(subject, roles), not {type(caller).__name__}")
        given = state
        if workflow.state is not None and not isinstance(state, Mapping):
            given = cast("object", workflow.state.dump_python(state))
        try:
            plain = patched(workflow, {}, given)
        except PatchError as error:
            raise UsageError(f"workflow {workflow.id!r} cannot begin: {error}") from error
        try:
            stored = WorkflowState(
                run_id=place.get("run_id") or f"run_{secrets.token_hex(10)}",
                workflow=workflow.id,
                digest=workflow.digest,
                subject=caller.subject,
                roles=list(caller.roles),
                thread_id=place.get("thread_id"),
                state=plain,
                node=workflow.start.id,
                ends_at=None if self._limits.time_s is None else time.time() + self._limits.time_s,
            )
        except ValidationError as error:
            raise refused(error) from None
        record = await runs.begin(stored, caller=caller.subject, name=workflow.id, thread_id=stored.thread_id)
        return _Open(stored, record, tell, place.get("signal"), place.get("user_context"))

    async def _load(self, run_id: str, tell: Tell) -> _Open:
        record = await self._runs().record(run_id)
        return _Open(checked_state(WorkflowState, record), record, tell)

    def _check_shape(self, run: _Open, migration: Migration | None) -> None:
        state, workflow = run.state, self._workflow
        if state.workflow != workflow.id:
            raise RunStateError(f"run {state.run_id!r} is of workflow {state.workflow!r}, not of {workflow.id!r}")
        if state.digest == workflow.digest:
            return self._check_place(state)
        if migration is None:
            raise RunStateError(f"workflow {workflow.id!r} was changed since run {state.run_id!r} began: give a migration")
        plain, node = migration(dict(state.state), state.node)
        if node not in workflow.nodes:
            raise RunStateError(f"the migration goes on with the node {node!r}, which workflow {workflow.id!r} does not have")
        try:
            state.state = patched(workflow, {}, plain)
        except PatchError as error:
            raise RunStateError(f"the migration gives a state that does not fit: {error}") from error
        state.node, state.digest = node, workflow.digest
        return None

    def _check_place(self, state: WorkflowState) -> None:
        if state.node not in self._workflow.nodes:
            raise RunStateError(f"the stored run is damaged: there is no node {state.node!r}")
        try:
            check_fits(self._workflow, state.state)
        except PatchError as error:
            raise RunStateError(f"the stored run is damaged: {error}") from error

    async def _save(self, run: _Open, status: RunStatus) -> None:
        await self._runs().save(run, status)

    # ── the way through the nodes ────────────────────────────────────────────────────────────────────────────────────

    async def _until_paused(self, run: _Open) -> None:
        try:
            await self._go(run)
        except RunPausedError as paused:
            run.tell(Paused(paused.run_id, paused.pending))

    async def _go(self, run: _Open) -> Any:
        try:
            return await self._through(run)
        except (ConflictError, RunPausedError, WorkflowError):
            raise
        except BaseException as stop:
            await self._leave(run, stop)
            raise
        finally:
            self._runs().release(run.state.run_id)

    async def _leave(self, run: _Open, stop: BaseException) -> None:
        """Store a run that this engine cannot go on with, and let go of it; one that is over stays as it is."""
        try:
            if run.record.status not in OVER:
                await assured(self._stopped(run, stop))
        finally:
            self._runs().release(run.state.run_id)

    async def _stopped(self, run: _Open, stop: BaseException) -> None:
        """Store a run as stopped after an abort or a cancellation, and as failed after a fault, which can be mended."""
        aborted = is_stop(stop, run.signal)
        run.state.error = "the run was aborted" if aborted else f"the program failed: {type(stop).__name__}"
        try:
            await self._save(run, "stopped" if aborted else "failed")
        except ConflictError:
            return
        except Exception as error:  # noqa: BLE001 - it must not hide why the run ended
            _log.error("run %r could not be stored when it ended: %s", run.state.run_id, type(error).__name__)

    async def _through(self, run: _Open) -> Any:
        state = run.state
        if state.steps == 0:
            run.tell(RoundStarted(state.round))
        while not state.delivered:
            await self._check_bounds(run)
            node = self._workflow.nodes[state.node]
            run.tell(NodeStarted(node.id, state.round))
            patch = await self._patch_of(run, node)
            await self._finish(run, node, patch)
        run.tell(Delivered(state.value))
        return state.value

    async def _check_bounds(self, run: _Open) -> None:
        state, limits = run.state, self._limits
        if run.signal is not None:
            run.signal.raise_if_aborted()
        reason = None
        if limits.rounds is not None and state.round > limits.rounds:
            reason = f"it has made its {limits.rounds} rounds"
        elif limits.steps is not None and state.steps >= limits.steps:
            reason = f"it has made its {limits.steps} steps"
        elif run.remaining_s() == 0:
            reason = "its time is over"
        if reason is not None:
            await self._fail(run, reason, "stopped")

    async def _fail(self, run: _Open, reason: str, status: RunStatus, cause: BaseException | None = None) -> NoReturn:
        """Store a run that did not deliver.

        Raises:
            WorkflowError: always.
        """
        state = run.state
        state.error = reason
        await self._save(run, status)
        raise WorkflowError(state.run_id, reason, node=state.node, round_number=state.round) from cause

    async def _patch_of(self, run: _Open, node: Node) -> object:  # noqa: RET503 - `_fail` never returns
        """Run a node; what it raises ends the run, and can be tried again by a resume."""
        failure: Exception
        try:
            async with asyncio.timeout(run.remaining_s()):
                return await self._run_node(run, node)
        except NodePaused as paused:
            await self._save(run, "paused")
            raise RunPausedError(run.state.run_id, paused.pending) from None
        except Exception as error:  # the node is the application's own code
            if run.signal is not None and run.signal.aborted:
                raise
            failure = error
        if isinstance(failure, TimeoutError) and run.remaining_s() == 0:
            await self._fail(run, "its time is over", "stopped")
        await self._fail(run, f"the node raised {type(failure).__name__}", "failed", failure)

    async def _run_node(self, run: _Open, node: Node) -> object:
        runtime, view = self._runtime(run, node), seen(self._workflow, run.state.state)
        tools = runtime.tools
        try:
            patch = await _unless_aborted(_called(node, view, runtime), tools, run.signal)
        except BaseException as end:
            stop = isinstance(end, asyncio.CancelledError)
            await tools.settle(stop=stop)
            if run.signal is not None and not stop:
                run.signal.raise_if_aborted()
            if tools.pending and _may_wait(end):
                raise NodePaused(tuple(tools.pending)) from end
            raise
        await tools.settle()
        if tools.pending:  # the node has kept to itself that a call of it waits: the run waits all the same
            raise NodePaused(tuple(tools.pending))
        return patch

    def _runtime(self, run: _Open, node: Node) -> Runtime:
        state, gate = run.state, self._bound()
        left = run.remaining_s()
        where = f"{state.steps}/{node.id}"
        place = PlaceKeywords(
            run_id=state.run_id,
            step=state.steps,
            thread_id=state.thread_id,
            signal=run.signal,
            user_context=run.user_context,
            options=None if left is None else ExecutionOptions(deadline=time.monotonic() + left),
            where=f"{self._workflow.id}/{state.round}/{node.id}",
        )

        def told(outcome: Outcome) -> None:
            run.tell(ToolCalled(node.id, state.round, outcome))

        caller = Caller(state.subject, tuple(state.roles))
        tools = NodeTools(gate, caller, place, where, told, asyncio.get_running_loop(), run.remaining_s)
        return Runtime(tools, run.signal, state.round, node.id, state.run_id, self._runner)

    async def _finish(self, run: _Open, node: Node, patch: object) -> None:
        """Apply a node's patch, take its route, and store both at once."""
        state, workflow = run.state, self._workflow
        try:
            plain = patched(workflow, state.state, patch)
            view = seen(workflow, plain)
        except Exception as error:  # noqa: BLE001 - a validator of the state is the application's own code
            reason = str(error) if isinstance(error, PatchError) else f"the state's own check raised {type(error).__name__}"
            await self._fail(run, reason, "failed", error)
        try:
            taken = self._route_of(node, view)
        except Exception as error:  # noqa: BLE001 - a condition is the application's own code
            await self._fail(run, f"a route's condition raised {type(error).__name__}", "failed", error)
        if taken is None:
            await self._fail(run, "none of the node's routes fits", "failed")
        round_number = state.round
        state.state = plain
        state.path = [*state.path, (state.round, node.id)]
        state.steps += 1
        if taken.field is not None:
            state.delivered, state.value = True, plain.get(taken.field)
        else:
            state.node = cast("str", taken.target)
            state.round += workflow.nodes[state.node].starts_round
        await self._save(run, "completed" if state.delivered else "running")
        run.tell(NodeFinished(node.id, round_number, dict(cast("Mapping[str, Any]", patch or {}))))
        if state.round != round_number:
            run.tell(RoundStarted(state.round))

    @staticmethod
    def _route_of(node: Node, view: Any) -> Any:
        return next((one for one in node.routes if one.when is None or one.when(view)), None)


async def _called(node: Node, view: Any, runtime: Runtime) -> object:
    if inspect.iscoroutinefunction(node.run):
        return await node.run(view, runtime)
    answer = await asyncio.to_thread(node.run, view, runtime)
    return await answer if inspect.isawaitable(answer) else answer


async def _unless_aborted(work: Coroutine[Any, Any, object], tools: NodeTools, signal: AbortSignal | None) -> object:
    """Do a node's work, no longer than until its run is aborted: its calls end by themselves then, and it is cancelled.

    Raises:
        BaseException: the signal's reason, whatever the node makes of it.
    """
    if signal is None:
        return await work
    loop, aborted = asyncio.get_running_loop(), asyncio.Event()
    task, heard = asyncio.ensure_future(work), asyncio.ensure_future(aborted.wait())
    deafen = signal.add_listener(lambda: cast("None", loop.call_soon_threadsafe(aborted.set)))
    try:
        await asyncio.wait((task, heard), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        await tools.settle()
    finally:
        deafen()
        heard.cancel()
        if not task.done():
            task.cancel()
            await assured(asyncio.wait((task,)))
    if not task.cancelled():
        task.exception()  # what the node made of it is nobody's result
    signal.raise_if_aborted()
    raise AssertionError("it was heard that the signal was given")


def _may_wait(end: BaseException) -> bool:
    """Tell whether what a node raised may stand behind a pause: the pause itself, alone or among others, or an error."""
    if isinstance(end, BaseExceptionGroup):
        return all(_may_wait(each) for each in cast("BaseExceptionGroup[BaseException]", end).exceptions)
    return isinstance(end, NodePaused | Exception)
