"""Call tools with LangGraph's ToolNode: in a graph of that one node, as documented, and the node alone."""

import json
from collections.abc import Awaitable, Sequence
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime

from bench.subjects import Prepared, Subject
from bench.workloads import Function

__all__ = ("SUBJECTS",)


def _node(functions: Sequence[Function]) -> ToolNode:
    return ToolNode([tool(function) for function in functions])


async def _prepare_graph(functions: Sequence[Function], limit_s: float | None) -> Prepared:
    graph = StateGraph(MessagesState)
    graph.add_node("tools", _node(functions), timeout=limit_s)
    graph.add_edge(START, "tools")
    graph.add_edge("tools", END)
    application = graph.compile()

    def call(name: str, text: str) -> Awaitable[object]:
        wanted = {"type": "tool_call", "name": name, "id": "call_1", "args": json.loads(text)}
        return application.ainvoke({"messages": [AIMessage("", tool_calls=[wanted])]})

    return Prepared(call, _value)


async def _prepare_node(functions: Sequence[Function], limit_s: float | None) -> Prepared:
    del limit_s  # a limit belongs to the graph
    node = _node(functions)
    # Outside a graph the node refuses to run unless it finds a runtime where the graph would have put it.
    config: Any = {"configurable": {"__pregel_runtime": Runtime()}}

    def call(name: str, text: str) -> Awaitable[object]:
        return node.ainvoke([{"type": "tool_call", "name": name, "id": "call_1", "args": json.loads(text)}], config)

    return Prepared(call, _value)


def _value(answer: Any) -> object:
    return json.loads(answer["messages"][-1].content)


_IMPORT = "from langgraph.prebuilt import ToolNode"
SUBJECTS = (
    Subject(
        name="langgraph (node)",
        distribution="langgraph",
        path="ToolNode.ainvoke, runtime handed in",
        import_statement=_IMPORT,
        has_limit=False,
        prepare=_prepare_node,
    ),
    Subject(
        name="langgraph",
        distribution="langgraph",
        path="graph of one ToolNode, ainvoke",
        import_statement=_IMPORT,
        has_limit=True,
        prepare=_prepare_graph,
    ),
)
