"""Tools bound once for several nodes and rounds: measure until the room is warm enough, then report.

python -m examples.workflows.rounds
"""

import asyncio
from itertools import count
from typing import Any

from pydantic import BaseModel

from callgate import ToolRegistry, tool
from callgate.workflow import Engine, Runtime, define_workflow, node, route


class Room(BaseModel):
    """Be what the nodes share."""

    degrees: int = 0
    report: str = ""


_warming = count(17, 2)


@tool(kind="read")
async def measure() -> int:
    """Measure the temperature, in degrees Celsius."""
    return next(_warming)


@tool(kind="write")
async def heat(degrees: int) -> str:
    """Turn the heating up."""
    return f"heating, because it was {degrees}"


def is_warm(state: Room) -> bool:
    """Tell whether the room is warm enough."""
    return state.degrees >= 20


@node(routes=[route.to("report", when=is_warm), route.to("warm")], starts_round=True)
async def look(_state: Room, runtime: Runtime) -> dict[str, Any]:
    """Measure."""
    return {"degrees": (await runtime.tools.invoke("measure")).value}


@node(routes=[route.to("look")])
async def warm(state: Room, runtime: Runtime) -> dict[str, Any]:
    """Heat, and begin another round."""
    return {"report": (await runtime.tools.invoke("heat", {"degrees": state.degrees})).value}


@node(routes=[route.deliver("report")])
async def report(state: Room, runtime: Runtime) -> dict[str, Any]:
    """Say how it came out."""
    return {"report": f"{state.degrees} degrees after {runtime.round} rounds"}


workflow = define_workflow("rounds", [look, warm, report], state=Room)
tools = ToolRegistry([measure, heat])

if __name__ == "__main__":
    print(asyncio.run(Engine(workflow).bind_tool_runtime(tools).run({})))
