"""Nothing that a model, a tool or a host does makes a call cost without bound, last for ever, or reach another call."""

import asyncio
import gc
import threading
import time

import pytest

from callgate import (
    AbortController,
    CallContext,
    DuplicateToolError,
    ExecutionOptions,
    RegistrySealedError,
    Tool,
    ToolContext,
    ToolError,
    ToolInvocationRequest,
    ToolRegistry,
    UsageError,
    tool,
)
from callgate.registry import bodies

WAIT_S = 20


@tool
def many(xs: list[int]) -> int:
    return len(xs)


@tool
async def ping() -> str:
    return "pong"


async def test_b5_as_many_repairs_as_a_few_rounds_make_and_a_receipt_that_stays_small():
    registry = ToolRegistry([many])
    mended = await registry.ainvoke("many", {"xs": ["1"] * 150})
    assert mended.value == 150
    assert len(mended.invocation.repairs) == 101
    assert mended.invocation.repairs[-1] == "and 50 more"
    refused = await registry.answer("many", {"xs": ["1"] * 20_000})
    assert refused.invocation.error_code == "invalid_input"
    assert len(refused.invocation.repairs) <= 101


async def until(fulfilled) -> None:
    async with asyncio.timeout(WAIT_S):
        while not fulfilled():
            await asyncio.sleep(0.005)


async def test_a_generator_that_never_ends_is_closed_when_its_call_was_answered():
    closed = threading.Event()

    @tool(timeout_s=0.05)
    def endless():
        try:
            while True:
                yield 1
                time.sleep(0.001)
        finally:
            closed.set()

    registry = ToolRegistry([endless])
    assert (await registry.answer("endless")).invocation.error_status == 504
    await until(closed.is_set)
    await until(lambda: not registry.abandoned())


@pytest.mark.parametrize("is_async", [True, False])
async def test_the_items_of_a_generator_are_bounded_together(is_async, monkeypatch):
    monkeypatch.setattr(bodies, "MAX_COLLECTED_BYTES", 100_000)
    closed = []

    @tool
    def flood():
        try:
            while True:
                yield "x" * 1_000
        finally:
            closed.append(True)

    @tool(name="flood")
    async def flood_async():
        try:
            while True:
                yield "x" * 1_000
        finally:
            closed.append(True)

    reply = await ToolRegistry([flood_async if is_async else flood]).answer("flood")
    assert reply.invocation.error_status == 413
    assert closed == [True]


async def test_a_listener_of_a_tool_that_raises_what_is_no_exception_does_not_hold_the_limit():
    @tool(timeout_s=0.05)
    async def careless(context: ToolContext) -> None:
        def fail() -> None:
            raise asyncio.CancelledError

        context.signal.add_listener(fail)
        await asyncio.sleep(WAIT_S)

    async with asyncio.timeout(WAIT_S / 2):
        assert (await ToolRegistry([careless]).answer("careless")).invocation.error_status == 504


@pytest.mark.parametrize(
    "options",
    [
        {"timeout_s": "5"},
        {"timeout_s": 0},
        {"timeout_s": -1},
        {"timeout_s": float("nan")},
        {"timeout_s": float("inf")},
        {"timeout_s": True},
        {"deadline": "x"},
        {"deadline": float("nan")},
        {"max_output_bytes": 0},
        {"max_output_bytes": "9"},
        {"max_output_bytes": 1.5},
        {"ignored_arguments": "name"},
    ],
)
def test_options_that_cannot_be_meant_are_refused_where_they_are_made(options):
    with pytest.raises(UsageError, match=next(iter(options))):
        ExecutionOptions(**options)


@pytest.mark.parametrize(
    "settings",
    [
        {"default_timeout_s": -1},
        {"default_timeout_s": "5"},
        {"default_max_output_bytes": "x"},
        {"max_abandoned": -1},
        {"kept_events": -1},
        {"authorize": True},
    ],
)
def test_settings_that_cannot_be_meant_are_refused_at_once(settings):
    with pytest.raises(UsageError, match=next(iter(settings))):
        ToolRegistry([ping], **settings)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("call_context", {"run_id": "r"}),
        ("signal", "x"),
        ("options", {"timeout_s": 1}),
        ("diagnostics", 5),
        ("thread_id", 7),
        ("tools", "ping"),
        ("tools", 5),
    ],
)
async def test_what_a_call_brings_is_checked_before_anything_runs(key, value):
    ran = []

    @tool
    async def write() -> None:
        ran.append(True)

    registry = ToolRegistry([write])
    with pytest.raises(UsageError, match=key):
        await registry.answer("write", {}, **{key: value})
    with pytest.raises(UsageError, match=key):
        registry.invoke(ToolInvocationRequest(tool_id="write", **{key: value}))
    assert ran == []
    assert (await registry.answer("write")).is_error is False
    assert [event.status for event in registry.events if event.status == "succeeded"] == ["succeeded"]


@pytest.mark.parametrize("reason", [5, ValueError, StopIteration()])
def test_a_reason_that_no_call_could_raise_is_refused_where_it_is_given(reason):
    controller = AbortController()
    with pytest.raises(UsageError):
        controller.abort(reason)
    assert not controller.signal.aborted


async def test_an_unmarked_function_that_calls_bring_along_has_one_bound():
    let_go = threading.Event()

    def hang() -> None:
        let_go.wait(WAIT_S)

    registry = ToolRegistry([ping], default_timeout_s=0.05, max_abandoned=2)
    ends = [await registry.answer("hang", tools=[hang, hang]) for _ in range(4)]
    assert [end.invocation.error_status for end in ends] == [504, 504, 503, 503]
    assert registry.abandoned() == {"hang": 2}
    let_go.set()
    await until(lambda: not registry.abandoned())


def test_names_can_be_looked_up_while_another_thread_registers():
    registry, stop, errors = ToolRegistry(), threading.Event(), []

    def look() -> None:
        try:
            while not stop.is_set():
                assert isinstance(registry.list(), list)
                with pytest.raises(ToolError):
                    registry.invoke("unknown name")
        except BaseException as error:
            errors.append(error)

    looking = threading.Thread(target=look)
    looking.start()
    for number in range(300):
        registry.register(Tool(f"tool_{number}", print, input_schema={"type": "object"}))
    stop.set()
    looking.join(WAIT_S)
    assert errors == []
    assert registry.has("tool_299")


def test_two_threads_may_each_register_a_tool_that_keeps_its_output():
    for _ in range(20):
        registry, both = ToolRegistry(), threading.Barrier(2)

        def register(name: str, registry: ToolRegistry = registry, both: threading.Barrier = both) -> None:
            each = Tool(name, print, input_schema={"type": "object"}, on_oversize="spill")
            both.wait(WAIT_S)
            registry.register(each)

        threads = [threading.Thread(target=register, args=(name,)) for name in ("a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        assert sorted(registry.ids()) == ["a", "b", "read_output"]


def test_a_sealed_registry_takes_nothing_that_was_under_way():
    registry = ToolRegistry([ping])
    with pytest.raises(RegistrySealedError):
        registry.register(many)
    with pytest.raises(DuplicateToolError):
        ToolRegistry([ping, Tool("ping", print, input_schema={"type": "object"})])


async def test_one_error_that_is_raised_for_ever_does_not_grow_and_names_each_call():
    quota = ToolError("quota is used up")

    @tool
    async def limited() -> None:
        raise quota

    registry = ToolRegistry([limited])
    ids = set()
    for _ in range(50):
        with pytest.raises(ToolError) as caught:
            await registry.ainvoke("limited")
        ids.add(caught.value.invocation_id)
    depth, trace = 0, quota.__traceback__
    while trace is not None:
        depth, trace = depth + 1, trace.tb_next
    assert len(ids) == 50
    assert depth < 20


async def test_a_cancelled_caller_of_a_thread_that_cannot_hear_is_not_kept_waiting():
    let_go = threading.Event()

    @tool(timeout_s=None)
    def deaf() -> None:
        let_go.wait(WAIT_S)

    registry = ToolRegistry([deaf])
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await registry.ainvoke("deaf")
    assert time.monotonic() - began < 4
    assert registry.abandoned() == {"deaf": 1}
    let_go.set()
    await until(lambda: not registry.abandoned())


async def test_callbacks_of_the_tools_own_task_run():
    heard: list[int] = []

    @tool
    async def attach(number: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.add_done_callback(lambda _: heard.append(number))

    registry = ToolRegistry([attach])
    for number in range(3):
        await registry.execute("attach", {"number": number})
    await until(lambda: len(heard) == 3)
    assert heard == [0, 1, 2]


@pytest.mark.parametrize("blocking", [True, False])
def test_a_tool_that_calls_itself_is_refused_where_it_would_wait_for_its_own_turn(blocking):
    registry = ToolRegistry()

    @tool(max_concurrency=3, timeout_s=None)
    def descend(depth: int) -> int:
        inner = registry.invoke("descend", {"depth": depth - 1}) if depth else None
        return 0 if inner is None else 1 + inner.value

    @tool(name="descend", max_concurrency=3, timeout_s=None)
    async def descend_async(depth: int) -> int:
        return 1 + await registry.execute("descend", {"depth": depth - 1}) if depth else 0

    registry.register(descend if blocking else descend_async)
    assert registry.invoke("descend", {"depth": 2}).value == 2
    with pytest.raises(ToolError) as caught:
        registry.invoke("descend", {"depth": 3})
    assert caught.value.status == 503
    assert registry.invoke("descend", {"depth": 2}).value == 2


def test_bodies_whose_loop_is_gone_are_given_back():
    @tool(timeout_s=0.02)
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(WAIT_S)
            except asyncio.CancelledError:
                continue

    registry = ToolRegistry([stubborn], max_abandoned=2)

    async def call() -> int | None:
        return (await registry.answer("stubborn")).invocation.error_status

    for _ in range(4):
        loop = asyncio.new_event_loop()
        assert loop.run_until_complete(call()) == 504
        loop.close()
        del loop
        gc.collect()
    assert registry.abandoned() == {}
    assert registry.running() == ()


async def test_nothing_of_a_call_but_its_receipt_is_in_a_repr():
    secret = "sk-hidden"
    registry = ToolRegistry([Tool("say", lambda arguments: arguments["x"], input_schema={"type": "object"})])
    arguments = {"x": secret}
    result = await registry.ainvoke("say", arguments, user_context=secret, call_context=CallContext(run_id="r"))
    reply = await registry.answer("say", arguments)
    request = ToolInvocationRequest(tool_id="say", input=arguments, user_context=secret)
    assert secret not in f"{result!r}{reply!r}{request!r}{registry!r}"
