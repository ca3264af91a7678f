"""Claims about the process runner, each shown on real processes."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from callgate import ExecutionOptions, ToolRegistry, tool
from callgate.errors import OutputTooLargeError, ToolError, ToolTimeoutError, UsageError
from callgate.running.processes import (
    PoolStats,
    ProcessAborted,
    ProcessDataError,
    ProcessDied,
    ProcessJob,
    ProcessOutputTooLarge,
    ProcessPool,
    ProcessTimeout,
    RemoteToolError,
    require_picklable,
)
from callgate.signals import AbortController, AbortSignal
from tests.unit.running import process_tools as tools

LINUX = sys.platform == "linux"
MB = 1 << 20

pytestmark = pytest.mark.skipif(not LINUX, reason="reads /proc; the whole tree is killed on Linux only")


@pytest.fixture
def pool():
    before = children_of(os.getpid())
    pool = ProcessPool(max_idle=2)
    yield pool
    pool.close(0)
    assert children_of(os.getpid()) <= before, "a keeper is left, alive or as a zombie"


@pytest.fixture(scope="module")
def shared():
    """Give a pool for claims that leave their worker healthy."""
    pool = ProcessPool(max_idle=1)
    yield pool
    pool.close(0)


BOUNDS = ("timeout_s", "start_timeout_s", "deadline", "started")


def run(pool, function, *args, stop=None, **options):
    bounds = {name: options.pop(name) for name in BOUNDS if name in options}
    return pool.run(ProcessJob(function=function, args=args, **options), stop=stop or AbortSignal(), **bounds)


def exists(process):
    return Path(f"/proc/{process}").exists()


def until(predicate, timeout_s=20.0):
    deadline = time.monotonic() + timeout_s
    while not predicate():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def children_of(process):
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == process:
                found.add(int(stat.parent.name))
        except OSError:
            continue
    return found


# What a call runs


def test_a_sync_function_runs_in_another_process(shared):
    assert run(shared, tools.add, 1, kwargs={"b": 2}) == 3
    assert run(shared, tools.process_id) != os.getpid()


@pytest.mark.parametrize("function", [tools.add_async, tools.give_awaitable, partial(tools.add_async, b=1)])
def test_awaitables_are_awaited_in_the_worker(shared, function):
    assert run(shared, function, 1) == 2


@pytest.mark.parametrize("function", [tools.count, tools.count_async])
def test_items_of_a_generator_are_progress_and_their_list_is_the_value(shared, function):
    items = []
    assert run(shared, function, 3, on_progress=items.append) == [0, 1, 2]
    assert items == [0, 1, 2]
    assert run(shared, function, 0) == []


def test_an_item_arrives_while_the_generator_is_still_running(pool):
    controller = AbortController()
    with pytest.raises(ProcessAborted):
        run(pool, tools.sleep_and_tell, stop=controller.signal, on_progress=lambda _: controller.abort())


@pytest.mark.parametrize(
    ("function", "args", "value"),
    [
        (tools.Bound(5).add, (1,), 6),
        (tools.Bound.name, (), "Bound"),
        (tools.Bound.double, (4,), 8),
        (tools.Bound(5), (2,), 10),
        (partial(tools.add, 1), (4,), 5),
        (len, ("abc",), 3),
    ],
)
def test_methods_partials_and_callable_objects_run(shared, function, args, value):
    require_picklable(function)
    assert run(shared, function, *args) == value


def test_the_context_is_built_in_the_worker_and_its_progress_arrives(shared):
    heard = []
    context = {"context_parameter": "context", "context_factory": tools.make_context, "context_data": {"thread": "t1"}}
    assert run(shared, tools.use_context, 3, on_progress=heard.append, **context) == (3, "t1")
    assert heard == [{"half": 3}]


def test_started_is_called_once_and_before_the_end(shared):
    calls = []
    assert run(shared, tools.count, 2, started=lambda: calls.append("started"), on_progress=calls.append) == [0, 1]
    assert calls == ["started", 0, 1]


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, MB, 50 * MB])
def test_results_and_arguments_of_any_size_pass(shared, size):
    assert run(shared, tools.identity, b"y" * size) == b"y" * size


def test_printing_does_not_break_the_protocol(pool, capfd):
    assert run(pool, tools.print_much) == "quiet"
    out, err = capfd.readouterr()
    assert out == ""
    assert "raw noise" in err
    assert "child noise" in err


def test_many_threads_run_jobs_at_the_same_time(pool):
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda n: run(pool, tools.add, n), range(60))) == [n + 1 for n in range(60)]
    assert pool.stats().busy == 0
    assert pool.stats().idle <= 2


# The tool's own exceptions


def test_the_tools_own_exception_is_rebuilt_with_the_workers_traceback_as_a_note(shared):
    with pytest.raises(ValueError, match="the second") as caught:
        run(shared, tools.raise_chained)
    (note,) = caught.value.__notes__
    assert "raise_chained" in note
    assert "the first" in note


def test_a_tool_error_keeps_what_it_is(shared):
    with pytest.raises(ToolError) as caught:
        run(shared, tools.raise_own_error)
    assert (caught.value.user_message, caught.value.status) == ("no such order", 422)


@pytest.mark.parametrize(
    "kind", [TimeoutError, asyncio.CancelledError, GeneratorExit, BaseException, MemoryError, BrokenPipeError]
)
def test_exceptions_that_look_like_the_runners_are_the_tools_own(shared, kind):
    with pytest.raises(kind) as caught:
        run(shared, tools.raise_class, kind, timeout_s=60)
    assert type(caught.value) is kind


@pytest.mark.parametrize(("kind", "name"), [(tools.Explosive, "Explosive"), (tools.Holding, "Holding"), (tools.Mute, "Mute")])
def test_an_exception_that_cannot_travel_is_told_by_name(shared, kind, name):
    with pytest.raises(RemoteToolError) as caught:
        run(shared, tools.raise_class, kind)
    assert caught.value.type_name == name
    assert "raise_class" in caught.value.__notes__[0]


def test_an_exception_with_other_arguments_than_its_args_is_told_by_name(shared):
    with pytest.raises(RemoteToolError, match="Strange: one and two"):
        run(shared, tools.raise_strange)


def test_an_exception_that_ends_who_loads_it_ends_the_worker(pool):
    with pytest.raises(ProcessDied) as caught:
        run(pool, tools.raise_class, tools.ExitOnLoad)
    assert caught.value.exit_code == 7


def test_an_exception_that_hangs_who_loads_it_meets_the_limit(pool):
    with pytest.raises(ProcessTimeout):
        run(pool, tools.raise_class, tools.HangOnLoad, timeout_s=0.3)


# Results that do not travel


def test_an_unpicklable_result_is_an_error_that_names_its_type_and_the_worker_stays(shared):
    before = run(shared, tools.process_id)
    with pytest.raises(ProcessDataError, match=r"the result could not be passed.*lock") as caught:
        run(shared, tools.unpicklable_result)
    assert caught.value.what == "the result"
    assert run(shared, tools.process_id) == before


@pytest.mark.parametrize("function", [tools.explosive_result, tools.exiting_result])
def test_a_result_that_fails_to_load_here_is_an_error(shared, function):
    with pytest.raises(ProcessDataError, match="cannot be loaded here"):
        run(shared, function)


def test_arguments_that_cannot_be_pickled_are_refused_before_anything_runs(pool):
    with pytest.raises(ProcessDataError, match="the function or its arguments"):
        run(pool, tools.identity, threading.Lock())
    assert pool.stats() == PoolStats(0, 0, 0, 0)


def test_an_unpicklable_progress_item_is_the_tools_failure(shared):
    with pytest.raises(ProcessDataError, match="a progress item"):
        run(shared, tools.unpicklable_progress, context_parameter="context", context_factory=tools.make_context)


def test_a_job_that_cannot_be_loaded_is_told_so_and_did_not_begin(shared):
    with pytest.raises(ProcessDied, match="could not be loaded in the worker: RuntimeError: boom") as caught:
        run(shared, tools.identity, tools.UnknownThere())
    assert not caught.value.began


def test_a_failing_progress_listener_kills_the_worker_and_is_raised(pool):
    seen = []

    def listen(item):
        seen.append(item)
        raise LookupError("listener")

    with pytest.raises(LookupError, match="listener"):
        run(pool, tools.sleep_and_tell, on_progress=listen)
    assert not exists(seen[0])


# Ends of the process


@pytest.mark.parametrize(
    ("function", "args", "exit_code", "number", "reason"),
    [
        (tools.exit_hard, (3,), 3, None, "exit code 3"),
        (tools.exit_hard, (0,), 0, None, "exit code 0"),
        (tools.exit_python, (4,), 4, None, "sys.exit"),
        (tools.exit_python, (None,), 0, None, "sys.exit"),
        (tools.exit_python, ("words",), 1, None, "sys.exit"),
        (tools.interrupt, (), None, None, "KeyboardInterrupt"),
        (tools.segfault, (), None, signal.SIGSEGV, "SIGSEGV"),
        (tools.kill_self, (signal.SIGKILL,), None, signal.SIGKILL, "SIGKILL, from outside or by the system"),
        (tools.kill_self, (signal.SIGTERM,), None, signal.SIGTERM, "SIGTERM"),
        (tools.kill_self, (signal.SIGRTMIN + 3,), None, signal.SIGRTMIN + 3, f"signal {signal.SIGRTMIN + 3}"),
        (tools.kill_own_group, (signal.SIGTERM,), None, signal.SIGTERM, "SIGTERM"),
    ],
)
def test_each_end_of_a_process_is_told_apart(pool, function, args, exit_code, number, reason):
    with pytest.raises(ProcessDied, match=reason) as caught:
        run(pool, function, *args)
    assert (caught.value.exit_code, caught.value.signal, caught.value.began) == (exit_code, number, True)
    assert pool.stats().idle == 0


def test_a_worker_whose_keeper_was_killed_is_gone_too(pool):
    left = []
    # The end of the worker's connection and that of its keeper race to the parent: either may be told.
    with pytest.raises(ProcessDied, match=r"keeper|closed its connection"):
        run(pool, tools.kill_keeper, on_progress=left.append)
    until(lambda: not alive(left[0]))


def test_an_answer_that_was_sent_before_the_worker_died_is_taken(pool):
    context = {"context_parameter": "context", "context_factory": tools.make_context}

    def listen(worker):
        until(lambda: not exists(worker))

    answer = run(pool, tools.die_after_the_answer, 150_000, on_progress=listen, **context)
    assert answer == b"z" * 150_000
    assert run(pool, tools.add, 1) == 2


def test_a_worker_that_closes_its_connection_is_killed(pool):
    with pytest.raises(ProcessDied, match="closed its connection"):
        run(pool, tools.close_everything)


@pytest.mark.parametrize("data", [b"\x00" * 17, b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 40])
def test_bytes_that_are_no_message_end_the_call(pool, data):
    with pytest.raises(ProcessDied, match="wrote to its connection"):
        run(pool, tools.write_garbage, data, 3600)


def test_a_message_that_never_becomes_complete_meets_the_limit(pool):
    with pytest.raises(ProcessTimeout):
        run(pool, tools.write_garbage, b"\x00" * 5, 3600, timeout_s=0.3)


def test_a_tool_that_forks_and_returns_twice_answers_once(shared):
    assert run(shared, tools.fork_and_return_twice) == "the parent's"
    assert run(shared, tools.add, 1) == 2


def test_what_a_dying_worker_left_in_another_session_is_killed_too(pool):
    left = []
    with pytest.raises(ProcessDied, match="exit code 5"):
        run(pool, tools.daemon_then_die, on_progress=left.append)
    assert len(left) == 1
    assert not exists(left[0])


# Limit and abort: the whole tree is dead when the call returns


@pytest.mark.parametrize(
    "function",
    [tools.sleep_and_tell, tools.spin_in_c, tools.ignore_signals_and_spin, tools.swallow_cancellation],
)
def test_p4_a_tool_that_ignores_its_limit_is_dead_when_the_call_returns(pool, function):
    left = []
    begun = time.monotonic()
    with pytest.raises(ProcessTimeout) as caught:
        run(pool, function, timeout_s=0.3, on_progress=left.append)
    assert caught.value.limit_s == 0.3
    assert len(left) == 1
    assert not exists(left[0])
    assert time.monotonic() - begun < 30  # the promise is 0.5 s after the limit; a loaded machine needs more to start
    assert pool.stats() == PoolStats(idle=0, busy=0, started=1, killed=1)


def test_p4_children_in_other_sessions_and_daemons_are_dead_at_the_limit(pool):
    told = all_dead_at_the_limit(pool, tools.family, 5)
    assert told == 5


def all_dead_at_the_limit(pool, function, wanted):
    """Give the number of processes that were told, all of them dead; a slow machine gets more time to start them."""
    left = []
    for limit_s in (1, 4, 16):
        left.clear()
        with pytest.raises(ProcessTimeout):
            run(pool, function, timeout_s=limit_s, on_progress=left.append)
        assert [process for process in left if exists(process)] == []
        if len(left) == wanted:
            break
    return len(left)


def test_p4_a_tree_that_keeps_forking_is_dead_at_the_limit(pool, monkeypatch):
    left, mark = [], f"mark-{time.monotonic_ns()}"
    monkeypatch.setenv("CALLGATE_TEST_MARK", mark)
    with pytest.raises(ProcessTimeout):
        run(pool, tools.forking_family, timeout_s=0.5, on_progress=left.append)
    assert not exists(left[0])
    assert marked(mark) == []


def marked(mark):
    """Give the processes that have inherited an environment with `mark` in it."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in environment.read_bytes():
                found.append(int(environment.parent.name))
        except OSError:
            continue
    return found


def test_p4_an_abort_kills_the_tree_and_gives_the_reason(pool):
    left, controller, reason = [], AbortController(), RuntimeError("enough")

    def listen(process):
        left.append(process)
        if len(left) == 5:
            controller.abort(reason)

    with pytest.raises(ProcessAborted) as caught:
        run(pool, tools.family, stop=controller.signal, on_progress=listen)
    assert caught.value.reason is reason
    assert [process for process in left if exists(process)] == []


def test_an_abort_from_another_thread_is_heard_while_nothing_comes_from_the_worker(pool):
    controller, left, begun = AbortController(), [], threading.Event()

    def abort():
        begun.wait(20)
        controller.abort()

    thread = threading.Thread(target=abort)
    thread.start()
    with pytest.raises(ProcessAborted):
        run(pool, tools.spin_in_c, stop=controller.signal, on_progress=lambda item: (left.append(item), begun.set()))
    thread.join()
    assert not exists(left[0])


def test_an_aborted_signal_starts_nothing(pool):
    controller = AbortController()
    controller.abort()
    with pytest.raises(ProcessAborted):
        run(pool, tools.add, 1, stop=controller.signal)
    assert pool.stats().started == 0


def test_an_abort_after_the_end_does_not_reach_the_workers_next_job(pool):
    controller = AbortController()
    first = run(pool, tools.process_id, stop=controller.signal)
    controller.abort()
    assert run(pool, tools.process_id) == first


class UnderWay(AbortSignal):
    """Have a listener that is already being called when it is removed."""

    def add_listener(self, listener):
        self.listener = listener
        return lambda: None


def test_an_abort_that_was_under_way_at_the_end_does_not_reach_the_workers_next_job(pool):
    stop = UnderWay()
    first = run(pool, tools.process_id, stop=stop)
    stop.listener()
    assert run(pool, tools.process_id) == first


def test_a_stopped_keeper_does_not_save_the_tree(pool):
    left = []

    def stop_the_keeper(process):
        left.append(process)
        if len(left) == 2:
            os.kill(process, signal.SIGSTOP)

    with pytest.raises(ProcessTimeout):
        run(pool, tools.family, timeout_s=1.0, on_progress=stop_the_keeper)
    # Nobody but init can reap them now that their keeper was killed.
    until(lambda: not any(alive(process) for process in left))


def alive(process):
    return state_of(process) not in ("gone", "Z")


def state_of(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"


# What comes before the body, and the deadline that bounds it too


def test_the_limit_counts_from_the_body_not_from_the_loading(pool):
    first = run(pool, tools.process_id)
    assert run(pool, tools.identity, tools.SlowToLoad(1.5), timeout_s=1.0) is None
    assert run(pool, tools.process_id) == first, "an idle worker that loads slowly was taken for one that is stopped"


def test_p4_a_deadline_that_passes_while_a_new_worker_starts_kills_it(pool, monkeypatch):
    begun, mark = [], f"mark-{time.monotonic_ns()}"
    monkeypatch.setenv("CALLGATE_TEST_MARK", mark)
    with pytest.raises(ProcessTimeout, match="deadline") as caught:
        run(
            pool,
            tools.identity,
            tools.SlowToLoad(3600),
            deadline=time.monotonic() + 0.5,
            timeout_s=3600,
            started=lambda: begun.append("begun"),
        )
    assert (caught.value.by_deadline, caught.value.began, begun) == (True, False, [])
    assert 0 < caught.value.limit_s <= 0.5
    assert marked(mark) == []
    assert pool.stats() == PoolStats(idle=0, busy=0, started=1, killed=1)


def test_p4_a_deadline_that_passes_while_a_used_worker_loads_kills_it(pool):
    first = run(pool, tools.process_id)
    with pytest.raises(ProcessTimeout) as caught:
        run(pool, tools.identity, tools.SlowToLoad(3600), deadline=time.monotonic() + 0.3)
    assert not caught.value.began
    assert not exists(first)
    assert pool.stats() == PoolStats(idle=0, busy=0, started=1, killed=1)


def test_p4_a_deadline_bounds_the_body_where_the_limit_is_longer(pool):
    left = [run(pool, tools.process_id)]
    with pytest.raises(ProcessTimeout) as caught:
        run(pool, tools.spin_in_c, deadline=time.monotonic() + 2, timeout_s=3600, on_progress=left.append)
    assert (caught.value.by_deadline, caught.value.began) == (True, True)
    assert left == [left[0]] * 2
    assert not exists(left[0])


def test_a_limit_that_comes_before_the_deadline_is_the_one_that_is_told(pool):
    with pytest.raises(ProcessTimeout) as caught:
        run(pool, tools.spin_in_c, deadline=time.monotonic() + 3600, timeout_s=0.2)
    assert (caught.value.limit_s, caught.value.by_deadline) == (0.2, False)


def test_a_deadline_that_has_passed_starts_nothing(pool):
    with pytest.raises(ProcessTimeout) as caught:
        run(pool, tools.add, 1, deadline=time.monotonic() - 1)
    assert (caught.value.limit_s, caught.value.began) == (0.0, False)
    assert pool.stats() == PoolStats(0, 0, 0, 0)


def test_p4_the_registry_answers_504_when_the_deadline_passes_during_the_start(monkeypatch):
    mark = f"mark-{time.monotonic_ns()}"
    monkeypatch.setenv("CALLGATE_TEST_MARK", mark)
    registry = ToolRegistry([tool(tools.with_context, run_in="process", timeout_s=3600)])
    options = ExecutionOptions(deadline=time.monotonic() + 0.5)
    with pytest.raises(ToolTimeoutError) as caught:
        registry.invoke("with_context", None, user_context=tools.SlowToLoad(3600), options=options)
    assert (caught.value.status, caught.value.source) == (504, "deadline")
    assert marked(mark) == []


def test_p4_a_limit_that_counted_from_a_late_start_gives_way_to_the_deadline():
    registry = ToolRegistry([tool(tools.with_context, run_in="process", timeout_s=0.3)])
    options = ExecutionOptions(deadline=time.monotonic() + 1)
    with pytest.raises(ToolTimeoutError) as caught:
        registry.invoke("with_context", None, user_context=tools.SlowToLoad(3600), options=options)
    assert caught.value.source == "deadline"
    assert caught.value.limit_s > 0.3


def test_a_call_can_bound_its_own_start_more_tightly_than_the_pool(pool):
    with pytest.raises(ProcessDied, match=r"not ready within 0\.3 s") as caught:
        run(pool, tools.identity, tools.SlowToLoad(3600), start_timeout_s=0.3)
    assert not caught.value.began
    assert pool.stats() == PoolStats(idle=0, busy=0, started=1, killed=1)


def test_a_call_cannot_give_its_start_more_time_than_the_pool_does():
    pool = ProcessPool(start_timeout_s=0.3)
    with pytest.raises(ProcessDied, match=r"not ready within 0\.3 s"):
        run(pool, tools.identity, tools.SlowToLoad(3600), start_timeout_s=3600)
    pool.close(0)


def test_a_worker_that_is_not_ready_in_time_is_told_so():
    pool = ProcessPool(start_timeout_s=0.5)
    with pytest.raises(ProcessDied, match=r"not ready within 0\.5 s") as caught:
        run(pool, tools.identity, tools.SlowToLoad(3600))
    assert not caught.value.began
    pool.close(0)


# What a generator may give


@pytest.mark.parametrize("function", [tools.flood, tools.flood_async])
@pytest.mark.parametrize("size", [64 * 1024, 70 * MB])
def test_a_generator_that_gives_more_than_is_kept_is_killed(pool, function, size):
    left = []
    with pytest.raises(ProcessOutputTooLarge) as caught:
        run(pool, function, size, timeout_s=3600, on_progress=lambda item: left or left.append(item))
    assert caught.value.limit_bytes == 64 * MB
    assert 64 * MB < caught.value.size_bytes <= 64 * MB + 2 * size
    assert not exists(left[0])
    assert pool.stats() == PoolStats(idle=0, busy=0, started=1, killed=1)


def test_items_below_the_bound_are_given_and_each_job_counts_anew(shared):
    first = run(shared, tools.process_id)
    for _ in range(2):
        assert len(run(shared, tools.give_items, 63, MB)) == 63
    assert run(shared, tools.process_id) == first


def test_progress_is_not_kept_and_not_bounded(shared):
    told = []
    context = {"context_parameter": "context", "context_factory": tools.make_context}
    assert run(shared, tools.tell_much, 70, MB, on_progress=lambda item: told.append(len(item)), **context) == "told"
    assert sum(told) == 70 * MB


def test_p6_the_registry_answers_413_for_a_generator_that_gives_more_than_is_kept():
    registry = ToolRegistry([tool(tools.flood, run_in="process", timeout_s=3600)])
    with pytest.raises(OutputTooLargeError) as caught:
        registry.invoke("flood", {"size": 64 * 1024})
    assert (caught.value.tool, caught.value.limit_bytes) == ("flood", 64 * MB)
    assert isinstance(caught.value.__cause__, ProcessOutputTooLarge)


# Memory and CPU


def test_a_memory_limit_is_a_memory_error_that_names_it(pool):
    with pytest.raises(MemoryError, match=f"memory limit of {512 * MB} bytes"):
        run(pool, tools.allocate, 1024 * MB, max_memory_bytes=512 * MB)
    assert pool.stats().idle == 0, "a worker that met its memory limit is used again"


def test_memory_that_grows_meets_its_limit(pool):
    with pytest.raises(MemoryError, match=f"memory limit of {400 * MB} bytes"):
        run(pool, tools.allocate_for_ever, max_memory_bytes=400 * MB)


def test_a_memory_limit_is_inherited_by_children_and_ends_with_the_call(pool):
    assert run(pool, tools.child_allocates, 1024 * MB, max_memory_bytes=512 * MB) != 0
    assert run(pool, tools.child_allocates, 1, max_memory_bytes=512 * MB) == 0
    before = run(pool, tools.process_id)
    assert run(pool, tools.allocate, 600 * MB) == 600 * MB
    assert run(pool, tools.process_id) == before


def test_a_memory_error_without_a_limit_is_the_tools_own(pool):
    with pytest.raises(MemoryError) as caught:
        run(pool, tools.raise_class, MemoryError)
    assert "limit" not in str(caught.value)


def test_a_cpu_limit_kills_the_process_and_is_named(pool):
    with pytest.raises(ProcessDied, match=r"^CPU limit of 0\.5 s$") as caught:
        run(pool, tools.spin_in_c, max_cpu_s=0.5, timeout_s=50)
    assert caught.value.signal == signal.SIGXCPU


def test_a_cpu_limit_counts_for_each_call_anew(pool):
    first = run(pool, tools.process_id)
    for _ in range(3):
        assert run(pool, tools.use_cpu, 0.6, max_cpu_s=1) == "used"
    assert run(pool, tools.use_cpu, 1.2) == "used"
    assert run(pool, tools.process_id) == first


def test_a_limit_that_the_system_refuses_runs_nothing(pool):
    with pytest.raises(ProcessDied, match=r"the memory limit of .* bytes could not be set") as caught:
        run(pool, tools.add, 1, max_memory_bytes=1 << 80)
    assert not caught.value.began
    assert run(pool, tools.add, 1) == 2


@pytest.mark.parametrize(
    "limits", [{"max_memory_bytes": 0}, {"max_memory_bytes": -5}, {"max_cpu_s": float("nan")}, {"max_cpu_s": -1.0}]
)
def test_a_limit_that_makes_no_sense_is_a_usage_error(limits):
    with pytest.raises(UsageError, match=next(iter(limits))):
        ProcessJob(function=tools.add, **limits)


# Workers are reused while they are healthy


def test_a_healthy_worker_is_used_again_and_replaced_after_its_calls():
    pool = ProcessPool(max_calls=3)
    processes = [run(pool, tools.process_id) for _ in range(7)]
    assert [processes.count(process) for process in dict.fromkeys(processes)] == [3, 3, 1]
    assert not exists(processes[0])
    assert pool.stats() == PoolStats(idle=1, busy=0, started=3, killed=0)
    pool.close(0)


def test_an_idle_worker_that_died_is_replaced_before_use(pool):
    first = run(pool, tools.process_id)
    os.kill(first, signal.SIGKILL)
    until(lambda: not exists(first))
    assert run(pool, tools.process_id) != first
    assert pool.stats() == PoolStats(idle=1, busy=0, started=2, killed=0)


def test_a_worker_that_dies_as_it_takes_a_job_does_not_cost_the_job(pool):
    first = run(pool, tools.process_id)
    os.kill(first, signal.SIGKILL)  # the keeper may or may not have told of it when the job comes
    assert run(pool, tools.add, 1) == 2


def freeze(process):
    os.kill(process, signal.SIGSTOP)
    until(lambda: state_of(process) == "T")


def test_a_stopped_idle_worker_is_killed_and_its_job_runs_once_in_a_new_one(pool, tmp_path):
    notes = tmp_path / "notes"
    first = run(pool, tools.take_note, str(notes))
    freeze(first)
    second = run(pool, tools.take_note, str(notes), timeout_s=3600)
    assert first != second
    assert not exists(first)
    assert notes.read_text().split() == [str(first), str(second)]
    assert pool.stats() == PoolStats(idle=1, busy=0, started=2, killed=1)


def test_a_large_job_for_a_stopped_idle_worker_goes_to_a_new_one(pool):
    freeze(run(pool, tools.process_id))
    assert run(pool, tools.echo_size, bytes(20 * MB)) == 20 * MB
    assert pool.stats() == PoolStats(idle=1, busy=0, started=2, killed=1)


def test_a_job_meets_at_most_one_stopped_worker(pool):
    idle = []
    first = run(pool, tools.tell_id, on_progress=lambda item: idle.extend([item, run(pool, tools.process_id)]))
    assert (first, pool.stats().idle) == ([idle[0]], 2)
    for worker in idle:
        freeze(worker)
    assert run(pool, tools.process_id) not in idle
    assert pool.stats() == PoolStats(idle=2, busy=0, started=3, killed=1)


def test_p4_a_deadline_bounds_the_wait_for_a_stopped_worker(pool):
    first = run(pool, tools.process_id)
    freeze(first)
    with pytest.raises(ProcessTimeout) as caught:
        run(pool, tools.add, 1, deadline=time.monotonic() + 0.2)
    assert not caught.value.began
    assert not exists(first)
    assert pool.stats() == PoolStats(idle=0, busy=0, started=1, killed=1)


def test_a_bound_for_the_start_ends_the_wait_for_a_stopped_worker_without_another_try(pool):
    freeze(run(pool, tools.process_id))
    with pytest.raises(ProcessDied, match=r"not ready within 0\.2 s"):
        run(pool, tools.add, 1, start_timeout_s=0.2)
    assert pool.stats() == PoolStats(idle=0, busy=0, started=1, killed=1)


def test_a_job_that_kills_whoever_loads_it_is_not_tried_for_ever(pool):
    run(pool, tools.add, 1)
    with pytest.raises(ProcessDied, match="exit code 9") as caught:
        run(pool, tools.identity, tools.KillsItsLoader())
    assert not caught.value.began
    assert pool.stats().started == 2


def test_a_call_that_leaves_a_thread_behind_costs_its_worker(pool):
    left = run(pool, tools.leave_a_thread)
    assert not exists(left)
    assert run(pool, tools.process_id) != left


@pytest.mark.parametrize("function", [tools.leave_a_child, tools.leave_a_daemon])
def test_a_call_that_leaves_a_process_behind_costs_its_worker_and_the_process(pool, function):
    left = run(pool, function)
    assert [process for process in left if exists(process)] == []
    assert pool.stats().idle == 0


def test_progress_after_the_end_is_dropped(pool):
    heard = []
    context = {"context_parameter": "context", "context_factory": tools.make_context}
    first = run(pool, tools.progress_from_a_thread_after_the_end, on_progress=heard.append, **context)
    told = len(heard)
    for _ in range(500):  # while the thread sends once a millisecond
        assert run(pool, tools.process_id, on_progress=heard.append) == first
    assert len(heard) == told


def test_a_worker_outlives_the_thread_that_started_it(pool):
    found = []
    thread = threading.Thread(target=lambda: found.append(run(pool, tools.process_id)))
    thread.start()
    thread.join()
    assert run(pool, tools.process_id) == found[0]


def test_no_more_than_the_wanted_number_of_workers_stays_idle():
    pool = ProcessPool(max_idle=0)
    assert not exists(run(pool, tools.process_id))
    assert pool.stats() == PoolStats(idle=0, busy=0, started=1, killed=0)
    pool.close(0)


def test_a_worker_can_have_a_pool_of_its_own_and_a_killed_one_takes_it_along(pool):
    worker, below = run(pool, tools.nested)
    assert len({os.getpid(), worker, below}) == 3
    assert all_dead_at_the_limit(pool, tools.nested_and_hang, 2) == 2


# Sessions and descriptors


def test_workers_are_in_sessions_of_their_own_where_the_terminals_interrupt_does_not_reach(shared):
    worker, session, group = run(shared, tools.session_and_group)
    assert worker == session == group
    assert os.getsid(0) != session


def test_descriptors_of_the_parent_do_not_leak_into_workers(pool, tmp_path):
    secret = tmp_path / "secret"
    with secret.open("w") as file:
        os.set_inheritable(file.fileno(), True)
        opened = run(pool, tools.open_files)
    assert str(secret) not in opened
    assert sum("socket:" in name for name in opened) == 1


def test_200_calls_and_20_kills_leave_no_descriptor_and_no_process(pool):
    run(pool, tools.add, 1)
    before, children = len(list(Path("/proc/self/fd").iterdir())), children_of(os.getpid())
    for number in range(200):
        assert run(pool, tools.add, number) == number + 1
    for _ in range(20):
        with pytest.raises(ProcessDied):
            run(pool, tools.exit_hard, 1)
    assert run(pool, tools.add, 1) == 2
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert len(children_of(os.getpid())) == len(children), "more than the keepers of idle workers is left"


# Closing


def test_close_waits_for_a_job_and_leaves_no_worker():
    pool = ProcessPool()
    begun, values = threading.Event(), []
    thread = threading.Thread(target=lambda: values.append(run(pool, time.sleep, 0.3, started=begun.set)))
    thread.start()
    begun.wait(20)
    pool.close(20)
    thread.join()
    assert values == [None]
    assert pool.stats() == PoolStats(idle=0, busy=0, started=1, killed=0)


def test_close_kills_a_job_that_does_not_end():
    pool = ProcessPool()
    begun, left, errors = threading.Event(), [], []

    def call():
        try:
            run(pool, tools.spin_in_c, on_progress=lambda process: (left.append(process), begun.set()))
        except ProcessDied as error:
            errors.append(error.reason)

    thread = threading.Thread(target=call)
    thread.start()
    begun.wait(20)
    pool.close(0)
    assert not exists(left[0])
    thread.join(20)
    assert errors == ["the process pool was closed"]
    with pytest.raises(ProcessDied, match="was closed"):
        run(pool, tools.add, 1)
    pool.close(0)


def test_a_dropped_pool_takes_its_workers_with_it():
    pool = ProcessPool()
    worker = run(pool, tools.process_id)
    del pool
    until(lambda: not exists(worker))


# The end of the parent


PARENT = """
    import os, sys, time
    from callgate.running.processes import ProcessJob, ProcessPool
    from callgate.signals import AbortSignal
    from tests.unit.running import process_tools as tools

    def tell(item):
        print(item, flush=True)

    def own():
        return os.getpid()

    def family():
        yield from tools.family()

    pool = ProcessPool()

    def run(function, *args, **options):
        return pool.run(ProcessJob(function=function, args=args, **options), stop=AbortSignal())

    if __name__ == "__main__":
        __BODY__
"""


def script(tmp_path, body):
    path = tmp_path / "main_script.py"
    path.write_text(textwrap.dedent(PARENT).replace("__BODY__", body.replace("\n", "\n    ")))
    return path


@contextlib.contextmanager
def start(tmp_path, body):
    command = [sys.executable, str(script(tmp_path, body))]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **streams, text=True, env=environment(), start_new_session=True) as parent:
        try:
            yield parent
        finally:
            parent.kill()


def environment():
    """Let a script import what the tests import."""
    roots = (str(Path(__file__).parents[3]), *filter(None, sys.path))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(roots)}


def outcome(tmp_path, body):
    with start(tmp_path, body) as parent:
        out, err = parent.communicate(timeout=50)
    return out.split("\n"), err, parent.returncode


def test_functions_of_the_main_script_run(tmp_path):
    out, err, code = outcome(tmp_path, "print(run(own) != os.getpid())")
    assert (out[0], err, code) == ("True", "", 0)


def test_workers_are_gone_when_the_parent_has_exited(tmp_path):
    out, err, code = outcome(tmp_path, "print(run(own))")
    assert (err, code) == ("", 0)
    assert not exists(int(out[0]))


def test_a_busy_tree_is_gone_when_the_parent_has_exited_with_the_call_in_a_thread(tmp_path):
    body = """import threading
threading.Thread(target=run, args=(family,), kwargs={"on_progress": tell}, daemon=True).start()
sys.stdin.readline()"""
    with start(tmp_path, body) as parent:
        left = [int(parent.stdout.readline()) for _ in range(5)]
        assert all(map(exists, left))
        parent.communicate(timeout=50)
    until(lambda: not any(map(exists, left)))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
def test_a_busy_tree_is_gone_after_the_parent_was_killed(tmp_path, number):
    with start(tmp_path, "run(family, on_progress=tell)") as parent:
        left = [int(parent.stdout.readline()) for _ in range(5)]
        assert all(map(exists, left))
        parent.send_signal(number)
        parent.communicate(timeout=50)
    until(lambda: not any(map(exists, left)))


def test_a_worker_is_gone_when_its_keeper_and_its_parent_were_killed(tmp_path):
    with start(tmp_path, "run(family, on_progress=tell)") as parent:
        left = [int(parent.stdout.readline()) for _ in range(5)]
        parent.send_signal(signal.SIGSTOP)
        os.kill(left[1], signal.SIGKILL)
        until(lambda: not alive(left[0]))
        parent.kill()
        for orphan in left[2:]:  # nobody is left who could know of them
            with contextlib.suppress(ProcessLookupError):
                os.kill(orphan, signal.SIGKILL)


def test_an_interrupt_of_the_terminal_reaches_the_parent_alone(tmp_path):
    body = """first = run(own)
try:
    tell(first)
    time.sleep(50)
except KeyboardInterrupt:
    tell(run(own) == first)"""
    with start(tmp_path, body) as parent:
        parent.stdout.readline()
        os.killpg(parent.pid, signal.SIGINT)
        out, err = parent.communicate(timeout=50)
    assert (out, err) == ("True\n", "")


def test_an_interrupted_call_leaves_nothing(tmp_path):
    with start(tmp_path, "run(family, on_progress=tell)") as parent:
        left = [int(parent.stdout.readline()) for _ in range(5)]
        os.killpg(parent.pid, signal.SIGINT)
        _, err = parent.communicate(timeout=50)
    assert "KeyboardInterrupt" in err
    assert not any(map(exists, left))


def test_a_script_without_a_guard_is_told_what_to_do_instead_of_starting_workers_for_ever(tmp_path):
    path = tmp_path / "unguarded.py"
    path.write_text(textwrap.dedent(PARENT).split("if __name__")[0] + "print(run(own))\n")
    ended = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, env=environment(), check=False)
    assert ended.returncode == 1
    assert "if __name__ ==" in ended.stderr.splitlines()[-1]


def test_a_forked_copy_of_the_parent_has_workers_of_its_own(tmp_path):
    body = """first = run(own)
child = os.fork()
if child == 0:
    tell(run(own) != first)
    sys.exit(0)
os.waitpid(child, 0)
tell(run(own) == first)"""
    out, err, code = outcome(tmp_path, body)
    assert (out[:2], err, code) == (["True", "True"], "", 0)


def test_a_parent_that_ignores_and_blocks_sigchld_gets_its_answers(tmp_path):
    body = """import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD, signal.SIGXCPU])
tell(run(own) == run(own))
try:
    run(tools.exit_hard, 3)
except Exception as error:
    tell(error.exit_code)"""
    out, err, code = outcome(tmp_path, body)
    assert (out[:2], err, code) == (["True", "3"], "", 0)


def test_importing_the_runner_does_not_import_multiprocessing():
    code = "import sys, callgate.running.processes; print('multiprocessing' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True)
    assert ended.stdout == "False\n"


# What can be sent at all


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda: None, "a lambda has no name"),
        (tools.outer(), "defined inside a function"),
        (partial(tools.outer()), "defined inside a function"),
        (tools.shadowed, "something else than the function"),
        (tools.Locked().method, "the object that it belongs to"),
        (partial(tools.add, threading.Lock()), "was bound to cannot be pickled"),
        (threading.Lock().acquire, "cannot be pickled"),
    ],
)
def test_a_function_that_no_worker_could_find_is_refused_with_the_reason(function, reason):
    with pytest.raises(ProcessDataError, match=reason):
        require_picklable(function)


def test_a_function_of_a_shell_is_refused_with_the_reason():
    code = """
        from callgate.running.processes import require_picklable
        def own(): pass
        try:
            require_picklable(own)
        except Exception as error:
            print(error.reason)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True)
    assert "defined in a shell" in ended.stdout


def test_an_interpreter_that_cannot_be_started_is_told(pool, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(ProcessDied, match="no worker process could be started"):
        run(pool, tools.add, 1)
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(UsageError, match="POSIX"):
        run(pool, tools.add, 1)
