import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import TextPart, ToolCallPart

from callgate.testing import Says, calls, scripted_model

SCRIPT = (Says("let me look", then=calls(("look", {"at": 1}), ("look", '{"at": 2}'))), "it is there")


def agent_on(ran):
    agent = Agent(scripted_model(*SCRIPT))

    @agent.tool_plain
    def look(at: int) -> str:
        ran.append(at)
        return "seen"

    return agent


async def whole(agent):
    return (await agent.run("look")).all_messages()


async def streamed(agent):
    async def follow(_context, events):
        async for _ in events:
            pass

    return (await agent.run("look", event_stream_handler=follow)).all_messages()


@pytest.mark.parametrize("run", [whole, streamed])
async def test_a_script_is_the_same_whole_and_streaming(run):
    ran = []
    messages = await run(agent_on(ran))
    parts = [part for message in messages if message.kind == "response" for part in message.parts]
    assert [part.content for part in parts if isinstance(part, TextPart)] == ["let me look", "it is there"]
    made = [(part.tool_name, part.args_as_dict(), part.tool_call_id) for part in parts if isinstance(part, ToolCallPart)]
    assert made == [("look", {"at": 1}, "c1"), ("look", {"at": 2}, "c2")]
    assert sorted(ran) == [1, 2]
