"""Call tools of a FastMCP server, without a transport."""

import json
from collections.abc import Awaitable, Sequence
from typing import Any

from fastmcp import FastMCP

from bench.subjects import Prepared, Subject
from bench.workloads import Function

__all__ = ("SUBJECTS",)


async def _prepare(functions: Sequence[Function], limit_s: float | None) -> Prepared:
    server: FastMCP[Any] = FastMCP("bench")
    for function in functions:
        server.tool(function, timeout=limit_s)

    def call(name: str, text: str) -> Awaitable[object]:
        return server.call_tool(name, json.loads(text))

    return Prepared(call, _value)


def _value(answer: Any) -> object:
    return answer.structured_content["result"]


SUBJECTS = (
    Subject(
        name="fastmcp",
        distribution="fastmcp",
        path="FastMCP.call_tool",
        import_statement="from fastmcp import FastMCP",
        has_limit=True,
        prepare=_prepare,
    ),
)
