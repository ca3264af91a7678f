"""A help desk: a question goes to an agent with a profile, an order's number to a form, and both end in an answer.

    python -m examples.workflows.desk "Where is order 7?"
    python -m examples.workflows.desk "Do you sell lamps?"

The agent's model is a script, so that it needs no key.
"""

import asyncio
import re
import sys
from typing import Any

from pydantic import BaseModel

from callgate import Gate, ToolCall, ToolRegistry, tool
from callgate.agent import LLMClient
from callgate.policy import AllowAll
from callgate.profiles import Profile
from callgate.testing import scripted_model
from callgate.workflow import Engine, Runtime, agent_runner, define_workflow, node, route


class Desk(BaseModel):
    """Be what the nodes share."""

    question: str
    order_id: int | None = None
    answer: str = ""


@tool(kind="read")
async def find_products(text: str) -> list[str]:
    """Find products by a text."""
    return [name for name in ("desk lamp", "floor lamp", "chair") if text.casefold() in name]


@tool(kind="read")
async def get_order(order_id: int) -> str:
    """Tell where an order is."""
    return f"order {order_id} is on its way"


def names_an_order(state: Desk) -> bool:
    """Tell whether the question names an order."""
    return state.order_id is not None


@node(routes=[route.to("look_up", when=names_an_order), route.to("ask_agent")], starts_round=True)
async def read_question(state: Desk, _runtime: Runtime) -> dict[str, Any]:
    """Look for an order's number in the question."""
    found = re.search(r"order (\d+)", state.question, re.IGNORECASE)
    return {"order_id": None if found is None else int(found[1])}


@node(routes=[route.deliver("answer")])
async def look_up(state: Desk, runtime: Runtime) -> dict[str, Any]:
    """Answer from the order, without a model."""
    return {"answer": (await runtime.tools.invoke("get_order", {"order_id": state.order_id})).value}


@node(routes=[route.deliver("answer")])
async def ask_agent(state: Desk, runtime: Runtime) -> dict[str, Any]:
    """Let an agent answer."""
    profile = Profile(name="desk", tools=("find_*",), instructions="Answer from the catalog.")
    run = await runtime.agent(profile).run(state.question)
    return {"answer": run.output}


workflow = define_workflow("desk", [read_question, look_up, ask_agent], state=Desk)
tools = ToolRegistry([find_products, get_order])
model = scripted_model(ToolCall("find_products", {"text": "lamp"}, "find"), "We sell desk lamps and floor lamps.")


async def main(question: str) -> None:
    """Answer one question."""
    engine = Engine(workflow).bind_tool_runtime(Gate(tools, policy=AllowAll())).bind_agent(agent_runner(LLMClient(model)))
    print(await engine.run({"question": question}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "Where is order 7?"))
