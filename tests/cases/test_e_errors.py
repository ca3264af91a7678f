"""Cases e2 to e14: what becomes of an error, for the model, for the developer, and for the run."""

import asyncio
import json
import logging
import threading
from typing import Literal

import pytest
from pydantic import BaseModel

from callgate import (
    AbortController,
    CallContext,
    ExecutionOptions,
    InvalidInputError,
    Tool,
    ToolContext,
    ToolError,
    ToolFailedError,
    ToolRegistry,
    tool,
)
from callgate.diagnostics import DiagnosticContext, LoggingDestination, MemoryDestination
from tests.contract import process_tools
from tests.contract.kit import PATIENCE_S, background, by_answer, by_invoke, delivered, ended, happens

CONTEXT = CallContext(run_id="r", call_id="c")
SECRET = "password=hunter2"


@tool(run_in="inline")
def fail_inline():
    raise ValueError(SECRET)


@tool
def fail_in_thread():
    raise ValueError(SECRET)


@tool
async def fail_async():
    raise ValueError(SECRET)


@tool
async def fail_later():
    await asyncio.sleep(0)
    raise ValueError(SECRET)


@tool
def fail_between_items():
    yield 1
    raise ValueError(SECRET)


class FailsAsObject:
    name = "fails_as_object"

    def execute(self):
        raise ValueError(SECRET)


FAILING = (
    fail_inline,
    fail_in_thread,
    fail_async,
    fail_later,
    fail_between_items,
    FailsAsObject(),
    Tool("explicit", lambda parsed: {}[SECRET], input_schema={"type": "object"}),
    process_tools.leak,
)
NAMES = [getattr(each, "name", None) or each.__name__ for each in FAILING]


# ── e2, e4 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("failing", "name"), list(zip(FAILING, NAMES, strict=True)), ids=NAMES)
@pytest.mark.parametrize("offered", [False, True], ids=["registered", "brought by the call"])
def test_e2_e4_an_exception_of_any_tool_anywhere_is_the_same_error_result(failing, name, offered):
    registry = ToolRegistry([] if offered else [failing])
    keywords = {"tools": [failing]} if offered else {}
    reply = by_answer(registry, name, **keywords)
    assert reply.is_error
    assert reply.text == f"Tool '{name}' failed: an internal error."
    assert (reply.error.code, reply.error.status) == ("tool_failed", 500)
    assert SECRET not in repr(reply.invocation)
    with pytest.raises(ToolFailedError) as caught:
        by_invoke(registry, name, **keywords)
    assert caught.value.user_message == reply.text
    assert SECRET in str(caught.value.__cause__)


async def test_e2_a_run_goes_on_after_the_failure_of_each_of_its_tools():
    @tool
    def succeed():
        return "ok"

    registry = ToolRegistry([*FAILING, succeed])
    replies = await asyncio.gather(*(registry.answer(name) for name in [*NAMES, "succeed"]))
    assert [reply.is_error for reply in replies] == [True] * len(NAMES) + [False]
    assert (await registry.execute("succeed")) == "ok"


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_e4_an_error_that_a_tool_makes_for_the_model_is_the_models_answer_wherever_the_tool_is(kind):
    @tool(name="refuse")
    def sync():
        raise ToolError("There is no user 7.", code="no_user", status=404)

    @tool(name="refuse")
    async def not_sync():
        raise ToolError("There is no user 7.", code="no_user", status=404)

    for registry, offer in ((ToolRegistry([sync if kind == "sync" else not_sync]), None), (ToolRegistry([]), [sync])):
        reply = by_answer(registry, "refuse", tools=offer)
        assert reply.text.startswith("There is no user 7.")
        assert (reply.invocation.error_code, reply.invocation.error_status) == ("no_user", 404)


# ── e3 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


class QuotaExhausted(Exception):
    pass


@pytest.mark.parametrize("kind", ["sync", "async", "async later"])
async def test_e3_a_tool_that_must_end_the_run_aborts_it_and_execute_raises_that_very_reason(kind):
    controller, reason = AbortController(), QuotaExhausted("the quota of today is used up")

    def stop(context):
        context.user_context.abort(reason)
        raise reason

    @tool(name="spend")
    def sync(context: ToolContext):
        stop(context)

    @tool(name="spend")
    async def at_once(context: ToolContext):
        stop(context)

    @tool(name="spend")
    async def later(context: ToolContext):
        await asyncio.sleep(0)
        stop(context)

    registry = ToolRegistry([{"sync": sync, "async": at_once, "async later": later}[kind]])
    with pytest.raises(QuotaExhausted) as caught:
        await registry.execute("spend", signal=controller.signal, user_context=controller)
    assert caught.value is reason
    with pytest.raises(QuotaExhausted):
        await registry.answer("spend", signal=controller.signal, user_context=controller)
    assert {event.status for event in registry.events} == {"aborted"}


@pytest.mark.parametrize("kind", ["sync handler", "async handler"])
async def test_e3_a_report_handler_may_end_the_run_of_a_fatal_error_and_its_siblings_raise_that_very_reason(kind):
    controller, waiting = AbortController(), asyncio.Event()

    def stop_if_fatal(report):
        if isinstance(report.cause, QuotaExhausted):
            controller.abort(report.cause)

    async def stop_if_fatal_async(report):
        stop_if_fatal(report)

    @tool(timeout_s=None)
    async def sibling():
        waiting.set()
        await asyncio.sleep(60)

    @tool
    def harmless():
        raise ValueError

    @tool
    def fatal():
        raise QuotaExhausted

    registry = ToolRegistry(
        [sibling, harmless, fatal], on_tool_error=stop_if_fatal if kind == "sync handler" else stop_if_fatal_async
    )
    call = asyncio.create_task(registry.execute("sibling", signal=controller.signal, call_context=CONTEXT))
    await waiting.wait()
    assert (await registry.answer("harmless", call_context=CONTEXT, signal=controller.signal)).is_error
    failed = await registry.answer("fatal", call_context=CONTEXT, signal=controller.signal)
    with pytest.raises(QuotaExhausted) as caught:
        async with asyncio.timeout(PATIENCE_S):
            await call
    assert caught.value is failed.error.__cause__ is controller.signal.reason
    with pytest.raises(QuotaExhausted):
        await registry.execute("harmless", call_context=CONTEXT, signal=controller.signal)


# ── e5, e6 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Todo(BaseModel):
    title: str
    priority: Literal["low", "high"] = "low"
    done: bool = False


@tool
def todos_add(todos: list[Todo]):
    return len(todos)


TODO_SCHEMA = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "priority": {"enum": ["low", "high"]}, "done": {"type": "boolean"}},
    "required": ["title"],
    "additionalProperties": False,
}
SCHEMA_TOOL = Tool(
    "todos_add",
    lambda parsed: len(parsed["todos"]),
    input_schema={
        "type": "object",
        "properties": {"todos": {"type": "array", "items": TODO_SCHEMA}},
        "required": ["todos"],
        "additionalProperties": False,
    },
)
BOTH_FORMS = pytest.mark.parametrize("adder", [todos_add, SCHEMA_TOOL], ids=["signature", "JSON Schema"])


@BOTH_FORMS
def test_e5_the_text_names_the_tool_each_missing_and_each_unknown_argument(adder):
    reply = by_answer(ToolRegistry([adder]), "todos_add", '{"items": [{"title": "a"}]}')
    lines = reply.text.splitlines()
    assert "'todos_add'" in lines[0]
    [missing] = [line for line in lines if line.startswith("- todos:")]
    [unknown] = [line for line in lines if line.startswith("- items:")]
    assert "a list" in missing
    assert "missing" in missing
    assert "todos" in unknown


@BOTH_FORMS
def test_e5_the_text_names_the_place_the_type_and_the_allowed_values(adder):
    raw = {"todos": [{"title": "a"}, {"title": 5, "priority": "urgent", "done": "soon", "colour": "red"}]}
    with pytest.raises(InvalidInputError) as caught:
        by_invoke(ToolRegistry([adder]), "todos_add", raw)
    problems = {problem.path: problem for problem in caught.value.problems}
    assert set(problems) == {"todos[1].title", "todos[1].priority", "todos[1].done", "todos[1].colour"}
    assert "text" in problems["todos[1].title"].expected
    assert "number" in problems["todos[1].title"].got or "integer" in problems["todos[1].title"].got
    assert "low" in problems["todos[1].priority"].expected
    assert "high" in problems["todos[1].priority"].expected
    assert "true or false" in problems["todos[1].done"].expected
    for path in problems:
        assert f"- {path}: " in caught.value.user_message


@BOTH_FORMS
def test_e6_twenty_wrong_items_give_a_short_text_without_links_class_names_or_values(adder):
    reply = by_answer(ToolRegistry([adder]), "todos_add", {"todos": [{"title": {"secret": "marker-7481"}}] * 20})
    assert len(reply.text) < 1_000
    assert len(reply.text.splitlines()) <= 12
    assert "12 more problems" in reply.text
    for unwanted in ("http", "pydantic", "marker-7481", "input_value", "ValidationError", "validation error", "Todo"):
        assert unwanted not in reply.text
    assert len(reply.error.problems) == 20


@BOTH_FORMS
def test_e6_a_huge_wrong_value_does_not_come_back(adder):
    reply = by_answer(ToolRegistry([adder]), "todos_add", {"todos": "x" * 100_000})
    assert len(reply.text) < 500


# ── e8 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_e8_the_very_exception_with_its_traceback_reaches_handler_log_and_observers(kind, caplog):
    raised = ValueError("the original")

    @tool(name="fail")
    def sync():
        raise raised

    @tool(name="fail")
    async def not_sync():
        raise raised

    memory = MemoryDestination()
    seen = []
    registry = ToolRegistry(
        [sync if kind == "sync" else not_sync],
        on_tool_error=seen.append,
        diagnostics=DiagnosticContext.of(LoggingDestination(), memory),
    )
    with pytest.raises(ToolFailedError) as caught:
        by_invoke(registry, "fail", call_context=CONTEXT)
    delivered(registry)
    [report] = seen
    assert report.cause is raised
    assert report.error is caught.value
    [line] = caplog.records
    assert line.exc_info[1] is raised
    [event] = memory.named("tool.failed")
    assert event.payload.error.__cause__ is raised
    frames = []
    trace = raised.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert frames[-1] in {"sync", "not_sync"}


# ── e9, e10 ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

EMPTY = [
    TimeoutError(),
    KeyError("x"),
    Exception(),
    Exception(""),
    AssertionError(),
    StopIteration(),
    asyncio.CancelledError(),
    ExceptionGroup("", [ValueError()]),
    ToolError(""),
    ToolError("   \n"),
    ToolError("", code="", status=0),
]


@pytest.mark.parametrize("error", EMPTY, ids=repr)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_e9_e10_an_exception_without_a_message_gives_a_whole_sentence(error, kind, caplog):
    @tool(name="fail")
    def sync():
        raise error

    @tool(name="fail")
    async def not_sync():
        raise error

    registry = ToolRegistry([sync if kind == "sync" else not_sync])
    reply = by_answer(registry, "fail", call_context=CONTEXT)
    assert len(reply.text) > 20
    assert reply.text.strip()[-1] == "."
    assert not any(line.rstrip().endswith(":") for line in reply.text.splitlines())
    if not isinstance(error, ToolError):
        assert type(error).__name__ in caplog.text


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_e9_the_text_of_a_passed_limit_says_what_was_waited_for_and_how_long(kind):
    stop = threading.Event()

    @tool(name="wait", timeout_s=0.05)
    def sync():
        stop.wait(60)

    @tool(name="wait", timeout_s=0.05)
    async def not_sync():
        await asyncio.sleep(60)

    reply = by_answer(ToolRegistry([sync if kind == "sync" else not_sync]), "wait")
    stop.set()
    assert "'wait'" in reply.text
    assert "0.05 s" in reply.text


async def test_e10_every_failure_gives_a_text_that_a_request_body_can_hold():
    @tool(max_output_bytes=10)
    def write():
        return "x" * 100

    @tool
    def give_nan():
        return float("nan")

    @tool(timeout_s=0.01)
    async def hang():
        await asyncio.sleep(60)

    @tool
    def say_half_a_character():
        raise ToolError("half \ud83d a character")

    registry = ToolRegistry([write, give_nan, hang, say_half_a_character, fail_async])
    calls = [("write", None), ("give_nan", None), ("hang", None), ("say_half_a_character", None), ("fail_async", None)]
    calls += [("nothing", None), ("write", "{"), ("write", {"x": 1}), ("", None), ("\ud800", None)]
    for name, raw in calls:
        reply = await registry.answer(name, raw)
        assert reply.is_error
        body = json.dumps({"content": reply.text, "is_error": reply.is_error}, ensure_ascii=False).encode()
        assert json.loads(body)["content"].strip()


# ── e11, e12 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_e11_e12_a_budget_of_attempts_is_seen_by_tool_and_model_and_its_end_is_an_error_result():
    """Do as a host that grants two more attempts: no attempt ends in an exception, the last one says that it is the last."""
    seen, reports = [], []

    @tool
    def book(seat: int, context: ToolContext):
        seen.append((context.call_context.attempt, context.call_context.attempts_left))
        raise ToolError(f"Seat {seat} is taken.", code="taken", try_other_arguments=True)

    @tool
    def other():
        return "ok"

    registry = ToolRegistry([book, other], on_tool_error=reports.append)
    texts = []
    for attempt in (1, 2, 3):
        context = CallContext(run_id="r", call_id=f"c{attempt}", attempt=attempt, attempts_left=3 - attempt)
        reply = await registry.answer("book", {"seat": attempt}, call_context=context)
        assert reply.is_error
        assert (reply.invocation.tool, reply.invocation.attempt, reply.invocation.error_code) == ("book", attempt, "taken")
        assert reply.error.user_message == f"Seat {attempt} is taken."
        texts.append(reply.text)
    assert seen == [(1, 2), (2, 1), (3, 0)]
    assert "Attempts left: 2." in texts[0]
    assert "Attempts left: 1." in texts[1]
    assert "last attempt" in texts[2]
    assert "Another call" not in texts[2]
    assert texts[2].startswith("Seat 3 is taken.")
    # e12: the last report has tool, count, last reason and cause; the other tool's budget is its own.
    await asyncio.to_thread(delivered, registry)
    last = next(report for report in reports if report.call_context.attempts_left == 0)
    assert (last.tool, last.call_context.attempt, last.error.user_message) == ("book", 3, "Seat 3 is taken.")
    assert last.model_text == texts[2]
    assert not (await registry.answer("other", call_context=CallContext(attempt=1, attempts_left=2))).is_error


@pytest.mark.parametrize(
    ("name", "raw"), [("nothing", None), ("fail_async", {"x": 1}), ("fail_async", "{"), ("fail_async", None)], ids=str
)
async def test_e11_the_last_attempt_is_told_for_every_kind_of_failure(name, raw):
    reply = await ToolRegistry([fail_async]).answer(name, raw, call_context=CallContext(attempt=2, attempts_left=0))
    assert reply.is_error
    assert "last attempt" in reply.text


# ── e13 ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def ending(kind, error):
    """Make a tool that ends the program in one of the places where a tool can run."""

    @tool(name="end", run_in="inline")
    def inline():
        raise error

    @tool(name="end")
    def in_thread():
        raise error

    @tool(name="end")
    async def at_once():
        raise error

    @tool(name="end")
    async def later():
        await asyncio.sleep(0)
        raise error

    return {"inline": inline, "thread": in_thread, "async": at_once, "async later": later}[kind]


KINDS = ["inline", "thread", "async", "async later"]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("kind", KINDS)
def test_e13_what_ends_the_program_propagates_from_every_door_and_is_no_text_for_the_model(kind, error):
    registry = ToolRegistry([ending(kind, error)])
    with pytest.raises(type(error)) as caught:
        registry.invoke("end")
    assert caught.value is error
    for door in (registry.ainvoke, registry.answer, registry.execute):
        with pytest.raises(type(error)):
            asyncio.run(door("end"))
    assert [event.status for event in registry.events] == ["cancelled"] * 4
    assert registry.abandoned() == {}
    assert registry.running() == ()


@pytest.mark.parametrize("kind", KINDS)
def test_e13_the_siblings_are_settled_when_the_program_ends(kind):
    began, cleaned = [], []

    @tool
    async def sibling():
        began.append("sibling")
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            cleaned.append("sibling")

    registry = ToolRegistry([ending(kind, SystemExit(3)), sibling])

    async def run():
        calls = [asyncio.create_task(registry.answer("sibling", call_context=CallContext(call_id=f"s{n}"))) for n in range(2)]
        while len(began) < 2:
            await asyncio.sleep(0)
        await registry.answer("end", call_context=CallContext(call_id="end"))
        await asyncio.gather(*calls)

    with pytest.raises(SystemExit) as caught:
        asyncio.run(run())
    assert caught.value.code == 3
    assert cleaned == ["sibling", "sibling"]
    assert {event.call_id: event.status for event in registry.events} == dict.fromkeys(["s0", "s1", "end"], "cancelled")


def test_e13_a_process_tool_that_exits_ends_nothing_but_its_own_call():
    reply = by_answer(ToolRegistry([process_tools.crash]), "crash")
    assert reply.is_error
    assert reply.invocation.error_code == "tool_failed"


# ── e14 ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("failing", "name"), list(zip(FAILING, NAMES, strict=True)), ids=NAMES)
def test_e14_a_failure_is_one_warning_with_its_call_id_by_default(failing, name, caplog):
    reply = by_answer(ToolRegistry([failing]), name, call_context=CONTEXT)
    [line] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert (line.name, line.levelname) == ("callgate", "WARNING")
    assert line.callgate["call_id"] == "c"
    assert line.callgate["invocation_id"] == reply.invocation.invocation_id
    assert "call_id=c" in line.getMessage()
    assert SECRET not in line.getMessage()
    assert SECRET in caplog.text  # in the traceback, which stays on the server


@pytest.mark.parametrize("level", [logging.DEBUG, logging.ERROR])
def test_e14_the_level_is_settable_and_a_refusal_is_a_failure_too(level, caplog):
    caplog.set_level(logging.DEBUG, "callgate")
    scope = DiagnosticContext.of(LoggingDestination(failure_level=level, success_level=logging.DEBUG))
    registry = ToolRegistry([fail_in_thread], diagnostics=scope)
    for name, raw in (("fail_in_thread", None), ("fail_in_thread", {"x": 1}), ("nothing", None)):
        caplog.clear()
        by_answer(registry, name, raw, call_context=CONTEXT)
        [line] = [record for record in caplog.records if "tool_failed" in record.getMessage()]
        assert line.levelno == level


def test_e14_an_abort_and_a_cancellation_are_no_failures_in_the_log(caplog):
    controller, started = AbortController(), threading.Event()

    @tool(timeout_s=None)
    def wait(context: ToolContext):
        started.set()
        context.signal.wait(60)

    registry = ToolRegistry([wait])
    call = background(by_invoke, registry, "wait", signal=controller.signal, options=ExecutionOptions())
    happens(started)
    controller.abort(QuotaExhausted())
    with pytest.raises(QuotaExhausted):
        ended(call)
    assert caplog.records == []
