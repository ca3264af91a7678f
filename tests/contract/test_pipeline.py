"""Rows P1 to P12 of the contract: the one pipeline, through both doors."""

import asyncio
import dataclasses
import gc
import hashlib
import json
import logging
import os
import pickle
import queue
import re
import threading
import time
import weakref
from contextvars import ContextVar
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any, Literal

import psutil
import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from callgate import (
    AbortController,
    AbortedError,
    AbortSignal,
    BinaryBlock,
    CallContext,
    DuplicateToolError,
    ErrorPorts,
    ExecutionOptions,
    InvalidInputError,
    InvalidOutputError,
    OutputTooLargeError,
    TextBlock,
    Tool,
    ToolAnswer,
    ToolCallRecord,
    ToolContext,
    ToolDeniedError,
    ToolError,
    ToolErrorReport,
    ToolFailedError,
    ToolInvocationRequest,
    ToolNotFoundError,
    ToolNotOfferedError,
    ToolRegistry,
    ToolReply,
    ToolResult,
    ToolTimeoutError,
    UsageError,
    format_tool_error,
    tool,
)
from callgate.diagnostics import DiagnosticContext, MemoryDestination
from callgate.reporting import ErrorReporter
from tests.contract import process_tools
from tests.contract.kit import (
    PATIENCE_S,
    background,
    by_ainvoke,
    by_answer,
    by_execute,
    by_invoke,
    delivered,
    ended,
    everything_said,
    failure,
    happens,
    watched,
)

SECRET = "password=hunter2"
CONTEXT = CallContext(run_id="r1", call_id="c1", step=3, attempt=2, approved_by="ada")


def named(name, **options):
    return Tool(name, lambda: name, **options)


@tool(kind="read")
def divide(a: int, b: int = 1) -> float:
    """Divide."""
    return a / b


def plain(a: int) -> int:
    return a


class Method:
    def method(self, a: int) -> int:
        return a


class Duck:
    name = "duck"

    def execute(self, a: int) -> int:
        return a


# ── P1: offered? ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_p1_without_an_offer_the_catalog_is_the_offer(call):
    registry = ToolRegistry([named("a"), named("b")])
    assert [call(registry, name).value for name in ("a", "b")] == ["a", "b"]


def test_p1_without_an_offer_an_unknown_name_is_404(call):
    error = failure(call, ToolRegistry([named("a")]), "b")
    assert isinstance(error, ToolNotFoundError)
    assert (error.status, error.code, error.tool) == (404, "tool_not_found", "b")


@pytest.mark.parametrize("offer", [["a"], ("a",), {"a"}, iter(["a"])], ids=["list", "tuple", "set", "iterator"])
def test_p1_a_registered_name_outside_the_offer_is_403(call, offer):
    error = failure(call, ToolRegistry([named("a"), named("b")]), "b", tools=offer)
    assert isinstance(error, ToolNotOfferedError)
    assert (error.status, error.code, error.tool) == (403, "tool_not_offered", "b")


def test_p1_an_unknown_name_outside_the_offer_is_403_as_well(call):
    assert failure(call, ToolRegistry([named("a")]), "z", tools=["a"]).status == 403


@pytest.mark.parametrize("offer", [None, ["alias"]], ids=["catalog", "offer"])
def test_p1_a_tool_passed_for_its_name_is_refused_with_the_name(call, offer):
    def work() -> int:
        return 1

    things = [tool(name="alias")(work), named("b")]
    registry = ToolRegistry(things)
    error = failure(call, registry, things[0], tools=offer)
    assert "(function, not a name: pass its name, 'alias')" in str(error)
    assert registry.events[-1].tool == "(function, not a name)"
    if offer is None:
        assert "(Tool, not a name: pass its name, 'b')" in str(failure(call, registry, things[1]))


def test_p1_a_thing_passed_for_a_name_names_no_tool_that_the_call_cannot_run(call):
    things = [named("a"), named("b")]
    assert "'(Tool, not a name)'" in str(failure(call, ToolRegistry(things), things[1], tools=["a"]))
    assert "'(function, not a name)'" in str(failure(call, ToolRegistry(things), named))


@pytest.mark.parametrize(
    ("offer", "says"),
    [("a", "a list of tools or of their names, not a text: pass [name]"), (named("a"), "their names, not Tool: pass [tool]")],
    ids=["text", "tool"],
)
def test_p1_one_thing_is_no_offer(call, offer, says):
    with pytest.raises(UsageError, match=re.escape(says)):
        call(ToolRegistry([named("a")]), "a", tools=offer)


def test_p1_an_empty_offer_offers_nothing(call):
    assert failure(call, ToolRegistry([named("a")]), "a", tools=[]).status == 403


def test_p1_a_name_in_an_offer_that_no_tool_has_offers_nothing(call):
    assert failure(call, ToolRegistry([named("a")]), "z", tools=["z"]).status == 403


def test_p1_a_tool_that_is_refused_does_not_run(call):
    ran = []
    registry = ToolRegistry([Tool("a", lambda: ran.append(1)), named("b")])
    failure(call, registry, "a", tools=["b"])
    assert ran == []


def test_p1_an_offer_by_name_runs_the_tool(call):
    assert call(ToolRegistry([named("a"), named("b")]), "b", tools=["a", "b"]).value == "b"


SAME = {
    "a Tool": named("t"),
    "a decorated function": divide,
    "a plain function": plain,
    "a bound method": Method().method,
    "an object": Duck(),
}


@pytest.mark.parametrize("thing", SAME.values(), ids=SAME)
def test_p1_what_was_registered_can_be_offered_as_it_is(call, thing):
    registry = ToolRegistry([thing])
    name = registry.ids()[0]
    arguments = None if name == "t" else {"a": 4}
    assert call(registry, name, arguments, tools=[thing]).invocation.tool == name
    assert call(registry, name, arguments, tools=registry.list()).invocation.tool == name


@pytest.mark.parametrize("thing", SAME.values(), ids=SAME)
def test_p1_a_tool_may_be_offered_twice_by_name_and_as_itself(call, thing):
    registry = ToolRegistry([thing])
    name = registry.ids()[0]
    assert call(registry, name, None if name == "t" else {"a": 4}, tools=[name, thing, thing]).invocation.tool == name


@pytest.mark.parametrize("thing", SAME.values(), ids=SAME)
def test_p1_an_additional_tool_runs_for_this_call_alone(call, thing):
    registry = ToolRegistry([named("a")])
    name = ToolRegistry([thing]).ids()[0]
    arguments = None if name == "t" else {"a": 4}
    assert call(registry, name, arguments, tools=[thing, "a"]).invocation.tool == name
    assert registry.ids() == ("a",)
    assert failure(call, registry, name, arguments).status == 404
    assert failure(call, registry, name, arguments, tools=["a"]).status == 403


def test_p1_an_additional_tool_may_come_although_the_registry_is_sealed(call):
    registry = ToolRegistry([]).seal()
    assert call(registry, "guest", tools=[named("guest")]).value == "guest"


def test_p1_an_additional_tool_goes_through_the_very_same_pipeline(call):
    @tool(kind="guest", timeout_s=0.05, max_output_bytes=20)
    def guest(text: str, context: ToolContext) -> str:
        if text == "wait":
            context.signal.wait(30)
        if text == "fail":
            raise ValueError(SECRET)
        return text

    reports = []
    registry = ToolRegistry(
        [named("a")], authorize=lambda asked: asked.arguments != {"text": "denied"}, on_tool_error=reports.append
    )
    assert call(registry, "guest", {"text": "fine"}, tools=[guest]).invocation.kind == "guest"
    bad = [{"text": 1}, {"text": "denied"}, {"text": "wait"}, {"text": "x" * 30}, {"text": "fail"}]
    statuses = [failure(call, registry, "guest", each, tools=[guest], call_context=CONTEXT).status for each in bad]
    delivered(registry)
    assert statuses == [400, 403, 504, 413, 500]
    assert [each.status for each in registry.events] == ["succeeded", "failed", "denied", "failed", "failed", "failed"]
    assert len(reports) == 5


def test_p1_an_additional_tool_keeps_its_concurrency_across_calls(call):
    begun, go_on, asked = threading.Event(), threading.Event(), threading.Semaphore(0)

    def work(arguments: object) -> None:
        assert not begun.is_set() or go_on.is_set()
        begun.set()
        go_on.wait(30)

    guest = Tool("guest", work, parse_input=lambda arguments: asked.release(), max_concurrency=1)
    registry = ToolRegistry([])
    calls = [background(call, registry, "guest", tools=[guest]) for _ in range(2)]
    assert asked.acquire(timeout=PATIENCE_S)
    assert asked.acquire(timeout=PATIENCE_S)
    happens(begun)
    go_on.set()
    assert [ended(each).invocation.status for each in calls] == ["succeeded"] * 2


def test_p1_an_additional_tool_does_not_take_the_place_of_a_registered_one(call):
    ran = []
    registry = ToolRegistry([named("a")])
    with pytest.raises(DuplicateToolError):
        call(registry, "a", tools=[Tool("a", lambda: ran.append(1))])
    assert ran == []


def test_p1_an_offer_made_once_serves_many_calls(call):
    registry = ToolRegistry([named("a"), named("b")])
    offer = registry.offer(["a", named("guest")])
    assert [call(registry, name, tools=offer).value for name in ("a", "guest", "a")] == ["a", "guest", "a"]
    assert failure(call, registry, "b", tools=offer).status == 403


def test_p1_a_loosely_spelt_name_stays_inside_the_offer(call):
    registry = ToolRegistry([named("find_order"), named("drop_order")])
    result = call(registry, "functions.find-order", tools=["find_order"])
    assert result.invocation.tool == "find_order"
    assert any("find_order" in repair for repair in result.invocation.repairs)
    assert failure(call, registry, "functions.drop-order", tools=["find_order"]).status == 403


@pytest.mark.parametrize(
    "name", [None, 7, ["a"], {}, b"a", "", "\ud800", "a\x00", "x" * 100_000], ids=lambda name: repr(name)[:12]
)
def test_p1_a_name_of_any_kind_is_only_not_found(call, name):
    registry = ToolRegistry([named("a")])
    assert failure(call, registry, name).status == 404
    assert failure(call, registry, name, tools=["a"]).status == 403
    assert len(registry.events) == 2


def test_p1_the_refusal_names_what_may_be_called(call):
    error = failure(call, ToolRegistry([named("find_order"), named("pay")]), "find_ordr", tools=["find_order"])
    assert error.nearest == ("find_order",)
    assert "find_order" in error.user_message
    assert "pay" not in error.user_message


# ── P2: input ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Line(BaseModel):
    article: str
    price: float = Field(ge=0)


class Address(TypedDict):
    city: str


@tool
def order(lines: list[Line], to: Address, speed: Literal["slow", "fast"] = "slow", note: str | None = None) -> int:
    """Order."""
    return len(lines)


GOOD: dict[str, Any] = {"lines": [{"article": "pen", "price": 1.5}], "to": {"city": "Ulm"}}

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({"lines": GOOD["lines"]}, "to"),
    "wrong type": ({**GOOD, "to": 7}, "to"),
    "nested missing": ({**GOOD, "to": {}}, "to.city"),
    "in a list": ({**GOOD, "lines": [*GOOD["lines"], {"article": "pen", "price": "dear"}]}, "lines[1].price"),
    "too small": ({**GOOD, "lines": [{"article": "pen", "price": -1}]}, "lines[0].price"),
    "not listed": ({**GOOD, "speed": "warp"}, "speed"),
    "unknown": ({**GOOD, "sped": "fast"}, "sped"),
    "unknown inside": ({**GOOD, "to": {"city": "Ulm", "zip": 1}}, "to.zip"),
}


@pytest.mark.parametrize(("arguments", "path"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("form", [lambda x: x, json.dumps, lambda x: json.dumps(x).encode()], ids=["object", "text", "bytes"])
def test_p2_input_that_fails_is_a_400_that_names_the_field(call, arguments, path, form):
    error = failure(call, ToolRegistry([order]), "order", form(arguments))
    assert isinstance(error, InvalidInputError)
    assert (error.status, error.code) == (400, "invalid_input")
    assert [problem.path for problem in error.problems] == [path]
    assert path in error.user_message


def test_p2_the_problem_says_what_was_expected_and_what_came(call):
    problem = failure(call, ToolRegistry([order]), "order", {**GOOD, "lines": [{"article": 5, "price": 1}]}).problems[0]
    assert "text" in problem.expected
    assert "integer" in problem.got
    assert str(problem) == f"lines[0].article: expected {problem.expected}, got {problem.got}"


def test_p2_every_field_at_fault_is_named(call):
    error = failure(call, ToolRegistry([order]), "order", {"lines": 7, "speed": "warp"})
    assert {problem.path for problem in error.problems} == {"lines", "to", "speed"}


def test_p2_an_unknown_argument_is_refused_with_the_nearest_known_name(call):
    error = failure(call, ToolRegistry([order]), "order", {**GOOD, "sped": "fast"})
    assert "speed" in error.problems[0].hint


def test_p2_the_text_holds_no_library_internals_and_no_value(call):
    registry = ToolRegistry([order])
    for arguments in ({**GOOD, "to": {"city": 4711}}, {**GOOD, "speed": SECRET}, {"lines": [SECRET] * 20, "to": {}}):
        error = failure(call, registry, "order", arguments)
        said = everything_said(error, registry) + by_answer(registry, "order", arguments).text
        for word in ("pydantic", "https://", "validation error", "Traceback", "type=", "input_value", "Line", "4711", "hunter2"):
            assert word not in said, word


@pytest.mark.parametrize(
    "schema", [{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}], ids=["schema"]
)
def test_p2_a_raw_schema_names_fields_in_the_same_way(call, schema):
    registry = ToolRegistry([Tool("t", lambda arguments: arguments["n"], input_schema=schema)])
    for arguments in ({"n": "x"}, {}, {"n": None}):
        assert [each.path for each in failure(call, registry, "t", arguments).problems] == ["n"]


@pytest.mark.parametrize("raw", [GOOD, json.dumps(GOOD), json.dumps(GOOD).encode(), json.dumps(GOOD, indent=2)])
def test_p2_input_may_be_json_text_or_an_object(call, raw):
    assert call(ToolRegistry([order]), "order", raw).value == 1


@pytest.mark.parametrize("raw", [None, "", "  ", "{}", {}, "null"])
def test_p2_a_tool_without_parameters_takes_nothing_in_every_form(call, raw):
    assert call(ToolRegistry([named("t")]), "t", raw).value == "t"


@pytest.mark.parametrize(
    "raw", ["{", '{"a": 1} x', '{"a": 1, "a": 2}', '{"a": NaN}', "[1]", "1", '{"a": "\\ud800"}', 7, [1], {1: 2}]
)
def test_p2_what_is_no_object_of_json_is_a_400(call, raw):
    ran = []
    registry = ToolRegistry([Tool("t", lambda a: ran.append(a), parse_input=lambda arguments: arguments)])
    assert failure(call, registry, "t", raw).status == 400
    assert ran == []


def test_p2_the_tool_does_not_run_on_invalid_input(call):
    ran = []

    def run(a: int) -> None:
        ran.append(a)

    failure(call, ToolRegistry([run]), "run", {"a": "x"})
    assert ran == []


def test_p2_the_callers_object_is_not_changed(call):
    arguments = {"lines": json.dumps(GOOD["lines"]), "to": {"city": "Ulm"}, "note": None}
    before = json.dumps(arguments)
    assert call(ToolRegistry([order]), "order", arguments).invocation.repairs
    assert json.dumps(arguments) == before


def test_p2_repair_can_be_switched_off(call):
    arguments = {**GOOD, "lines": json.dumps(GOOD["lines"])}
    error = failure(call, ToolRegistry([order]), "order", arguments, options=ExecutionOptions(repair=False))
    assert [problem.path for problem in error.problems] == ["lines"]


# ── P3: authorization ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_p3_authorization_runs_on_the_parsed_input(call):
    asked = []

    def pay(amount: float, to: Literal["shop"] = "shop") -> None:
        pass

    class Pair(BaseModel):
        a: int

    registry = ToolRegistry([pay, Tool("pair", lambda pair: 1, input=Pair)], authorize=lambda one: asked.append(one.arguments))
    call(registry, "pay", '{"amount": 5}')
    call(registry, "pair", '{"a": 5}')
    assert asked[0]["amount"] == 5
    assert asked[1] == Pair(a=5)


def test_p3_authorization_is_not_asked_about_invalid_input(call):
    asked = []
    failure(call, ToolRegistry([divide], authorize=asked.append), "divide", {"a": "x"})
    assert asked == []


def test_p3_authorization_is_not_asked_about_a_tool_that_is_not_offered(call):
    asked = []
    failure(call, ToolRegistry([divide], authorize=asked.append), "divide", {"a": 1}, tools=[])
    assert asked == []


def test_p3_authorization_comes_before_the_tool(call):
    order_of = []
    registry = ToolRegistry([Tool("t", lambda: order_of.append("ran"))], authorize=lambda asked: order_of.append("asked"))
    call(registry, "t")
    assert order_of == ["asked", "ran"]


def test_p3_authorization_sees_who_asks(call):
    seen = []
    registry = ToolRegistry([divide], authorize=seen.append)
    signal = AbortController().signal
    call(registry, "divide", {"a": 1}, thread_id="t1", user_context="ada", call_context=CONTEXT, signal=signal)
    asked = seen[0]
    assert (asked.name, asked.thread_id, asked.user_context, asked.call_context, asked.signal) == (
        "divide", "t1", "ada", CONTEXT, signal,
    )  # fmt: skip
    assert asked.tool.name == "divide"


def later(answer):
    async def authorize(asked):
        await asyncio.sleep(0)
        return answer(asked)

    return authorize


def raising(error):
    def answer(asked):
        raise error

    return answer


TIMING = {"sync": lambda answer: answer, "async": later}
ALLOWING = {"None": lambda asked: None, "True": lambda asked: True}
DENYING = {
    "False": lambda asked: False,
    "truthy object": lambda asked: object(),
    "text": lambda asked: "allow",
    "one": lambda asked: 1,
    "zero": lambda asked: 0,
    "empty": lambda asked: [],
    "raises": raising(ValueError(SECRET)),
    "denies": raising(ToolDeniedError("t", "only on weekdays")),
}


@pytest.mark.parametrize("timing", TIMING.values(), ids=TIMING)
@pytest.mark.parametrize("answer", ALLOWING.values(), ids=ALLOWING)
def test_p3_none_and_true_allow(call, timing, answer):
    assert call(ToolRegistry([named("t")], authorize=timing(answer)), "t").value == "t"


@pytest.mark.parametrize("timing", TIMING.values(), ids=TIMING)
@pytest.mark.parametrize("answer", DENYING.values(), ids=DENYING)
def test_p3_anything_else_denies_and_the_tool_does_not_run(call, timing, answer):
    ran = []
    registry = ToolRegistry([Tool("t", lambda: ran.append(1))], authorize=timing(answer))
    error = failure(call, registry, "t")
    assert isinstance(error, ToolDeniedError)
    assert (error.status, error.code) == (403, "tool_denied")
    assert "hunter2" not in everything_said(error, registry)
    assert ran == []
    assert registry.events[-1].status == "denied"


@pytest.mark.parametrize("timing", TIMING.values(), ids=TIMING)
def test_p3_a_denial_gives_its_reason_to_the_model(call, timing):
    registry = ToolRegistry([named("t")], authorize=timing(DENYING["denies"]))
    assert "only on weekdays" in failure(call, registry, "t").user_message


@pytest.mark.parametrize("timing", TIMING.values(), ids=TIMING)
def test_p3_a_tool_error_of_the_authorization_is_kept_as_it_is(call, timing):
    wanted = ToolError("Ask your boss.", code="needs_boss", status=402)
    error = failure(call, ToolRegistry([named("t")], authorize=timing(raising(wanted))), "t")
    assert error is wanted


# ── P4: time ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def heeding(context: ToolContext) -> None:
    """Wait as an async tool that lets itself be cancelled."""
    HEARD.append(context.signal)
    await asyncio.sleep(60)


def heeding_thread(context: ToolContext) -> None:
    """Wait as a tool in a thread that looks at its signal."""
    HEARD.append(context.signal)
    context.signal.wait(60)


HEARD: list[AbortSignal] = []


@pytest.mark.parametrize("body", [heeding, heeding_thread])
def test_p4_no_answer_within_the_limit_is_a_504(call, body):
    error = failure(call, ToolRegistry([Tool("t", body, timeout_s=0.05)]), "t")
    assert isinstance(error, ToolTimeoutError)
    assert (error.status, error.code, error.limit_s, error.source) == (504, "tool_timeout", 0.05, "tool")


@pytest.mark.parametrize("body", [heeding, heeding_thread])
def test_p4_the_tools_abort_signal_is_set_at_the_limit(call, body):
    HEARD.clear()
    error = failure(call, ToolRegistry([Tool("t", body, timeout_s=0.05)]), "t")
    assert HEARD[0].aborted
    assert isinstance(HEARD[0].reason, ToolTimeoutError)
    assert str(HEARD[0].reason) == str(error)


def test_p4_a_tool_that_ends_in_time_keeps_an_open_signal(call):
    kept = []

    def quick(context: ToolContext) -> bool:
        kept.append(context.signal)
        return context.signal.aborted

    assert call(ToolRegistry([Tool("t", quick, timeout_s=30)]), "t").value is False
    assert not kept[0].aborted


def test_p4_the_call_goes_before_the_tool_and_the_tool_before_the_default(call):
    registry = ToolRegistry([Tool("own", heeding_thread, timeout_s=0.06), Tool("none", heeding_thread)], default_timeout_s=0.07)
    asked = failure(call, registry, "own", options=ExecutionOptions(timeout_s=0.05))
    assert (asked.limit_s, asked.source) == (0.05, "call")
    assert (failure(call, registry, "own").limit_s, failure(call, registry, "own").source) == (0.06, "tool")
    assert (failure(call, registry, "none").limit_s, failure(call, registry, "none").source) == (0.07, "default")


@pytest.mark.parametrize("body", [heeding, heeding_thread])
def test_p4_a_deadline_only_shortens(call, body):
    registry = ToolRegistry([Tool("t", body, timeout_s=30)])
    soon = failure(call, registry, "t", options=ExecutionOptions(deadline=time.monotonic() + 0.05))
    assert soon.source == "deadline"
    short = ToolRegistry([Tool("t", body, timeout_s=0.05)])
    assert failure(call, short, "t", options=ExecutionOptions(deadline=time.monotonic() + 60)).source == "tool"


def test_p4_past_its_deadline_a_tool_does_not_start(call):
    ran = []
    registry = ToolRegistry([Tool("t", lambda: ran.append(1))])
    assert failure(call, registry, "t", options=ExecutionOptions(deadline=time.monotonic() - 1)).status == 504
    assert ran == []


def test_p4_a_deadline_holds_while_the_call_waits_for_its_authorization(call):
    async def hang(asked):
        await asyncio.sleep(60)

    registry = ToolRegistry([named("t")], authorize=hang)
    running = background(call, registry, "t", options=ExecutionOptions(deadline=time.monotonic() + 0.05))
    assert isinstance(running.exception(PATIENCE_S), ToolTimeoutError)


# An async tool's own loop ends with `by_ainvoke`; the next test has one that goes on.
@pytest.mark.parametrize(("call", "run_in"), [(by_invoke, "thread"), (by_ainvoke, "thread"), (by_invoke, "inline")])
def test_p4_the_late_result_of_a_tool_that_ignores_its_signal_is_dropped(call, run_in):
    go_on, late = threading.Event(), threading.Event()

    def stubborn() -> str:
        go_on.wait(30)
        return SECRET

    async def stubborn_async() -> str:
        while not go_on.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        return SECRET

    memory = MemoryDestination(content=True)
    scope = DiagnosticContext.of(memory).with_observer(lambda seen: late.set() if seen.name == "tool.late" else None)
    body = stubborn if run_in == "thread" else stubborn_async
    registry = ToolRegistry([Tool("t", body, timeout_s=0.05, run_in=run_in)], diagnostics=scope)
    assert failure(call, registry, "t").status == 504
    assert registry.abandoned() == {"t": 1}
    go_on.set()
    happens(late)
    assert registry.abandoned() == {}
    assert [each.status for each in registry.events] == ["failed"]
    assert registry.events[0].late_ms > registry.events[0].duration_ms
    assert "hunter2" not in repr(memory.events)


async def test_p4_the_late_result_of_an_async_tool_is_dropped_on_its_own_loop():
    go_on, late = asyncio.Event(), asyncio.Event()

    async def stubborn() -> str:
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue
        return SECRET

    registry = ToolRegistry([Tool("t", stubborn, timeout_s=0.05)], diagnostics=watched("tool.late", lambda payload: late.set()))
    with pytest.raises(ToolTimeoutError):
        await registry.ainvoke("t")
    assert registry.abandoned() == {"t": 1}
    go_on.set()
    await asyncio.wait_for(late.wait(), PATIENCE_S)
    assert registry.abandoned() == {}
    assert registry.events[0].late_ms is not None


def test_p4_a_late_failure_is_dropped_as_well(call, caplog):
    go_on, late = threading.Event(), threading.Event()

    def stubborn() -> None:
        go_on.wait(30)
        raise ValueError(SECRET)

    scope = DiagnosticContext().with_observer(lambda seen: late.set() if seen.name == "tool.late" else None)
    registry = ToolRegistry([Tool("t", stubborn, timeout_s=0.05)], diagnostics=scope)
    failure(call, registry, "t")
    go_on.set()
    happens(late)
    assert [each.error_code for each in registry.events] == ["tool_timeout"]
    assert "hunter2" not in caplog.text


def test_p4_a_tools_own_timeout_error_is_a_failure_and_no_504(call):
    def fail() -> None:
        raise TimeoutError("connect")

    async def fail_async() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)

    for body in (fail, fail_async):
        error = failure(call, ToolRegistry([Tool("t", body, timeout_s=30)]), "t")
        assert (error.status, type(error)) == (500, ToolFailedError)


def test_p4_waiting_for_a_turn_does_not_count_against_the_limit(call):
    begun, go_on, asked = threading.Event(), threading.Event(), threading.Semaphore(0)

    def work(remaining: object, context: ToolContext) -> float | None:
        begun.set()
        go_on.wait(60)
        return context.remaining_s()

    single = Tool("t", work, parse_input=lambda arguments: asked.release(), max_concurrency=1, timeout_s=30)
    registry = ToolRegistry([single])
    first = background(call, registry, "t")
    happens(begun)
    second = background(call, registry, "t", options=ExecutionOptions(timeout_s=1.0))
    assert all(asked.acquire(timeout=PATIENCE_S) for _ in range(2))
    assert not go_on.wait(1.2)  # longer than the limit, which begins with the tool
    assert not second.done()
    go_on.set()
    assert ended(first).value > 0
    assert ended(second).value > 0


# ── P4+: really stopped ──────────────────────────────────────────────────────────────────────────────────────────────────


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def reported(started: "queue.SimpleQueue[Any]") -> DiagnosticContext:
    return watched("tool.progress", lambda payload: started.put(payload.item))


def test_p4plus_a_process_tool_runs_in_another_process(call):
    assert call(ToolRegistry([process_tools.whereabouts]), "whereabouts").value != os.getpid()


def test_p4plus_a_process_in_c_code_is_killed_at_the_limit(call):
    numbers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    registry = ToolRegistry([process_tools.spin], diagnostics=reported(numbers))
    error = failure(call, registry, "spin")
    assert (error.status, error.source) == (504, "tool")
    assert gone(numbers.get(timeout=PATIENCE_S))
    assert registry.abandoned() == {}


def test_p4plus_a_process_in_c_code_is_killed_on_abort(call):
    numbers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    registry = ToolRegistry([process_tools.spin_without_limit], diagnostics=reported(numbers))
    controller, reason = AbortController(), RuntimeError("enough")
    running = background(call, registry, "spin_without_limit", signal=controller.signal)
    pid = numbers.get(timeout=PATIENCE_S)
    assert psutil.pid_exists(pid)
    controller.abort(reason)
    assert running.exception(PATIENCE_S) is reason
    assert gone(pid)


@pytest.mark.parametrize("end", ["limit", "abort"])
def test_p4plus_its_children_are_killed_too(call, end):
    numbers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    registry = ToolRegistry([process_tools.spin_with_a_child], diagnostics=reported(numbers))
    controller = AbortController()
    options = ExecutionOptions(timeout_s=2.0) if end == "limit" else None
    running = background(call, registry, "spin_with_a_child", signal=controller.signal, options=options)
    parent, child = numbers.get(timeout=PATIENCE_S)
    if end == "abort":
        controller.abort()
    assert isinstance(running.exception(PATIENCE_S), ToolTimeoutError if end == "limit" else AbortedError)
    assert gone(parent)
    assert gone(child)


def test_p4plus_nothing_of_it_keeps_running(call, tmp_path):
    mark = tmp_path / "mark"
    numbers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    registry = ToolRegistry([process_tools.write_when_over], diagnostics=reported(numbers))
    assert failure(call, registry, "write_when_over", {"path": str(mark)}).status == 504
    assert gone(numbers.get(timeout=PATIENCE_S))
    assert not Path(mark).exists()


async def test_p4plus_a_cancelled_caller_leaves_no_process():
    numbers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    registry = ToolRegistry([process_tools.spin_without_limit], diagnostics=reported(numbers))
    running = asyncio.create_task(registry.ainvoke("spin_without_limit"))
    pid = await asyncio.to_thread(numbers.get, timeout=PATIENCE_S)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert gone(pid)


def test_p4plus_close_kills_what_runs(call):
    numbers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    registry = ToolRegistry([process_tools.spin_without_limit], diagnostics=reported(numbers))
    running = background(call, registry, "spin_without_limit")
    pid = numbers.get(timeout=PATIENCE_S)
    registry.close()
    assert isinstance(running.exception(PATIENCE_S), AbortedError)
    assert gone(pid)


def test_p4plus_a_process_that_dies_is_a_failure_and_the_next_call_has_a_new_one(call):
    registry = ToolRegistry([process_tools.crash, process_tools.whereabouts])
    assert failure(call, registry, "crash").status == 500
    assert call(registry, "whereabouts").value > 0


def test_p4plus_what_a_process_raises_stays_on_the_server(call):
    registry = ToolRegistry([process_tools.leak])
    error = failure(call, registry, "leak")
    assert (error.status, type(error.__cause__)) == (500, ValueError)
    assert "hunter2" not in everything_said(error, registry)


# ── P5: output ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Receipt(BaseModel):
    number: int


def refuse(value: object) -> object:
    raise ValueError(SECRET)


WRONG = {
    "a type": {"output": int},
    "a model": {"output": Receipt},
    "a schema": {"output_schema": {"type": "integer"}},
    "a callable": {"parse_output": refuse},
}


@pytest.mark.parametrize("form", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("wrap", [lambda value: value, ToolAnswer, lambda value: ToolAnswer(value, text="fine")])
def test_p5_a_wrong_output_is_a_failure_of_the_tool(call, form, wrap):
    registry = ToolRegistry([Tool("t", lambda: wrap(SECRET), **form)])
    error = failure(call, registry, "t")
    assert isinstance(error, InvalidOutputError)
    assert (error.status, error.code) == (502, "invalid_output")
    assert registry.events[-1].status == "failed"


@pytest.mark.parametrize("form", WRONG.values(), ids=WRONG)
def test_p5_a_wrong_output_is_never_passed_on(call, form):
    registry = ToolRegistry([Tool("t", lambda: SECRET, **form)])
    error = failure(call, registry, "t")
    reply = by_answer(registry, "t")
    assert "hunter2" not in everything_said(error, registry)
    assert (reply.value, reply.blocks) == (None, ())
    assert "hunter2" not in reply.text
    assert registry.events[-1].output_bytes == 0
    assert registry.events[-1].output_digest is None


def test_p5_the_problem_names_the_path(call):
    registry = ToolRegistry([Tool("t", lambda: [{"number": 1}, {"number": "x"}], output=list[Receipt])])
    assert [problem.path for problem in failure(call, registry, "t").problems] == ["[1].number"]


def test_p5_what_the_output_parser_gives_is_the_value(call):
    registry = ToolRegistry([Tool("t", lambda: "7", parse_output=int), Tool("m", lambda: {"number": 1}, output=Receipt)])
    assert call(registry, "t").value == 7
    assert call(registry, "m").value == Receipt(number=1)


def test_p5_a_schema_gives_the_very_value_back(call):
    value = {"number": 1}
    result = call(ToolRegistry([Tool("t", lambda: value, output_schema={"type": "object"})]), "t")
    assert result.value is value


@pytest.mark.parametrize(
    "value",
    [float("nan"), {"x": [float("inf")]}, object(), {"x": object()}, {1, object()}],
    ids=["nan", "inf inside", "an object", "an object inside", "a set with an object"],
)
def test_p5_what_is_no_json_is_a_failure_and_never_a_repr(call, value):
    registry = ToolRegistry([Tool("t", lambda: value)])
    error = failure(call, registry, "t")
    assert isinstance(error, InvalidOutputError)
    assert "0x" not in str(error)


def test_p5_a_cycle_is_a_failure(call):
    cycle: list[Any] = []
    cycle.append(cycle)
    assert failure(call, ToolRegistry([Tool("t", lambda: cycle)]), "t").status == 502


def test_p5_without_a_declared_output_every_value_of_json_passes(call):
    def claims() -> int:
        return "text"  # type: ignore[return-value]

    assert call(ToolRegistry([claims]), "claims").value == "text"


# ── P6: size ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "size"), [("x" * 10, 12), ("é" * 10, 22), ("\U0001f600" * 10, 42), ('"' * 10, 22), ("\n" * 10, 22)]
)
def test_p6_the_cap_counts_utf8_bytes_of_the_json_text(call, text, size):
    fits = call(ToolRegistry([Tool("t", lambda: text, max_output_bytes=size)]), "t")
    assert fits.value == text
    assert fits.invocation.output_bytes == size == len(fits.text.encode())
    error = failure(call, ToolRegistry([Tool("t", lambda: text, max_output_bytes=size - 1)]), "t")
    assert isinstance(error, OutputTooLargeError)
    assert (error.status, error.code, error.size_bytes, error.limit_bytes) == (413, "output_too_large", size, size - 1)


def test_p6_the_cap_counts_the_text_and_not_the_value(call):
    class Wordy(BaseModel):
        a_long_name_of_a_field: int = 1

    assert failure(call, ToolRegistry([Tool("t", lambda: Wordy(), max_output_bytes=10)]), "t").status == 413


def test_p6_the_text_chosen_for_the_model_is_what_counts(call):
    answer = ToolAnswer("x" * 1_000, text="short")
    assert call(ToolRegistry([Tool("t", lambda: answer, max_output_bytes=10)]), "t").text == "short"
    answer = ToolAnswer(1, text="x" * 11)
    assert failure(call, ToolRegistry([Tool("t", lambda: answer, max_output_bytes=10)]), "t").status == 413


def test_p6_text_beside_the_text_counts_as_well(call):
    answer = ToolAnswer(1, text="short", blocks=(TextBlock("x" * 1_000),))
    assert failure(call, ToolRegistry([Tool("t", lambda: answer, max_output_bytes=100)]), "t").status == 413


def test_p6_blocks_of_bytes_have_a_bound_of_their_own(call):
    answer = ToolAnswer(1, text="short", blocks=(BinaryBlock(bytes(21 * 1024 * 1024)),))
    assert failure(call, ToolRegistry([Tool("t", lambda: answer)]), "t").status == 413


def test_p6_a_too_large_output_reaches_nobody(call):
    registry = ToolRegistry([Tool("t", lambda: SECRET * 100, max_output_bytes=100)])
    error = failure(call, registry, "t")
    assert "hunter2" not in everything_said(error, registry) + by_answer(registry, "t").text


def test_p6_the_call_may_have_a_cap_of_its_own_or_none(call):
    registry = ToolRegistry([Tool("t", lambda: "x" * 100, max_output_bytes=50)])
    assert failure(call, registry, "t", options=ExecutionOptions(max_output_bytes=20)).limit_bytes == 20
    assert len(call(registry, "t", options=ExecutionOptions(max_output_bytes=None)).value) == 100


def test_p6_truncate_stays_inside_the_cap_and_says_so(call):
    text = "".join(f"é{number} " for number in range(500))
    result = call(ToolRegistry([Tool("t", lambda: text, max_output_bytes=300, on_oversize="truncate")]), "t")
    assert len(result.text.encode()) <= 300
    assert result.text.startswith('"é0 é1')
    assert result.text.endswith('499 "')
    assert str(result.invocation.output_bytes) in result.text
    assert result.invocation.notes == ("truncated",)
    assert result.value == text


def spilled(door, text, thread_id="t1"):
    registry = ToolRegistry([Tool("t", lambda: text, max_output_bytes=1_000, on_oversize="spill")])
    result = door(registry, "t", thread_id=thread_id)
    return registry, result, json.loads(result.text[result.text.index("read_output(") + 12 : -2])


def test_p6_spill_gives_the_head_and_a_handle_inside_the_cap(call):
    text = "é" * 5_000
    _, result, arguments = spilled(call, text)
    assert result.text.startswith('"éé')
    assert len(result.text.encode()) <= 1_000
    assert set(arguments) == {"handle", "offset", "limit"}
    assert result.invocation.notes == ("spilled",)
    assert result.invocation.output_bytes == 10_002
    assert result.value == text


def test_p6_the_model_can_page_through_the_whole(call):
    text = "".join(f"é{number} " for number in range(3_000))
    registry, result, arguments = spilled(call, text)
    pages = [result.text.encode()[: arguments["offset"]].decode()]
    while arguments["offset"] is not None:
        page = call(registry, "read_output", {**arguments, "limit": 5_000}, thread_id="t1").value
        pages.append(page.text)
        arguments["offset"] = page.next_offset
    assert json.loads("".join(pages)) == text


def test_p6_another_thread_cannot_read_what_was_kept(call):
    registry, _, arguments = spilled(call, "x" * 5_000)
    for thread_id in ("t2", None):
        assert failure(call, registry, "read_output", arguments, thread_id=thread_id).status == 404


def test_p6_a_handle_cannot_be_invented(call):
    registry, _, arguments = spilled(call, "x" * 5_000)
    assert failure(call, registry, "read_output", {**arguments, "handle": "0" * 32}, thread_id="t1").code == "output_not_found"


def test_p6_the_reading_tool_is_there_only_where_something_spills():
    assert ToolRegistry([named("a")]).ids() == ("a",)
    assert ToolRegistry([named("a", on_oversize="spill")]).ids() == ("a", "read_output")


def test_p6_an_additional_tool_that_spills_can_be_read_on(call):
    guest = Tool("guest", lambda: "x" * 5_000, max_output_bytes=1_000, on_oversize="spill")
    registry = ToolRegistry([named("a")])
    result = call(registry, "guest", tools=[guest], thread_id="t1")
    arguments = json.loads(result.text[result.text.index("read_output(") + 12 : -2])
    assert call(registry, "read_output", arguments, tools=["read_output"], thread_id="t1").value.total_bytes == 5_002


# ── P7: abort, to the letter ─────────────────────────────────────────────────────────────────────────────────────────────


class Enough(Exception):
    """A reason of the caller's own."""


def aborted(reason: BaseException | None = None) -> AbortSignal:
    controller = AbortController()
    controller.abort(reason)
    return controller.signal


def test_p7_an_aborted_call_raises_the_very_reason(call):
    reason = Enough("now")
    with pytest.raises(Enough) as caught:
        call(ToolRegistry([named("t")]), "t", signal=aborted(reason))
    assert caught.value is reason
    assert reason.__cause__ is None
    assert reason.__context__ is None


@pytest.mark.parametrize("door", [by_invoke, by_ainvoke, by_execute, by_answer])
def test_p7_every_door_raises_the_reason(door):
    reason = Enough("now")
    with pytest.raises(Enough) as caught:
        door(ToolRegistry([named("t")]), "t", signal=aborted(reason))
    assert caught.value is reason


def test_p7_an_abort_without_a_reason_has_one_of_ours(call):
    with pytest.raises(AbortedError) as caught:
        call(ToolRegistry([named("t")]), "t", signal=aborted())
    assert (caught.value.code, caught.value.status) == ("aborted", 499)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit])
def test_p7_a_reason_that_ends_programs_is_raised_as_it_is(kind):
    reason = kind("now")
    with pytest.raises(kind) as caught:
        by_invoke(ToolRegistry([named("t")]), "t", signal=aborted(reason))
    assert caught.value is reason


def test_p7_a_reason_that_is_a_tool_error_is_no_failure_either(call, caplog):
    reason = ToolError("stop")
    registry = ToolRegistry([named("t")])
    with pytest.raises(ToolError) as caught:
        call(registry, "t", signal=aborted(reason))
    assert caught.value is reason
    assert registry.events[-1].status == "aborted"
    assert caplog.records == []


def test_p7_input_is_validated_first(call):
    error = failure(call, ToolRegistry([divide]), "divide", {"a": "x"}, signal=aborted(Enough()))
    assert error.status == 400


def test_p7_the_offer_is_checked_first_too(call):
    registry = ToolRegistry([named("a")])
    assert failure(call, registry, "z", signal=aborted(Enough())).status == 404
    assert failure(call, registry, "a", signal=aborted(Enough()), tools=[]).status == 403


def test_p7_a_call_that_was_aborted_before_it_came_runs_nothing(call):
    ran = []
    registry = ToolRegistry([Tool("t", lambda: ran.append("tool"))], authorize=lambda asked: ran.append("authorize"))
    with pytest.raises(Enough):
        call(registry, "t", signal=aborted(Enough()))
    assert ran == []


def in_flight(door, registry, name="t", **keywords):
    controller = AbortController()
    return controller, background(door, registry, name, signal=controller.signal, **keywords)


def begins(body_begun: threading.Event, kind: str):
    """Give a tool of this kind that tells when it has begun, and waits."""

    async def waits(context: ToolContext) -> None:
        HEARD.append(context.signal)
        body_begun.set()
        await asyncio.sleep(60)

    def waits_in_thread(context: ToolContext) -> None:
        HEARD.append(context.signal)
        body_begun.set()
        context.signal.wait(60)

    return Tool("t", waits if kind == "async" else waits_in_thread)


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_p7_an_abort_in_flight_aborts_the_tool_with_the_same_reason(call, kind):
    HEARD.clear()
    begun, reason = threading.Event(), Enough("now")
    controller, running = in_flight(call, ToolRegistry([begins(begun, kind)]))
    happens(begun)
    controller.abort(reason)
    assert running.exception(PATIENCE_S) is reason
    assert HEARD[0].reason is reason


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_p7_an_abort_is_no_failure_and_no_504(call, kind, caplog):
    begun, reports = threading.Event(), []
    registry = ToolRegistry([begins(begun, kind)], on_tool_error=reports.append)
    controller, running = in_flight(call, registry, call_context=CONTEXT)
    happens(begun)
    controller.abort(Enough())
    assert isinstance(running.exception(PATIENCE_S), Enough)
    delivered(registry)
    record = registry.events[-1]
    assert (record.status, record.error_code, record.error_status) == ("aborted", "aborted", None)
    assert len(registry.events) == 1
    assert [each for each in caplog.records if each.levelno > logging.DEBUG] == []
    assert reports == []


def test_p7_an_abort_before_the_tool_is_not_logged_and_not_reported(call, caplog):
    reports = []
    registry = ToolRegistry([named("t")], on_tool_error=reports.append)
    with pytest.raises(Enough):
        call(registry, "t", signal=aborted(Enough()), call_context=CONTEXT)
    delivered(registry)
    assert [each for each in caplog.records if each.levelno > logging.DEBUG] == []
    assert reports == []
    assert [each.status for each in registry.events] == ["aborted"]


def test_p7_an_abort_is_observed_as_an_end_and_not_as_a_failure(call):
    memory = MemoryDestination()
    registry = ToolRegistry([named("t")], diagnostics=DiagnosticContext.of(memory))
    with pytest.raises(Enough):
        call(registry, "t", signal=aborted(Enough()))
    assert [event.name for event in memory.events] == ["tool.finished"]


def test_p7_execute_raises_at_once_although_the_tool_goes_on(call):
    begun, go_on, late = threading.Event(), threading.Event(), threading.Event()

    def stubborn() -> None:
        begun.set()
        go_on.wait(60)

    registry = ToolRegistry([Tool("t", stubborn)], diagnostics=watched("tool.late", lambda payload: late.set()))
    controller, running = in_flight(call, registry)
    happens(begun)
    controller.abort(Enough())
    assert isinstance(running.exception(PATIENCE_S), Enough)
    assert not go_on.is_set()
    assert registry.abandoned() == {"t": 1}
    go_on.set()
    happens(late)
    assert [each.status for each in registry.events] == ["aborted"]


async def test_p7_an_async_tool_that_swallows_its_cancellation_does_not_hold_the_abort():
    begun, go_on, late = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stubborn() -> None:
        begun.set()
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue

    registry = ToolRegistry([Tool("t", stubborn)], diagnostics=watched("tool.late", lambda payload: late.set()))
    controller, reason = AbortController(), Enough("now")
    running = asyncio.create_task(registry.ainvoke("t", signal=controller.signal))
    await asyncio.wait_for(begun.wait(), PATIENCE_S)
    controller.abort(reason)
    with pytest.raises(Enough) as caught:
        await asyncio.wait_for(running, PATIENCE_S)
    assert caught.value is reason
    go_on.set()
    await asyncio.wait_for(late.wait(), PATIENCE_S)


@pytest.mark.parametrize("answer", [lambda asked: SECRET, raising(ToolError("from the tool")), raising(ValueError(SECRET))])
def test_p7_what_a_tool_answers_to_its_abort_is_not_taken(call, answer):
    begun = threading.Event()

    def heeds(context: ToolContext) -> object:
        begun.set()
        context.signal.wait(60)
        return answer(None)

    registry = ToolRegistry([Tool("t", heeds)])
    controller, running = in_flight(call, registry)
    happens(begun)
    reason = Enough()
    controller.abort(reason)
    assert running.exception(PATIENCE_S) is reason
    assert registry.events[-1].status == "aborted"


@pytest.mark.parametrize("answer", [lambda asked: SECRET, raising(ToolError("from the tool")), raising(ValueError(SECRET))])
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_p7_an_abort_while_a_tool_runs_inline_is_raised_when_it_ends(call, kind, answer):
    controller, reason = AbortController(), Enough()

    def ends() -> object:
        controller.abort(reason)
        return answer(None)

    async def ends_async() -> object:
        return ends()

    registry = ToolRegistry([Tool("t", ends if kind == "sync" else ends_async, run_in="inline")])
    with pytest.raises(Enough) as caught:
        call(registry, "t", signal=controller.signal)
    assert caught.value is reason
    assert [each.status for each in registry.events] == ["aborted"]


def test_p7_an_abort_reaches_a_call_that_waits_for_its_turn(call):
    begun, go_on, asked = threading.Event(), threading.Event(), threading.Semaphore(0)
    ran = []

    def work(arguments: object) -> None:
        ran.append(1)
        begun.set()
        go_on.wait(60)

    registry = ToolRegistry([Tool("t", work, parse_input=lambda arguments: asked.release(), max_concurrency=1)])
    first = background(call, registry, "t")
    happens(begun)
    controller, queued = in_flight(call, registry)
    assert all(asked.acquire(timeout=PATIENCE_S) for _ in range(2))
    controller.abort(Enough())
    assert isinstance(queued.exception(PATIENCE_S), Enough)
    go_on.set()
    ended(first)
    assert ran == [1]


def test_p7_an_abort_reaches_a_call_that_waits_for_its_authorization(call):
    asked, ran = threading.Event(), []

    async def hang(one):
        asked.set()
        await asyncio.sleep(60)

    registry = ToolRegistry([Tool("t", lambda: ran.append(1))], authorize=hang)
    controller, running = in_flight(call, registry)
    happens(asked)
    reason = Enough()
    controller.abort(reason)
    assert running.exception(PATIENCE_S) is reason
    assert ran == []


@pytest.mark.parametrize("timing", TIMING.values(), ids=TIMING)
@pytest.mark.parametrize("run_in", ["thread", "inline"])
def test_p7_an_abort_during_the_authorization_keeps_the_tool_from_running(call, timing, run_in):
    controller, ran = AbortController(), []
    registry = ToolRegistry(
        [Tool("t", lambda: ran.append(1), run_in=run_in)], authorize=timing(lambda asked: controller.abort(Enough()))
    )
    with pytest.raises(Enough):
        call(registry, "t", signal=controller.signal)
    assert ran == []


def test_p7_a_signal_can_only_shorten_the_life_of_a_call(call):
    open_signal = AbortController().signal
    registry = ToolRegistry([Tool("t", heeding_thread, timeout_s=0.05)])
    assert failure(call, registry, "t", signal=open_signal).status == 504
    assert not open_signal.aborted


def test_p7_a_timeout_does_not_abort_the_callers_own_signal(call):
    controller = AbortController()
    registry = ToolRegistry([Tool("t", heeding, timeout_s=0.05)])
    failure(call, registry, "t", signal=controller.signal)
    assert not controller.signal.aborted


def test_p7_the_tools_own_signal_is_another_one_than_the_callers(call):
    kept = []

    def look(context: ToolContext) -> None:
        kept.append(context.signal)

    controller = AbortController()
    call(ToolRegistry([look]), "look", signal=controller.signal)
    assert kept[0] is not controller.signal


def test_p7_a_call_that_has_ended_leaves_nothing_at_the_callers_signal(call):
    controller = AbortController()

    def look(context: ToolContext) -> int:
        return 1

    registry = ToolRegistry([look, Tool("fails", lambda: 1 / 0), Tool("slow", heeding_thread, timeout_s=0.05)])
    call(registry, "look", signal=controller.signal)
    failure(call, registry, "fails", signal=controller.signal)
    failure(call, registry, "slow", signal=controller.signal)
    assert controller.signal._listeners == {}


def test_p7_an_abort_after_the_end_changes_nothing(call):
    controller = AbortController()
    registry = ToolRegistry([named("t")])
    result = call(registry, "t", signal=controller.signal)
    controller.abort()
    assert result.invocation.status == "succeeded"
    assert [each.status for each in registry.events] == ["succeeded"]


def test_p7_one_signal_aborts_every_call_that_has_it(call):
    begun = threading.Semaphore(0)

    def waits(context: ToolContext) -> None:
        begun.release()
        context.signal.wait(60)

    controller, reason = AbortController(), Enough()
    registry = ToolRegistry([waits])
    calls = [background(call, registry, "waits", signal=controller.signal) for _ in range(5)]
    assert all(begun.acquire(timeout=PATIENCE_S) for _ in calls)
    controller.abort(reason)
    assert all(each.exception(PATIENCE_S) is reason for each in calls)


def test_p7_merged_signals_abort_with_the_first_reason(call):
    first, second = AbortController(), AbortController()
    merged = AbortSignal.any(first.signal, second.signal)
    begun = threading.Event()
    running = background(call, ToolRegistry([begins(begun, "thread")]), "t", signal=merged)
    happens(begun)
    reason = Enough("second")
    second.abort(reason)
    first.abort(Enough("first"))
    assert running.exception(PATIENCE_S) is reason


# ── P8: failures ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Broke(ToolError):
    code = "broke"
    status = 402
    try_other_arguments = True


class Wild(BaseException):
    """What some libraries raise past `except Exception`."""


LEAKS = {
    "ValueError": ValueError(SECRET),
    "KeyError": KeyError(SECRET),
    "OSError": OSError(2, SECRET, "/etc/shadow"),
    "group": ExceptionGroup(SECRET, [ValueError(SECRET)]),
    "base exception": Wild(SECRET),
    "usage error": UsageError(SECRET),
    "timeout": TimeoutError(SECRET),
    "cancelled": asyncio.CancelledError(SECRET),
    "stop": StopAsyncIteration(SECRET),
}


def failing(error, kind):
    async def fails_async() -> None:
        await asyncio.sleep(0)
        raise error

    def fails() -> None:
        raise error

    return Tool("t", fails_async if kind == "async" else fails)


@pytest.mark.parametrize("kind", ["async", "thread"])
@pytest.mark.parametrize("error", LEAKS.values(), ids=LEAKS)
def test_p8_what_a_tool_raises_is_wrapped_and_its_text_stays_on_the_server(call, kind, error):
    registry = ToolRegistry([failing(error, kind)], diagnostics=DiagnosticContext())
    failed = failure(call, registry, "t")
    reply = by_answer(registry, "t")
    assert (type(failed), failed.status, failed.code) == (ToolFailedError, 500, "tool_failed")
    assert failed.__cause__ is error
    for word in ("hunter2", "shadow", type(error).__name__):
        assert word not in everything_said(failed, registry)
        assert word not in reply.text


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_p8_a_tool_error_keeps_code_status_and_message(call, kind):
    wanted = Broke("The account is empty.")
    registry = ToolRegistry([failing(wanted, kind)])
    error = failure(call, registry, "t")
    assert error is wanted
    assert (error.code, error.status, error.user_message) == ("broke", 402, "The account is empty.")
    assert (registry.events[-1].error_code, registry.events[-1].error_status) == ("broke", 402)
    assert by_answer(registry, "t").text.startswith("The account is empty.")


def test_p8_a_tool_error_can_be_answered_without_a_class_of_its_own(call):
    def fails() -> None:
        raise ToolError("No such city.", code="no_city", status=404, try_other_arguments=True)

    registry = ToolRegistry([fails])
    error = failure(call, registry, "fails")
    assert (error.code, error.status, error.try_other_arguments) == ("no_city", 404, True)
    assert "other arguments may succeed" in by_answer(registry, "fails").text


def test_p8_what_a_tool_error_was_raised_from_stays_on_the_server(call):
    def fails() -> None:
        try:
            raise ValueError(SECRET)
        except ValueError as error:
            raise ToolError("Not now.") from error

    registry = ToolRegistry([fails])
    error = failure(call, registry, "fails")
    assert "hunter2" not in everything_said(error, registry) + by_answer(registry, "fails").text
    assert isinstance(error.__cause__, ValueError)


@pytest.mark.parametrize("message", ["", "  \n"])
def test_p8_the_model_reads_something_even_when_the_tool_says_nothing(message):
    registry = ToolRegistry([failing(ToolError(message), "thread")])
    assert by_answer(registry, "t").text.strip()


def test_p8_a_secret_in_an_input_check_stays_on_the_server(call):
    registry = ToolRegistry([Tool("t", lambda x: x, parse_input=refuse)])
    error = failure(call, registry, "t", {"a": 1})
    assert "hunter2" not in everything_said(error, registry) + by_answer(registry, "t", {"a": 1}).text


def test_p8_the_arguments_are_not_in_what_is_said(call):
    registry = ToolRegistry([failing(ValueError("x"), "thread"), divide])
    error = failure(call, registry, "divide", {"a": 1, "b": 0})
    refused = failure(call, registry, "divide", {"a": SECRET})
    assert "hunter2" not in everything_said(error, registry) + everything_said(refused, registry)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("run_in", ["inline", "thread"])
def test_p8_what_ends_the_program_is_no_failure_of_a_tool(kind, run_in):
    def fails() -> None:
        raise kind(3)

    registry = ToolRegistry([Tool("t", fails, run_in=run_in)])
    with pytest.raises(kind):
        registry.invoke("t")
    assert [each.status for each in registry.events] == ["cancelled"]


# ── P9: logged, given to the model, never the end ────────────────────────────────────────────────────────────────────────


@tool(timeout_s=0.05, max_output_bytes=100)
def anything(what: str, context: ToolContext) -> object:
    """Fail in the asked way."""
    match what:
        case "raise":
            raise ValueError(SECRET)
        case "answer":
            raise Broke("The account is empty.")
        case "wait":
            context.signal.wait(30)
        case "nan":
            return float("nan")
        case "large":
            return "x" * 1_000
    return what


FAILURES = {
    "404": (("nobody", None), {}, 404),
    "403": (("anything", None), {"tools": []}, 403),
    "400": (("anything", {"what": 1}), {}, 400),
    "400 text": (("anything", "{"), {}, 400),
    "denied": (("anything", {"what": "denied"}), {}, 403),
    "500": (("anything", {"what": "raise"}), {}, 500),
    "402": (("anything", {"what": "answer"}), {}, 402),
    "504": (("anything", {"what": "wait"}), {}, 504),
    "502": (("anything", {"what": "nan"}), {}, 502),
    "413": (("anything", {"what": "large"}), {}, 413),
}


def not_denied(asked):
    return asked.arguments["what"] != "denied"


@pytest.mark.parametrize(("request_", "keywords", "status"), FAILURES.values(), ids=FAILURES)
def test_p9_every_failure_is_logged_once_on_the_server(call, request_, keywords, status, caplog):
    registry = ToolRegistry([anything], authorize=not_denied)
    error = failure(call, registry, *request_, **keywords, call_context=CONTEXT)
    assert error.status == status
    [record] = caplog.records
    assert (record.levelname, record.name) == ("WARNING", "callgate")
    assert "callgate.tool_failed" in record.getMessage()
    assert "call_id=c1" in record.getMessage()


@pytest.mark.parametrize(("request_", "keywords", "status"), FAILURES.values(), ids=FAILURES)
def test_p9_every_failure_is_given_to_the_model_as_the_tools_result(request_, keywords, status):
    registry = ToolRegistry([anything], authorize=not_denied)
    reply = by_answer(registry, *request_, **keywords)
    assert isinstance(reply, ToolReply)
    assert reply.is_error
    assert reply.text.strip()
    assert isinstance(reply.error, ToolError)
    assert reply.invocation is registry.events[-1]
    assert reply.invocation.error_status == status
    assert reply.text == format_tool_error(reply.error)


def test_p9_a_success_is_answered_in_the_same_form():
    reply = by_answer(ToolRegistry([divide]), "divide", {"a": 1, "b": 2})
    assert (reply.text, reply.is_error, reply.value, reply.error) == ("0.5", False, 0.5, None)


async def test_p9_a_failure_never_ends_its_siblings():
    registry = ToolRegistry([anything], authorize=not_denied)
    wanted = [("anything", {"what": "raise"}), ("anything", {"what": "fine"}), ("nobody", None), ("anything", {"what": "fine"})]
    replies = await asyncio.gather(*(registry.answer(name, arguments) for name, arguments in wanted))
    assert [reply.is_error for reply in replies] == [True, False, True, False]


def test_p9_the_log_shows_the_tools_own_exception(call, caplog):
    failure(call, ToolRegistry([anything]), "anything", {"what": "raise"})
    kind, value, trace = caplog.records[0].exc_info
    assert (kind, str(value)) == (ValueError, SECRET)
    assert trace is not None


def test_p9_the_one_exception_is_the_callers_abort():
    with pytest.raises(Enough):
        by_answer(ToolRegistry([anything]), "anything", {"what": "fine"}, signal=aborted(Enough()))


async def test_p9_a_cancelled_caller_is_cancelled_and_leaves_a_receipt():
    begun, cleaned = asyncio.Event(), []

    async def waits() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append(1)

    registry = ToolRegistry([waits])
    running = asyncio.create_task(registry.answer("waits"))
    await asyncio.wait_for(begun.wait(), PATIENCE_S)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert cleaned == [1]
    assert [each.status for each in registry.events] == ["cancelled"]


# ── P10: reports ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def reporting(*tools, **settings):
    reports: queue.SimpleQueue[ToolErrorReport] = queue.SimpleQueue()
    return reports, ToolRegistry(tools or [anything], on_tool_error=reports.put, authorize=not_denied, **settings)


def test_p10_a_report_gives_the_whole_picture(call):
    user = {"name": "ada"}
    reports, registry = reporting()
    before = time.time()
    error = failure(call, registry, "anything", '{"what": "raise"}', thread_id="t1", user_context=user, call_context=CONTEXT)
    report = reports.get(timeout=PATIENCE_S)
    record = registry.events[-1]
    assert isinstance(report, ToolErrorReport)
    assert report.call_context is CONTEXT
    assert report.thread_id == "t1"
    assert report.user_context is user
    assert report.tool == "anything"
    assert report.input == {"what": "raise"}
    assert report.error is error
    assert isinstance(report.cause, ValueError)
    assert report.model_text == format_tool_error(error)
    assert before <= report.started_at <= time.time()
    assert report.started_at == record.started_at
    assert report.duration_ms == record.duration_ms >= 0
    assert report.invocation_id == record.invocation_id == error.invocation_id


@pytest.mark.parametrize(("request_", "keywords", "status"), FAILURES.values(), ids=FAILURES)
def test_p10_every_failure_of_a_call_with_its_context_is_reported_once(call, request_, keywords, status):
    reports, registry = reporting()
    error = failure(call, registry, *request_, **keywords, call_context=CONTEXT)
    report = reports.get(timeout=PATIENCE_S)
    assert report.error is error
    assert report.error.status == status
    delivered(registry)
    assert reports.empty()


@pytest.mark.parametrize(("request_", "keywords", "status"), FAILURES.values(), ids=FAILURES)
def test_p10_a_direct_call_without_context_is_not_reported(call, request_, keywords, status):
    reports, registry = reporting()
    failure(call, registry, *request_, **keywords)
    delivered(registry)
    assert reports.empty()


@pytest.mark.parametrize("raw", ['{"what": 1}', {"what": 1}, "{", None, 7])
def test_p10_the_input_is_raw_when_the_schema_refused_it(call, raw):
    reports, registry = reporting()
    failure(call, registry, "anything", raw, call_context=CONTEXT)
    assert reports.get(timeout=PATIENCE_S).input is raw


def test_p10_the_input_is_raw_when_the_tool_was_refused(call):
    reports, registry = reporting()
    failure(call, registry, "anything", '{"what": "x"}', tools=[], call_context=CONTEXT)
    assert reports.get(timeout=PATIENCE_S).input == '{"what": "x"}'


@pytest.mark.parametrize("what", ["denied", "raise", "wait", "nan"])
def test_p10_the_input_is_parsed_once_the_schema_accepted_it(call, what):
    reports, registry = reporting()
    failure(call, registry, "anything", json.dumps({"what": what}), call_context=CONTEXT)
    assert reports.get(timeout=PATIENCE_S).input == {"what": what}


def test_p10_the_text_is_what_the_model_read():
    reports, registry = reporting()
    context = CallContext(attempts_left=1)
    reply = by_answer(registry, "anything", {"what": "raise"}, call_context=context)
    assert reports.get(timeout=PATIENCE_S).model_text == reply.text
    assert "1" in reply.text


def test_p10_a_success_and_an_abort_are_not_reported(call):
    reports, registry = reporting()
    call(registry, "anything", {"what": "fine"}, call_context=CONTEXT)
    with pytest.raises(Enough):
        call(registry, "anything", {"what": "fine"}, call_context=CONTEXT, signal=aborted(Enough()))
    delivered(registry)
    assert reports.empty()


def test_p10_the_run_never_waits_for_the_handler(call):
    entered, go_on = threading.Event(), threading.Event()

    def hang(report):
        entered.set()
        go_on.wait(60)

    registry = ToolRegistry([anything], on_tool_error=hang)
    for _ in range(20):
        assert failure(call, registry, "anything", {"what": "raise"}, call_context=CONTEXT).status == 500
    happens(entered)
    assert not go_on.is_set()
    go_on.set()


async def test_p10_the_run_never_waits_for_an_async_handler():
    entered, go_on, left = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hang(report):
        entered.set()
        await go_on.wait()
        left.set()

    registry = ToolRegistry([anything], on_tool_error=hang)
    assert (await registry.answer("anything", {"what": "raise"}, call_context=CONTEXT)).is_error
    await asyncio.wait_for(entered.wait(), PATIENCE_S)
    assert not left.is_set()
    assert (await registry.answer("anything", {"what": "fine"})).value == "fine"
    go_on.set()
    await asyncio.wait_for(left.wait(), PATIENCE_S)


async def test_p10_an_async_handler_runs_on_the_loop_of_the_call():
    seen: asyncio.Queue[Any] = asyncio.Queue()

    async def handler(report):
        await seen.put((report.tool, asyncio.get_running_loop()))

    registry = ToolRegistry([anything], on_tool_error=handler)
    await registry.answer("anything", {"what": "raise"}, call_context=CONTEXT)
    assert await asyncio.wait_for(seen.get(), PATIENCE_S) == ("anything", asyncio.get_running_loop())


def test_p10_an_async_handler_hears_of_sync_calls_too():
    reports: queue.SimpleQueue[Any] = queue.SimpleQueue()

    async def handler(report):
        await asyncio.sleep(0)
        reports.put(report)

    registry = ToolRegistry([anything], on_tool_error=handler)
    error = failure(by_invoke, registry, "anything", {"what": "raise"}, call_context=CONTEXT)
    assert reports.get(timeout=PATIENCE_S).error is error


def logged(caplog, words) -> Any:
    return [each for each in caplog.records if words in each.getMessage()]


@pytest.mark.parametrize(
    "error", [ValueError(SECRET), SystemExit(3), asyncio.CancelledError()], ids=lambda error: type(error).__name__
)
def test_p10_a_handler_that_raises_is_logged_with_its_own_event_id_and_ignored(call, caplog, error):
    def broken(report):
        raise error

    registry = ToolRegistry([anything], on_tool_error=broken)
    failed = failure(call, registry, "anything", {"what": "raise"}, call_context=CONTEXT)
    delivered(registry)
    assert failed.status == 500
    [record] = logged(caplog, "callgate.report_handler_failed")
    assert record.levelname == "ERROR"
    assert "call_id=c1" in record.getMessage()
    assert call(registry, "anything", {"what": "fine"}).value == "fine"


async def test_p10_an_async_handler_that_raises_is_logged_and_ignored(caplog):
    async def broken(report):
        raise ValueError(SECRET)

    registry = ToolRegistry([anything], on_tool_error=broken)
    await registry.answer("anything", {"what": "raise"}, call_context=CONTEXT)
    assert await registry._pipeline.settings.reporter.aflush(PATIENCE_S)
    assert len(logged(caplog, "callgate.report_handler_failed")) == 1


@pytest.mark.parametrize("is_async", [False, True])
def test_p10_a_handler_that_hangs_is_logged_with_the_same_event_id_and_left(caplog, is_async):
    go_on = threading.Event()

    def hang(report):
        go_on.wait(60)

    async def hang_async(report):
        await asyncio.sleep(60)

    reporter = ErrorReporter(hang_async if is_async else hang, lambda: DiagnosticContext(), limit_s=0.05)
    reporter.report(ToolErrorReport(CONTEXT, "t", ToolError("x"), "x", 0.0, 0.0))
    assert reporter.flush(PATIENCE_S)
    go_on.set()
    [record] = logged(caplog, "callgate.report_handler_failed")
    assert "reason=timed_out" in record.getMessage()


def test_p10_without_a_handler_nothing_happens(call, caplog):
    registry = ToolRegistry([anything])
    failure(call, registry, "anything", {"what": "raise"}, call_context=CONTEXT)
    registry.report_failure("anything", ToolError("x"), started_at=time.time(), call_context=CONTEXT)
    assert logged(caplog, "report") == []


def test_p10_report_failure_reports_a_refusal_that_never_reached_the_registry():
    reports, registry = reporting()
    refusal, started_at, user = ToolNotOfferedError("anything"), time.time() - 2, object()
    registry.report_failure(
        "anything", refusal, started_at=started_at, input={"what": "x"}, call_context=CONTEXT, thread_id="t1", user_context=user
    )
    report = reports.get(timeout=PATIENCE_S)
    assert (report.tool, report.error, report.input, report.started_at) == ("anything", refusal, {"what": "x"}, started_at)
    assert (report.call_context, report.thread_id, report.user_context) == (CONTEXT, "t1", user)
    assert report.model_text == format_tool_error(refusal)
    assert 2_000 <= report.duration_ms < 60_000
    assert report.invocation_id is None
    assert registry.events == ()


def test_p10_report_failure_without_a_context_reports_nothing():
    reports, registry = reporting()
    registry.report_failure("anything", ToolError("x"), started_at=time.time())
    delivered(registry)
    assert reports.empty()


def test_p10_report_failure_says_nothing_of_an_error_that_is_no_tool_error():
    reports, registry = reporting()
    registry.report_failure("anything", ValueError(SECRET), started_at=time.time(), call_context=CONTEXT)
    assert "hunter2" not in reports.get(timeout=PATIENCE_S).model_text


def test_p10_a_report_can_be_printed_without_what_people_said(call):
    reports, registry = reporting()
    failure(call, registry, "anything", {"what": SECRET * 100}, user_context=SECRET, call_context=CONTEXT)
    assert "hunter2" not in repr(reports.get(timeout=PATIENCE_S))


# ── P11: results and receipts ────────────────────────────────────────────────────────────────────────────────────────────


def test_p11_invoke_and_ainvoke_give_value_and_receipt(call):
    result = call(ToolRegistry([divide]), "divide", {"a": 3, "b": 2})
    assert isinstance(result, ToolResult)
    assert result.value == 1.5
    assert isinstance(result.invocation, ToolCallRecord)


def test_p11_execute_gives_the_value_alone():
    assert by_execute(ToolRegistry([divide]), "divide", {"a": 3, "b": 2}) == 1.5


def test_p11_the_value_is_the_tools_own_object(call):
    value = {"x": [1, 2]}
    assert call(ToolRegistry([Tool("t", lambda: value)]), "t").value is value


def test_p11_the_receipt_of_a_success(call):
    registry = ToolRegistry([divide])
    before = time.time()
    record = call(registry, "divide", '{"a": 3,  "b": 2}', thread_id="t1", call_context=CONTEXT).invocation
    assert record.invocation_id.startswith("inv_")
    assert (record.tool, record.kind, record.status) == ("divide", "read", "succeeded")
    assert (record.call_id, record.run_id, record.thread_id) == ("c1", "r1", "t1")
    assert (record.attempt, record.approved_by) == (2, "ada")
    assert before <= record.started_at <= time.time()
    assert record.duration_ms >= 0
    assert (record.input_bytes, record.output_bytes) == (17, 3)
    assert record.input_digest == hashlib.sha256(b'{"a":3,"b":2}').hexdigest()
    assert record.output_digest == hashlib.sha256(b"1.5").hexdigest()
    assert (record.error_code, record.error_status, record.repairs, record.notes, record.late_ms) == (None, None, (), (), None)


def test_p11_the_receipt_of_a_failure(call):
    registry = ToolRegistry([divide])
    error = failure(call, registry, "divide", {"a": 3, "b": 0}, thread_id="t1", call_context=CONTEXT)
    record = registry.events[-1]
    assert (record.tool, record.kind, record.status) == ("divide", "read", "failed")
    assert (record.error_code, record.error_status) == ("tool_failed", 500)
    assert (record.call_id, record.run_id, record.thread_id, record.attempt, record.approved_by) == ("c1", "r1", "t1", 2, "ada")
    assert record.input_digest == hashlib.sha256(b'{"a":3,"b":0}').hexdigest()
    assert (record.output_bytes, record.output_digest) == (0, None)
    assert error.invocation_id == record.invocation_id


def test_p11_the_duration_spans_the_whole_call(call):
    def work() -> None:
        threading.Event().wait(0.05)

    assert call(ToolRegistry([work]), "work").invocation.duration_ms >= 50


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(ToolCallRecord)])
def test_p11_the_receipt_is_frozen(field):
    record = by_invoke(ToolRegistry([divide]), "divide", {"a": 1}).invocation
    with pytest.raises(FrozenInstanceError):
        setattr(record, field, None)


def test_p11_each_call_has_an_invocation_id_of_its_own(call):
    registries = [ToolRegistry([divide]) for _ in range(3)]
    ids = [call(registry, "divide", {"a": 1}).invocation.invocation_id for registry in registries for _ in range(3)]
    assert len(set(ids)) == 9


SPELLINGS = [
    '{"a": 3, "b": 2}', '{"b": 2, "a": 3}', '{"b":2,"a":3}', '{\n "a": 3,\n "b": 2\n}', {"a": 3, "b": 2}, {"b": 2, "a": 3},
    b'{"a": 3, "b": 2}',
]  # fmt: skip


def test_p11_the_order_of_keys_and_blanks_do_not_matter_for_the_digest(call):
    registry = ToolRegistry([divide])
    assert len({call(registry, "divide", each).invocation.input_digest for each in SPELLINGS}) == 1


def test_p11_the_order_of_nested_keys_does_not_matter_either(call):
    registry = ToolRegistry([Tool("t", lambda x: 1, parse_input=lambda arguments: arguments)])
    first, second = '{"x": [{"a": 1, "b": {"c": 2, "d": 3}}]}', '{"x": [{"b": {"d": 3, "c": 2}, "a": 1}]}'
    assert call(registry, "t", first).invocation.input_digest == call(registry, "t", second).invocation.input_digest


def test_p11_other_arguments_have_another_digest(call):
    registry = ToolRegistry([Tool("t", lambda x: 1, parse_input=lambda arguments: arguments)])
    inputs = [{}, {"a": 1}, {"a": 2}, {"a": "1"}, {"a": None}, {"a": [1, 2]}, {"a": [2, 1]}, {"b": 1}, {"a": "é"}, {"a": "e"}]
    assert len({call(registry, "t", each).invocation.input_digest for each in inputs}) == len(inputs)


def test_p11_large_content_is_digested_like_small_content(call):
    registry = ToolRegistry([Tool("t", lambda x: x, parse_input=lambda arguments: arguments)], default_max_output_bytes=None)
    big = {"b": "é" * 10_000, "a": 1}
    record = call(registry, "t", big).invocation
    canonical = json.dumps(big, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert record.input_digest == hashlib.sha256(canonical).hexdigest()
    assert record.output_digest == hashlib.sha256(json.dumps(big, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()


def test_p11_the_output_is_digested_as_it_was_given_to_the_model(call):
    result = call(ToolRegistry([Tool("t", lambda: ToolAnswer(1, text="one"))]), "t")
    assert result.invocation.output_digest == hashlib.sha256(result.text.encode()).hexdigest()


def test_p11_a_receipt_holds_no_content(call):
    registry = ToolRegistry([Tool("t", lambda x: x, parse_input=lambda arguments: arguments)])
    record = call(registry, "t", {"a": SECRET}).invocation
    assert "hunter2" not in repr(record) + repr(dataclasses.asdict(record))
    assert b"hunter2" not in pickle.dumps(record)


def test_p11_a_receipt_survives_pickling_with_its_digests(call):
    record = call(ToolRegistry([divide]), "divide", {"a": 1}).invocation
    again = pickle.loads(pickle.dumps(record))
    assert again == record
    assert (again.input_digest, again.output_digest) == (record.input_digest, record.output_digest)


def test_p11_a_changed_copy_of_a_receipt_keeps_its_digests(call):
    record = call(ToolRegistry([divide]), "divide", {"a": 1}).invocation
    changed = dataclasses.replace(record, notes=("seen",))
    assert (changed.input_digest, changed.output_digest) == (record.input_digest, record.output_digest)


def test_p11_a_receipt_that_a_host_makes_has_no_digests():
    made = ToolCallRecord("i1", "t", "read", "succeeded", 1.0, 2.0)
    assert (made.input_digest, made.output_digest) == (None, None)


def test_p11_repairs_are_named_in_the_receipt(call):
    result = call(ToolRegistry([order]), "order", {**GOOD, "lines": json.dumps(GOOD["lines"])})
    assert any(repair.startswith("lines") for repair in result.invocation.repairs)


def test_p11_a_receipt_does_not_keep_the_tools_objects_alive(call):
    class Heavy:
        pass

    heavy = Heavy()
    watch = weakref.ref(heavy)
    registry = ToolRegistry([divide])
    call(registry, "divide", {"a": 1}, user_context=heavy)
    del heavy
    gc.collect()
    assert watch() is None


EMPTY = [(None, "null"), ("", '""'), ([], "[]"), ({}, "{}"), (False, "false"), (0, "0")]


@pytest.mark.parametrize(("value", "text"), EMPTY)
def test_p11_the_text_is_never_empty(call, value, text):
    assert call(ToolRegistry([Tool("t", lambda: value)]), "t").text == text


# ── P12: what a request carries ──────────────────────────────────────────────────────────────────────────────────────────


def by_request(registry, door, name, raw=None, **keywords):
    return door(registry, ToolInvocationRequest(tool_id=name, input=raw, **keywords))


def by_keywords(registry, door, name, raw=None, **keywords):
    return door(registry, name, raw, **keywords)


carried = pytest.mark.parametrize("send", [by_request, by_keywords])


@tool
def show(context: ToolContext, a: int = 0) -> ToolAnswer[object]:
    """Hand the context out."""
    return ToolAnswer(a, text="shown", artifacts={"context": context})


def context_of(result):
    return result.artifacts["context"]


@carried
def test_p12_tool_id_and_raw_input_arrive(call, send):
    result = send(ToolRegistry([show]), call, "show", '{"a": 5}')
    assert (result.invocation.tool, result.value) == ("show", 5)


@carried
def test_p12_the_signal_arrives(call, send):
    with pytest.raises(Enough):
        send(ToolRegistry([show]), call, "show", signal=aborted(Enough()))


@carried
def test_p12_the_diagnostics_arrive_and_go_before_the_registrys(call, send):
    mine, theirs = MemoryDestination(), MemoryDestination()
    registry = ToolRegistry([show], diagnostics=DiagnosticContext.of(theirs))
    send(registry, call, "show", diagnostics=DiagnosticContext.of(mine))
    assert (len(mine.events), len(theirs.events)) == (2, 0)


@carried
def test_p12_the_logger_is_there_for_the_tools_own_use(call, send):
    logger = logging.getLogger("host.calls")
    assert context_of(send(ToolRegistry([show]), call, "show", logger=logger)).logger is logger


def test_p12_without_a_logger_the_tool_has_one_all_the_same(call):
    assert isinstance(context_of(call(ToolRegistry([show]), "show")).logger, logging.Logger)


@carried
def test_p12_thread_id_user_context_and_call_context_arrive(call, send):
    user = object()
    result = send(ToolRegistry([show]), call, "show", thread_id="t1", user_context=user, call_context=CONTEXT)
    context = context_of(result)
    assert (context.thread_id, context.user_context, context.call_context) == ("t1", user, CONTEXT)
    assert (result.invocation.thread_id, result.invocation.call_id) == ("t1", "c1")


@carried
def test_p12_the_offered_tools_arrive_additional_ones_among_them(call, send):
    registry = ToolRegistry([show, named("other")])
    assert send(registry, call, "guest", tools=["show", named("guest")]).value == "guest"
    with pytest.raises(ToolNotOfferedError):
        send(registry, call, "other", tools=["show", named("guest")])


@carried
def test_p12_an_empty_offer_of_a_request_offers_nothing(call, send):
    with pytest.raises(ToolNotOfferedError):
        send(ToolRegistry([show]), call, "show", tools=[])


@carried
def test_p12_the_options_arrive(call, send):
    with pytest.raises(OutputTooLargeError):
        send(ToolRegistry([named("long_name")]), call, "long_name", options=ExecutionOptions(max_output_bytes=2))


@carried
def test_p12_a_falsy_user_context_arrives_as_it_is(call, send):
    assert context_of(send(ToolRegistry([show]), call, "show", user_context=0)).user_context == 0


def test_p12_a_call_that_carries_nothing_shows_nothing(call):
    context = context_of(call(ToolRegistry([show]), "show"))
    assert (context.thread_id, context.user_context, context.call_context) == (None, None, None)


def test_p12_a_request_is_frozen():
    request = ToolInvocationRequest(tool_id="t")
    with pytest.raises(FrozenInstanceError):
        request.tool_id = "other"  # type: ignore[misc]


def test_p12_a_request_can_be_sent_again(call):
    registry, request = ToolRegistry([divide]), ToolInvocationRequest(tool_id="divide", input='{"a": 1}', tools=["divide"])
    first, second = call(registry, request), call(registry, request)
    assert first.invocation.invocation_id != second.invocation.invocation_id


def test_p12_an_argument_that_no_call_has_is_refused(call):
    with pytest.raises(UsageError) as caught:
        call(ToolRegistry([divide]), "divide", {"a": 1}, user_contxt=1)
    assert "user_contxt" in str(caught.value)
    assert "a tool's own arguments go as one mapping after the name" in str(caught.value)


def test_p12_what_one_call_carries_does_not_reach_the_next(call):
    registry = ToolRegistry([show])
    call(registry, "show", thread_id="t1", user_context="ada", call_context=CONTEXT)
    context = context_of(call(registry, "show"))
    assert (context.thread_id, context.user_context, context.call_context) == (None, None, None)


@pytest.mark.parametrize("kind", ["thread", "inline"])
def test_p12_context_variables_go_in_and_do_not_come_out(call, kind):
    variable: ContextVar[str] = ContextVar("variable", default="unset")

    def look() -> str:
        found = variable.get()
        variable.set("changed by the tool")
        return found

    variable.set("from the caller")
    assert call(ToolRegistry([Tool("t", look, run_in=kind)]), "t").value == "from the caller"
    assert variable.get() == "from the caller"


# ── the order of the pipeline ────────────────────────────────────────────────────────────────────────────────────────────


def test_p1_the_order_is_offered_input_authorization_run_output_cap(call):
    steps = []

    def body(arguments: object) -> str:
        steps.append("run")
        return "x" * 50

    made = Tool(
        "t",
        body,
        parse_input=lambda arguments: steps.append("input"),
        parse_output=lambda value: steps.append("output") or value,
        max_output_bytes=10,
    )
    registry = ToolRegistry([made], authorize=lambda asked: steps.append("authorization"))
    assert failure(call, registry, "t", tools=[]).status == 403
    assert steps == []
    assert failure(call, registry, "t").status == 413
    assert steps == ["input", "authorization", "run", "output"]
    assert [each.error_status for each in registry.events] == [403, 413]


def test_p11_errors_of_the_host_are_named_by_its_own_code(call):
    registry = ToolRegistry([anything], errors=ErrorPorts(error_code=lambda error: type(error).__name__))
    failure(call, registry, "anything", {"what": "raise"})
    assert registry.events[-1].error_code == "ValueError"
