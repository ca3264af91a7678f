"""Whatever a model sends as name, id and arguments, a gate answers with an outcome, journals it, and can be asked again."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callgate import Caller, Denied, Failed, Gate, Pending, Succeeded, ToolCall, ToolRegistry, tool
from callgate.policy import RulePolicy
from callgate.store import MemoryStore, SQLStore
from tests.postgres import fresh_database

OUTCOMES = (Succeeded, Failed, Denied, Pending)
RULES = """
default = "allow"
[[rule]]
id = "ask"
decision = "ask"
tools = ["pay"]
when = [{ path = "/note", op = "contains", value = "a" }]
[[budget]]
id = "same"
per = "same-call"
limit = 2
"""
TEXTS = st.text(st.characters(codec=None, categories=None), max_size=12) | st.sampled_from(
    ["\x00", "\ud800", "a/b#0001!", "~1", "%2F"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(["pay", "functions.pay", "pay\x00"]) | TEXTS | VALUES
ARGUMENTS = VALUES | st.builds(lambda note: {"note": note}, VALUES) | st.binary(max_size=5)


@tool(kind="write")
async def pay(note: str = "", more: float = 0) -> str:
    return note


@pytest.fixture(scope="module", params=["memory", "sqlite", "postgresql"])
def gate(request, tmp_path_factory):
    if request.param == "memory":
        store = MemoryStore()
    elif request.param == "sqlite":
        store = SQLStore(f"sqlite:///{tmp_path_factory.mktemp('gate') / 'store.db'}")
    else:
        store = SQLStore(fresh_database())
    runner = asyncio.Runner()
    yield Gate(ToolRegistry([pay]), policy=RulePolicy.parse(RULES), store=store), runner
    runner.run(store.aclose())
    runner.close()


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(name=NAMES, arguments=ARGUMENTS, call_id=TEXTS.filter(bool), run_id=TEXTS.filter(bool), in_run=st.booleans())
def test_nothing_that_a_model_sends_is_raised_or_lost(gate, name, arguments, call_id, run_id, in_run):
    gate, runner = gate
    run = f"{run_id}{id(arguments)}" if in_run else None

    async def go():
        call = ToolCall(name, arguments, call_id)
        first = await gate.call(call, caller=Caller("alice"), run_id=run)
        assert isinstance(first, OUTCOMES)
        assert first.text
        first.text.encode()
        if in_run:
            again = await gate.call(call, caller=Caller("alice"), run_id=run)
            assert type(again) is type(first)
            if not isinstance(first, Pending):
                assert again.text == first.text

    runner.run(go())


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(TEXTS | st.none(), st.text(max_size=3)), min_size=1, max_size=6), st.integers())
def test_the_calls_of_a_step_get_ids_of_their_own_whatever_the_model_wrote(gate, made, number):
    gate, runner = gate

    async def go():
        step = [ToolCall("pay", {"note": note}, call_id) for call_id, note in made]
        place = {"caller": Caller("alice"), "run_id": f"step{number}{made!r}"}
        first = await gate.call_many(step, **place)
        ids = [outcome.call.id for outcome in first]
        assert len(set(ids)) == len(ids)
        second = await gate.call_many(step, **place)
        assert [type(outcome) for outcome in second] == [type(outcome) for outcome in first]
        assert [outcome.call.id for outcome in second] == ids

    runner.run(go())
