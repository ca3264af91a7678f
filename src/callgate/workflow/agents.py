"""`agent_runner`: let the nodes of a workflow run an `LLMClient`."""

from collections.abc import Mapping
from typing import Any

from callgate.gate import Gate
from callgate.workflow.runtime import AgentRunner

__all__ = ("agent_runner",)


def agent_runner(client: Any) -> AgentRunner:
    """Make what `Engine.bind_agent` takes of an `LLMClient`. An agent's run goes on where it was when its node runs again."""
    from callgate.agent import create_run_hooks, prepare_call  # noqa: PLC0415 - an optional extra

    async def run(gate: Gate, run_id: str, beginning: Mapping[str, Any], /) -> Any:
        hooks = create_run_hooks(gate, signal=beginning["signal"])
        stored = await gate.store.run(run_id)
        if stored is None:
            prepared = prepare_call(gate, run_id=run_id, **beginning)
            return await client.run(prepared, hooks)
        if stored.status in {"completed", "stopped"}:
            return await client.report(run_id, hooks)
        return await client.resume(run_id, hooks)

    return run
