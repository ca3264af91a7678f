"""Call tools of a server of the MCP Python SDK, without a transport."""

import json
from collections.abc import Awaitable, Sequence
from typing import Any

from mcp.server.mcpserver import MCPServer

from bench.subjects import Prepared, Subject
from bench.workloads import Function

__all__ = ("SUBJECTS",)


async def _prepare(functions: Sequence[Function], limit_s: float | None) -> Prepared:
    del limit_s  # the library has no time limit for a tool
    server = MCPServer("bench")
    for function in functions:
        server.add_tool(function)

    def call(name: str, text: str) -> Awaitable[object]:
        return server.call_tool(name, json.loads(text))

    return Prepared(call, _value)


def _value(answer: Any) -> object:
    return answer.structured_content["result"]


SUBJECTS = (
    Subject(
        name="mcp",
        distribution="mcp",
        path="MCPServer.call_tool",
        import_statement="from mcp.server.mcpserver import MCPServer",
        has_limit=False,
        prepare=_prepare,
    ),
)
