"""Measure a run of three nodes, each with one tool call, beside the same calls alone and beside other graph libraries."""

from functools import partial
from importlib.util import find_spec
from typing import Any, TypedDict

from bench.gate import registry_of
from bench.report import Claim, Section, comparison
from bench.timing import Call, Contender, Options, compare, one_after_another
from bench.workloads import ARGUMENTS, add
from callgate import Caller, Gate, ToolCall
from callgate.policy import AllowAll
from callgate.workflow import Engine, Node, define_workflow, route

__all__ = ("run",)

_NOTE = (
    "callgate journals each call and stores the run after each node, in memory. The others call the same function in each node,"
    " without a checkpoint, a policy or a receipt."
)


async def run(options: Options) -> Section:
    """Measure callgate's engine, three calls through its gate, and the peers."""
    contenders = [Contender("three calls of a gate", one_after_another(_direct()))]
    contenders.append(Contender("callgate", one_after_another(_callgate())))
    missing: list[str] = []
    for name, make in (("langgraph", _langgraph), ("pydantic_graph", _pydantic_graph)):
        if find_spec(name) is None:
            missing.append(f"{name} (not installed)")
        else:
            contenders.append(Contender(name, one_after_another(make())))
    measured = await compare(contenders, options.of_processor)
    by_name = {each.contender.name: each for each in measured}
    claims = tuple(
        Claim.at_most(f"a run of three nodes / {name}", 1.0, by_name["callgate"].call_s / by_name[name].call_s)
        for name in ("langgraph", "pydantic_graph")
        if name in by_name
    )
    return Section("Workflows", (comparison("A run of three nodes", measured, _NOTE),), claims, tuple(missing))


def _direct() -> Call:
    gate, caller, call = Gate(registry_of([add]), policy=AllowAll()), Caller("alice"), ToolCall("add", ARGUMENTS)

    async def three() -> None:
        for _ in range(3):
            await gate.call(call, caller=caller)

    return three


def _callgate() -> Call:
    async def step(_state: Any, runtime: Any) -> dict[str, Any]:
        return {"answer": (await runtime.tools.invoke("add", {"a": 2, "b": 1})).value}

    nodes = [
        Node(id="a", description="", run=step, starts_round=True, routes=[route.to("b")]),
        Node(id="b", description="", run=step, routes=[route.to("c")]),
        Node(id="c", description="", run=step, routes=[route.deliver("answer")]),
    ]
    engine = Engine(define_workflow("three", nodes)).bind_tool_runtime(Gate(registry_of([add]), policy=AllowAll()))
    return partial(engine.run, {})


class _State(TypedDict, total=False):
    answer: int


def _langgraph() -> Call:
    from langgraph.graph import END, START, StateGraph

    async def step(_state: _State) -> _State:
        return {"answer": await add(2, 1)}

    graph = StateGraph(_State)
    for name in "abc":
        graph.add_node(name, step)
    for start, end in ((START, "a"), ("a", "b"), ("b", "c"), ("c", END)):
        graph.add_edge(start, end)
    return partial(graph.compile().ainvoke, {})


def _pydantic_graph() -> Call:
    from pydantic_graph import GraphBuilder

    builder = GraphBuilder(output_type=int)

    @builder.step
    async def first(_context: Any) -> int:
        return await add(2, 1)

    @builder.step
    async def second(_context: Any) -> int:
        return await add(2, 1)

    @builder.step
    async def third(_context: Any) -> int:
        return await add(2, 1)

    builder.add(
        builder.edge_from(builder.start_node).to(first),
        builder.edge_from(first).to(second),
        builder.edge_from(second).to(third),
        builder.edge_from(third).to(builder.end_node),
    )
    return builder.build().run
