"""What a model may answer: nothing, too much, the same again, what is no JSON, and parts that are neither text nor calls."""

import json
from contextlib import asynccontextmanager

import pytest
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.messages import (
    BinaryContent,
    FilePart,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, StreamedResponse
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.usage import RequestUsage

from callgate import Caller, Gate, ToolCall, ToolRegistry, tool
from callgate.agent import CallFinished, LLMClient, RunState, create_run_hooks, prepare_call
from callgate.agent.model_layer import Question, ask, dump_messages, load_messages
from callgate.policy import AllowAll
from callgate.profiles import Limits
from callgate.store import MemoryStore
from callgate.testing import scripted_model

ALICE = Caller("alice")
USER = ModelRequest(parts=[UserPromptPart(content="go")])


class World:
    def __init__(self):
        self.ran, self.store = [], MemoryStore()

        @tool(kind="read")
        async def look(number: int = 0) -> int:
            self.ran.append(number)
            return number

        @tool(kind="read")
        async def odd() -> str:
            return "half: \ud83d"

        self.gate = Gate(ToolRegistry([look, odd]), policy=AllowAll(), store=self.store)

    async def run(self, model, **more):
        prepared = prepare_call(self.gate, **{"prompt": "go", "caller": ALICE, "run_id": "r", **more})
        return await LLMClient(model).run(prepared, create_run_hooks(self.gate))

    async def state(self):
        return RunState.load((await self.store.run("r")).state)


@pytest.fixture
def world():
    return World()


class Given(Model):
    """Be a model that gives whole responses as they are, one after the other."""

    def __init__(self, *responses):
        super().__init__()
        self.responses = list(responses)

    model_name = "given"
    system = "tests"

    async def request(self, *_):
        return self.responses.pop(0)

    @classmethod
    def streaming(cls, response):
        class Whole(StreamedResponse):
            model_name = "given"
            provider_name = response.provider_name
            provider_url = None
            timestamp = response.timestamp

            async def _get_event_iterator(self):
                return
                yield

            def get(self):
                return response

        return Whole

    def request_stream(self, messages, settings, parameters, *_):
        @asynccontextmanager
        async def stream():
            yield self.streaming(self.responses.pop(0))(parameters)

        return stream()


def said(*parts, **facts):
    return ModelResponse(parts=list(parts), **facts)


async def test_an_answer_with_nothing_in_it_ends_the_run(world):
    run = await world.run(Given(said()))
    assert (run.status, run.output) == ("completed", "")


async def test_parts_that_are_neither_text_nor_calls_are_kept_as_they_are(world):
    parts = [
        ThinkingPart("hm", signature="s", provider_name="p"),
        NativeToolCallPart("web_search", {"q": "x"}, "w", provider_name="p"),
        NativeToolReturnPart("web_search", {"found": 1}, "w", provider_name="p"),
        FilePart(BinaryContent(b"\x00\xff", media_type="image/png")),
        TextPart("look"),
        ToolCallPart("look", {"number": 1}, "a"),
    ]
    run = await world.run(Given(said(*parts), said(TextPart("ok"))))
    assert (run.status, run.output, world.ran) == ("completed", "ok", [1])
    [kept] = [message for message in run.messages if isinstance(message, ModelResponse) and len(message.parts) > 1]
    assert list(kept.parts) == parts
    [again] = load_messages(dump_messages([kept]))
    assert (again.parts[3].content.data, again.parts[0], again.parts[1]) == (b"\x00\xff", parts[0], parts[1])


@pytest.mark.parametrize(
    "arguments",
    [
        {"number": float("nan")},
        {"number": float("inf")},
        {"number": "\ud83d"},
        {"\ud83d": 1},
        {"number": json.loads("[" * 300 + "]" * 300)},
        {"number": {1, 2}},
        {"number": object()},
        '{"number": "\ud83d"}',
        "[" * 5000,
        '{"number": NaN}',
    ],
    ids=lambda value: repr(value)[:20],
)
async def test_arguments_that_json_does_not_hold_are_answered_and_the_run_is_stored(world, arguments):
    run = await world.run(Given(said(ToolCallPart("look", arguments, "a")), said(TextPart("ok"))))
    assert (run.status, run.output, world.ran) == ("completed", "ok", [])
    assert await world.state()


async def test_names_and_ids_that_utf_8_does_not_hold_are_answered(world):
    run = await world.run(Given(said(ToolCallPart("lo\ud83dok", {}, "a\ud83d")), said(TextPart("half: \ud83d"))))
    assert (run.status, world.ran) == ("completed", [])
    assert (await world.state()).messages


async def test_a_result_that_utf_8_does_not_hold_reaches_the_model_all_the_same(world):
    run = await world.run(scripted_model(ToolCall("odd", {}, "a"), "ok"))
    assert run.status == "completed"
    [text] = [part["content"] for message in (await world.state()).messages for part in message["parts"] if "outcome" in part]
    text.encode()


async def test_a_thousand_calls_of_one_answer_are_all_answered_in_order(world):
    calls = [ToolCall("look", {"number": number}, "same") for number in range(1000)]
    run = await world.run(scripted_model(calls, "ok"))
    assert run.status == "completed"
    assert sorted(world.ran) == list(range(1000))
    asked = [part["tool_call_id"] for part in (await world.state()).messages[1]["parts"]]
    answered = [part["tool_call_id"] for part in (await world.state()).messages[2]["parts"]]
    assert asked == answered
    assert len(set(asked)) == 1000


async def test_the_same_id_with_suffixes_that_repair_would_give_stays_apart(world):
    ids = ["a", "a", "a~1.2", "a~1.2", "", "call~1.5"]
    run = await world.run(scripted_model([ToolCall("look", {"number": n}, each) for n, each in enumerate(ids)], "ok"))
    assert run.status == "completed"
    assert sorted(world.ran) == list(range(6))


async def test_a_model_that_dies_in_the_middle_of_a_stream_fails_the_run_and_nothing_of_the_answer_runs(world):
    async def dying(messages, info):
        yield {0: DeltaToolCall("look", '{"number": 1}', tool_call_id="a")}
        raise ModelAPIError("m", "the connection is gone: key=secret")

    run = await world.run(FunctionModel(stream_function=dying))
    assert (run.status, world.ran) == ("failed", [])
    assert "secret" not in run.error
    assert "secret" not in (await world.store.run("r")).state


async def test_a_model_that_raises_what_it_likes_does_not_write_its_words_into_the_run(world):
    async def broken(messages, info):
        raise RuntimeError("secret")
        yield ""

    with pytest.raises(RuntimeError):
        await world.run(FunctionModel(stream_function=broken))
    stored = await world.store.run("r")
    assert stored.status == "failed"
    assert "secret" not in stored.state


async def test_a_call_without_arguments_of_an_answer_without_an_end_is_not_run(world):
    unclear = said(ToolCallPart("look", "", "a"), provider_name="somebody")
    clear = said(ToolCallPart("look", "", "b"), provider_name="somebody", provider_details={"finish_reason": "tool_calls"})
    run = await world.run(Given(unclear, clear, said(TextPart("ok"))))
    assert (run.status, world.ran) == ("completed", [0])


@pytest.mark.parametrize("facts", [{"state": "incomplete"}, {"state": "suspended"}, {"provider_name": "anthropic"}])
async def test_an_answer_that_has_no_end_fails_the_run(world, facts):
    run = await world.run(Given(said(TextPart("half an ans"), ToolCallPart("look", "{}", "a"), **facts)))
    assert (run.status, world.ran) == ("failed", [])


async def test_a_price_that_cannot_be_told_ends_no_run(world, monkeypatch):
    def broken(_):
        raise ZeroDivisionError

    monkeypatch.setattr(ModelResponse, "cost", broken)
    run = await world.run(scripted_model("ok"), limits=Limits(cost=1))
    assert (run.status, run.cost) == ("completed", None)


async def test_tokens_at_the_limit_end_the_run_after_the_calls_of_the_step(world):
    usage = RequestUsage(input_tokens=6, output_tokens=4)
    answers = [said(ToolCallPart("look", {"number": n}, f"c{n}"), usage=usage) for n in range(3)]
    run = await world.run(Given(*answers), limits=Limits(tokens=20))
    assert (run.status, run.steps, world.ran) == ("stopped", 2, [0, 1])


async def test_a_tool_that_is_unknown_is_answered_again_and_again(world):
    turns = [ToolCall("none", {}, f"c{n}") for n in range(5)]
    run = await world.run(scripted_model(*turns), limits=Limits(steps=4))
    assert (run.status, run.steps) == ("stopped", 4)


async def test_nothing_of_an_exception_is_in_events_or_the_stored_run(world):
    @tool(kind="read")
    async def broken() -> None:
        raise RuntimeError("secret")

    prepared = prepare_call(world.gate, prompt="go", caller=ALICE, run_id="r", tools=[broken])
    client = LLMClient(scripted_model(ToolCall("broken", {}, "a"), "ok"))
    seen = [event async for event in client.stream(prepared, create_run_hooks(world.gate))]
    [finished] = [event for event in seen if isinstance(event, CallFinished)]
    assert "secret" not in finished.outcome.text
    assert "secret" not in "".join(map(repr, seen))
    assert "secret" not in (await world.store.run("r")).state


async def test_instructions_reach_the_model_whatever_stands_at_the_end_of_the_history(world):
    seen = []

    async def model(messages, info):
        seen.append(messages[-1].instructions)
        yield "ok"

    async for _ in ask(Question(FunctionModel(stream_function=model), [USER], (), "be kind", {})):
        pass
    assert seen == ["be kind"]
