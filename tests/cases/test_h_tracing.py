"""Cases h2 to h11: spans, events and log lines of calls, as a registry makes them, in real exporters."""

import asyncio
import collections
import contextlib
import io
import json
import logging
import threading

import pytest
import structlog
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from callgate import (
    AbortController,
    CallContext,
    ExecutionOptions,
    Tool,
    ToolContext,
    ToolDeniedError,
    ToolError,
    ToolRegistry,
    tool,
)
from callgate.diagnostics import DiagnosticContext, LoggingDestination, MemoryDestination, OpenTelemetryDestination
from tests.contract import process_tools
from tests.contract.kit import by_answer, by_invoke

CONTEXT = CallContext(run_id="r", call_id="c", attempt=2)
DOORS = pytest.mark.parametrize("door", [by_answer, by_invoke], ids=["answer", "invoke"])


class Exporters:
    """Take what one scope gives to every kind of destination."""

    def __init__(self, *, content=False, redact=(), max_attribute_bytes=8_192):
        self.spans = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.spans))
        self.tracer = provider.get_tracer("test")
        self.memory = MemoryDestination(content=content)
        self.lines = []
        logger = structlog.wrap_logger(None, processors=[self._keep], wrapper_class=structlog.BoundLogger)
        self.text = io.StringIO()
        self.log = logging.getLogger(f"tests.h.{id(self)}")
        self.log.setLevel(logging.DEBUG)
        self.log.addHandler(logging.StreamHandler(self.text))
        self.log.propagate = False
        self.scope = DiagnosticContext.of(
            OpenTelemetryDestination(self.tracer, content=content, max_attribute_bytes=max_attribute_bytes),
            self.memory,
            LoggingDestination(logger, content=content),
            LoggingDestination(self.log, content=content),
            redact=redact,
        )

    def _keep(self, logger, method, event):
        self.lines.append({"level": method, **event})
        raise structlog.DropEvent

    @property
    def finished(self):
        return self.spans.get_finished_spans()

    def named(self, name):
        return [span for span in self.finished if span.name == name]

    def only(self, name):
        [span] = self.named(name)
        return span

    def everything_exported(self, *, tracebacks=False):
        """Give all that left, as text. The log's tracebacks stay on the server and are looked at on their own."""
        parts = [span.to_json() for span in self.finished]
        parts += [json.dumps(line, default=repr) for line in ({**each, "exc_info": None} for each in self.lines)]
        parts += [repr(event) for event in self.memory.events]
        parts += [line for line in self.text.getvalue().splitlines() if tracebacks or line.startswith("callgate.")]
        return "\n".join(parts)


@pytest.fixture
def exporters():
    return Exporters()


def child_of(span, parent):
    return (
        span.parent is not None
        and span.parent.span_id == parent.context.span_id
        and span.context.trace_id == parent.context.trace_id
    )


# ── h2 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_h2_ten_parallel_calls_are_ten_children_of_their_turn_in_each_of_fifty_rounds(exporters):
    @tool
    async def at_once(number: int):
        return number

    @tool
    async def later(number: int):
        await asyncio.sleep(0)
        return number

    @tool
    def in_thread(number: int):
        return number

    @tool(run_in="inline")
    def inline(number: int):
        return number

    @tool
    async def fail(number: int):
        await asyncio.sleep(0)
        raise ValueError

    tools = [at_once, later, in_thread, inline, fail]
    registry = ToolRegistry(tools, diagnostics=exporters.scope)

    async def turn(number):
        with exporters.tracer.start_as_current_span(f"turn {number}"):
            names = [each.__name__ for each in tools] * 2
            await asyncio.gather(
                *(
                    registry.answer(name, {"number": number}, call_context=CallContext(call_id=f"{number}.{index}"))
                    for index, name in enumerate(names)
                )
            )

    for number in range(50):
        await turn(number)
    turns = {span.context.span_id: span for span in exporters.finished if span.name.startswith("turn")}
    calls = [span for span in exporters.finished if span.name.startswith("execute_tool")]
    assert len(calls) == 500
    assert collections.Counter(span.parent.span_id for span in calls) == dict.fromkeys(turns, 10)
    for span in calls:
        parent = turns[span.parent.span_id]
        assert span.context.trace_id == parent.context.trace_id
        assert span.attributes["gen_ai.tool.call.id"].split(".")[0] == parent.name.split()[1]


async def test_h2_turns_side_by_side_keep_their_calls_apart(exporters):
    @tool
    async def walk(number: int):
        for _ in range(number % 3):
            await asyncio.sleep(0)

    registry = ToolRegistry([walk], diagnostics=exporters.scope)

    async def turn(number):
        with exporters.tracer.start_as_current_span(f"turn {number}"):
            await asyncio.gather(
                *(registry.answer("walk", {"number": n}, call_context=CallContext(run_id=str(number))) for n in range(10))
            )

    await asyncio.gather(*(turn(number) for number in range(20)))
    turns = {span.context.span_id: span.name for span in exporters.finished if span.name.startswith("turn")}
    calls = exporters.named("execute_tool walk")
    assert len(calls) == 200
    assert all(turns[span.parent.span_id] == f"turn {span.attributes['callgate.run_id']}" for span in calls)


# ── h3, h4, h5 ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def spanning_tools(tracer):
    """Make tools that open a span of their own, in every place where a tool can run."""

    @tool
    async def at_once():
        with tracer.start_as_current_span("inside"):
            return 1

    @tool
    async def later():
        await asyncio.sleep(0)
        with tracer.start_as_current_span("inside"):
            await asyncio.sleep(0)
            return 1

    @tool
    def in_thread():
        with tracer.start_as_current_span("inside"):
            return 1

    @tool(run_in="inline")
    def inline():
        with tracer.start_as_current_span("inside"):
            return 1

    @tool
    def items():
        with tracer.start_as_current_span("inside"):
            yield 1
        yield 2

    @tool
    async def items_async():
        with tracer.start_as_current_span("inside"):
            yield 1
        await asyncio.sleep(0)
        yield 2

    @tool
    async def in_a_child_task():
        async def child():
            with tracer.start_as_current_span("inside"):
                return 1

        return await asyncio.create_task(child())

    @tool
    async def in_to_thread():
        def work():
            with tracer.start_as_current_span("inside"):
                return 1

        return await asyncio.to_thread(work)

    return [at_once, later, in_thread, inline, items, items_async, in_a_child_task, in_to_thread]


SPANNING = [each.__name__ for each in spanning_tools(None)]


@DOORS
@pytest.mark.parametrize("name", SPANNING)
def test_h3_h4_a_span_that_a_tool_opens_is_below_its_call_wherever_it_runs_and_whether_or_not_it_streams(exporters, name, door):
    registry = ToolRegistry(spanning_tools(exporters.tracer), diagnostics=exporters.scope)
    with exporters.tracer.start_as_current_span("turn"):
        door(registry, name)
    turn, call, inside = exporters.only("turn"), exporters.only(f"execute_tool {name}"), exporters.only("inside")
    assert child_of(call, turn)
    assert child_of(inside, call)


@DOORS
def test_h3_no_span_of_a_call_is_current_after_the_call(exporters, door):
    registry = ToolRegistry(spanning_tools(exporters.tracer), diagnostics=exporters.scope)
    for name in SPANNING:
        door(registry, name)
    with exporters.tracer.start_as_current_span("after"):
        pass
    assert exporters.only("after").parent is None


@DOORS
@pytest.mark.parametrize("outer_kind", ["async", "sync"])
@pytest.mark.parametrize("name", SPANNING)
def test_h5_a_nested_call_is_below_the_call_that_made_it(exporters, name, outer_kind, door):
    @tool(name="outer")
    async def outer_async():
        return await registry.execute(name)

    @tool(name="outer")
    def outer_sync():
        return registry.invoke(name).value

    tools = spanning_tools(exporters.tracer)
    registry = ToolRegistry([*tools, outer_async if outer_kind == "async" else outer_sync], diagnostics=exporters.scope)
    with exporters.tracer.start_as_current_span("turn"):
        door(registry, "outer")
    turn, outer = exporters.only("turn"), exporters.only("execute_tool outer")
    call, inside = exporters.only(f"execute_tool {name}"), exporters.only("inside")
    assert child_of(outer, turn)
    assert child_of(call, outer)
    assert child_of(inside, call)


# ── h6 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────

IN_ARGUMENTS, IN_RESULT, IN_ERROR, IN_ITEM = "marker-a-5501", "marker-r-5502", "marker-e-5503", "marker-i-5504"
MARKERS = (IN_ARGUMENTS, IN_RESULT, IN_ERROR, IN_ITEM)


def telling_tools():
    @tool
    def give(text: str):
        return IN_RESULT

    @tool
    async def give_later(text: str, context: ToolContext):
        context.progress(IN_ITEM)
        await asyncio.sleep(0)
        return {"nested": [IN_RESULT]}

    @tool
    def items(text: str):
        yield IN_ITEM

    @tool
    def fail(text: str):
        raise ValueError(IN_ERROR)

    @tool
    async def fail_in_a_chain(text: str):
        try:
            raise KeyError(IN_ERROR)
        except KeyError as error:
            raise RuntimeError(IN_ERROR) from error

    @tool
    async def fail_in_a_group(text: str):
        raise ExceptionGroup(IN_ERROR, [ValueError(IN_ERROR)])

    @tool
    def refuse(text: str):
        raise ToolError(IN_ERROR)

    @tool(timeout_s=0.02)
    async def hang(text: str):
        await asyncio.sleep(60)

    @tool(max_output_bytes=5)
    def overflow(text: str):
        return IN_RESULT

    @tool
    def give_nan(text: str):
        return [IN_RESULT, float("nan")]

    return [give, give_later, items, fail, fail_in_a_chain, fail_in_a_group, refuse, hang, overflow, give_nan]


CALLS = [
    *((each.__name__, {"text": IN_ARGUMENTS}) for each in telling_tools()),
    ("give", {"text": {"wrong": IN_ARGUMENTS}}),
    ("give", f'{{"text": "{IN_ARGUMENTS}"'),
    ("give", {"text": "x", "more": IN_ARGUMENTS}),
]


@pytest.mark.parametrize(("name", "raw"), CALLS, ids=[f"{index}-{name}" for index, (name, _) in enumerate(CALLS)])
def test_h6_without_content_no_marker_of_arguments_result_item_or_exception_is_anywhere_in_an_export(exporters, name, raw):
    registry = ToolRegistry(telling_tools(), diagnostics=exporters.scope)
    by_answer(registry, name, raw, call_context=CONTEXT)
    exported = exporters.everything_exported()
    assert f'"{name}"' in exported or f"tool={name}" in exported
    for marker in MARKERS:
        assert marker not in exported
    for span in exporters.finished:
        assert not span.events
        assert span.status.description is None


def test_h6_without_content_a_nested_call_keeps_quiet_too(exporters):
    @tool
    async def outer(text: str):
        return [(await registry.answer(name, {"text": text})).text for name, _ in CALLS[:7]]

    registry = ToolRegistry([*telling_tools(), outer], diagnostics=exporters.scope)
    by_answer(registry, "outer", {"text": IN_ARGUMENTS}, call_context=CONTEXT)
    assert len(exporters.finished) == 8
    assert not [marker for marker in MARKERS if marker in exporters.everything_exported()]


def test_h6_the_markers_would_be_found_were_content_on():
    exporters = Exporters(content=True)
    registry = ToolRegistry(telling_tools(), diagnostics=exporters.scope)
    by_answer(registry, "give_later", {"text": IN_ARGUMENTS}, call_context=CONTEXT)
    exported = exporters.everything_exported()
    for marker in (IN_ARGUMENTS, IN_RESULT, IN_ITEM):
        assert marker in exported
    span = exporters.only("execute_tool give_later")
    assert IN_ARGUMENTS in span.attributes["gen_ai.tool.call.arguments"]
    assert IN_RESULT in span.attributes["gen_ai.tool.call.result"]


def test_h6_with_content_on_the_text_of_an_exception_stays_out_of_spans_and_of_structured_lines():
    exporters = Exporters(content=True)
    registry = ToolRegistry(telling_tools(), diagnostics=exporters.scope)
    for name in ("fail", "fail_in_a_chain", "fail_in_a_group"):
        by_answer(registry, name, {"text": "x"}, call_context=CONTEXT)
    assert IN_ERROR not in exporters.everything_exported()


# ── h7 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def everything_but(secret):
    """Make a redacting function, which sees all of the content as plain values."""

    def redact(plain):
        return json.loads(json.dumps(plain).replace(secret, "…"))

    return redact


REDACTIONS = {"name": ["email"], "other case": ["EMAIL"], "function": everything_but("ann@example.org")}


@pytest.mark.parametrize("redact", list(REDACTIONS.values()), ids=list(REDACTIONS))
@DOORS
def test_h7_what_is_redacted_is_in_no_span_log_line_event_or_observer(redact, door):
    exporters, seen = Exporters(content=True, redact=redact), []
    scope = exporters.scope.with_observer(seen.append, "content")

    @tool
    def look_up(email: str, user: dict[str, str]) -> dict[str, object]:
        return {"users": [{"email": email, "name": "Ann"}], "as_text": json.dumps({"email": email})}

    @tool
    async def stream(email: str, context: ToolContext):
        context.progress({"email": email})
        yield {"Email": email, "name": "Ann"}

    @tool
    def fail(email: str):
        raise ValueError

    registry = ToolRegistry([look_up, stream, fail], diagnostics=scope)
    raw = {"email": "ann@example.org"}
    result = by_answer(registry, "look_up", {**raw, "user": {"email": "ann@example.org"}}, call_context=CONTEXT)
    by_answer(registry, "stream", raw, call_context=CONTEXT)
    by_answer(registry, "fail", raw, call_context=CONTEXT)
    assert "ann@example.org" in result.text  # the model's answer is not redacted
    exported = exporters.everything_exported() + repr(seen) + repr(registry.events)
    assert "ann@example.org" not in exported
    assert "Ann" in exported
    assert len(exporters.finished) == 3


# ── h8 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "output",
    ["x" * 5_000_000, ["x" * 1_000] * 5_000, {"deep": {"er": {"est": "é" * 2_500_000}}}, {"k" * 5_000_000: 1}],
    ids=["text", "list", "nested", "key"],
)
def test_h8_a_span_with_five_megabytes_of_result_is_exported_with_its_attributes_within_the_cap(output):
    exporters = Exporters(content=True, max_attribute_bytes=1_000)
    huge = Tool("huge", lambda parsed: output, input_schema={"type": "object"}, max_output_bytes=None)
    registry = ToolRegistry([huge], diagnostics=exporters.scope)
    reply = by_answer(registry, "huge", {"argument": output}, call_context=CONTEXT)
    assert not reply.is_error
    span = exporters.only("execute_tool huge")
    assert span.attributes["callgate.output_bytes"] == reply.invocation.output_bytes > 5_000_000
    for name in ("gen_ai.tool.call.arguments", "gen_ai.tool.call.result"):
        assert len(span.attributes[name].encode()) <= 1_000
        assert "cut" in span.attributes[name]
    json.loads(span.to_json())
    assert all(len(line) < 50_000 for line in exporters.text.getvalue().splitlines())


def test_h8_a_huge_name_and_a_huge_error_are_exported_too(exporters):
    @tool
    def fail():
        raise ValueError("x" * 5_000_000)

    registry = ToolRegistry([fail], diagnostics=exporters.scope)
    by_answer(registry, "fail", call_context=CallContext(run_id="r" * 1_000_000, call_id="c" * 1_000_000))
    by_answer(registry, "n" * 1_000_000, call_context=CONTEXT)
    span = exporters.only("execute_tool fail")
    assert max(len(value) for value in span.attributes.values() if isinstance(value, str)) <= 8_192
    assert span.status.status_code is StatusCode.ERROR


# ── h9 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def deny(call):
    if call.name == "denied":
        raise ToolDeniedError("denied", "not today")


@tool
def succeed():
    return 1


@tool
def fail():
    raise ValueError


@tool
async def refuse():
    raise ToolError("no", code="no", status=409)


@tool(name="denied")
def never_runs():
    return 1


@tool(timeout_s=0.02)
async def hang():
    await asyncio.sleep(60)


@tool(max_output_bytes=5)
def overflow():
    return "too long"


@tool
def give_nan():
    return float("nan")


@tool(timeout_s=None)
async def wait(context: ToolContext):
    context.user_context()
    await asyncio.sleep(60)


@tool(timeout_s=None)
def wait_in_thread(context: ToolContext):
    context.user_context()
    context.signal.wait(60)


OUTCOMES = [
    ("succeed", None, "succeeded", None),
    ("fail", None, "failed", "tool_failed"),
    ("refuse", None, "failed", "no"),
    ("denied", None, "denied", "tool_denied"),
    ("hang", None, "failed", "tool_timeout"),
    ("overflow", None, "failed", "output_too_large"),
    ("give_nan", None, "failed", "invalid_output"),
    ("succeed", "{", "failed", "invalid_input"),
    ("succeed", {"x": 1}, "failed", "invalid_input"),
    ("nothing", None, "failed", "tool_not_found"),
    ("crash", None, "failed", "tool_failed"),
]


def outcome_registry(exporters):
    tools = [succeed, fail, refuse, never_runs, hang, overflow, give_nan, wait, wait_in_thread, process_tools.crash]
    return ToolRegistry(tools, authorize=deny, diagnostics=exporters.scope)


def endings(exporters):
    events = [event for event in exporters.memory.events if event.name in {"tool.finished", "tool.failed"}]
    lines = [line for line in exporters.lines if line["event"] in {"callgate.tool_finished", "callgate.tool_failed"}]
    return events, lines


@pytest.mark.parametrize(("name", "raw", "status", "code"), OUTCOMES, ids=[f"{each[0]}-{each[3]}" for each in OUTCOMES])
@DOORS
def test_h9_a_call_ends_in_one_receipt_one_event_and_one_line_whatever_its_outcome(exporters, name, raw, status, code, door):
    registry = outcome_registry(exporters)
    with contextlib.suppress(ToolError):
        door(registry, name, raw, call_context=CONTEXT)
    [receipt] = registry.events
    assert (receipt.status, receipt.error_code, receipt.call_id, receipt.attempt) == (status, code, "c", 2)
    [event], [line] = endings(exporters)
    assert event.payload.record == receipt
    assert (line["invocation_id"], line["status"], line["call_id"]) == (receipt.invocation_id, status, "c")
    assert len([each for each in exporters.text.getvalue().splitlines() if "tool_f" in each]) == 1


@pytest.mark.parametrize("name", ["wait", "wait_in_thread"])
@pytest.mark.parametrize(("end", "status"), [("abort", "aborted"), ("cancel", "cancelled"), ("abort before", "aborted")])
async def test_h9_an_abort_and_a_cancellation_are_one_record_each_as_well(exporters, name, end, status):
    registry, controller, began = outcome_registry(exporters), AbortController(), threading.Event()
    if end == "abort before":
        controller.abort()
    call = asyncio.create_task(registry.answer(name, signal=controller.signal, call_context=CONTEXT, user_context=began.set))
    async with asyncio.timeout(10):
        while not (began.is_set() or call.done()):
            await asyncio.sleep(0)
    if end == "abort":
        controller.abort()
    elif end == "cancel":
        call.cancel()
    [raised] = await asyncio.gather(call, return_exceptions=True)
    assert isinstance(raised, BaseException)
    [receipt] = registry.events
    assert receipt.status == status
    [event], [line] = endings(exporters)
    assert event.payload.record == receipt
    assert line["status"] == status
    if end != "abort before":
        assert exporters.only(f"execute_tool {name}").status.status_code is StatusCode.UNSET


@DOORS
def test_h9_a_span_that_was_opened_is_closed_whatever_the_outcome(exporters, door):
    registry = outcome_registry(exporters)
    for name, raw, *_ in OUTCOMES:
        try:
            door(registry, name, raw, call_context=CONTEXT)
        except ToolError:
            continue
    started = len(exporters.memory.named("tool.started"))
    assert len(exporters.finished) >= started > 0
    by_id = collections.Counter(span.attributes["callgate.invocation_id"] for span in exporters.finished)
    assert set(by_id.values()) == {1}
    statuses = {receipt.invocation_id: receipt.status for receipt in registry.events}
    for span in exporters.finished:
        status = statuses[span.attributes["callgate.invocation_id"]]
        assert span.attributes["callgate.status"] == status
        assert span.status.status_code is (StatusCode.UNSET if status == "succeeded" else StatusCode.ERROR)
        assert ("error.type" in span.attributes) == (status != "succeeded")


@DOORS
def test_h9_an_invalid_call_leaves_a_span_too(exporters, door):
    """Show the case's own point: calls that were refused before the tool ran leave a span as all others do."""
    registry = outcome_registry(exporters)
    for name, raw in (("succeed", "{"), ("succeed", {"x": 1}), ("nothing", None), ("denied", None)):
        try:
            door(registry, name, raw, call_context=CONTEXT)
        except ToolError:
            continue
    assert [span.attributes["error.type"] for span in exporters.finished] == [
        "invalid_input",
        "invalid_input",
        "tool_not_found",
        "tool_denied",
    ]


# ── h10 ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Opaque:
    def __repr__(self):
        raise RuntimeError("nobody may ask me")

    __str__ = __repr__


@DOORS
def test_h10_an_argument_and_an_item_that_are_no_json_become_notes_of_their_type(door):
    exporters, ran = Exporters(content=True), []

    def run(parsed, context: ToolContext):
        context.progress(Opaque())
        context.progress({"a": [Opaque(), b"bytes", {1, 2}]})
        ran.append(parsed)
        return 1

    opaque = Tool("opaque", run, parse_input=lambda value: {"thing": Opaque(), **value})
    registry = ToolRegistry([opaque], diagnostics=exporters.scope)
    assert door(registry, "opaque", {"n": 1}, call_context=CONTEXT).text == "1"
    assert len(ran) == 1
    span = exporters.only("execute_tool opaque")
    assert json.loads(span.attributes["gen_ai.tool.call.arguments"]) == {"thing": "<Opaque>", "n": 1}
    assert "<Opaque>" in exporters.text.getvalue()
    assert len(exporters.memory.named("tool.progress")) == 2


@DOORS
def test_h10_a_direct_call_with_an_object_is_refused_and_recorded_without_an_exception(door):
    exporters = Exporters(content=True)
    registry = ToolRegistry([succeed], diagnostics=exporters.scope)
    with contextlib.suppress(ToolError):
        door(registry, "succeed", {"x": Opaque()}, call_context=CONTEXT)
    [event], [line] = endings(exporters)
    assert event.payload.arguments == {"x": "<Opaque>"}
    assert line["error_code"] == "invalid_input"


class Broken:
    """Be a destination that fails at everything."""

    def enabled(self, event, content="metadata"):
        raise RuntimeError

    write = open_span = enabled


@DOORS
@pytest.mark.parametrize("name", ["succeed", "fail", "hang", "nothing"])
def test_h10_a_broken_destination_fails_no_call_and_takes_nothing_from_the_others(name, door):
    exporters = Exporters()
    scope = DiagnosticContext(receivers=(*DiagnosticContext.of(Broken()).receivers, *exporters.scope.receivers))
    registry = ToolRegistry([succeed, fail, hang], diagnostics=scope)
    try:
        door(registry, name, call_context=CONTEXT)
    except ToolError:
        assert name != "succeed"
    assert len(registry.events) == 1
    assert len(endings(exporters)[0]) == 1


# ── h11 ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@DOORS
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_h11_the_start_event_has_id_attempt_limit_and_the_validated_redacted_arguments_before_the_tool_runs(kind, door):
    order = []

    @tool(name="send", timeout_s=None)
    def sync(to: str, times: int = 1):
        order.append("tool")

    @tool(name="send", timeout_s=None)
    async def not_sync(to: str, times: int = 1):
        order.append("tool")

    def observe(event):
        if event.name == "tool.started":
            order.append(event.payload)

    scope = DiagnosticContext.of(redact=["to"]).with_observer(observe, "content")
    registry = ToolRegistry([sync if kind == "sync" else not_sync], diagnostics=scope)
    options = ExecutionOptions(timeout_s=30)
    door(registry, "functions.send", '{"to": "ann@example.org", "times": "3"}', call_context=CONTEXT, options=options)
    started, then = order
    assert then == "tool"
    assert started.arguments["times"] == 3  # repaired and parsed
    assert started.arguments["to"] == "[redacted]"
    facts = started.call
    assert (facts.tool, facts.call_id, facts.run_id, facts.attempt, facts.limit_s) == ("send", "c", "r", 2, 30)
    assert facts.invocation_id == registry.events[0].invocation_id
