"""Sync tools in threads: 200 that hang, slots, queues, context variables, late results, and the end of the process.

Row P4 and P13, cases c4 to c6 and g1. Every hanging body waits for an event that its test sets at the end.
"""

import asyncio
import collections
import contextvars
import random
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import (
    AbortController,
    AbortedError,
    CallContext,
    ExecutionOptions,
    ToolContext,
    ToolError,
    ToolRegistry,
    ToolTimeoutError,
    ToolUnavailableError,
    tool,
)
from callgate.diagnostics import DiagnosticContext, MemoryDestination
from tests.contract.kit import PATIENCE_S, background, by_invoke, ended

LONG_S = 60.0
CALLS = 200


@pytest.fixture
def let_go():
    event = threading.Event()
    yield event
    event.set()


def until(predicate):
    """Wait, for a bounded time, for what another thread will bring about."""
    end = time.monotonic() + PATIENCE_S
    while not predicate():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.001)


async def until_async(predicate):
    async with asyncio.timeout(PATIENCE_S):
        while not predicate():
            await asyncio.sleep(0.001)


def slots_of(registry, name):
    return registry._catalog.entries[name].slots


def at_rest(registry, name):
    """Tell whether nothing of a tool runs, waits, or is counted any more."""
    slots = slots_of(registry, name)
    return (slots.held, slots.abandoned, len(slots._waiters), registry.running(), registry.abandoned()) == (0, 0, 0, (), {})


def hanging(let_go, **options):
    @tool(**options)
    def hang():
        let_go.wait(LONG_S)
        return "late"

    return hang


# ── 200 calls that hang ──────────────────────────────────────────────────────────────────────────────────────────────────


def run_async(registry, count):
    async def run():
        return await asyncio.gather(*(registry.answer("hang") for _ in range(count)))

    return [reply.invocation.error_status for reply in asyncio.run(run())]


def run_in_threads(registry, count):
    def status():
        try:
            return registry.invoke("hang")
        except ToolError as error:
            return error.status

    return [ended(call) for call in [background(status) for _ in range(count)]]


@pytest.mark.parametrize("run", [run_async, run_in_threads])
def test_200_calls_that_hang_are_answered_in_time_and_hold_a_bounded_number_of_threads(run, let_go):
    registry = ToolRegistry([hanging(let_go, timeout_s=0.2)], max_abandoned=8)
    most, stop = [0], threading.Event()

    def count():
        while not stop.wait(0.005):
            most[0] = max(most[0], len([each for each in threading.enumerate() if each.name.startswith("callgate-tool")]))

    before = len([each for each in threading.enumerate() if each.name.startswith("callgate-tool")])
    counting = background(count)
    began = time.monotonic()
    statuses = collections.Counter(run(registry, CALLS))
    # Far under the 60 s of a single body; a busy machine may take a moment for 200 callers.
    assert time.monotonic() - began < 30
    stop.set()
    ended(counting)
    assert set(statuses) == {503, 504}
    assert statuses.total() == CALLS
    assert most[0] - before <= 32  # the places of one tool
    hung = registry.abandoned()["hang"]
    assert hung == statuses[504] <= 32
    assert len(registry.events) == CALLS
    assert registry.running() == ()

    # Refused at once, until one returns.
    with pytest.raises(ToolUnavailableError) as caught:
        registry.invoke("hang")
    assert "still run" in caught.value.user_message
    let_go.set()
    until(lambda: at_rest(registry, "hang"))
    assert registry.invoke("hang").value == "late"
    late = [event for event in registry.events if event.late_ms is not None]
    assert len(late) == hung
    assert {event.error_status for event in late} == {504}
    assert min(event.late_ms for event in late) >= 200


def test_the_tool_takes_calls_again_as_soon_as_one_returns():
    gates = [threading.Event() for _ in range(3)]

    @tool(timeout_s=0.05)
    def hang(number: int):
        if number < 3:
            gates[number].wait(LONG_S)

    registry = ToolRegistry([hang], max_abandoned=3)
    for number in range(3):
        with pytest.raises(ToolTimeoutError):
            registry.invoke("hang", {"number": number})
    with pytest.raises(ToolUnavailableError):
        registry.invoke("hang", {"number": 3})
    gates[1].set()
    until(lambda: registry.abandoned() == {"hang": 2})
    assert registry.invoke("hang", {"number": 3}).text == "null"
    for gate in gates:
        gate.set()
    until(lambda: at_rest(registry, "hang"))


def test_a_hung_tool_takes_nothing_from_another_tool(let_go):
    @tool
    def add(a: int, b: int):
        return a + b

    registry = ToolRegistry([hanging(let_go, timeout_s=0.02), add], max_abandoned=2)
    run_async(registry, 20)
    assert [registry.invoke("add", {"a": n, "b": 1}).value for n in range(50)] == list(range(1, 51))


@pytest.mark.parametrize("run", ["async", "sync"])
def test_a_late_result_is_dropped_and_recorded_once_and_a_late_exception_too(run):
    gate, memory, got = threading.Event(), MemoryDestination(content=True), []

    @tool(timeout_s=0.05)
    def come_late(fail: bool):
        gate.wait(LONG_S)
        if fail:
            raise ValueError("late marker")
        return "late marker"

    registry = ToolRegistry([come_late], diagnostics=DiagnosticContext.of(memory), on_tool_error=got.append)
    for fail in (False, True):
        with pytest.raises(ToolTimeoutError):
            if run == "async":
                asyncio.run(registry.ainvoke("come_late", {"fail": fail}, call_context=CallContext()))
            else:
                registry.invoke("come_late", {"fail": fail}, call_context=CallContext())
    gate.set()
    until(lambda: len(memory.named("tool.late")) == 2)
    assert [event.status for event in registry.events] == ["failed", "failed"]
    assert all(event.late_ms is not None for event in registry.events)
    assert "late marker" not in repr(memory.events)
    until(lambda: at_rest(registry, "come_late"))


# ── context variables ────────────────────────────────────────────────────────────────────────────────────────────────────

variable = contextvars.ContextVar("variable", default="unset")


def test_context_variables_are_carried_into_the_thread_and_not_out_of_it():
    @tool
    def read_and_set(number: int):
        seen = variable.get()
        variable.set(f"set by {number}")
        assert variable.get() == f"set by {number}"
        return seen

    registry = ToolRegistry([read_and_set])

    def calls():
        for number in range(20):  # threads are used again
            variable.set(f"mine {number}")
            assert registry.invoke("read_and_set", {"number": number}).value == f"mine {number}"
            assert asyncio.run(registry.execute("read_and_set", {"number": number})) == f"mine {number}"
            assert variable.get() == f"mine {number}"

    contextvars.copy_context().run(calls)
    assert variable.get() == "unset"


async def test_parallel_calls_have_a_context_each():
    together = threading.Barrier(8)

    @tool
    def read():
        together.wait(PATIENCE_S)
        first = variable.get()
        variable.set("somebody's")
        together.wait(PATIENCE_S)
        return first

    registry = ToolRegistry([read])

    async def call(number):
        variable.set(str(number))
        return await registry.execute("read")

    assert await asyncio.gather(*(asyncio.create_task(call(number)) for number in range(8))) == [str(n) for n in range(8)]


# ── max_concurrency, by both drivers ─────────────────────────────────────────────────────────────────────────────────────


class Crowd:
    """Count how many are inside at a time, and keep them there until `limit` are or the wanted moment has come."""

    def __init__(self):
        self.lock = threading.Lock()
        self.inside = self.peak = self.total = 0

    def __enter__(self):
        with self.lock:
            self.inside += 1
            self.total += 1
            self.peak = max(self.peak, self.inside)

    def __exit__(self, *error):
        with self.lock:
            self.inside -= 1


def crowded(crowd, limit, run_in, timeout_s=LONG_S):
    """Make a tool in which `limit` calls meet: each waits for the others of its group."""
    barrier = threading.Barrier(limit)

    @tool(name="enter", max_concurrency=limit, timeout_s=timeout_s)
    def in_thread():
        with crowd:
            barrier.wait(PATIENCE_S)

    @tool(name="enter", max_concurrency=limit, timeout_s=timeout_s)
    async def on_loop():
        with crowd:
            async with asyncio.timeout(PATIENCE_S):
                while crowd.peak < limit:
                    await asyncio.sleep(0)
            await asyncio.sleep(0.001)

    return in_thread if run_in == "thread" else on_loop


@pytest.mark.parametrize("run_in", ["thread", "loop"])
@pytest.mark.parametrize("driver", ["async", "sync"])
def test_max_concurrency_is_reached_and_never_passed(run_in, driver):
    crowd = Crowd()
    registry = ToolRegistry([crowded(crowd, 4, run_in)])
    if driver == "async":

        async def run():
            await asyncio.gather(*(registry.execute("enter") for _ in range(40)))

        asyncio.run(run())
    else:
        for call in [background(by_invoke, registry, "enter") for _ in range(40)]:
            ended(call)
    assert (crowd.peak, crowd.total) == (4, 40)
    assert at_rest(registry, "enter")


async def test_both_drivers_share_the_slots_of_a_tool():
    crowd = Crowd()
    registry = ToolRegistry([crowded(crowd, 4, "thread")])
    blocking = [background(by_invoke, registry, "enter") for _ in range(20)]
    await asyncio.gather(*(registry.execute("enter") for _ in range(20)))
    for call in blocking:
        await asyncio.to_thread(ended, call)
    assert (crowd.peak, crowd.total) == (4, 40)
    assert at_rest(registry, "enter")


@pytest.mark.parametrize("driver", ["async", "sync"])
def test_time_in_line_is_no_time_of_the_limit(driver):
    """Ten calls of 0.1 s through one slot take a second in all; under a limit of half a second none is late."""

    @tool(max_concurrency=1, timeout_s=0.5)
    def work(context: ToolContext):
        context.signal.wait(0.1)
        return context.signal.aborted

    registry = ToolRegistry([work])
    if driver == "async":

        async def run():
            return await asyncio.gather(*(registry.execute("work") for _ in range(10)))

        values = asyncio.run(run())
    else:
        values = [ended(call).value for call in [background(by_invoke, registry, "work") for _ in range(10)]]
    assert values == [False] * 10
    assert max(event.duration_ms for event in registry.events) > 500


# ── abort, cancellation and deadline in line ─────────────────────────────────────────────────────────────────────────────


class Held:
    """Hold the only slot of a tool, until `open` is called; `ran` names the calls whose body ran."""

    def __init__(self):
        self.gate, self.began, self.ran = threading.Event(), threading.Event(), []

    def tool(self):
        @tool(max_concurrency=1, timeout_s=None)
        def take(name: str):
            self.ran.append(name)
            if name == "holder":
                self.began.set()
                self.gate.wait(LONG_S)

        return take


@pytest.fixture
def held():
    holder = Held()
    yield holder
    holder.gate.set()


@pytest.fixture
def busy(held):
    """Give a registry whose only slot is taken."""
    registry = ToolRegistry([held.tool()])
    holder = background(by_invoke, registry, "take", {"name": "holder"})
    assert held.began.wait(PATIENCE_S)
    yield registry
    held.gate.set()
    ended(holder)
    until(lambda: at_rest(registry, "take"))


def in_line(registry, number):
    return lambda: len(slots_of(registry, "take")._waiters) == number


@pytest.mark.parametrize("driver", ["async", "sync"])
def test_an_abort_in_line_raises_its_reason_and_the_tool_never_runs(busy, held, driver):
    controller, reason = AbortController(), KeyError("mine")
    door = by_invoke if driver == "sync" else lambda *call, **keywords: asyncio.run(busy.ainvoke(*call[1:], **keywords))
    call = background(door, busy, "take", {"name": "waiter"}, signal=controller.signal)
    until(in_line(busy, 1))
    controller.abort(reason)
    with pytest.raises(KeyError) as caught:
        ended(call)
    assert caught.value is reason
    assert held.ran == ["holder"]
    assert [event.status for event in busy.events] == ["aborted"]
    assert slots_of(busy, "take").held == 1


async def test_a_cancellation_in_line_propagates_and_the_next_in_line_gets_the_slot(busy, held):
    first = asyncio.create_task(busy.execute("take", {"name": "first"}))
    await until_async(in_line(busy, 1))
    second = asyncio.create_task(busy.execute("take", {"name": "second"}))
    await until_async(in_line(busy, 2))
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not second.done()
    held.gate.set()
    async with asyncio.timeout(PATIENCE_S):
        await second
    assert held.ran == ["holder", "second"]
    assert collections.Counter(event.status for event in busy.events) == {"cancelled": 1, "succeeded": 2}


async def test_a_cancellation_at_the_moment_the_slot_is_given_passes_it_on(busy, held):
    first = asyncio.create_task(busy.execute("take", {"name": "first"}))
    await until_async(in_line(busy, 1))
    second = asyncio.create_task(busy.execute("take", {"name": "second"}))
    await until_async(in_line(busy, 2))
    held.gate.set()
    # No await here: the slot is given from the holder's thread while this loop has not woken `first` yet.
    end = time.monotonic() + PATIENCE_S
    while len(slots_of(busy, "take")._waiters) == 2 and time.monotonic() < end:
        continue
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    async with asyncio.timeout(PATIENCE_S):
        await second
    assert held.ran == ["holder", "second"]


@pytest.mark.parametrize("driver", ["async", "sync"])
def test_a_deadline_in_line_is_a_504_that_names_it(busy, held, driver):
    options = ExecutionOptions(deadline=time.monotonic() + 0.1)
    with pytest.raises(ToolTimeoutError) as caught:
        if driver == "sync":
            busy.invoke("take", {"name": "waiter"}, options=options)
        else:
            asyncio.run(busy.ainvoke("take", {"name": "waiter"}, options=options))
    assert caught.value.source == "deadline"
    assert held.ran == ["holder"]


@pytest.mark.parametrize("driver", ["async", "sync"])
def test_calls_in_line_are_refused_when_the_slots_are_held_by_bodies_that_were_given_up(let_go, driver):
    registry = ToolRegistry([hanging(let_go, timeout_s=0.2, max_concurrency=2)])
    run = run_async if driver == "async" else run_in_threads
    assert collections.Counter(run(registry, 10)) == {504: 2, 503: 8}
    let_go.set()
    until(lambda: at_rest(registry, "hang"))
    assert registry.invoke("hang").value == "late"


@settings(max_examples=40)
@given(
    limit=st.integers(1, 4),
    ends=st.lists(st.sampled_from(["run", "fail", "abort", "cancel", "late", "refuse"]), min_size=1, max_size=16),
    order=st.randoms(use_true_random=False),
    kind=st.sampled_from(["sync", "async"]),
)
def test_no_slot_leaks_however_calls_end_and_in_whatever_order(limit, ends, order, kind):
    crowd = Crowd()
    stop = threading.Event()

    @tool(name="work", max_concurrency=limit, timeout_s=None)
    def in_thread(how: str, context: ToolContext):
        with crowd:
            if how == "fail":
                raise ValueError
            if how in {"abort", "cancel", "late"}:
                (stop.wait if how == "late" else context.signal.wait)(LONG_S)

    @tool(name="work", max_concurrency=limit, timeout_s=None)
    async def on_loop(how: str, context: ToolContext):
        with crowd:
            if how == "fail":
                raise ValueError
            if how in {"abort", "cancel"}:
                await asyncio.sleep(LONG_S)
            while how == "late" and not stop.is_set():
                try:
                    await asyncio.sleep(0.001)
                except asyncio.CancelledError:
                    continue

    registry = ToolRegistry([in_thread if kind == "sync" else on_loop], max_abandoned=100)

    async def run():
        calls = []
        for how in ends:
            controller = AbortController()
            options = ExecutionOptions(timeout_s=0.01) if how == "late" else None
            raw = {"how": how} if how != "refuse" else {"how": 5}
            task = asyncio.create_task(registry.answer("work", raw, signal=controller.signal, options=options))
            calls.append((how, task, controller))
        order.shuffle(calls)
        try:
            for how, task, controller in calls:
                for _ in range(order.randint(0, 3)):
                    await asyncio.sleep(0)
                if how == "abort":
                    controller.abort()
                elif how == "cancel":
                    task.cancel()
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(*(task for _, task, _ in calls), return_exceptions=True)
        finally:
            stop.set()  # also where an example ends early, with nothing left to draw: each late body would hold it for 5 s
        await until_async(lambda: at_rest(registry, "work"))

    asyncio.run(run())
    assert crowd.peak <= limit
    assert crowd.inside == 0
    # A task that is cancelled before its first step never was a call.
    assert len(ends) - ends.count("cancel") <= len(registry.events) <= len(ends)


def test_no_slot_leaks_in_a_race_of_blocked_callers(let_go):
    crowd, rng = Crowd(), random.Random(7)

    @tool(max_concurrency=3, timeout_s=None)
    def work(wait_s: float, context: ToolContext):
        with crowd:
            context.signal.wait(wait_s)

    registry = ToolRegistry([work], max_abandoned=100)

    def caller(abort_after_s, limit_s, wait_s):
        controller = AbortController()
        timer = threading.Timer(abort_after_s, controller.abort)
        timer.daemon = True
        timer.start()
        try:
            registry.invoke("work", {"wait_s": wait_s}, signal=controller.signal, options=ExecutionOptions(timeout_s=limit_s))
        except (ToolError, AbortedError):
            return
        finally:
            timer.cancel()

    plans = [(rng.uniform(0, 0.02), rng.uniform(0.001, 0.02), rng.choice([0.0, 0.005, 0.01, LONG_S])) for _ in range(120)]
    for call in [background(caller, *plan) for plan in plans]:
        ended(call)
    until(lambda: at_rest(registry, "work"))
    assert crowd.peak <= 3
    assert len(registry.events) == 120


# ── the end of the process ───────────────────────────────────────────────────────────────────────────────────────────────

PROGRAM = """
    import asyncio, sys, threading, time
    from callgate import CallContext, ToolRegistry, tool

    @tool(timeout_s=0.2)
    def hang():
        print("hanging", flush=True)
        time.sleep(60)

    registry = ToolRegistry([hang], on_tool_error=lambda report: time.sleep(60))

    async def main():
        replies = await asyncio.gather(*(registry.answer("hang", call_context=CallContext()) for _ in range(20)))
        print(sorted({reply.invocation.error_status for reply in replies}))

    def blocked():
        try:
            registry.invoke("hang", call_context=CallContext())
        except Exception as error:
            print(type(error).__name__)

    def wait_in_a_daemon():
        endless = ToolRegistry([tool(timeout_s=None)(hang_and_tell)])
        threading.Thread(target=endless.invoke, args=("hang_and_tell",), daemon=True).start()
        began.wait(10)

    began = threading.Event()

    def hang_and_tell():
        print("hanging", flush=True)
        began.set()
        time.sleep(60)
"""

ENDINGS = {
    "async": ("asyncio.run(main())", 0),
    "sync": ("blocked()", 0),
    "both": ("blocked(); asyncio.run(main())", 0),
    "an exit code": ("blocked(); sys.exit(7)", 7),
    "an exit from a thread's caller": ("asyncio.run(main()); raise SystemExit(7)", 7),
    "with a caller that still waits": ("wait_in_a_daemon()", 0),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_program_with_hung_threads_exits_cleanly_and_fast(ending, tmp_path):
    last, code = ENDINGS[ending]
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM) + f"\n{last}\n")
    began = time.monotonic()
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=40, check=False)
    assert time.monotonic() - began < 20  # the bodies hang for 60 s
    assert done.returncode == code, done.stderr
    assert "hanging" in done.stdout
    # The one line for each failed call is all that there is: no traceback of a thread, no complaint of the interpreter.
    noise = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("callgate.tool_failed")]
    assert noise == []
