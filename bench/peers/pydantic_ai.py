"""Call tools of a pydantic-ai toolset through the tool manager of an agent's run step."""

from collections.abc import Awaitable, Sequence

from pydantic_ai import FunctionToolset, RunContext
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.test import TestModel
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.usage import RunUsage

from bench.subjects import Prepared, Subject
from bench.workloads import Function

__all__ = ("SUBJECTS",)


async def _prepare(functions: Sequence[Function], limit_s: float | None) -> Prepared:
    toolset = FunctionToolset(list(functions), timeout=limit_s)
    context = RunContext(deps=None, model=TestModel(), usage=RunUsage())
    manager = await ToolManager(toolset).for_run_step(context)

    def call(name: str, text: str) -> Awaitable[object]:
        return manager.handle_call(ToolCallPart(name, text, tool_call_id="call_1"))

    return Prepared(call, lambda answer: answer)


SUBJECTS = (
    Subject(
        name="pydantic-ai",
        distribution="pydantic-ai-slim",
        path="ToolManager.handle_call",
        import_statement="from pydantic_ai import Agent, FunctionToolset",
        has_limit=True,
        prepare=_prepare,
    ),
)
