"""Call LangChain tools with a tool call, as its agents do."""

import json
from collections.abc import Awaitable, Sequence
from typing import Any

from langchain_core.tools import tool

from bench.subjects import Prepared, Subject
from bench.workloads import Function

__all__ = ("SUBJECTS",)


async def _prepare(functions: Sequence[Function], limit_s: float | None) -> Prepared:
    del limit_s  # the library has no time limit for a tool
    tools = {function.__name__: tool(function) for function in functions}

    def call(name: str, text: str) -> Awaitable[object]:
        return tools[name].ainvoke({"type": "tool_call", "name": name, "id": "call_1", "args": json.loads(text)})

    return Prepared(call, _value)


def _value(answer: Any) -> object:
    return json.loads(answer.content)


SUBJECTS = (
    Subject(
        name="langchain",
        distribution="langchain-core",
        path="StructuredTool.ainvoke",
        import_statement="from langchain_core.tools import tool",
        has_limit=False,
        prepare=_prepare,
    ),
)
