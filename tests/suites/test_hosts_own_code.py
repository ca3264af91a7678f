"""What the host hands in may fail like any code: a call ends as it should all the same, with one receipt."""

import asyncio
import gc
import os
import threading
import weakref
from typing import Any

import pytest
import structlog

from callgate import AbortController, AbortedError, Tool, ToolContext, ToolRegistry, tool
from callgate.diagnostics import DiagnosticContext, LoggingDestination

WAIT_S = 10


@tool
async def ping() -> str:
    return "pong"


@tool
async def wait(context: ToolContext) -> str:
    await asyncio.sleep(WAIT_S)
    return "never"


class BrokenStore:
    def put(self, text: str, thread_id: str | None) -> str | None:
        raise OSError("disk full /secret")

    def read(self, handle: str, offset: int, limit: int, thread_id: str | None) -> None:
        raise OSError("disk full /secret")


async def test_a_store_of_outputs_that_fails_leaves_the_output_cut():
    large = Tool("large", lambda: "x" * 5_000, max_output_bytes=1_000, on_oversize="spill")
    registry = ToolRegistry([large], spill=BrokenStore())
    reply = await registry.answer("large")
    assert (reply.is_error, reply.invocation.notes) == (False, ("truncated",))
    assert "secret" not in reply.text
    refused = await registry.answer("read_output", {"handle": "x"})
    assert refused.is_error
    assert "secret" not in refused.text


class Explosive:
    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        raise RuntimeError("no schema today")


async def test_a_return_annotation_that_fails_does_not_fail_the_call():
    @tool
    async def odd() -> Explosive:
        return 1  # type: ignore[return-value]

    assert (await ToolRegistry([odd]).ainvoke("odd")).value == 1


@pytest.mark.parametrize("error", [asyncio.CancelledError, GeneratorExit, ValueError])
@pytest.mark.parametrize("is_async", [True, False])
async def test_whatever_an_authorization_raises_denies(error: type[BaseException], is_async: bool):
    def deny(call: object) -> None:
        raise error

    async def deny_later(call: object) -> None:
        await asyncio.sleep(0)
        raise error

    registry = ToolRegistry([ping], authorize=deny_later if is_async else deny)
    assert (await registry.answer("ping")).invocation.status == "denied"
    assert [event.status for event in registry.events] == ["denied"]


@pytest.mark.parametrize("is_async", [True, False])
def test_an_authorization_that_ends_the_program_ends_it(is_async: bool):
    def leave(call: object) -> None:
        raise SystemExit(3)

    async def leave_later(call: object) -> None:
        raise SystemExit(3)

    registry = ToolRegistry([ping], authorize=leave_later if is_async else leave)
    with pytest.raises(SystemExit):
        registry.invoke("ping")
    assert [event.status for event in registry.events] == ["cancelled"]


async def test_a_logger_of_structlog_that_fails_does_not_fail_the_call():
    class Broken(structlog.stdlib.BoundLogger):
        def bind(self, **new_values: Any) -> Any:
            raise ValueError("not configured")

    scope = DiagnosticContext.of(LoggingDestination(Broken(None, [], {})))
    registry = ToolRegistry([ping], diagnostics=scope)
    assert (await registry.ainvoke("ping")).value == "pong"


async def test_a_tool_hears_why_it_is_to_stop():
    heard: list[BaseException | None] = []

    @tool
    async def listen(context: ToolContext) -> None:
        try:
            await asyncio.sleep(WAIT_S)
        finally:
            heard.append(context.signal.reason)

    registry = ToolRegistry([listen])
    task = asyncio.create_task(registry.execute("listen"))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    running = asyncio.create_task(registry.execute("listen"))
    await asyncio.sleep(0.01)
    registry.close()
    with pytest.raises(AbortedError, match="registry was closed"):
        await running
    assert [str(reason) for reason in heard] == [
        "the calling task was cancelled",
        "the call was aborted because its registry was closed",
    ]


async def test_closing_wakes_the_calls_that_wait_for_their_turn():
    let_go = threading.Event()

    @tool(max_concurrency=1)
    def one_at_a_time() -> None:
        let_go.wait(WAIT_S)

    registry = ToolRegistry([one_at_a_time])
    calls = [asyncio.create_task(registry.answer("one_at_a_time")) for _ in range(3)]
    async with asyncio.timeout(WAIT_S):
        while not registry.running():
            await asyncio.sleep(0.001)
    registry.close()
    let_go.set()
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(end) for end in ends].count(AbortedError) <= 1
    refused = [end for end in ends if not isinstance(end, BaseException)]
    assert {end.invocation.error_status for end in refused if end.is_error} == {503}
    assert (await registry.answer("one_at_a_time")).invocation.error_code == "tool_unavailable"


def test_a_tool_on_the_portal_may_call_another_and_block():
    registry = ToolRegistry()

    @tool
    async def outer(depth: int) -> int:
        await asyncio.sleep(0)
        return 0 if depth == 0 else 1 + registry.invoke("outer", {"depth": depth - 1}).value

    registry.register(outer)
    assert registry.invoke("outer", {"depth": 3}).value == 3


def test_a_forked_process_can_call_tools():
    @tool
    def work() -> str:
        return "done"

    registry = ToolRegistry([work, ping])
    assert (registry.invoke("work").value, registry.invoke("ping").value) == ("done", "pong")
    child = os.fork()
    if child == 0:
        answered = (registry.invoke("work").value, registry.invoke("ping").value) == ("done", "pong")
        os._exit(0 if answered else 1)
    assert os.waitpid(child, 0)[1] == 0


async def test_tools_that_calls_bring_along_are_not_kept_for_ever():
    registry = ToolRegistry([ping])
    brought = []
    for number in range(600):
        guest = Tool(f"guest_{number}", lambda: "x", run_in="inline")
        brought.append(weakref.ref(guest))
        assert (await registry.ainvoke(guest.name, tools=[guest])).value == "x"
        del guest
    gc.collect()
    assert sum(each() is not None for each in brought) <= 300


def test_one_listener_may_be_added_twice_and_removed_once():
    heard: list[int] = []
    controller = AbortController()

    def listen() -> None:
        heard.append(1)

    remove = controller.signal.add_listener(listen)
    controller.signal.add_listener(listen)
    remove()
    controller.abort()
    assert heard == [1]
