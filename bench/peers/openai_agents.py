"""Call function tools of the OpenAI Agents SDK as its runner does."""

from collections.abc import Awaitable, Sequence

from agents import function_tool
from agents.tool import invoke_function_tool
from agents.tool_context import ToolContext

from bench.subjects import Prepared, Subject
from bench.workloads import Function

__all__ = ("SUBJECTS",)


async def _prepare(functions: Sequence[Function], limit_s: float | None) -> Prepared:
    tools = {function.__name__: function_tool(function, timeout=limit_s) for function in functions}

    def call(name: str, text: str) -> Awaitable[object]:
        context = ToolContext(context=None, tool_name=name, tool_call_id="call_1", tool_arguments=text)
        if limit_s is None:
            return tools[name].on_invoke_tool(context, text)
        return invoke_function_tool(function_tool=tools[name], context=context, arguments=text)

    return Prepared(call, lambda answer: answer)


SUBJECTS = (
    Subject(
        name="openai-agents",
        distribution="openai-agents",
        path="FunctionTool.on_invoke_tool",
        import_statement="from agents import Agent, function_tool",
        has_limit=True,
        prepare=_prepare,
    ),
)
