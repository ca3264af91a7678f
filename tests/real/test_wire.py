"""The real clients of OpenAI and Anthropic, over HTTP, against a server that speaks and refuses as theirs do."""

import asyncio

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from callgate import AbortController, Approve, Caller, Gate, ToolRegistry, tool
from callgate.agent import LLMClient, TextDelta, create_run_hooks, prepare_call
from callgate.policy import RulePolicy
from tests.real.provider import Provider, Turn

ALICE = Caller("alice")
RULES = 'default = "allow"\n[[rule]]\nid = "w"\ndecision = "ask"\nkinds = ["write"]\n'


@pytest.fixture(params=["chat", "responses", "anthropic"])
async def wire(request):
    with Provider([]) as provider:
        if request.param == "anthropic":
            client = AsyncAnthropic(api_key="k", base_url=provider.url, max_retries=2)
            model = AnthropicModel("claude-of-these-tests", provider=AnthropicProvider(anthropic_client=client))
        else:
            client = AsyncOpenAI(api_key="k", base_url=f"{provider.url}/v1", max_retries=2)
            kind = OpenAIChatModel if request.param == "chat" else OpenAIResponsesModel
            model = kind("gpt-5", provider=OpenAIProvider(openai_client=client))
        yield World(provider, model)
        await client.close()


class World:
    def __init__(self, provider, model):
        self.provider, self.model, self.ran = provider, model, []

        @tool(kind="read")
        async def look(number: int = 0) -> int:
            self.ran.append(("look", number))
            return number

        @tool(kind="write")
        async def pay(amount: int) -> str:
            self.ran.append(("pay", amount))
            return f"paid {amount}"

        self.gate = Gate(ToolRegistry([look, pay]), policy=RulePolicy.parse(RULES))

    def prepared(self, **more):
        return prepare_call(self.gate, prompt="go", caller=ALICE, **more)

    async def run(self, *script):
        self.provider.script[:] = script
        run = await LLMClient(self.model).run(self.prepared(), create_run_hooks(self.gate))
        assert self.provider.problems == []
        return run


async def test_text_is_streamed_and_parallel_calls_are_answered_in_order(wire):
    wire.provider.script[:] = [
        Turn("I look twice.", (("a", "look", '{"number": 1}'), ("b", "look", '{"number": 2}'))),
        Turn("All is well."),
    ]
    stream = LLMClient(wire.model).stream(wire.prepared(), create_run_hooks(wire.gate))
    seen = [event async for event in stream]
    assert "".join(event.text for event in seen if isinstance(event, TextDelta)) == "I look twice.All is well."
    assert sum(isinstance(event, TextDelta) for event in seen) > 2
    assert seen[-1].run.output == "All is well."
    assert (seen[-1].run.input_tokens, seen[-1].run.output_tokens) == (20, 10)
    assert wire.provider.problems == []
    assert sorted(wire.ran) == [("look", 1), ("look", 2)]


@pytest.mark.parametrize("arguments", ['{"number": 1', "[1]", '{"number": 1}}', "null", '"x"', '{"number": 1, "number": 2}'])
async def test_broken_arguments_are_answered_and_the_provider_takes_the_history(wire, arguments):
    run = await wire.run(Turn("", (("a", "look", arguments),)), Turn("I see."))
    assert (run.status, run.output) == ("completed", "I see.")
    assert wire.ran in ([], [("look", 0)]), "null is no arguments, everything else is refused"


async def test_ids_that_come_again_are_repaired_before_the_provider_sees_them(wire):
    twice = Turn("", (("a", "look", '{"number": 1}'), ("a", "look", '{"number": 2}')))
    run = await wire.run(twice, Turn("", (("a", "look", '{"number": 3}'),)), Turn("ok"))
    assert run.status == "completed"
    assert sorted(wire.ran) == [("look", 1), ("look", 2), ("look", 3)]


async def test_a_call_in_an_answer_that_was_cut_off_does_not_run(wire):
    run = await wire.run(Turn("", (("a", "look", '{"number": 1}'), ("b", "look", '{"numb')), cut=True), Turn("ok"))
    assert run.status == "completed"
    assert wire.ran == [("look", 1)]


@pytest.mark.parametrize("status", [429, 500])
async def test_a_429_or_500_is_tried_again_by_the_providers_own_client(wire, status):
    run = await wire.run(status, status, Turn("here I am"))
    assert (run.status, run.output, len(wire.provider.requests)) == ("completed", "here I am", 3)


async def test_a_provider_that_goes_on_failing_fails_the_run_and_a_resume_asks_again(wire):
    run = await wire.run(Turn("", (("a", "look", "{}"),)), 500, 500, 500)
    assert run.status == "failed"
    wire.provider.script[:] = [Turn("back again")]
    run = await LLMClient(wire.model).resume(run.run_id, create_run_hooks(wire.gate))
    assert (run.status, run.output) == ("completed", "back again")
    assert wire.ran == [("look", 0)]
    assert wire.provider.problems == []


@pytest.mark.parametrize("broken", [False, True])
async def test_an_answer_that_breaks_off_anywhere_runs_nothing_that_was_not_said_whole(wire, broken):
    whole = '{"number": 100}'
    for events in (1, 4, 8) if broken else range(16):
        wire.ran.clear()
        turn = Turn("I look.", (("a", "look", whole), ("b", "look", whole)), events=events, broken=broken)
        wire.provider.script[:] = [turn] * (3 if broken else 1)  # the client may try again
        run = await LLMClient(wire.model).run(wire.prepared(), create_run_hooks(wire.gate))
        assert wire.provider.problems == []
        assert {number for _, number in wire.ran} <= {100}, (events, wire.ran)
        assert run.status in {"failed", "completed"}
        if run.status == "failed":
            wire.provider.script[:] = [Turn("back again")]
            run = await LLMClient(wire.model).resume(run.run_id, create_run_hooks(wire.gate))
            assert (run.status, run.output) == ("completed", "back again")


async def test_halves_of_characters_are_put_together_before_the_provider_gets_them_back(wire):
    run = await wire.run(Turn("a smile: \ud83d\ude00 and a half: \ud83d", (("a", "look", '{"number": 1}'),)), Turn("ok"))
    assert (run.status, run.output) == ("completed", "ok")


async def test_a_prompt_that_is_no_text_of_utf_8_is_sent_as_far_as_it_is_one(wire):
    wire.provider.script[:] = [Turn("ok")]
    prepared = prepare_call(wire.gate, prompt="a file: \udcff", instructions="be \udcff", caller=ALICE)
    assert (await LLMClient(wire.model).run(prepared, create_run_hooks(wire.gate))).output == "ok"


async def test_a_history_with_calls_that_nobody_answered_is_taken_by_the_provider(wire):
    history = [
        ModelRequest(parts=[UserPromptPart(content="look")]),
        ModelResponse(parts=[ToolCallPart("look", {}, "a"), ToolCallPart("look", {}, "b")]),
        ModelRequest(parts=[ToolReturnPart("look", "1", "b"), UserPromptPart(content="and?")]),
        ModelResponse(parts=[ToolCallPart("look", {}, "c")]),
        ModelResponse(parts=[ToolCallPart("look", {"number": 1}, "a"), ToolCallPart("look", {"number": 2}, "a")]),
    ]
    wire.provider.script[:] = [Turn("ok")]
    prepared = prepare_call(wire.gate, messages=history, prompt="go on", caller=ALICE)
    run = await LLMClient(wire.model).run(prepared, create_run_hooks(wire.gate))
    assert (run.status, wire.provider.problems) == ("completed", [])
    assert sorted(wire.ran) == [("look", 1), ("look", 2)]


async def test_a_pause_in_the_middle_of_parallel_calls_leaves_a_history_that_the_provider_takes(wire):
    calls = (("a", "look", '{"number": 1}'), ("b", "pay", '{"amount": 5}'), ("c", "look", '{"number": 2}'))
    run = await wire.run(Turn("", calls), Turn("paid"))
    assert run.status == "paused"
    decisions = {run.pending[0].approval_id: Approve(by="bob")}
    run = await LLMClient(wire.model).resume(run.run_id, create_run_hooks(wire.gate), decisions=decisions, message="be brief")
    assert (run.status, run.output) == ("completed", "paid")
    assert wire.provider.problems == []


async def test_after_an_abort_the_history_can_be_gone_on_with(wire):
    begun, controller = asyncio.Event(), AbortController()

    @tool(kind="read")
    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    wire.provider.script[:] = [Turn("", (("a", "hang", "{}"), ("b", "look", "{}")))]
    client, prepared = LLMClient(wire.model), wire.prepared(tools=[hang], signal=controller.signal)
    going = asyncio.ensure_future(client.run(prepared, create_run_hooks(wire.gate)))
    await begun.wait()
    controller.abort(ZeroDivisionError("enough"))
    with pytest.raises(ZeroDivisionError):
        await going
    from callgate.agent import RunState  # noqa: PLC0415
    from callgate.agent.model_layer import load_messages  # noqa: PLC0415

    history = load_messages(RunState.load((await wire.gate.store.run(prepared.run_id)).state).messages)
    again = prepare_call(wire.gate, messages=history, prompt="and now?", caller=ALICE)
    wire.provider.script[:] = [Turn("fine")]
    run = await client.run(again, create_run_hooks(wire.gate))
    assert (run.status, run.output) == ("completed", "fine")
    assert wire.provider.problems == []
