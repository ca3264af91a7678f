"""The examples of workflows deliver what they say, and are drawn as the page says."""

from pathlib import Path

import pytest

from callgate import Gate
from callgate.agent import LLMClient
from callgate.policy import AllowAll
from callgate.workflow import Engine, agent_runner, tree
from examples.workflows import desk, rounds, status

ROOT = Path(__file__).parents[2]


async def test_the_status_is_delivered():
    assert await Engine(status.workflow).bind_tool_runtime(status.tools).run({}) == "all systems go"


async def test_rounds_go_on_until_the_room_is_warm():
    delivered = await Engine(rounds.workflow).bind_tool_runtime(rounds.tools).run({})
    assert "degrees after" in delivered


@pytest.mark.parametrize(
    ("question", "answer"),
    [("Where is order 7?", "order 7 is on its way"), ("Do you sell lamps?", "We sell desk lamps and floor lamps.")],
)
async def test_a_question_goes_to_a_form_or_to_an_agent(question, answer):
    engine = Engine(desk.workflow).bind_tool_runtime(Gate(desk.tools, policy=AllowAll()))
    engine.bind_agent(agent_runner(LLMClient(desk.model)))
    assert await engine.run({"question": question}) == answer


def test_the_page_shows_the_third_example_as_it_is_drawn():
    page = (ROOT / "docs" / "how-to" / "define-a-workflow.md").read_text(encoding="utf-8")
    assert f"```text\n{tree(desk.workflow)}\n```" in page
