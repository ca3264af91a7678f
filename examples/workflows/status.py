"""The smallest workflow: one node reads a status through a tool, and the run delivers it.

python -m examples.workflows.status
"""

import asyncio
from typing import Any

from callgate import ToolRegistry, tool
from callgate.workflow import Engine, Runtime, define_workflow, node, route


@tool(kind="read")
async def get_status() -> str:
    """Give the status of the system."""
    return "all systems go"


@node(routes=[route.deliver("answer")], starts_round=True)
async def read(_state: Any, runtime: Runtime) -> dict[str, Any]:
    """Read the status."""
    return {"answer": (await runtime.tools.invoke("get_status", {})).value}


workflow = define_workflow("status", [read])
tools = ToolRegistry([get_status])

if __name__ == "__main__":
    print(asyncio.run(Engine(workflow).bind_tool_runtime(tools).run({})))
