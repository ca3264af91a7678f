"""The one loop: ask the model, let its calls through the gate, give it the results, until it has no calls. Contract row L1.

    state.calls empty      → ask the model → answer stored, with its calls
    state.calls not empty  → the calls go to the gate → all have results: message stored → ask the model
                                                      → some wait for people: the run is stored and paused

Whatever ends the loop, the history that is stored has one result for every call. What happens is told by `tell`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from callgate.agent.events import (
    AgentEvent,
    CallFinished,
    CallPending,
    CallProgress,
    CallStarted,
    ModelAnswered,
    RunEnded,
    RunPaused,
    StepStarted,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from callgate.agent.hooks import OpenRun, RunHooks
from callgate.agent.model_layer import (
    MODEL_ERRORS,
    Answer,
    Delta,
    OfferedTool,
    Question,
    ask,
    dump_messages,
    free_ids,
    last_text,
    load_messages,
    open_calls,
    results_message,
    user_message,
    with_ids,
)
from callgate.agent.run import PendingCall, Run
from callgate.agent.state import CallState, StoredResult
from callgate.approvals import Decided
from callgate.errors import ConflictError, RunStateError
from callgate.gate import Denied, Outcome, Pending, Succeeded
from callgate.gate.content import blocks_of, written_blocks
from callgate.gate.stored_runs import OVER, StillAtWorkError, is_stop
from callgate.gate.waiting import assured
from callgate.store.records import RunStatus
from callgate.values import ToolCall

__all__ = ("Loop",)

_log: Final = logging.getLogger("callgate")
_TEXTS: Final = {
    "aborted": "The run was stopped before this call had a result. What the tool did until then stands.",
    "cut_off": "Your answer was cut off inside of this call, so it was not run. Make the call again, and shorter.",
}


@dataclass(slots=True, eq=False)
class Loop:
    """Run one run until it pauses or ends. `as_model` makes a model of the name in the run's profile, None the client's.

    Raises:
        RunStateError: the run's messages are none, or its calls are not those of its last answer.
    """

    run: OpenRun
    hooks: RunHooks
    as_model: Callable[[str | None], Any]
    tell: Callable[[AgentEvent], None]
    settings: dict[str, Any]
    messages: list[Any] = field(init=False)
    names: dict[str, str] = field(init=False, default_factory=dict[str, str])
    _model: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.messages = load_messages(self.run.state.messages)
        open_ids = [call.id for call in open_calls(self.messages)[0]]
        if open_ids != [call.id for call in self.run.state.calls]:
            raise RunStateError("the stored run is damaged: its calls are not those of its last answer")

    @property
    def model(self) -> Any:
        """The model of the run.

        Raises:
            UsageError: there is none of that name.
        """
        if self._model is None:
            self._model = self.as_model(self.run.state.model)
        return self._model

    async def go(self) -> Run:
        """Go on until the run pauses or ends.

        Raises:
            BaseException: the reason of the run's abort signal, or a cancellation; the run is stored as stopped. What else is
                raised is a fault of the program, and the run is stored as failed.
            ConflictError: the run was changed elsewhere, and this loop leaves it alone; or a call of it is at work elsewhere for
                a long time, and the run is stored as failed.
        """
        try:
            return await self._go()
        except BaseException as stop:
            if isinstance(stop, ConflictError) and not isinstance(stop, StillAtWorkError):
                raise
            await self.leave(stop)
            raise
        finally:
            self.hooks.release(self.run)

    def check(self) -> None:
        """See to it that the run can be gone on with, before anything of it is changed.

        Raises:
            UsageError: its model cannot be had.
        """
        _ = self.model

    async def decide(self, decisions: Mapping[str, Decided]) -> None:
        """Have decisions stored; what is none about this run is refused before one that is about it is stored.

        Raises:
            ConflictError, NotFoundError: as `RunHooks.decide`.
        """
        waiting = {call.approval_id for call in self.run.state.calls if call.result is None}
        for approval_id in sorted(decisions, key=waiting.__contains__):
            await assured(self.hooks.decide(self.run, approval_id, decisions[approval_id]))

    async def claim(self) -> None:
        """Take the run over.

        Raises:
            ConflictError: as `RunHooks.claim`.
        """
        await self.hooks.claim(self.run)

    async def leave(self, stop: BaseException) -> None:
        """Store a run that this loop cannot go on with, and let go of it; a run that is over stays as it is."""
        try:
            if self.run.record.status not in OVER:
                await assured(self._stopped(stop))
        finally:
            self.hooks.release(self.run)

    async def _go(self) -> Run:
        state = self.run.state
        while True:
            if state.calls:
                paused = await self._answer_calls()
                if paused is not None:
                    return paused
                continue
            reason = self._limit_reached()
            if reason is not None:
                return await self._end("stopped", error=reason)
            answer = await self._ask()
            if isinstance(answer, str):
                return await self._end("failed", error=answer)
            if not state.calls:
                return await self._end("completed", output=answer.text)

    # ── the model ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _ask(self) -> Answer | str:
        """Ask the model, and store its answer with the calls in it; give a text when it did not answer."""
        self._check_signal()
        state = self.run.state
        tools = await self._offer()
        self.tell(StepStarted(state.step + 1, tuple(state.offered)))
        question = Question(self.model, self.messages, tools, state.instructions, {**self.settings, **state.settings})
        try:
            async with asyncio.timeout(self.run.remaining_s()):
                answer = await self._racing_abort(self._answer(question))
        except (TimeoutError, *MODEL_ERRORS) as error:
            if isinstance(error, TimeoutError) and self.run.remaining_s() == 0:
                return "the run's time was over before the model had answered"
            _log.warning("run %r: the model did not answer", state.run_id, exc_info=error)
            return f"the model did not answer: {type(error).__name__}"
        await self._take(answer)
        return answer

    async def _offer(self) -> list[OfferedTool]:
        """Have the step's tools offered, and note by which names the model calls them."""
        tools = await self.hooks.offer(self.run)
        self.names = {tool.wire: tool.name for tool in tools}
        return tools

    async def _answer(self, question: Question) -> Answer:
        async for piece in ask(question):
            if isinstance(piece, Answer):
                return piece
            self.tell(_delta_event(piece))
        raise AssertionError("a stream of the model layer ends with the answer")

    async def _racing_abort(self, asking: Awaitable[Answer]) -> Answer:
        """Wait for an answer, no longer than until the run is aborted."""
        signal = self.run.signal
        if signal is None:
            return await asking
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(asking)
        deafen = signal.add_listener(lambda: _cancel_in(loop, task))
        try:
            return await task
        except asyncio.CancelledError:
            task.cancel()
            self._check_signal()
            raise
        finally:
            deafen()

    async def _take(self, answer: Answer) -> None:
        state = self.run.state
        state.step += 1
        state.input_tokens += answer.input_tokens
        state.output_tokens += answer.output_tokens
        state.cost = None if state.cost is None or answer.cost is None else state.cost + answer.cost
        ids = free_ids(answer.calls, str(state.step), set(open_calls(self.messages)[1]))
        self.messages.append(with_ids(answer.message, ids))
        state.calls = [
            CallState(
                id=call_id,
                name=self.names.get(call.name, call.name),
                wire=call.name,
                arguments=call.arguments,
                cut_off=call.cut_off,
            )
            for call_id, call in zip(ids, answer.calls, strict=True)
        ]
        if state.calls:
            await self._save("running")
        self.tell(ModelAnswered(state.step, answer.input_tokens, answer.output_tokens, len(ids)))

    def _limit_reached(self) -> str | None:
        state, limits = self.run.state, self.run.state.limits
        if limits.steps is not None and state.step >= limits.steps:
            return f"the run has made its {limits.steps} steps"
        if self.run.remaining_s() == 0:
            return "the run's time is over"
        if limits.tokens is not None and state.input_tokens + state.output_tokens >= limits.tokens:
            return f"the run has used its {limits.tokens} tokens"
        if limits.cost is not None and state.cost is not None and state.cost >= limits.cost:
            return f"the run has cost its {limits.cost:g} US dollars"
        return None

    # ── the calls of a step ──────────────────────────────────────────────────────────────────────────────────────────

    async def _answer_calls(self) -> Run | None:
        """Get results for the calls of the step; give the paused run when some wait for people."""
        state = self.run.state
        for call in state.calls:
            if call.cut_off and call.result is None:
                call.result = StoredResult(text=_TEXTS["cut_off"], outcome="failed")
        open_ = [call for call in state.calls if call.result is None]
        if open_ and not state.offered:  # the run began with calls of a history: they are of a step that offers what it may now
            await self._offer()
            for call in open_:
                call.wire, call.name = call.name, self.names.get(call.name, call.name)
        asked = [ToolCall(call.name, call.arguments, call.id) for call in open_]

        def take(number: int, outcome: Outcome) -> None:
            _take_outcome(open_[number], outcome)
            if isinstance(outcome, Pending):
                self.tell(CallPending(asked[number], outcome))
            else:
                self.tell(CallFinished(asked[number], outcome))

        if asked:
            for each in asked:
                self.tell(CallStarted(each))
            await self.hooks.execute(self.run, asked, on_outcome=take, on_progress=self._progress)
        if any(call.result is None for call in state.calls):
            return await self._pause()
        self._complete_history()
        await self._save("running")
        return None

    def _progress(self, call_id: str | None, item: object) -> None:
        self.tell(CallProgress(call_id, item))

    def _complete_history(self) -> None:
        """Put the results of the step into the history, and whatever the user has said meanwhile behind them."""
        state = self.run.state
        results = [
            (call.wire or call.name, call.id, call.result.text, call.result.outcome, blocks_of(call.result.blocks))
            for call in state.calls
            if call.result is not None
        ]
        if results:
            self.messages.append(results_message(results, state.waiting))
        elif state.waiting is not None:
            self.messages.append(user_message(state.waiting))
        state.calls, state.waiting = [], None

    def take_message(self, text: str) -> None:
        """Take in what the user says while the run is resumed: behind the results of the open step, or as it is."""
        state = self.run.state
        if state.calls:
            state.waiting = text if state.waiting is None else f"{state.waiting}\n{text}"
        else:
            self.messages.append(user_message(text))
            state.messages = dump_messages(self.messages)

    # ── ends ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _save(self, status: RunStatus) -> None:
        self.run.state.messages = dump_messages(self.messages)
        await self.hooks.save(self.run, status)

    async def _pause(self) -> Run:
        await self._save("paused")
        run = self.report()
        self.tell(RunPaused(run))
        return run

    async def _end(self, status: RunStatus, *, output: str = "", error: str | None = None) -> Run:
        self.run.state.error = error
        await self._save(status)
        run = self.report(output)
        self.tell(RunEnded(run))
        return run

    async def _stopped(self, stop: BaseException) -> None:
        """Store the run as stopped after an abort or a cancellation, and as failed after a fault, which can be mended.

        Every call has a result then; only what waits for a person still waits in a run that can be resumed.
        """
        state = self.run.state
        aborted = is_stop(stop, self.run.signal)
        state.error = "the run was aborted" if aborted else f"the program failed: {type(stop).__name__}"
        self._interrupt(but_what_waits=not aborted)
        try:
            await self._save("stopped" if aborted else "failed")
        except ConflictError:
            return
        except Exception as error:  # noqa: BLE001 - it must not hide why the run ended
            _log.error("run %r could not be stored when it ended: %s", state.run_id, type(error).__name__)
            return
        self.tell(RunEnded(self.report()))

    async def stop(self, reason: str) -> Run:
        """End a run that nobody runs at the moment."""
        self._interrupt(but_what_waits=False)
        return await self._end("stopped", error=reason)

    def _interrupt(self, *, but_what_waits: bool) -> None:
        """Give a result to each call that has none."""
        calls = self.run.state.calls
        for call in calls:
            if call.result is None and not (but_what_waits and call.approval_id is not None):
                call.result = StoredResult(text=_TEXTS["aborted"], outcome="interrupted")
        if all(call.result is not None for call in calls):
            self._complete_history()

    def _check_signal(self) -> None:
        if self.run.signal is not None:
            self.run.signal.raise_if_aborted()

    def report(self, output: str = "") -> Run:
        """Tell how far the run is."""
        state = self.run.state
        return Run(
            run_id=state.run_id,
            status=self.run.record.status,
            output=output or (last_text(self.messages) if self.run.record.status == "completed" else ""),
            pending=tuple(_pending(call) for call in state.calls if call.approval_id is not None and call.result is None),
            messages=tuple(self.messages),
            error=state.error,
            steps=state.step,
            input_tokens=state.input_tokens,
            output_tokens=state.output_tokens,
            cost=state.cost,
        )


def _cancel_in(loop: asyncio.AbstractEventLoop, task: "asyncio.Future[Any]") -> None:
    loop.call_soon_threadsafe(task.cancel)


def _delta_event(piece: Delta) -> AgentEvent:
    match piece.kind:
        case "text":
            return TextDelta(piece.text)
        case "thinking":
            return ThinkingDelta(piece.text)
        case "call":
            return ToolCallDelta(piece.index, piece.name, piece.text)


def _take_outcome(call: CallState, outcome: Outcome) -> None:
    if isinstance(outcome, Pending):
        call.approval_id = outcome.approval_id
        call.reason = outcome.approval.reason
        call.shown = outcome.approval.shown
        return
    if isinstance(outcome, Succeeded):
        call.result = StoredResult(text=outcome.text, outcome="success", blocks=written_blocks(outcome.blocks))
    else:
        call.result = StoredResult(text=outcome.text, outcome="denied" if isinstance(outcome, Denied) else "failed")


def _pending(call: CallState) -> PendingCall:
    assert call.approval_id is not None
    return PendingCall(call.approval_id, call.id, call.name, call.shown or "{}", call.reason or "")
