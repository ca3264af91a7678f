"""`LLMClient`: run a prepared call, watch it, resume it, stop it. Source: contract rows L1, A3 to A5."""

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Final, cast

from callgate.agent.events import AgentEvent
from callgate.agent.hooks import OpenRun, RunHooks
from callgate.agent.loop import Loop
from callgate.agent.model_layer import as_model
from callgate.agent.prepared import PreparedCall
from callgate.agent.run import Run
from callgate.approvals import Decided, check_decision
from callgate.errors import ConflictError, UsageError
from callgate.gate.stored_runs import StoredRuns, entered
from callgate.gate.telling import told_by

__all__ = ("LLMClient",)

_TRIES: Final = 10


class _Overtaken(ConflictError):
    """Tell that a run was changed between its reading and its stop."""


def _nobody(_event: AgentEvent) -> None:
    return None


class LLMClient:
    """Run models with tools. It knows no registry and no gate: it calls back through the hooks.

    `model` is a name such as "openai:gpt-5", or any model object of pydantic-ai; a profile's model goes before it. Each
    provider's own client tries again after a 429 or a 5xx, as it is configured. `settings` go to the model as they are.
    """

    def __init__(self, model: object, *, settings: Mapping[str, Any] | None = None) -> None:
        self._model = model
        self._settings = dict(settings or {})

    async def run(self, prepared: PreparedCall, hooks: RunHooks) -> Run:
        """Run until the model is done, people have to decide, or a limit is reached.

        Raises:
            BaseException: the reason of the run's abort signal, or a cancellation; the run is stored as stopped then. What
                else is raised is a fault of the program; the run is stored as failed, and can be resumed.
            ConflictError: there is a run of that id already.
            UsageError: the run cannot be as it was prepared; nothing was stored.
        """
        loop = await self._begun(prepared, hooks, _nobody)
        return await loop.go()

    def stream(self, prepared: PreparedCall, hooks: RunHooks) -> AsyncGenerator[AgentEvent, None]:
        """Run, and give what happens as it happens; the last event has the run. To leave the stream stops the run."""

        async def go(tell: Callable[[AgentEvent], None]) -> Run:
            loop = await self._begun(prepared, hooks, tell)
            return await loop.go()

        return told_by(go)

    async def resume(
        self,
        run_id: str,
        hooks: RunHooks,
        *,
        decisions: Mapping[str, Decided] | None = None,
        message: str | None = None,
    ) -> Run:
        """Go on with a run that is paused, has failed for its provider, or whose process is gone.

        `decisions` by approval id may be some, all or none of those that are pending: calls that are decided run, and with
        others still open the run is paused again. `message` is what the user says meanwhile.

        Raises:
            ConflictError: the run is over or at work elsewhere, or somebody decided before; nothing ran because of this.
            NotFoundError: there is no such run, or no call of it waits for a decision that is given.
            RunStateError: the stored run is damaged, or newer than this release; nothing ran.
            UsageError: its policy or its model is not to be had; nothing ran, and the run is as it was.
            BaseException: as `run`.
        """
        loop = await self._resumed(run_id, hooks, decisions, message, _nobody)
        return await loop.go()

    def resume_stream(
        self,
        run_id: str,
        hooks: RunHooks,
        *,
        decisions: Mapping[str, Decided] | None = None,
        message: str | None = None,
    ) -> AsyncGenerator[AgentEvent, None]:
        """Do what `resume` does, and give what happens as it happens."""

        async def go(tell: Callable[[AgentEvent], None]) -> Run:
            loop = await self._resumed(run_id, hooks, decisions, message, tell)
            return await loop.go()

        return told_by(go)

    async def report(self, run_id: str, hooks: RunHooks) -> Run:
        """Tell how far a run is, as it is stored; nothing is run.

        Raises:
            NotFoundError, RunStateError: as `resume`.
        """
        return self._loop(await hooks.load(run_id), hooks, _nobody).report()

    async def stop(self, run_id: str, hooks: RunHooks, *, reason: str = "it was stopped") -> Run:
        """End a run for good, wherever it is: a loop that is at it elsewhere ends at its next step.

        What waits for a person's approval then cannot be approved any more.

        Raises:
            ConflictError: it is over already.
            NotFoundError, RunStateError: as `resume`.
        """
        for _ in range(_TRIES - 1):  # a loop may store its next step between our reading and our writing
            try:
                return await self._stop(run_id, hooks, reason)
            except _Overtaken:
                continue
        return await self._stop(run_id, hooks, reason)

    async def _resumed(
        self,
        run_id: str,
        hooks: RunHooks,
        decisions: Mapping[str, Decided] | None,
        message: str | None,
        tell: Callable[[AgentEvent], None],
    ) -> Loop:
        given = {approval_id: check_decision(decision) for approval_id, decision in (decisions or {}).items()}
        if message is not None and not isinstance(cast("object", message), str):
            raise UsageError(f"a message is a text, not {type(message).__name__}")
        run = await hooks.load(run_id)
        StoredRuns.check_not_over(run.record)
        loop = self._loop(run, hooks, tell)
        loop.check()
        await loop.decide(given)
        if message is not None:
            loop.take_message(message)
        await entered(loop.claim(), lambda _, stop: loop.leave(stop))
        return loop

    async def _begun(self, prepared: PreparedCall, hooks: RunHooks, tell: Callable[[AgentEvent], None]) -> Loop:
        run = await entered(hooks.begin(prepared), lambda run, stop: self._loop(run, hooks, tell).leave(stop))
        return self._loop(run, hooks, tell)

    async def _stop(self, run_id: str, hooks: RunHooks, reason: str) -> Run:
        run = await hooks.load(run_id)
        StoredRuns.check_not_over(run.record)
        loop = self._loop(run, hooks, _nobody)
        try:
            return await loop.stop(reason)
        except ConflictError as error:
            raise _Overtaken(error.user_message) from error

    def _loop(self, run: OpenRun, hooks: RunHooks, tell: Callable[[AgentEvent], None]) -> Loop:
        return Loop(run, hooks, lambda name: as_model(name or self._model), tell, self._settings)
