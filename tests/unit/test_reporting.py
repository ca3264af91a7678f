"""Failure reports and the text that a model reads: rows P8 to P10 and L4; cases e8 to e11."""

import asyncio
import contextvars
import logging
import subprocess
import sys
import textwrap
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.diagnostics import DiagnosticContext, MemoryDestination
from callgate.errors import (
    AbortedError,
    InvalidInputError,
    OutputTooLargeError,
    ToolError,
    ToolFailedError,
    ToolNotFoundError,
    UsageError,
)
from callgate.reporting import ErrorReporter, ToolErrorReport, format_tool_error
from callgate.values import CallContext

WAIT_S = 20.0


def a_report(tool="add", **changes):
    known = {"error": ToolError("no"), "model_text": "no", "started_at": 1.0, "duration_ms": 2.0, "invocation_id": "i1"}
    return ToolErrorReport(call_context=CallContext(call_id="c1"), tool=tool, **{**known, **changes})


class Desk:
    """Has a reporter and what it said about its handler."""

    def __init__(self, handler, **limits):
        self.memory = MemoryDestination()
        self.has_failed = threading.Event()
        scope = DiagnosticContext.of(self.memory).with_observer(lambda event: self.has_failed.set())
        self.reporter = ErrorReporter(handler, lambda: scope, **limits)

    @property
    def failures(self):
        return [event.payload for event in self.memory.named("report.handler_failed")]

    @property
    def reasons(self):
        return [failure.reason for failure in self.failures]


def stop(desk):
    """Ends the daemon loop, which lives as long as its process, so that no test leaves one open."""
    loop = desk.reporter._loop_thread._loop

    async def cancel_others():
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    asyncio.run_coroutine_threadsafe(cancel_others(), loop).result(WAIT_S)
    own = [thread for thread in threading.enumerate() if getattr(thread, "_target", None) == loop.run_forever]
    loop.call_soon_threadsafe(loop.stop)
    for thread in own:  # other registries of this process may have loops of their own
        thread.join(WAIT_S)
    loop.close()


# ── the text that a model reads ──────────────────────────────────────────────────────────────────────────────────────


def test_p8_a_tool_error_keeps_its_message():
    assert format_tool_error(ToolError("The shop is closed.")) == "The shop is closed."


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (None, "No."),
        (True, "No.\nAnother call with other arguments may succeed."),
        (False, "No.\nOther arguments will not help."),
    ],
)
def test_p8_the_text_says_whether_other_arguments_make_sense(other, expected):
    assert format_tool_error(ToolError("No.", try_other_arguments=other)) == expected


@pytest.mark.parametrize(
    "error",
    [
        ValueError("marker"),
        AbortedError("marker"),
        UsageError("marker"),
        KeyError(),
        SystemExit(3),
        ExceptionGroup("marker", [ToolError("marker")]),
    ],
)
def test_p8_anything_else_gives_a_generic_text(error):
    text = format_tool_error(error)
    assert text == "The tool failed with an internal error; its details are not shown."
    assert type(error).__name__ not in text


def test_p8_what_the_tool_raised_is_not_in_the_text():
    error = ToolFailedError("add")
    error.__cause__ = ValueError("marker")
    assert "marker" not in format_tool_error(error)
    assert "'add'" in format_tool_error(error)


def test_e5_a_refused_input_names_the_field():
    text = format_tool_error(InvalidInputError.of("add", "lines[2].price", "a number", "text"))
    assert "lines[2].price: expected a number, got text" in text


@pytest.mark.parametrize(("left", "expected"), [(0, "last attempt"), (-1, "last attempt"), (2, "Attempts left: 2.")])
@pytest.mark.parametrize("error", [ToolNotFoundError("x"), ValueError()])
def test_e11_the_text_says_what_attempts_are_left(left, expected, error):
    assert expected in format_tool_error(error, attempts_left=left)


def test_e11_the_last_attempt_advises_no_other_call():
    text = format_tool_error(OutputTooLargeError("x", 2, 1), attempts_left=0)
    assert text.endswith("\nThis was the last attempt: do not call it again.")
    assert "Another call" not in text


def test_a_huge_message_is_cut_and_its_advice_kept():
    text = format_tool_error(ToolError("x" * 50_000, try_other_arguments=True), attempts_left=0)
    assert len(text) == 4_000
    assert "[cut, 50000 characters]\nThis was the last attempt" in text


class Odd(ToolError):
    """Is a tool's own error without a usable message."""

    def __init__(self, message):
        self.given = message

    @property
    def user_message(self):
        if self.given is ZeroDivisionError:
            raise ZeroDivisionError
        return self.given


@pytest.mark.parametrize("message", ["", " \n", None, 5, ZeroDivisionError])
def test_e9_a_tool_error_without_a_message_gives_a_text_all_the_same(message):
    assert format_tool_error(Odd(message)) == "The tool refused the call and gave no reason."


@given(st.text(st.characters(), max_size=5_000), st.sampled_from([None, True, False]), st.none() | st.integers())
def test_e10_every_text_is_non_empty_bounded_and_can_be_sent(message, other, left):
    text = format_tool_error(ToolError(message, try_other_arguments=other), attempts_left=left)
    assert 0 < len(text.strip()) <= len(text) <= 4_000
    assert text.encode("utf-8")


def test_a_surrogate_pair_in_halves_is_one_character():
    assert format_tool_error(ToolError("\ud83d\ude00 \ud800")) == "😀 \ufffd"


# ── the report ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_e8_a_report_holds_the_error_as_raised_and_the_tools_own_exception():
    own, error = ValueError("x"), ToolFailedError("add")
    error.__cause__ = own
    report = a_report(error=error)
    assert report.error is error
    assert report.cause is own
    assert a_report().cause is None


def test_the_repr_of_a_report_holds_nothing_of_user_or_arguments():
    assert "marker" not in repr(a_report(input={"a": "marker"}, user_context="marker"))


# ── handlers in threads ──────────────────────────────────────────────────────────────────────────────────────────────


def test_p10_a_sync_handler_gets_the_report_in_a_thread_of_ours():
    taken = []
    desk = Desk(lambda report: taken.append((report, threading.current_thread())))
    report = a_report()
    desk.reporter.report(report)
    assert desk.reporter.flush(WAIT_S)
    assert taken[0][0] is report
    assert taken[0][1] is not threading.current_thread()
    assert taken[0][1].daemon
    assert desk.failures == []


def test_p10_the_caller_does_not_wait_for_the_handler():
    go, taken = threading.Event(), []
    desk = Desk(lambda report: go.wait(WAIT_S) and taken.append(report))
    desk.reporter.report(a_report())
    assert not desk.reporter.flush(0)
    assert taken == []
    go.set()
    assert desk.reporter.flush(WAIT_S)
    assert len(taken) == 1


def test_a_handler_runs_in_the_context_of_the_failing_call():
    variable = contextvars.ContextVar("variable", default="none")
    taken = []
    desk = Desk(lambda report: taken.append(variable.get()))
    variable.set("mine")
    desk.reporter.report(a_report())
    assert desk.reporter.flush(WAIT_S)
    assert taken == ["mine"]


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_p10_what_a_sync_handler_raises_is_logged_and_ignored(error):
    def handler(report):
        raise error

    desk = Desk(handler)
    desk.reporter.report(a_report())
    desk.reporter.report(a_report())
    assert desk.reporter.flush(WAIT_S)
    assert desk.reasons == ["raised", "raised"]
    assert desk.failures[0].error is error
    assert (desk.failures[0].tool, desk.failures[0].call_id, desk.failures[0].invocation_id) == ("add", "c1", "i1")


def test_p10_a_failing_handler_is_logged_under_its_fixed_id_even_without_a_destination(caplog):
    def handler(report):
        raise ValueError("broken handler")

    reporter = ErrorReporter(handler, DiagnosticContext)
    reporter.report(a_report())
    assert reporter.flush(WAIT_S)
    [record] = caplog.records
    assert (record.name, record.levelno) == ("callgate", logging.ERROR)
    assert record.getMessage().startswith("callgate.report_handler_failed tool=add call_id=c1")
    assert "broken handler" in caplog.text


def test_p10_a_hanging_handler_is_given_up_logged_and_blocks_no_other():
    go, fine = threading.Event(), threading.Semaphore(0)

    def handler(report):
        if report.tool == "hang":
            go.wait(3 * WAIT_S)
            raise ValueError("too late to be logged")
        fine.release()

    desk = Desk(handler, limit_s=0.05)
    desk.reporter.report(a_report("hang"))
    for _ in range(20):
        desk.reporter.report(a_report("fine"))
    assert all(fine.acquire(timeout=WAIT_S) for _ in range(20))
    assert desk.reporter.flush(WAIT_S)
    assert hung(desk) == [("hang", "timed_out", 0.05)]
    go.set()
    assert desk.reporter.flush(WAIT_S)
    assert hung(desk) == [("hang", "timed_out", 0.05)]


def hung(desk):
    """Tells what was logged of the handler that hangs; on a busy machine a quick one may go over so short a limit too."""
    return [(failure.tool, failure.reason, failure.limit_s) for failure in desk.failures if failure.tool == "hang"]


def test_threads_are_bounded_and_what_is_over_the_queue_is_dropped_counted_and_logged():
    go, running, most, lock = threading.Event(), [0], [0], threading.Lock()

    def handler(report):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        go.wait(WAIT_S)
        with lock:
            running[0] -= 1

    desk = Desk(handler, max_threads=2, max_queued=3)
    for _ in range(100):
        desk.reporter.report(a_report())
    assert 100 - 5 <= desk.reporter.dropped <= 100 - 3
    assert not desk.reporter.flush(0)
    go.set()
    assert desk.reporter.flush(WAIT_S)
    assert most[0] <= 2
    assert desk.reasons == ["dropped"] * 7
    assert [failure.dropped for failure in desk.failures] == [1, 2, 4, 8, 16, 32, 64]


def test_when_all_threads_hang_a_returning_one_takes_what_waits():
    go, ended, taken = threading.Event(), threading.Event(), []

    def handler(report):
        if report.tool == "hang":
            go.wait(3 * WAIT_S)
        taken.append(report.tool)
        if report.tool == "fine":
            ended.set()

    desk = Desk(handler, max_threads=1, limit_s=0.05)
    desk.reporter.report(a_report("hang"))
    desk.reporter.report(a_report("fine"))
    assert desk.has_failed.wait(WAIT_S)
    assert taken == []
    assert hung(desk) == [("hang", "timed_out", 0.05)]
    go.set()
    assert ended.wait(WAIT_S)
    assert taken == ["hang", "fine"]


def test_a_reporter_works_again_after_its_dispatcher_has_ended(monkeypatch):
    monkeypatch.setattr("callgate.reporting._IDLE_S", 0.0)
    taken = []
    desk = Desk(taken.append)
    for count in (1, 2, 3):
        desk.reporter.report(a_report())
        assert desk.reporter.flush(WAIT_S)
        assert len(taken) == count
        dispatcher = desk.reporter._dispatcher
        if dispatcher is not None:
            dispatcher.join(WAIT_S)
        assert desk.reporter._dispatcher is None


def test_when_no_thread_can_start_the_report_is_dropped_and_nothing_raised(monkeypatch):
    def start(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    desk = Desk(pytest.fail)
    desk.reporter.report(a_report())
    assert desk.reasons == ["dropped"]
    assert desk.reporter.flush(0)


def test_p10_an_async_handler_without_a_loop_runs_on_one_loop_of_ours():
    loops = []

    async def handler(report):
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())

    desk = Desk(handler)
    for _ in range(3):
        desk.reporter.report(a_report())
    assert desk.reporter.flush(WAIT_S)
    assert len(loops) == 3
    assert len(set(loops)) == 1
    assert desk.failures == []
    stop(desk)


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_what_an_async_handler_raises_on_our_loop_is_logged_and_the_loop_goes_on(error):
    async def handler(report):
        await asyncio.sleep(0)
        if report.tool == "raise":
            raise error

    desk = Desk(handler)
    desk.reporter.report(a_report("raise"))
    assert desk.reporter.flush(WAIT_S)
    desk.reporter.report(a_report("fine"))
    assert desk.reporter.flush(WAIT_S)
    assert desk.reasons == ["raised"]
    assert desk.failures[0].error is error
    stop(desk)


def test_an_async_handler_that_hangs_without_a_loop_is_given_up_and_blocks_no_other():
    fine = threading.Event()

    async def handler(report):
        if report.tool == "hang":
            await asyncio.Event().wait()
        fine.set()

    desk = Desk(handler, limit_s=0.05)
    desk.reporter.report(a_report("hang"))
    desk.reporter.report(a_report("fine"))
    assert fine.wait(WAIT_S)
    assert desk.reporter.flush(WAIT_S)
    assert hung(desk) == [("hang", "timed_out", 0.05)]
    stop(desk)


async def test_a_plain_function_that_gives_an_awaitable_is_awaited():
    taken = []

    async def post(report):
        taken.append(report.tool)

    desk = Desk(lambda report: post(report))
    desk.reporter.report(a_report())
    assert await desk.reporter.aflush(WAIT_S)
    assert taken == ["add"]
    stop(desk)


# ── handlers on the loop of the call ─────────────────────────────────────────────────────────────────────────────────


class AsyncCallable:
    def __init__(self, taken):
        self.taken = taken

    async def __call__(self, report):
        self.taken.append((report, asyncio.get_running_loop()))


@pytest.mark.parametrize("eager", [False, True])
async def test_p10_an_async_handler_runs_as_a_task_of_the_running_loop_and_not_in_the_call(eager):
    loop, taken = asyncio.get_running_loop(), []
    if eager and hasattr(asyncio, "eager_task_factory"):
        loop.set_task_factory(asyncio.eager_task_factory)
    desk = Desk(AsyncCallable(taken))
    report = a_report()
    desk.reporter.report(report)
    assert taken == []
    assert await desk.reporter.aflush(WAIT_S)
    assert taken == [(report, loop)]
    assert desk.reporter._tasks == set()


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3)])
async def test_p10_what_an_async_handler_raises_is_logged_and_ends_no_run(error):
    async def handler(report):
        raise error

    desk = Desk(handler)
    desk.reporter.report(a_report())
    assert await desk.reporter.aflush(WAIT_S)
    assert desk.reasons == ["raised"]
    assert desk.failures[0].error is error


async def test_a_handler_that_cannot_take_a_report_is_logged():
    async def handler():
        pytest.fail("called")

    desk = Desk(handler)
    desk.reporter.report(a_report())
    assert await desk.reporter.aflush(WAIT_S)
    assert isinstance(desk.failures[0].error, TypeError)


async def test_p10_a_hanging_async_handler_is_given_up_cancelled_and_logged_once():
    ends = []

    async def handler(report):
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("cancelled")

    desk = Desk(handler, limit_s=0.05)
    desk.reporter.report(a_report())
    assert await desk.reporter.aflush(WAIT_S)
    assert desk.reasons == ["timed_out"]
    await asyncio.gather(*desk.reporter._tasks, return_exceptions=True)
    assert ends == ["cancelled"]
    assert desk.reasons == ["timed_out"]


async def test_an_async_handler_that_swallows_its_cancellation_is_given_up_all_the_same():
    go = asyncio.Event()

    async def handler(report):
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    desk = Desk(handler, limit_s=0.05)
    desk.reporter.report(a_report())
    assert await desk.reporter.aflush(WAIT_S)
    assert desk.reasons == ["timed_out"]
    go.set()


@pytest.mark.parametrize("steps", [0, 2])
def test_a_report_that_the_end_of_the_loop_cuts_off_is_logged(steps):
    async def handler(report):
        await asyncio.Event().wait()

    desk = Desk(handler)

    async def main():
        desk.reporter.report(a_report())
        for _ in range(steps):
            await asyncio.sleep(0)

    asyncio.run(main())
    assert desk.reasons == ["cancelled"]
    assert desk.reporter.flush(0)


async def test_tasks_on_the_loop_are_bounded_too():
    async def handler(report):
        await asyncio.Event().wait()

    desk = Desk(handler, max_queued=3)
    for _ in range(5):
        desk.reporter.report(a_report())
    assert desk.reporter.dropped == 2
    assert len(desk.reporter._tasks) == 3
    tasks = [task.cancel() and task for task in desk.reporter._tasks]
    await asyncio.gather(*tasks, return_exceptions=True)


# ── settings and the end of the process ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("handler", "limits"), [(None, {}), (5, {}), (print, {"limit_s": 0}), (print, {"max_threads": 0})])
def test_settings_that_cannot_work_are_refused(handler, limits):
    with pytest.raises(UsageError, match="on_tool_error"):
        ErrorReporter(handler, DiagnosticContext, **limits)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_the_process_exits_cleanly_with_a_hanging_handler(kind):
    program = f"""
        import asyncio, threading
        from callgate.diagnostics import DiagnosticContext
        from callgate.errors import ToolError
        from callgate.reporting import ErrorReporter, ToolErrorReport
        from callgate.values import CallContext
        begun = threading.Event()
        def hang(report):
            begun.set()
            threading.Event().wait()
        async def hang_async(report):
            begun.set()
            await asyncio.Event().wait()
        reporter = ErrorReporter({"hang" if kind == "sync" else "hang_async"}, DiagnosticContext)
        for _ in range(20):
            reporter.report(ToolErrorReport(CallContext(), "t", ToolError("no"), "no", 0.0, 0.0))
        assert begun.wait(20)
        print("done")
    """
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=30, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")
