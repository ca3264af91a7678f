"""`OpenTelemetryDestination`: row D3; cases h2, h3, h5, h6, h8."""

import asyncio
import contextvars
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from callgate.diagnostics import CallFacts, DiagnosticContext, OpenTelemetryDestination, SpanEnding, ToolFinished
from callgate.diagnostics.otel import _shortened
from callgate.errors import InvalidInputError, ToolFailedError, UsageError
from callgate.values import ToolCallRecord

FACTS = CallFacts(invocation_id="i1", tool="add", kind="read", description="Add two numbers.", call_id="c1")
DONE = ToolCallRecord("i1", "add", "read", "succeeded", 1.0, 2.0, call_id="c1", input_bytes=9, output_bytes=3)
SUCCESS = SpanEnding(DONE)


class Telemetry:
    def __init__(self, **options):
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("test")
        self.scope = DiagnosticContext.of(OpenTelemetryDestination(self.tracer, **options))

    def call(self, body=lambda: None, ending=SUCCESS):
        """Runs `body` as the registry does: in a copied context in which the span was activated."""
        span = self.scope.open_span(FACTS)
        context = contextvars.copy_context()
        context.run(span.activate)
        result = context.run(body)
        span.end(ending)
        return result

    @property
    def spans(self):
        return {span.name: span for span in self.exporter.get_finished_spans()}

    @property
    def only(self):
        [span] = self.exporter.get_finished_spans()
        return span


def ended(error, status="failed", code="tool_failed", **content):
    return SpanEnding(replace(DONE, status=status, error_code=code), error, **content)


def failed_with(cause):
    error = ToolFailedError("add")
    error.__cause__ = cause
    return error


def test_d3_a_call_is_one_span_after_the_semantic_conventions():
    telemetry = Telemetry()
    telemetry.call()
    span = telemetry.only
    assert (span.name, span.kind, span.status.status_code) == ("execute_tool add", SpanKind.INTERNAL, StatusCode.UNSET)
    assert dict(span.attributes) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": "Add two numbers.",
        "gen_ai.tool.call.id": "c1",
        "callgate.invocation_id": "i1",
        "callgate.tool.kind": "read",
        "callgate.attempt": 1,
        "callgate.status": "succeeded",
        "callgate.input_bytes": 9,
        "callgate.output_bytes": 3,
    }


def test_h6_without_content_nothing_of_arguments_result_or_exception_is_in_the_export():
    telemetry = Telemetry()
    error = failed_with(ValueError("marker"))
    telemetry.call(ending=ended(error, arguments={"a": "marker"}, output="marker"))
    span = telemetry.only
    assert "marker" not in span.to_json()
    assert span.events == ()
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, None)


def test_the_destination_wants_no_events():
    scope = Telemetry(content=True).scope
    assert not scope.enabled("tool.finished", "content")
    assert not scope.observes_calls()
    scope.emit("tool.finished", lambda: pytest.fail("built") or ToolFinished(DONE))


class OwnError(Exception):
    pass


@pytest.mark.parametrize(
    ("ending", "error_type"),
    [
        (ended(failed_with(ValueError())), "ValueError"),
        (ended(failed_with(OwnError())), f"{__name__}.OwnError"),
        (ended(ToolFailedError("add")), "tool_failed"),
        (ended(InvalidInputError("add", ()), code="invalid_input"), "invalid_input"),
        (ended(None, status="denied", code="tool_denied"), "tool_denied"),
        (ended(None, code=None), "_OTHER"),
    ],
)
def test_a_failure_has_an_error_type_and_the_error_status(ending, error_type):
    telemetry = Telemetry()
    telemetry.call(ending=ending)
    assert telemetry.only.attributes["error.type"] == error_type
    assert telemetry.only.status.status_code is StatusCode.ERROR


@pytest.mark.parametrize("status", ["aborted", "cancelled"])
def test_an_abort_is_no_error(status):
    telemetry = Telemetry()
    telemetry.call(ending=ended(None, status=status, code=None))
    assert telemetry.only.status.status_code is StatusCode.UNSET
    assert "error.type" not in telemetry.only.attributes


def test_content_is_exported_when_asked_for():
    telemetry = Telemetry(content=True)
    telemetry.call(ending=SpanEnding(DONE, None, {"a": 1, "é": None}, [1, "x"]))
    assert telemetry.only.attributes["gen_ai.tool.call.arguments"] == '{"a": 1, "é": null}'
    assert telemetry.only.attributes["gen_ai.tool.call.result"] == '[1, "x"]'


@pytest.mark.parametrize("output", ["x" * 5_000_000, {"nested": ["é" * 2_500_000]}, ["\ud800" * 5_000]])
def test_h8_a_huge_result_is_cut_inside_the_cap_and_the_span_exported(output):
    telemetry = Telemetry(content=True, max_attribute_bytes=1_000)
    telemetry.call(ending=SpanEnding(DONE, output=output))
    text = telemetry.only.attributes["gen_ai.tool.call.result"]
    assert len(text.encode()) <= 1_000
    assert text.endswith(" bytes]")
    assert "[cut, " in text


def test_h8_a_span_is_ended_even_when_its_content_cannot_be_written():
    telemetry = Telemetry(content=True)
    telemetry.call(ending=SpanEnding(DONE, output=10**5_000))
    assert telemetry.only.attributes["callgate.status"] == "succeeded"


def test_h8_names_and_descriptions_are_cut_too():
    telemetry = Telemetry(max_attribute_bytes=100)
    telemetry.scope.open_span(replace(FACTS, tool="x" * 9_999, description="d" * 9_999)).end(SpanEnding(DONE))
    assert len(telemetry.only.name) < 200
    assert all(len(str(value)) <= 100 for value in telemetry.only.attributes.values())


@pytest.mark.parametrize("most", range(64, 80))
def test_a_cut_never_splits_a_character(most):
    text = _shortened("aé漢😀" * 50, most)
    assert len(text.encode()) <= most
    assert "�" not in text


def test_h3_a_span_that_the_tool_opens_in_another_thread_is_a_child_of_the_call():
    telemetry = Telemetry()

    def tool():
        context = contextvars.copy_context()
        thread = threading.Thread(target=lambda: context.run(lambda: telemetry.tracer.start_span("inner").end()))
        thread.start()
        thread.join()

    telemetry.call(tool)
    assert telemetry.spans["inner"].parent.span_id == telemetry.spans["execute_tool add"].context.span_id


def test_h5_a_nested_call_is_below_the_call_that_made_it_and_the_callers_span_is_current_again():
    telemetry = Telemetry()
    with telemetry.tracer.start_as_current_span("turn"):
        telemetry.call(telemetry.call)
        telemetry.tracer.start_span("after").end()
    inner, outer = [span for span in telemetry.exporter.get_finished_spans() if span.name == "execute_tool add"]
    turn = telemetry.spans["turn"].context.span_id
    assert inner.parent.span_id == outer.context.span_id
    assert outer.parent.span_id == telemetry.spans["after"].parent.span_id == turn


async def test_h2_parallel_calls_are_all_children_of_their_turn():
    telemetry = Telemetry()

    async def call():
        span = telemetry.scope.open_span(FACTS)
        await asyncio.sleep(0)
        span.end(SpanEnding(DONE))

    for number in range(50):
        telemetry.exporter.clear()
        with telemetry.tracer.start_as_current_span("turn") as turn:
            await asyncio.gather(*(call() for _ in range(10)))
        calls = [span for span in telemetry.exporter.get_finished_spans() if span.name != "turn"]
        assert [span.parent.span_id for span in calls] == [turn.context.span_id] * 10, number


def test_an_unsampled_span_copies_no_content():
    tracer = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False).get_tracer("off")
    span = OpenTelemetryDestination(tracer, content=True).open_span(FACTS)
    assert not span.wants_content


def test_a_cap_that_leaves_no_room_for_its_marker_is_refused():
    with pytest.raises(UsageError, match="64"):
        OpenTelemetryDestination(max_attribute_bytes=63)


def test_without_a_provider_calls_go_through():
    scope = DiagnosticContext.of(OpenTelemetryDestination())
    scope.open_span(FACTS).end(SpanEnding(DONE))


def test_d3_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(UsageError, match=r"install callgate with its extra otel, .*\[otel\]"):
        OpenTelemetryDestination()


def test_importing_diagnostics_loads_no_extra():
    code = (
        "import sys, callgate.diagnostics; sys.exit(any(m.split('.')[0] in {'opentelemetry', 'structlog'} for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
