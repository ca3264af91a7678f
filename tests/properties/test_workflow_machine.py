"""Random workflows whose nodes fail and whose process crashes at any step of the store: each call once, each patch once."""

import asyncio
import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callgate import Gate, ToolContext, ToolRegistry, WorkflowError, tool
from callgate.policy import AllowAll
from callgate.store import SQLStore
from callgate.workflow import Engine, Node, WorkflowLimits, define_workflow, route
from callgate.workflow.states import WorkflowState
from tests.postgres import fresh_database
from tests.properties.test_crash_machine import Crash, Mortal

_numbers = itertools.count()


@st.composite
def graphs(draw):
    """Draw nodes in a row, each with calls of its own, some of which lead back to the start for another round."""
    count = draw(st.integers(1, 4))
    return [
        {
            "calls": draw(st.lists(st.sampled_from(["read", "write"]), max_size=3)),
            "back": number > 0 and draw(st.booleans()),
            "fails": draw(st.booleans()),
        }
        for number in range(count)
    ]


class World:
    """Be a workflow made of a drawing, its tools, and what happened; a node that fails does so the first time it runs."""

    def __init__(self, graph):
        self.graph, self.wrote, self.failed = graph, {}, set()
        names = [f"n{number}" for number in range(len(graph))]

        def make(number, shape):
            async def run(state, runtime):
                told = []
                for kind in shape["calls"]:
                    try:
                        told.append((await runtime.tools.invoke(kind, {"at": f"{runtime.round}.{number}.{len(told)}"})).value)
                    except Exception as error:
                        if getattr(error, "code", "") != "outcome_unknown":
                            raise
                        told.append("unknown")
                if shape["fails"] and (runtime.round, number) not in self.failed:
                    self.failed.add((runtime.round, number))
                    raise ConnectionError
                return {"lines": [*state["lines"], f"{runtime.round}.{number}"], "told": [*state["told"], *told]}

            last = number == len(graph) - 1
            onward = route.deliver("lines") if last else route.to(names[number + 1])
            back = [route.to("n0", when=lambda state: state["lines"][-1].startswith("1."))] if shape["back"] else []
            return Node(id=names[number], description="", run=run, starts_round=number == 0, routes=[*back, onward])

        self.workflow = define_workflow("w", [make(number, shape) for number, shape in enumerate(graph)])

    def registry(self):
        @tool(kind="read")
        async def read(at: str) -> str:
            return at

        @tool(kind="write")
        async def write(at: str, context: ToolContext) -> str:
            self.wrote[at] = self.wrote.get(at, 0) + 1
            return at

        return ToolRegistry([read, write])

    def expected(self):
        """Give the nodes in their order: up to the first that leads back, and then all of them."""
        first = next((number for number, shape in enumerate(self.graph) if shape["back"]), None)
        lines = [] if first is None else [f"1.{number}" for number in range(first + 1)]
        return lines + [f"{1 if first is None else 2}.{number}" for number in range(len(self.graph))]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def url(request, tmp_path_factory):
    if request.param == "postgresql":
        return fresh_database()
    return f"sqlite:///{Path(tempfile.mkdtemp(dir=tmp_path_factory.getbasetemp())) / 'w.db'}"


@pytest.mark.timeout(300)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(graph=graphs(), crashes=st.lists(st.tuples(st.integers(1, 12), st.booleans()), max_size=4))
def test_every_run_ends_with_each_patch_once_and_no_write_twice(url, graph, crashes):
    world, run_id = World(graph), f"run{next(_numbers)}"

    async def live(crash_in, after):
        store = SQLStore(url)
        gate = Gate(world.registry(), policy=AllowAll(), store=Mortal(store, crash_in, after))
        engine = Engine(world.workflow, limits=WorkflowLimits(rounds=5)).bind_tool_runtime(gate)
        try:
            while True:
                stored = await gate.store.run(run_id)
                try:
                    if stored is None:
                        return await engine.run({"lines": [], "told": []}, run_id=run_id)
                    if stored.status == "completed":
                        return WorkflowState.load(stored.state).value
                    return await engine.resume(run_id)
                except WorkflowError as error:
                    if error.reason != "the node raised ConnectionError":
                        raise
        finally:
            await store.aclose()

    for crash_in, after in crashes:
        try:
            with asyncio.Runner() as runner:
                runner.run(live(crash_in, after))
        except Crash:
            continue
    with asyncio.Runner() as runner:
        lines = runner.run(live(0, after=False))
    assert lines == world.expected()
    assert all(count == 1 for count in world.wrote.values())
