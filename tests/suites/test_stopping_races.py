"""Abort, limit, outer cancellation and the tool's own end, all near the same moment, in many random orders.

Whatever comes first: one receipt for each call, an end that fits it, and nothing left: no slot, no listener on the caller's
signal, no timer and no task on the loop, no context that is entered, no host that is lost. Rows P4, P7, P13, cases c3, c16.
"""

import asyncio
import gc
import random
import threading
import time

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
from callgate.running.stepping import Host
from tests.contract.kit import PATIENCE_S, background, ended

ROUNDS, SIDE_BY_SIDE = 25, 12
NEAR_S = 0.004


class Stopped(Exception):
    pass


class Quick(Exception):
    pass


@tool(timeout_s=None)
async def sleep(wait_s: float, context: ToolContext):
    await asyncio.sleep(wait_s)
    return "ok"


@tool(timeout_s=None)
async def sleep_without_context(wait_s: float):
    await asyncio.sleep(wait_s)
    return "ok"


@tool(timeout_s=None)
async def clean_up(wait_s: float, context: ToolContext):
    try:
        await asyncio.sleep(wait_s)
    finally:
        for _ in range(3):
            await asyncio.sleep(0)
    return "ok"


@tool(timeout_s=None)
async def swallow(wait_s: float, context: ToolContext):
    try:
        await asyncio.sleep(wait_s)
    except asyncio.CancelledError:
        await asyncio.sleep(0.001)
    return "ok"


@tool(timeout_s=None)
async def fail(wait_s: float):
    await asyncio.sleep(wait_s)
    raise Quick


@tool(timeout_s=None)
async def scoped(wait_s: float):
    try:
        async with asyncio.timeout(wait_s):
            await asyncio.sleep(60)
    except TimeoutError:
        return "ok"


@tool(timeout_s=None)
async def grouped(wait_s: float):
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(wait_s))
        group.create_task(asyncio.sleep(wait_s / 2))
    return "ok"


@tool(timeout_s=None)
async def items(wait_s: float):
    for _ in range(3):
        await asyncio.sleep(wait_s / 3)
        yield "ok"


@tool(timeout_s=None)
def listen(wait_s: float, context: ToolContext):
    context.signal.wait(wait_s)
    return "ok"


@tool(timeout_s=None)
def do_not_listen(wait_s: float):
    time.sleep(wait_s)
    return "ok"


@tool(timeout_s=None, max_concurrency=3)
def one_of_three(wait_s: float, context: ToolContext):
    context.signal.wait(wait_s)
    return "ok"


@tool(timeout_s=None, max_concurrency=3)
async def one_of_three_async(wait_s: float):
    await asyncio.sleep(wait_s)
    return "ok"


ASYNC = (sleep, sleep_without_context, clean_up, swallow, fail, scoped, grouped, items, one_of_three_async)
SYNC = (listen, do_not_listen, one_of_three)
NAMES = [each.__name__ for each in (*ASYNC, *SYNC)]


def registry_of(*names):
    return ToolRegistry([each for each in (*ASYNC, *SYNC) if each.__name__ in names], max_abandoned=10_000)


def left_of(registry, names):
    slots = [registry._catalog.entries[name].slots for name in names]
    return [(each.held, each.abandoned, len(each._waiters)) for each in slots], registry.running(), registry.abandoned()


def nothing_of(names):
    return [(0, 0, 0)] * len(names), (), {}


async def settled(registry, names):
    """Wait until what was given up has ended too."""
    async with asyncio.timeout(PATIENCE_S):
        while left_of(registry, names) != nothing_of(names):
            await asyncio.sleep(0.001)


def timers_of(loop):
    return [handle for handle in loop._scheduled if not handle.cancelled()]


def fits(end, status, reason):
    """Tell whether what a caller saw and what the receipt says are the same end."""
    match status:
        case "succeeded":
            return not isinstance(end, BaseException)
        case "aborted":
            return end is reason
        case "cancelled":
            return isinstance(end, asyncio.CancelledError)
        case "failed":
            return isinstance(end, ToolTimeoutError) or (isinstance(end, ToolFailedError) and type(end.__cause__) is Quick)
        case _:
            return False


async def race(registry, name, rng):
    """Make one call whose abort, limit, cancellation and end are all near one moment, in a random order."""
    controller, reason, loop = AbortController(), Stopped(), asyncio.get_running_loop()
    near = [rng.uniform(0, 2 * NEAR_S) for _ in range(4)]
    options = ExecutionOptions(timeout_s=near[0] if rng.random() < 0.7 else 30, deadline=None)
    if rng.random() < 0.2:
        options = ExecutionOptions(deadline=time.monotonic() + near[0])
    task = asyncio.create_task(registry.ainvoke(name, {"wait_s": near[1]}, signal=controller.signal, options=options))
    stops = []
    if rng.random() < 0.5:
        stops.append(loop.call_later(near[2], controller.abort, reason))
    elif rng.random() < 0.5:
        timer = threading.Timer(near[2], controller.abort, (reason,))
        timer.daemon = True
        timer.start()
    if rng.random() < 0.5:
        stops.append(loop.call_later(near[3], task.cancel))
    [end] = await asyncio.gather(task, return_exceptions=True)
    for stop in stops:
        stop.cancel()
    return end, reason, controller.signal


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", NAMES)
async def test_one_receipt_and_nothing_left_whatever_comes_first(name, seed):
    rng, registry, loop = random.Random(f"{name} {seed}"), registry_of(name), asyncio.get_running_loop()
    tasks_before, timers_before = asyncio.all_tasks(), len(timers_of(loop))
    made = 0
    for _ in range(ROUNDS):
        seen = len(registry.events)
        async with asyncio.timeout(PATIENCE_S):
            ends = await asyncio.gather(*(race(registry, name, rng) for _ in range(SIDE_BY_SIDE)))
        made += SIDE_BY_SIDE
        receipts = registry.events[seen:] if made <= 1000 else ()
        assert all(not controller_signal._listeners for _, _, controller_signal in ends), "a listener is left"
        # A task that was cancelled before its first step never made a call.
        assert len(receipts) <= SIDE_BY_SIDE
        never = SIDE_BY_SIDE - len(receipts)
        assert never <= sum(isinstance(end, asyncio.CancelledError) for end, _, _ in ends)
        unmatched = list(receipts)
        for end, reason, _ in ends:
            match = next((each for each in unmatched if fits(end, each.status, reason)), None)
            assert match is not None or isinstance(end, asyncio.CancelledError), (end, [each.status for each in unmatched])
            if match is not None:
                unmatched.remove(match)
        assert unmatched == []
        assert asyncio.current_task().cancelling() == 0
    await settled(registry, [name])
    ids = [event.invocation_id for event in registry.events]
    assert len(ids) == len(set(ids))
    await asyncio.sleep(2 * NEAR_S)  # what a body left to itself may still have to end
    assert asyncio.all_tasks() == tasks_before
    assert len(timers_of(loop)) <= timers_before
    # Sound afterwards: the same registry, on the same loop.
    if name != "fail":
        assert (await registry.ainvoke(name, {"wait_s": 0.0})).text


@pytest.mark.parametrize("name", NAMES)
def test_one_receipt_and_nothing_left_for_blocked_callers(name):
    """The same race of abort, limit and end, where each caller blocks a thread of its own."""
    rng, registry = random.Random(name), registry_of(name)

    def caller(wait_s, limit_s, abort_s):
        controller, reason = AbortController(), Stopped()
        timer = threading.Timer(abort_s, controller.abort, (reason,))
        timer.daemon = True
        timer.start()
        try:
            end = registry.invoke(name, {"wait_s": wait_s}, signal=controller.signal, options=ExecutionOptions(timeout_s=limit_s))
        except (ToolError, Stopped) as error:
            end = error
        finally:
            timer.cancel()
        return end, reason, controller.signal

    for _ in range(8):
        seen = len(registry.events)
        plans = [tuple(rng.uniform(0.0005, 2 * NEAR_S) for _ in range(3)) for _ in range(SIDE_BY_SIDE)]
        ends = [ended(call) for call in [background(caller, *plan) for plan in plans]]
        assert all(not signal._listeners for _, _, signal in ends), "a listener is left"
        unmatched = list(registry.events[seen:])
        assert len(unmatched) == SIDE_BY_SIDE
        for end, reason, _ in ends:
            match = next((each for each in unmatched if fits(end, each.status, reason)), None)
            assert match is not None, (end, [each.status for each in unmatched])
            unmatched.remove(match)
    end_s = time.monotonic() + PATIENCE_S
    while left_of(registry, [name]) != nothing_of([name]):
        assert time.monotonic() < end_s, left_of(registry, [name])
        time.sleep(0.002)


async def test_the_two_drivers_race_for_the_slots_of_one_tool():
    name, rng = "one_of_three", random.Random(1)
    registry = registry_of(name)

    def blocked(wait_s, limit_s):
        try:
            return registry.invoke(name, {"wait_s": wait_s}, options=ExecutionOptions(timeout_s=limit_s)).value
        except ToolTimeoutError as error:
            return error

    blocking = [background(blocked, rng.uniform(0, NEAR_S), rng.uniform(0.001, NEAR_S)) for _ in range(40)]
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(race(registry, name, rng) for _ in range(40)))
    for call in blocking:
        await asyncio.to_thread(ended, call)
    await settled(registry, [name])
    assert len([event for event in registry.events if event.status in {"succeeded", "failed"}]) >= 40


# ── what each end leaves ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", NAMES)
async def test_a_long_lived_signal_gathers_no_listeners(name):
    """A run has one signal for its thousands of calls."""
    registry, controller = registry_of(name), AbortController()
    for wait_s in (0.0, 0.0005):
        for _ in range(20):
            await asyncio.gather(registry.answer(name, {"wait_s": wait_s}, signal=controller.signal))
    assert not controller.signal._listeners


@pytest.mark.parametrize("door", ["ainvoke", "invoke"])
def test_a_long_lived_signal_gathers_no_listeners_of_calls_that_end_without_waiting(door):
    @tool
    async def at_once(context: ToolContext):
        return 1

    @tool
    async def fail_at_once(context: ToolContext):
        raise ValueError

    @tool(run_in="inline")
    def inline(context: ToolContext):
        return 1

    @tool(max_output_bytes=2)
    async def overflow(context: ToolContext):
        return "too long"

    registry, controller = ToolRegistry([at_once, fail_at_once, inline, overflow]), AbortController()

    async def run(name):
        for _ in range(5):  # the first is not run at once, because no host is parked yet
            await registry.answer(name, signal=controller.signal)

    for name in registry.ids():
        if door == "ainvoke":
            asyncio.run(run(name))
        else:
            for _ in range(3):
                try:
                    registry.invoke(name, signal=controller.signal)
                except ToolError:
                    continue
    assert not controller.signal._listeners


def hosts():
    gc.collect()
    return sum(type(each) is Host for each in gc.get_objects())


async def test_no_host_is_lost_by_calls_that_end_before_their_first_step():
    """Each call of these takes a host and gives it back, or the pool would make a new one for each."""

    @tool
    async def good():
        return 1

    @tool
    async def too_late(context: ToolContext):
        return 1

    registry = ToolRegistry([good, too_late])
    await registry.ainvoke("good")
    await asyncio.gather(*(registry.ainvoke("good") for _ in range(5)))
    before = hosts()
    for _ in range(50):
        await registry.ainvoke("good")
        reply = await registry.answer("too_late", options=ExecutionOptions(deadline=time.monotonic() - 1))
        assert reply.invocation.error_code == "tool_timeout"
    assert hosts() <= before + 1
