"""Tools in worker processes, through the registry and both of its drivers: row P4+, cases c4, c5, d10, e13.

What a driver is asked to stop must be gone when the call is answered: the process, its children, and theirs.
"""

import asyncio
import contextlib
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from callgate import (
    AbortController,
    CallContext,
    InvalidInputError,
    Tool,
    ToolDefinitionError,
    ToolError,
    ToolFailedError,
    ToolRegistry,
    ToolTimeoutError,
    tool,
)
from callgate.registry.process_bodies import shared_processes
from tests.contract.kit import PATIENCE_S, background, by_ainvoke, by_invoke, ended, happens, watched
from tests.suites import process_tools as tools

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc; the whole tree is killed on Linux only")
DOORS = pytest.mark.parametrize("door", [by_invoke, by_ainvoke], ids=["invoke", "ainvoke"])

START_S = 30.0
"""How long a worker may take to start on a busy machine."""


def alive(process):
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def until(predicate):
    end = time.monotonic() + PATIENCE_S
    while not predicate():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


class Followed:
    """Follow the progress of a call: the processes that it tells, and when."""

    def __init__(self):
        self.items, self.told, self.at = [], threading.Event(), 0.0
        self.scope = watched("tool.progress", self._take)

    def _take(self, payload):
        self.at = time.monotonic()
        self.items.append(payload.item)
        self.told.set()

    @property
    def processes(self):
        return self.items[0]


@pytest.fixture
def followed():
    return Followed()


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    until(lambda: shared_processes().stats().busy == 0)


def failed(door, registry, *call, **keywords):
    with pytest.raises(ToolError) as caught:
        door(registry, *call, **keywords)
    return caught.value


# ── the limit ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@DOORS
def test_a_busy_loop_in_c_is_gone_with_its_children_when_its_limit_is_answered(door, followed):
    registry = ToolRegistry([tools.spin_with_children])
    error = failed(door, registry, "spin_with_children", diagnostics=followed.scope)
    answered_at = time.monotonic()
    assert [process for process in followed.processes if alive(process)] == []
    assert len(followed.processes) == 3
    assert isinstance(error, ToolTimeoutError)
    assert (error.limit_s, error.source) == (0.4, "tool")
    # 0.4 s of limit and at most 0.5 s to kill on a quiet machine.
    assert answered_at - followed.at < 5
    [receipt] = registry.events
    assert (receipt.status, receipt.error_status, receipt.late_ms) == ("failed", 504, None)
    assert registry.abandoned() == {}


@DOORS
def test_a_process_that_ignores_every_signal_it_can_is_gone_at_its_limit(door, followed):
    registry = ToolRegistry([tools.ignore_every_signal])
    assert failed(door, registry, "ignore_every_signal", diagnostics=followed.scope).status == 504
    assert not alive(followed.processes[0])


def test_parallel_calls_are_each_stopped_and_no_process_is_left(followed):
    registry = ToolRegistry([tools.spin_with_children])

    async def run():
        return await asyncio.gather(*(registry.answer("spin_with_children", diagnostics=followed.scope) for _ in range(3)))

    replies = asyncio.run(run())
    assert [reply.invocation.error_status for reply in replies] == [504] * 3
    assert [process for item in followed.items for process in item if alive(process)] == []
    assert len({item[0] for item in followed.items}) == 3


@DOORS
def test_the_start_of_a_worker_is_no_time_of_the_limit(door):
    crash_all = ToolRegistry([tools.end])
    failed(door, crash_all, "end", {"how": "leave"})
    quick = Tool.of(tools.whereabouts, name="quick", run_in="process", timeout_s=0.05)
    assert door(ToolRegistry([quick]), "quick").value != os.getpid()


# ── abort, cancellation, close ───────────────────────────────────────────────────────────────────────────────────────────


class Stopped(Exception):
    pass


@DOORS
def test_an_abort_kills_the_process_and_its_children_and_raises_its_reason(door, followed):
    controller, reason = AbortController(), Stopped()
    registry = ToolRegistry([tools.spin_until_aborted])
    call = background(door, registry, "spin_until_aborted", signal=controller.signal, diagnostics=followed.scope)
    assert followed.told.wait(START_S)
    controller.abort(reason)
    with pytest.raises(Stopped) as caught:
        ended(call)
    assert caught.value is reason
    assert [process for process in followed.processes if alive(process)] == []
    assert [event.status for event in registry.events] == ["aborted"]


async def test_a_cancellation_kills_the_process_and_its_children_before_it_propagates(followed):
    registry = ToolRegistry([tools.spin_until_aborted])
    task = asyncio.create_task(registry.execute("spin_until_aborted", diagnostics=followed.scope))
    async with asyncio.timeout(START_S):
        while not followed.items:
            await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(PATIENCE_S):
            await task
    assert [process for process in followed.processes if alive(process)] == []
    assert [event.status for event in registry.events] == ["cancelled"]


@DOORS
def test_an_abort_while_the_worker_starts_ends_the_call_at_once(door):
    controller, registry = AbortController(), ToolRegistry([tools.spin_until_aborted])
    call = background(door, registry, "spin_until_aborted", signal=controller.signal)
    until(registry.running)
    controller.abort(Stopped())
    with pytest.raises(Stopped):
        ended(call)


@DOORS
def test_close_kills_what_runs(door, followed):
    registry = ToolRegistry([tools.spin_until_aborted], diagnostics=followed.scope)
    call = background(door, registry, "spin_until_aborted")
    assert followed.told.wait(START_S)
    registry.close()
    with pytest.raises(BaseException) as caught:
        ended(call)
    assert type(caught.value).__name__ == "AbortedError"
    assert [process for process in followed.processes if alive(process)] == []


# ── how a process can end ────────────────────────────────────────────────────────────────────────────────────────────────


@DOORS
@pytest.mark.parametrize("how", ["crash", "leave", "exit", "exit in peace", "interrupt", "exit by a thread"])
def test_a_process_that_ends_ends_nothing_but_its_call(door, how):
    registry = ToolRegistry([tools.end, tools.whereabouts])
    error = failed(door, registry, "end", {"how": how})
    assert isinstance(error, ToolFailedError)
    assert "secret words" not in error.user_message
    assert error.__cause__ is not None
    assert door(registry, "whereabouts").value != os.getpid()
    assert [event.status for event in registry.events] == ["failed", "succeeded"]


@DOORS
def test_memory_is_bounded(door):
    registry = ToolRegistry([tools.eat_memory])
    assert door(registry, "eat_memory", {"megabytes": 10}).value == 10 << 20
    error = failed(door, registry, "eat_memory", {"megabytes": 2_000})
    assert isinstance(error, ToolFailedError)
    assert "memory" in f"{error.__cause__!r}".lower()
    assert error.user_message == "Tool 'eat_memory' failed: an internal error."
    assert door(registry, "eat_memory", {"megabytes": 10}).value == 10 << 20


@DOORS
def test_cpu_time_is_bounded_where_no_time_limit_is(door, followed):
    registry = ToolRegistry([tools.eat_cpu])
    error = failed(door, registry, "eat_cpu", diagnostics=followed.scope)
    assert isinstance(error, ToolFailedError)
    assert "CPU" in str(error.__cause__)
    assert not alive(followed.processes[0])


# ── what crosses over ────────────────────────────────────────────────────────────────────────────────────────────────────


@DOORS
def test_arguments_arrive_parsed_and_wrong_ones_are_refused_here(door):
    registry = ToolRegistry([tools.total])
    assert door(registry, "total", '{"orders": [{"sku": "a", "count": 2}, {"sku": "b"}]}').value == 3
    error = failed(door, registry, "total", {"orders": [{"sku": 1}]})
    assert isinstance(error, InvalidInputError)


@DOORS
def test_the_context_is_in_the_child_what_it_is_here(door):
    registry = ToolRegistry([tools.show_context])
    context = CallContext(run_id="r", call_id="c", attempt=3)
    result = door(registry, "show_context", call_context=context, thread_id="t", user_context={"user": 7})
    shown = result.value
    assert shown["invocation_id"] == result.invocation.invocation_id
    assert shown["process"] != os.getpid()
    assert 0 < shown["remaining_s"] <= 30
    wanted = {"tool": "show_context", "thread_id": "t", "user_context": {"user": 7}, "call_id": "c", "attempt": 3}
    assert {key: shown[key] for key in wanted} == wanted
    assert shown["aborted"] is False


@DOORS
def test_a_user_context_that_cannot_cross_over_fails_the_call_and_names_no_value(door):
    registry = ToolRegistry([tools.show_context])
    error = failed(door, registry, "show_context", user_context=threading.Lock())
    assert isinstance(error, ToolFailedError)
    assert error.user_message == "Tool 'show_context' failed: an internal error."


@DOORS
def test_items_of_a_generator_and_told_progress_arrive_in_order(door, followed):
    registry = ToolRegistry([tools.count, tools.count_async])
    assert door(registry, "count", {"to": 3}, diagnostics=followed.scope).value == [0, 1, 2]
    assert followed.items == [{"before": 0}, 0, {"before": 1}, 1, {"before": 2}, 2]
    assert door(registry, "count_async", {"to": 3}).value == [0, 1, 2]


@DOORS
def test_progress_arrives_while_the_tool_runs(door):
    controller, registry = AbortController(), ToolRegistry([tools.count_for_ever])
    seen = []

    def take(payload):
        seen.append(payload.item)
        if len(seen) == 5:
            controller.abort(Stopped())

    with pytest.raises(Stopped):
        door(registry, "count_for_ever", signal=controller.signal, diagnostics=watched("tool.progress", take))
    assert seen[:5] == [0, 1, 2, 3, 4]


@DOORS
@pytest.mark.parametrize("name", ["give_unpicklable", "give_what_cannot_be_loaded"])
def test_a_result_that_cannot_cross_over_is_a_failure_of_its_call_alone(door, name):
    registry = ToolRegistry([tools.give_unpicklable, tools.give_what_cannot_be_loaded, tools.whereabouts])
    error = failed(door, registry, name)
    assert isinstance(error, ToolError)
    assert error.status in {500, 502}
    assert "not in your process" not in error.user_message
    assert door(registry, "whereabouts").value != os.getpid()


@DOORS
def test_progress_that_cannot_cross_over_is_a_tool_error_or_left_out(door):
    registry = ToolRegistry([tools.tell_unpicklable])
    with contextlib.suppress(ToolFailedError):
        assert door(registry, "tell_unpicklable").value == "told"
    assert len(registry.events) == 1


@DOORS
@pytest.mark.parametrize("how", ["plainly", "unpicklable", "strange", "group"])
def test_what_a_tool_raises_there_is_what_it_would_be_here(door, how):
    error = failed(door, ToolRegistry([tools.fail]), "fail", {"how": how})
    assert isinstance(error, ToolFailedError)
    assert error.user_message == "Tool 'fail' failed: an internal error."
    assert "secret words" in str(error.__cause__)


@DOORS
def test_a_tool_error_made_there_keeps_its_code_status_and_text(door):
    error = failed(door, ToolRegistry([tools.fail]), "fail", {"how": "on purpose"})
    assert (error.code, error.status, error.user_message) == ("no_order", 404, "No such order.")


# ── workers ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@DOORS
def test_a_healthy_worker_is_used_again_by_sync_and_async_tools_and_by_every_registry(door):
    first = door(ToolRegistry([tools.whereabouts]), "whereabouts").value
    again = ToolRegistry([tools.whereabouts, tools.whereabouts_async])
    assert {door(again, name).value for name in ("whereabouts", "whereabouts_async", "whereabouts")} == {first}
    assert alive(first)


@DOORS
def test_a_worker_whose_call_was_killed_is_not_used_again(door, followed):
    registry = ToolRegistry([tools.spin_with_children, tools.whereabouts])
    failed(door, registry, "spin_with_children", diagnostics=followed.scope)
    assert door(registry, "whereabouts").value not in followed.processes


@DOORS
def test_a_failure_costs_no_worker(door):
    registry = ToolRegistry([tools.fail, tools.whereabouts])
    first = door(registry, "whereabouts").value
    failed(door, registry, "fail", {"how": "plainly"})
    assert door(registry, "whereabouts").value == first


def test_max_concurrency_holds_for_processes(tmp_path):
    registry = ToolRegistry([tools.meet])

    async def run():
        return await asyncio.gather(*(registry.execute("meet", {"path": str(tmp_path)}) for _ in range(6)))

    assert asyncio.run(run()) == [2] * 6  # two workers met, and no third was ever needed


def test_calls_from_many_threads_and_a_loop_share_the_pool():
    registry = ToolRegistry([tools.whereabouts, tools.total])
    blocking = [background(by_invoke, registry, "whereabouts") for _ in range(6)]

    async def run():
        raw = {"orders": [{"sku": "a", "count": 5}]}
        return await asyncio.gather(*(registry.execute("total", raw) for _ in range(6)))

    assert asyncio.run(run()) == [5] * 6
    for call in blocking:
        assert call.result(START_S).value != os.getpid()
    assert len(registry.events) == 12


def test_a_function_that_no_worker_could_find_is_refused_at_registration():
    @tool(run_in="process")
    def local() -> int:
        return 1

    with pytest.raises(ToolDefinitionError) as caught:
        ToolRegistry([local])
    assert caught.value.tool == "local"
    assert "module" in caught.value.user_message


def test_nothing_happens_in_this_process():
    before = threading.active_count()
    happened = threading.Event()
    by_invoke(ToolRegistry([tools.whereabouts], diagnostics=watched("tool.started", lambda _: happened.set())), "whereabouts")
    happens(happened)
    assert threading.active_count() <= before + 2
