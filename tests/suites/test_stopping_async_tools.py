"""One suite over every way in which an async tool can behave when it is to stop. Cases c2 to c18, docs/adr/0003.

Each row is a body and what its caller must see: under a limit of 50 ms when it is to run into it, without one otherwise.
After each the caller's task must be sound: not cancelled, no cancel request left, and no timer of the tool may reach it.
"""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable

import anyio
import pytest

from callgate import (
    AbortController,
    ExecutionOptions,
    ToolContext,
    ToolError,
    ToolFailedError,
    ToolRegistry,
    ToolTimeoutError,
    tool,
)
from tests.contract.kit import PATIENCE_S

Body = Callable[[], Awaitable[object]]


async def returns_at_once() -> str:
    return "ok"


async def waits_a_moment() -> str:
    await asyncio.sleep(0.001)
    return "ok"


async def yields_often() -> str:
    for _ in range(50):
        await asyncio.sleep(0)
    return "ok"


async def hangs() -> str:
    await asyncio.sleep(60)
    return "never"


async def swallows_once_and_returns() -> str:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        return "late"
    return "never"


async def cleans_up_under_a_timeout_of_its_own() -> str:
    try:
        await asyncio.sleep(60)
    finally:
        async with asyncio.timeout(0.1):
            await asyncio.sleep(60)
    return "never"


async def cleans_up_in_a_shielded_anyio_scope() -> str:
    try:
        await anyio.sleep(60)
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(0.1):
            await anyio.sleep(60)
    return "never"


async def waits_in_an_anyio_scope_longer_than_its_limit() -> str:
    with anyio.fail_after(0.2):
        try:
            await anyio.sleep(60)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.1)
    return "never"


async def moves_on_by_an_anyio_scope() -> str:
    with anyio.move_on_after(0.005):
        await anyio.sleep(60)
    return "ok"


async def fails_by_an_anyio_scope() -> str:
    with anyio.fail_after(0.005):
        await anyio.sleep(60)
    return "never"


async def moves_on_by_asyncio_timeout() -> str:
    try:
        async with asyncio.timeout(0.005):
            await asyncio.sleep(60)
    except TimeoutError:
        return "ok"
    return "never"


async def passes_an_expired_asyncio_timeout() -> str:
    try:
        async with asyncio.timeout(0):
            await asyncio.sleep(60)
    except TimeoutError:
        return "ok"
    return "never"


async def leaks_its_own_timeout_error() -> str:
    async with asyncio.timeout(0.005):
        await asyncio.sleep(60)
    return "never"


async def runs_a_task_group() -> str:
    async with asyncio.TaskGroup() as group:
        first = group.create_task(asyncio.sleep(0.001, "o"))
        second = group.create_task(asyncio.sleep(0.001, "k"))
    return first.result() + second.result()


async def hangs_in_a_task_group() -> str:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(60))
        group.create_task(asyncio.sleep(60))
    return "never"


async def fails_in_a_task_group() -> str:
    async def fail() -> None:
        raise ValueError("inside")

    async with asyncio.TaskGroup() as group:
        group.create_task(fail())
        group.create_task(asyncio.sleep(60))
    return "never"


async def runs_an_anyio_task_group() -> str:
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep, 0.001)
        group.start_soon(anyio.sleep, 0.001)
    return "ok"


async def cancels_its_anyio_task_group() -> str:
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep, 60)
        group.cancel_scope.cancel()
    return "ok"


async def gathers() -> str:
    return "".join(await asyncio.gather(asyncio.sleep(0.001, "o"), asyncio.sleep(0, "k")))


async def raises_cancelled_error() -> str:
    raise asyncio.CancelledError


async def raises_cancelled_error_later() -> str:
    await asyncio.sleep(0)
    raise asyncio.CancelledError


async def cancels_itself() -> str:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0.001)
    return "never"


async def cancels_itself_later() -> str:
    await asyncio.sleep(0.001)
    return await cancels_itself()


async def cancels_itself_and_recovers() -> str:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        task.uncancel()
    return "ok"


async def awaits_a_cancelled_task() -> str:
    child = asyncio.create_task(asyncio.sleep(60))
    await asyncio.sleep(0)
    child.cancel()
    await child
    return "never"


async def raises_timeout_error() -> str:
    raise TimeoutError


async def raises_stop_iteration() -> str:
    raise StopIteration("x")


async def raises_generator_exit() -> str:
    raise GeneratorExit


async def shields_a_child() -> str:
    return await asyncio.shield(asyncio.sleep(0.001, "ok"))


ROWS: list[tuple[Body, str | type[ToolError]]] = [
    (returns_at_once, "ok"),
    (waits_a_moment, "ok"),
    (yields_often, "ok"),
    (hangs, ToolTimeoutError),
    (swallows_once_and_returns, ToolTimeoutError),
    (cleans_up_under_a_timeout_of_its_own, ToolTimeoutError),
    (cleans_up_in_a_shielded_anyio_scope, ToolTimeoutError),
    (waits_in_an_anyio_scope_longer_than_its_limit, ToolTimeoutError),
    (moves_on_by_an_anyio_scope, "ok"),
    (fails_by_an_anyio_scope, ToolFailedError),
    (moves_on_by_asyncio_timeout, "ok"),
    (passes_an_expired_asyncio_timeout, "ok"),
    (leaks_its_own_timeout_error, ToolFailedError),
    (runs_a_task_group, "ok"),
    (hangs_in_a_task_group, ToolTimeoutError),
    (fails_in_a_task_group, ToolFailedError),
    (runs_an_anyio_task_group, "ok"),
    (cancels_its_anyio_task_group, "ok"),
    (gathers, "ok"),
    (raises_cancelled_error, ToolFailedError),
    (raises_cancelled_error_later, ToolFailedError),
    (cancels_itself, ToolFailedError),
    (cancels_itself_later, ToolFailedError),
    (cancels_itself_and_recovers, "ok"),
    (awaits_a_cancelled_task, ToolFailedError),
    (raises_timeout_error, ToolFailedError),
    (raises_stop_iteration, ToolFailedError),
    (raises_generator_exit, ToolFailedError),
    (shields_a_child, "ok"),
]


@pytest.mark.parametrize(("body", "expected"), ROWS, ids=[body.__name__ for body, _ in ROWS])
async def test_every_body_ends_as_it_should_and_leaves_its_caller_alone(body: Body, expected: str | type[ToolError]) -> None:
    registry = ToolRegistry([tool(timeout_s=0.05 if expected is ToolTimeoutError else None)(body)])
    for _ in range(3):  # the tasks that lend their names are used again
        if isinstance(expected, str):
            assert (await registry.ainvoke(body.__name__)).value == expected
        else:
            with pytest.raises(expected):
                await registry.ainvoke(body.__name__)
    await asyncio.sleep(0.3)  # longer than every timer that a body above sets for its clean-up
    caller = asyncio.current_task()
    assert caller is not None
    assert caller.cancelling() == 0
    assert len(registry.events) == 3
    assert registry.abandoned() == {}


@pytest.mark.parametrize(("body", "expected"), ROWS, ids=[body.__name__ for body, _ in ROWS])
def test_every_body_ends_alike_without_a_loop(body: Body, expected: str | type[ToolError]) -> None:
    registry = ToolRegistry([tool(timeout_s=0.05 if expected is ToolTimeoutError else None)(body)])
    if isinstance(expected, str):
        assert registry.invoke(body.__name__).value == expected
    else:
        with pytest.raises(expected):
            registry.invoke(body.__name__)


async def test_a_stubborn_tool_is_answered_for_on_time_counted_and_recorded_as_late() -> None:
    let_go = asyncio.Event()

    @tool(timeout_s=0.05)
    async def stubborn() -> str:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    registry = ToolRegistry([stubborn])
    with pytest.raises(ToolTimeoutError) as caught:
        async with asyncio.timeout(PATIENCE_S):
            await registry.ainvoke("stubborn")
    assert caught.value.source == "tool"
    assert registry.abandoned() == {"stubborn": 1}
    assert registry.events[0].late_ms is None
    let_go.set()
    async with asyncio.timeout(PATIENCE_S):
        while registry.abandoned():
            await asyncio.sleep(0)
    late_ms = registry.events[0].late_ms
    assert late_ms is not None
    assert late_ms >= 50
    assert len(registry.events) == 1


async def test_stubborn_tools_are_refused_once_too_many_still_run() -> None:
    let_go = asyncio.Event()

    @tool(timeout_s=0.01)
    async def stubborn() -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    registry = ToolRegistry([stubborn], max_abandoned=3)
    codes = [(await registry.answer("stubborn")).invocation.error_status for _ in range(5)]
    assert codes == [504, 504, 504, 503, 503]
    let_go.set()
    async with asyncio.timeout(PATIENCE_S):
        while registry.abandoned():
            await asyncio.sleep(0)
    assert (await registry.answer("stubborn")).is_error is False


@pytest.mark.parametrize("steps", range(12))
async def test_a_call_cancelled_from_outside_at_any_step_ends_its_tool_first_and_then_propagates(steps: int) -> None:
    ended: list[str] = []

    @tool
    async def walk() -> str:
        try:
            for _ in range(40):
                await asyncio.sleep(0)
            return "ok"
        finally:
            await asyncio.sleep(0)
            ended.append("cleaned")

    registry = ToolRegistry([walk])
    task = asyncio.create_task(registry.execute("walk"))
    for _ in range(steps):
        await asyncio.sleep(0)
    if task.done():
        pytest.fail("the tool is too short for this step")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert ended in ([], ["cleaned"])
    if registry.events:
        assert [event.status for event in registry.events] == ["cancelled"]


@pytest.mark.parametrize("steps", range(12))
async def test_a_call_aborted_at_any_step_raises_the_signals_own_reason(steps: int) -> None:
    class Stopped(Exception):
        pass

    ended: list[str] = []

    @tool
    async def walk() -> str:
        try:
            for _ in range(40):
                await asyncio.sleep(0)
            return "ok"
        finally:
            ended.append("cleaned")

    registry, controller, reason = ToolRegistry([walk]), AbortController(), Stopped()
    task = asyncio.create_task(registry.execute("walk", signal=controller.signal))
    for _ in range(steps):
        await asyncio.sleep(0)
    controller.abort(reason)
    with pytest.raises(Stopped) as caught:
        await task
    assert caught.value is reason
    assert [event.status for event in registry.events] == ["aborted"]
    assert registry.abandoned() == {}


async def test_a_tool_that_watches_its_signal_hears_of_the_limit() -> None:
    heard: list[BaseException | None] = []

    @tool(timeout_s=0.02)
    async def watcher(context: ToolContext) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            heard.append(context.signal.reason)

    with pytest.raises(ToolTimeoutError):
        await ToolRegistry([watcher]).ainvoke("watcher")
    assert isinstance(heard[0], ToolTimeoutError)


async def test_what_a_tool_sets_in_its_context_does_not_leak() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="caller")

    @tool
    async def setter(wait: bool) -> str:
        seen = variable.get()
        variable.set("tool")
        if wait:
            await asyncio.sleep(0)
        assert variable.get() == "tool"
        return seen

    registry = ToolRegistry([setter])
    variable.set("mine")
    assert await registry.execute("setter", {"wait": False}) == "mine"
    assert await registry.execute("setter", {"wait": True}) == "mine"
    assert variable.get() == "mine"


async def test_parked_tasks_are_no_tasks_of_the_program() -> None:
    registry = ToolRegistry([tool(returns_at_once), tool(waits_a_moment)])
    before = asyncio.all_tasks()
    await asyncio.gather(*(registry.ainvoke("waits_a_moment") for _ in range(20)))
    await registry.ainvoke("returns_at_once")
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_a_timer_that_a_tool_left_behind_reaches_no_later_call() -> None:
    @tool
    async def careless(wait: bool) -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_later(0.05, task.cancel)
        if wait:
            await asyncio.sleep(0)

    @tool
    async def later() -> str:
        await asyncio.sleep(0.2)
        return "ok"

    registry = ToolRegistry([careless, later])
    for wait in (False, True):
        await registry.execute("careless", {"wait": wait})
        assert await registry.execute("later") == "ok"


async def test_a_limit_that_comes_with_the_end_of_a_tool_reaches_no_later_call() -> None:
    @tool
    async def brief(wait_s: float) -> str:
        await asyncio.sleep(wait_s)
        return "ok"

    @tool(timeout_s=None)
    async def steady() -> str:
        for _ in range(20):
            await asyncio.sleep(0)
        return "ok"

    registry = ToolRegistry([brief, steady])
    options = ExecutionOptions(timeout_s=0.003)
    for _ in range(60):
        ends = await asyncio.gather(
            *(registry.answer("brief", {"wait_s": 0.003}, options=options) for _ in range(10)),
            *(registry.answer("steady") for _ in range(10)),
        )
        assert {end.invocation.error_code for end in ends[:10]} <= {None, "tool_timeout"}
        assert {end.text for end in ends[10:]} == {'"ok"'}
