"""The one loop: ask the model, let its calls through the gate, give it the results, until it has no calls. Contract row L1.

    state.calls empty      → ask the model → answer stored, with its calls
    state.calls not empty  → the calls go to the gate → all have results: message stored → ask the model
                                                      → some wait for people: the run is stored and paused

Whatever ends the loop, the history that is stored has one result for every call. What happens is told by `tell`.
"""

import asyncio
from collections.abc import Awaitable, Callable
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
    last_text,
    load_messages,
    open_calls,
    results_message,
    user_message,
    with_ids,
)
from callgate.agent.run import PendingCall, Run
from callgate.agent.state import CallState, StoredResult
from callgate.errors import AbortedError, ConflictError
from callgate.gate import Denied, Outcome, Pending, Succeeded
from callgate.gate.content import blocks_of, written_blocks
from callgate.gate.waiting import assured
from callgate.store.records import RunStatus
from callgate.values import ToolCall

__all__ = ("Loop",)

_TEXTS: Final = {
    "aborted": "The run was stopped before this call had a result. What the tool did until then stands.",
    "cut_off": "Your answer was cut off inside of this call, so it was not run. Make the call again, and shorter.",
}


@dataclass(slots=True, eq=False)
class Loop:
    """Run one run until it pauses or ends. `as_model` makes a model of the name in the run's profile, None the client's."""

    run: OpenRun
    hooks: RunHooks
    as_model: Callable[[str | None], Any]
    tell: Callable[[AgentEvent], None]
    settings: dict[str, Any]
    messages: list[Any] = field(init=False)
    names: dict[str, str] = field(init=False, default_factory=dict[str, str])

    def __post_init__(self) -> None:
        self.messages = load_messages(self.run.state.messages)

    async def go(self) -> Run:
        """Go on until the run pauses or ends.

        Raises:
            BaseException: the reason of the run's abort signal, or a cancellation; the run is stored as stopped.
            ConflictError: the run was changed elsewhere; this loop leaves it alone.
        """
        try:
            return await self._go()
        except ConflictError:
            raise
        except BaseException as stop:
            await assured(self._stopped(stop))
            raise
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
        question = Question(
            self.as_model(state.model), self.messages, tools, state.instructions, {**self.settings, **state.settings}
        )
        try:
            async with asyncio.timeout(self.run.remaining_s()):
                answer = await self._racing_abort(self._answer(question))
        except TimeoutError:
            return "the run's time was over before the model had answered"
        except MODEL_ERRORS as error:
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
        used = set(open_calls(self.messages)[1])
        ids: list[str] = []
        for number, call in enumerate(answer.calls, 1):
            ids.append(_free_id(call.id, f"{state.step}.{number}", used))
            used.add(ids[-1])
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

    def take_message(self, text: str | None) -> None:
        """Take in what the user says while the run is resumed: behind the results of the open step, or as it is."""
        if text is None:
            return
        state = self.run.state
        if state.calls:
            state.waiting = text if state.waiting is None else f"{state.waiting}\n{text}"
        else:
            self.messages.append(user_message(text))

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
        """Store the run as stopped, with a result for every call, after an abort, a cancellation or a fault."""
        for call in self.run.state.calls:
            if call.result is None:
                call.result = StoredResult(text=_TEXTS["aborted"], outcome="interrupted")
        self._complete_history()
        aborted = isinstance(stop, asyncio.CancelledError | AbortedError) or self._is_aborted()
        self.run.state.error = "the run was aborted" if aborted else f"the program failed: {type(stop).__name__}"
        try:
            await self._save("stopped")
        except ConflictError:
            return
        self.tell(RunEnded(self.report()))

    async def stop(self, reason: str) -> Run:
        """End a run that nobody runs at the moment."""
        for call in self.run.state.calls:
            if call.result is None:
                call.result = StoredResult(text=_TEXTS["aborted"], outcome="interrupted")
        self._complete_history()
        return await self._end("stopped", error=reason)

    def _is_aborted(self) -> bool:
        return self.run.signal is not None and self.run.signal.aborted

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


def _free_id(wanted: str, place: str, used: set[str]) -> str:
    """Give a call an id that its run has not had: the model's own where it is one."""
    if wanted and wanted not in used:
        return wanted
    name = f"{wanted or 'call'}~{place}"
    while name in used:
        name += "~"
    return name


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
