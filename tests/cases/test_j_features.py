"""Cases j1 to j14: what people asked for elsewhere."""

import asyncio

import pytest

from callgate import (
    AbortController,
    Background,
    Backoff,
    Caller,
    Denied,
    ExecutionOptions,
    Failed,
    Gate,
    Pending,
    Succeeded,
    ToolAnswer,
    ToolCall,
    ToolContext,
    ToolDeniedError,
    ToolError,
    ToolRegistry,
    UsageError,
    tool,
)
from callgate.agent import LLMClient, create_run_hooks, prepare_call
from callgate.policy import AllowAll, RulePolicy
from callgate.profiles import Limits
from callgate.store import MemoryStore, SQLStore
from callgate.testing import gate_for, scripted_model
from callgate.tools.dialects import render

ALICE = Caller("alice")


def policy(text):
    return RulePolicy.parse('default = "allow"\n' + text)


async def test_j1_a_tool_that_is_used_up_answers_with_a_text_and_is_not_offered_any_more():
    ran = []

    @tool(kind="read")
    async def web_fetch(n: int) -> int:
        ran.append(n)
        return n

    rules = """
    [[budget]]
    id = "web"
    per = "tool"
    tools = ["web_fetch"]
    limit = 3
    text = "no more pages; answer from what you have"
    """
    gate = gate_for(web_fetch, policy=policy(rules))
    script = [ToolCall("web_fetch", {"n": n}, f"c{n}") for n in range(4)]
    run = await LLMClient(scripted_model(*script, "done")).run(
        prepare_call(gate, prompt="go", caller=ALICE), create_run_hooks(gate)
    )
    assert ran == [0, 1, 2]
    texts = [part.content for message in run.messages for part in message.parts if part.part_kind == "tool-return"]
    assert "no more pages; answer from what you have" in texts[3]


async def test_j2_the_key_of_a_call_is_the_same_when_it_is_tried_again_and_another_for_other_arguments():
    keys = []

    @tool(kind="write", idempotent=True, retries=2)
    async def pay(amount: int, context: ToolContext) -> str:
        keys.append(context.idempotency_key)
        if len(keys) < 3:
            raise ConnectionError
        return "paid"

    gate = Gate(ToolRegistry([pay]), policy=AllowAll(), backoff=Backoff(first_s=0.001))
    await gate.call(ToolCall("pay", {"amount": 1}, "c"), caller=ALICE, run_id="r")
    assert len(set(keys)) == 1
    await gate.call(ToolCall("pay", {"amount": 2}, "d"), caller=ALICE, run_id="r")
    await gate.call(ToolCall("pay", {"amount": 2}, "d"), caller=ALICE, run_id="other")
    assert len(set(keys)) == 3


async def test_j3_the_same_call_again_and_again_is_answered_with_a_note():
    ran = []

    @tool(kind="read")
    async def look(a: int, b: int) -> int:
        ran.append(a)
        return a

    gate = gate_for(look, policy=policy('[[budget]]\nid = "loop"\nper = "same-call"\nlimit = 3\n'))
    arguments = ['{"a": 1, "b": 2}', '{"b": 2, "a": 1}', '{"a":1,"b":2}', '{"b":2,"a":1}']
    outcomes = [await gate.call(ToolCall("look", text, f"c{n}"), caller=ALICE, run_id="r") for n, text in enumerate(arguments)]
    assert [type(outcome) for outcome in outcomes] == [Succeeded] * 3 + [Denied]
    assert "use what it answered" in outcomes[3].text
    assert isinstance(await gate.call(ToolCall("look", {"a": 1, "b": 3}, "x"), caller=ALICE, run_id="r"), Succeeded)
    assert len(ran) == 4


async def test_j4_rules_by_tool_and_arguments_with_grants_that_are_listed():
    @tool(kind="write")
    async def shell(command: str) -> str:
        return command

    rules = """
    [[rule]]
    id = "rm"
    decision = "ask"
    tools = ["shell"]
    when = [{ path = "/command", op = "matches", value = "*rm *" }]
    """
    gate = gate_for(shell, policy=policy(rules))
    assert isinstance(await gate.call(ToolCall("shell", {"command": "ls"}), caller=ALICE), Succeeded)
    assert isinstance(await gate.call(ToolCall("shell", {"command": "rm -rf /"}), caller=ALICE), Pending)
    condition = {"path": "/command", "op": "starts-with", "value": "rm build/"}
    await gate.grant("shell", by="bob", caller="alice", when=[condition], max_uses=1)
    assert isinstance(await gate.call(ToolCall("shell", {"command": "rm build/x"}), caller=ALICE), Succeeded)
    assert isinstance(await gate.call(ToolCall("shell", {"command": "rm build/x"}), caller=ALICE), Pending)
    assert [grant.uses for grant in await gate.grants(active=False)] == [1]


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_j5_the_deadline_of_a_run_stops_a_tool_whose_own_limit_is_longer(kind):
    if kind == "async":

        @tool(kind="read", timeout_s=60)
        async def slow() -> None:
            await asyncio.Event().wait()
    else:

        @tool(kind="read", timeout_s=60)
        def slow(context: ToolContext) -> None:
            context.signal.wait(60)

    gate = gate_for(slow)
    run = await asyncio.wait_for(
        LLMClient(scripted_model(ToolCall("slow", {}, "a"))).run(
            prepare_call(gate, prompt="go", caller=ALICE, limits=Limits(time_s=0.3)), create_run_hooks(gate)
        ),
        20,
    )
    assert run.status == "stopped"


async def test_j6_transient_failures_are_tried_again_and_others_are_not():
    attempts = {"flaky": 0, "wrong": 0}

    @tool(kind="read", idempotent=True, retries=2)
    async def flaky() -> str:
        attempts["flaky"] += 1
        if attempts["flaky"] < 3:
            raise ConnectionError
        return "ok"

    @tool(kind="read", idempotent=True, retries=2)
    async def wrong() -> str:
        attempts["wrong"] += 1
        raise ValueError

    gate = Gate(ToolRegistry([flaky, wrong]), policy=AllowAll(), backoff=Backoff(first_s=0.001))
    ok, bad = await gate.call(ToolCall("flaky"), caller=ALICE), await gate.call(ToolCall("wrong"), caller=ALICE)
    assert [receipt.attempt for receipt in ok.attempts] == [1, 2, 3]
    assert len(bad.attempts) == 1
    assert attempts == {"flaky": 3, "wrong": 1}


async def test_j6_a_call_whose_time_is_over_is_not_tried_again_for_ever():
    @tool(kind="read", idempotent=True, retries=5)
    async def flaky() -> str:
        raise ConnectionError

    import time  # noqa: PLC0415

    gate = Gate(ToolRegistry([flaky]), policy=AllowAll(), backoff=Backoff(first_s=60, most_s=60))
    options = ExecutionOptions(deadline=time.monotonic() + 0.05)
    outcome = await asyncio.wait_for(gate.call(ToolCall("flaky"), caller=ALICE, options=options), 20)
    assert isinstance(outcome, Failed)


async def test_j7_hooks_see_change_block_and_replace_and_fail_closed():
    ran, order = [], []

    @tool(kind="read")
    async def look(n: int) -> int:
        ran.append(n)
        return n

    async def outer(seen, go_on):
        order.append(("outer", seen.tool.name, seen.call.arguments))
        return await go_on(ToolCall("look", {"n": 2}, seen.call.id))

    async def inner(seen, go_on):
        order.append(("inner", seen.tool.name, seen.call.arguments))
        outcome = await go_on(seen.call)
        outcome.text = "replaced"
        return outcome

    async def broken(seen, go_on):
        raise ZeroDivisionError("secret")

    async def late(seen, go_on):
        await go_on(seen.call)
        raise ZeroDivisionError("secret")

    async def renaming(seen, go_on):
        return await go_on(ToolCall("other", None, seen.call.id))

    async def silent(seen, go_on):
        return None

    def gate(*hooks):
        return Gate(ToolRegistry([look]), policy=AllowAll(), hooks=hooks)

    outcome = await gate(outer, inner).call(ToolCall("look", {"n": 1}), caller=ALICE)
    assert (outcome.text, ran) == ("replaced", [2])
    assert order == [("outer", "look", {"n": 1}), ("inner", "look", {"n": 2})]
    ran.clear()
    for hook in (broken, late):
        failed = await gate(hook).call(ToolCall("look", {"n": 1}), caller=ALICE)
        assert isinstance(failed, Failed)
        assert "secret" not in failed.text
    assert ran == [1], "a hook that fails before it goes on has run nothing"
    for hook in (renaming, silent):
        with pytest.raises(UsageError):
            await gate(hook).call(ToolCall("look", {"n": 1}), caller=ALICE)
    assert ran == [1]


@pytest.mark.parametrize("error", [ToolError("not today", code="closed", status=423), ToolDeniedError("look", "not today")])
@pytest.mark.parametrize("run_id", [None, "r"])
async def test_j7_a_hook_may_refuse_a_call_with_a_tools_error(error, run_id):
    async def refusing(_seen, _go_on):
        raise error

    @tool(kind="read")
    async def look() -> None:
        raise AssertionError("it does not run")

    gate = Gate(ToolRegistry([look]), policy=AllowAll(), hooks=[refusing])
    outcomes = await gate.call_many([ToolCall("look", {}, "1"), ToolCall("look", {}, "2")], caller=ALICE, run_id=run_id)
    for outcome in outcomes:
        assert isinstance(outcome, Denied if isinstance(error, ToolDeniedError) else Failed)
        assert outcome.error is error
        assert "not today" in outcome.text


async def test_p7_an_abort_gives_its_own_reason_through_hooks_as_well():
    class Left(Exception):
        pass

    async def through(seen, go_on):
        return await go_on(seen.call)

    aborts = AbortController()

    @tool(kind="read")
    async def wait() -> None:
        aborts.abort(Left())
        await asyncio.Event().wait()

    gate = Gate(ToolRegistry([wait]), policy=AllowAll(), hooks=[through, through])
    with pytest.raises(Left):
        await gate.call(ToolCall("wait"), caller=ALICE, signal=aborts.signal)


async def test_j8_j9_artifacts_never_reach_the_model_and_the_cap_is_in_one_place():
    @tool(kind="read", max_output_bytes=100, on_oversize="truncate")
    async def report() -> ToolAnswer[str]:
        return ToolAnswer("x" * 1000, text="y" * 1000, artifacts={"secret": "MARKER"})

    gate = gate_for(report)
    run = await LLMClient(scripted_model(ToolCall("report", {}, "a"), "done")).run(
        prepare_call(gate, prompt="go", caller=ALICE), create_run_hooks(gate)
    )
    [text] = [part.content for message in run.messages for part in message.parts if part.part_kind == "tool-return"]
    assert "MARKER" not in str(run.messages)
    assert len(text.encode()) <= 100
    outcome = await gate.call(ToolCall("report"), caller=ALICE)
    assert outcome.artifacts == {"secret": "MARKER"}


async def test_j10_progress_comes_before_the_result():
    @tool(kind="read")
    async def work(context: ToolContext) -> str:
        for number in range(3):
            context.progress(number)
        return "ok"

    gate = gate_for(work)
    stream = LLMClient(scripted_model(ToolCall("work", {}, "a"), "done")).stream(
        prepare_call(gate, prompt="go", caller=ALICE), create_run_hooks(gate)
    )
    kinds = [type(event).__name__ async for event in stream]
    assert kinds[kinds.index("CallProgress") :][:4] == ["CallProgress"] * 3 + ["CallFinished"]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_j11_a_slow_tool_answers_at_once_and_its_result_is_read_later_also_after_a_restart(kind, tmp_path):
    store = MemoryStore() if kind == "memory" else SQLStore(f"sqlite:///{tmp_path / 'b.db'}")
    go, ran = asyncio.Event(), []

    @tool(kind="read")
    async def render(pages: int) -> str:
        """Render a report."""
        ran.append(pages)
        await go.wait()
        return f"{pages} pages"

    def gate():
        background = Background()
        made = background.bind(Gate(ToolRegistry([background.of(render), background.reader]), policy=AllowAll(), store=store))
        return background, made

    background, first = gate()
    place = {"caller": ALICE, "run_id": "r", "thread_id": "t"}
    started = await first.call(ToolCall("render", {"pages": 7}, "a"), **place)
    handle = started.value["handle"]
    early = await first.call(ToolCall("background_result", {"handle": handle}, "b"), **place)
    assert "still at work" in early.text
    again = await first.call(ToolCall("render", {"pages": 7}, "a"), **place)
    assert again.replayed
    go.set()
    await background.aclose()
    _, second = gate()
    late = await second.call(ToolCall("background_result", {"handle": handle}, "c"), **place)
    assert late.value == "7 pages"
    assert ran == [7]
    elsewhere = await second.call(ToolCall("background_result", {"handle": handle}, "d"), caller=ALICE, thread_id="other")
    assert elsewhere.error.status == 404
    wrong = await second.call(ToolCall("render", {"pages": "x"}, "e"), **place)
    assert isinstance(wrong, Failed), "arguments are validated before anything starts"
    await store.aclose()


async def test_j12_two_callers_have_different_lists():
    @tool(kind="read")
    async def look() -> None: ...

    @tool(kind="admin")
    async def wipe() -> None: ...

    rules = """
    [[rule]]
    id = "admins"
    decision = "allow"
    kinds = ["admin"]
    roles = ["boss"]
    [[rule]]
    id = "reads"
    decision = "allow"
    kinds = ["read"]
    """
    gate = gate_for(look, wipe, policy=RulePolicy.parse(rules))
    assert [each.name for each in await gate.resolve(caller=ALICE)] == ["look"]
    assert [each.name for each in await gate.resolve(caller=Caller("bob", ("boss",)))] == ["look", "wipe"]
    assert isinstance(await gate.call(ToolCall("wipe"), caller=ALICE), Denied)


def test_j13_a_raw_schema_is_sent_as_it_is():
    from callgate import Tool  # noqa: PLC0415

    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "x-mine": [1]}},
        "required": ["n"],
        "additionalProperties": False,
    }
    made = Tool("raw", lambda arguments: arguments, input_schema=schema, kind="read")
    assert made.input_schema == schema
    assert render([made], "openai").tools[0]["function"]["parameters"] == schema


def test_j14_every_option_of_a_tool_takes_effect_somewhere():
    from pathlib import Path  # noqa: PLC0415

    from callgate.tools.options import ToolOptions  # noqa: PLC0415

    source = Path(__file__).parents[2] / "src" / "callgate"
    code = "".join(file.read_text() for file in source.rglob("*.py") if file.name != "options.py")
    told_only = {"debug_steps"}  # the host's own words, which a registry never interprets (contract row T1)
    unused = [name for name in ToolOptions.__dataclass_fields__ if f"options.{name}" not in code and f".{name}" not in code]
    assert set(unused) == told_only
