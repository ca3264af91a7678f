"""Rows D1 to D3 of the contract: how calls are observed."""

import asyncio
import json
import logging

import pytest
import structlog
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from pydantic import BaseModel, SecretStr

from callgate import AbortController, AbortedError, CallContext, Tool, ToolContext, ToolRegistry, tool
from callgate.diagnostics import (
    CallFacts,
    DiagnosticContext,
    DiagnosticEvent,
    DiagnosticIdentity,
    DiagnosticSpanFields,
    LoggingDestination,
    MemoryDestination,
    OpenTelemetryDestination,
    ToolStarted,
)
from callgate.values import UNSET
from tests.contract.kit import failure

MARKER = "marker-in-content"


class Card(BaseModel):
    pin: SecretStr


FACTS = CallFacts(invocation_id="i1", tool="echo")
CONTEXT = CallContext(run_id="r1", call_id="c1", attempt=2)


@tool(kind="read")
def echo(text: str) -> str:
    """Give it back."""
    return text


@tool
def hush(text: str) -> dict[str, str]:
    """Give it back under its name."""
    return {"text": text}


@tool
def fail(text: str) -> str:
    """Raise it."""
    raise ValueError(text)


def started(arguments=UNSET):
    return lambda: ToolStarted(FACTS, arguments)


def never():
    pytest.fail("built")


class Picky:
    """Take one event, at one level."""

    def __init__(self, event, content="metadata"):
        self.event, self.content, self.events = event, content, []

    def enabled(self, event, content="metadata"):
        return event == self.event and (content == "metadata" or self.content == "content")

    def write(self, event):
        self.events.append(event)


# ── D1 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_d1_identity_is_optional():
    assert DiagnosticContext().identity is None
    identity = DiagnosticIdentity("s1")
    assert DiagnosticContext.of(MemoryDestination(), identity=identity).identity is identity


def test_d1_enabled_asks_for_one_event_at_one_level():
    scope = DiagnosticContext.of(Picky("tool.failed"))
    assert scope.enabled("tool.failed")
    assert scope.enabled("tool.failed", content="metadata")
    assert not scope.enabled("tool.failed", content="content")
    assert not scope.enabled("tool.started")
    assert DiagnosticContext.of(Picky("tool.failed", "content")).enabled("tool.failed", content="content")


def test_d1_emit_records_one_fact_with_the_identity_and_the_debug_output():
    memory = MemoryDestination(content=True)
    identity = DiagnosticIdentity("s1")
    DiagnosticContext.of(memory, identity=identity).emit("tool.started", started({"a": 1}), debug={"step": "look"})
    assert memory.events == (DiagnosticEvent("tool.started", ToolStarted(FACTS, {"a": 1}), identity, {"step": "look"}),)


def test_d1_emit_without_content_holds_none():
    memory = MemoryDestination()
    DiagnosticContext.of(memory).emit("tool.started", started({"a": MARKER}), debug={"step": MARKER})
    assert MARKER not in repr(memory.events)


@pytest.mark.parametrize("is_async", [False, True])
async def test_d1_deliver_brings_content_to_the_sink_in_order(is_async):
    taken = []

    async def take_async(event):
        await asyncio.sleep(0)
        taken.append(event.payload.arguments)

    scope = DiagnosticContext.of(MemoryDestination())
    for number in range(5):
        await scope.deliver(
            "tool.started",
            started({"n": number}),
            take_async if is_async else lambda event: taken.append(event.payload.arguments),
        )
    assert taken == [{"n": number} for number in range(5)]


@pytest.mark.parametrize("is_async", [False, True])
async def test_d1_a_consumers_failure_propagates_from_deliver(is_async):
    memory = MemoryDestination()

    def fails(event):
        raise ZeroDivisionError

    async def fails_async(event):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await DiagnosticContext.of(memory).deliver("tool.started", started(), fails_async if is_async else fails)
    assert len(memory.events) == 1


async def test_d1_deliver_gives_the_sink_and_the_log_the_same_fact():
    memory, taken = MemoryDestination(content=True), []
    await DiagnosticContext.of(memory).deliver("tool.started", started({"a": 1}), taken.append)
    assert list(memory.events) == taken


def test_d1_a_child_has_its_span_and_its_parents():
    parent = DiagnosticContext.of(MemoryDestination()).child("s1")
    child = parent.child("s2")
    assert (parent.identity.span_id, parent.identity.parent_span_id) == ("s1", None)
    assert (child.identity.span_id, child.identity.parent_span_id) == ("s2", "s1")


def test_d1_fields_fill_what_the_parent_does_not_know_and_overwrite_nothing():
    parent = DiagnosticContext.of(MemoryDestination()).child("s1", DiagnosticSpanFields(run_id="r1"))
    child = parent.child("s2", DiagnosticSpanFields(run_id="other", node="n1"))
    assert child.identity.fields == DiagnosticSpanFields(run_id="r1", node="n1")
    assert parent.identity.fields == DiagnosticSpanFields(run_id="r1")


def test_d1_a_child_writes_to_its_parents_destinations():
    memory = MemoryDestination()
    DiagnosticContext.of(memory).child("s1").emit("tool.started", started())
    assert memory.events[0].identity.span_id == "s1"


def test_d1_an_observer_sees_live_and_changes_neither_destination_nor_identity():
    memory, seen = MemoryDestination(), []
    scope = DiagnosticContext.of(memory, identity=DiagnosticIdentity("s1"))
    observed = scope.with_observer(seen.append)
    observed.emit("tool.started", started())
    assert [event.name for event in seen] == ["tool.started"]
    assert len(memory.events) == 1
    assert observed.identity is scope.identity
    scope.emit("tool.started", started())
    assert (len(seen), len(memory.events)) == (1, 2)


def test_d1_observers_add_up():
    first, second = [], []
    scope = DiagnosticContext().with_observer(first.append).with_observer(second.append)
    scope.emit("tool.started", started())
    assert (len(first), len(second)) == (1, 1)


def test_d1_a_call_is_observed_in_the_scope_that_it_carries(call):
    memory = MemoryDestination()
    scope = DiagnosticContext.of(memory).child("s1", DiagnosticSpanFields(node="n1"))
    call(ToolRegistry([echo]), "echo", {"text": "x"}, diagnostics=scope)
    assert {event.identity for event in memory.events} == {scope.identity}


def test_d1_a_broken_destination_fails_no_call(call):
    class Broken:
        def enabled(self, event, content="metadata"):
            return True

        def write(self, event):
            raise ZeroDivisionError

    registry = ToolRegistry([echo], diagnostics=DiagnosticContext.of(Broken(), MemoryDestination()))
    assert call(registry, "echo", {"text": "x"}).value == "x"


# ── D2 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_d2_a_thunk_is_not_called_when_nobody_observes_the_event():
    DiagnosticContext().emit("tool.started", never)
    DiagnosticContext.of(Picky("tool.failed")).emit("tool.started", never)
    DiagnosticContext.of(LoggingDestination("callgate.contract.quiet")).emit("tool.started", never)


def test_d2_a_thunk_is_called_once_for_all_who_observe():
    built = []
    scope = DiagnosticContext.of(MemoryDestination(), MemoryDestination(content=True)).with_observer(lambda event: None)
    scope.emit("tool.started", lambda: built.append(1) or ToolStarted(FACTS))
    assert built == [1]


def test_d2_a_call_that_nobody_observes_asks_nothing_of_its_values(call):
    class Untouched:
        def __repr__(self):
            pytest.fail("asked")

    registry = ToolRegistry([Tool("t", lambda: 1)], diagnostics=DiagnosticContext())
    assert call(registry, "t", user_context=Untouched()).value == 1


def test_d2_content_is_not_copied_when_only_metadata_is_wanted(call):
    copied = []
    registry = ToolRegistry(
        [echo], diagnostics=DiagnosticContext.of(MemoryDestination(), redact=lambda plain: copied.append(plain))
    )
    call(registry, "echo", {"text": "x"})
    assert copied == []


# ── D3: logging ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_d3_logging_writes_the_start_and_the_end_of_a_call_when_asked(call, caplog):
    caplog.set_level(logging.DEBUG, "callgate")
    call(ToolRegistry([echo]), "echo", {"text": MARKER}, call_context=CONTEXT)
    lines = [record.getMessage() for record in caplog.records if record.name == "callgate"]
    assert [line.split()[0] for line in lines] == ["callgate.tool_started", "callgate.tool_finished"]
    assert all("call_id=c1" in line and MARKER not in line for line in lines)


def test_d3_logging_says_nothing_of_success_by_default(call, caplog):
    call(ToolRegistry([echo]), "echo", {"text": "x"})
    assert caplog.records == []


def test_d3_logging_has_content_only_when_asked_for(call, caplog):
    caplog.set_level(logging.DEBUG, "callgate.contract")
    scope = DiagnosticContext.of(LoggingDestination("callgate.contract", content=True))
    call(ToolRegistry([echo], diagnostics=scope), "echo", {"text": MARKER})
    assert MARKER in caplog.text


def test_d3_the_levels_of_logging_can_be_set(call, caplog):
    caplog.set_level(logging.INFO, "callgate.contract")
    scope = DiagnosticContext.of(
        LoggingDestination("callgate.contract", failure_level=logging.CRITICAL, success_level=logging.INFO)
    )
    registry = ToolRegistry([echo, fail], diagnostics=scope)
    call(registry, "echo", {"text": "x"})
    failure(call, registry, "fail", {"text": "x"})
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO", "INFO", "CRITICAL"]


def test_d3_structlog_gets_the_same_facts_as_key_values(call):
    entries = []

    def keep(logger, method, entry):
        entries.append((method, entry))
        raise structlog.DropEvent

    logger = structlog.wrap_logger(structlog.PrintLogger(), processors=[keep])
    registry = ToolRegistry([fail], diagnostics=DiagnosticContext.of(LoggingDestination(logger)))
    failure(call, registry, "fail", {"text": "x"}, call_context=CONTEXT)
    method, entry = entries[-1]
    assert (method, entry["event"], entry["tool"], entry["call_id"]) == ("warning", "callgate.tool_failed", "fail", "c1")
    assert isinstance(entry["exc_info"], ValueError)


# ── D3: OpenTelemetry ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def exported():
    return InMemorySpanExporter()


@pytest.fixture
def tracer(exported):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exported))
    return provider.get_tracer("contract")


def traced(tracer, *tools, **options):
    return ToolRegistry(tools, diagnostics=DiagnosticContext.of(OpenTelemetryDestination(tracer, **options)))


def test_d3_each_call_is_one_span_with_the_attributes_of_the_convention(call, tracer, exported):
    call(traced(tracer, echo), "echo", {"text": MARKER}, call_context=CONTEXT, thread_id="t1")
    [span] = exported.get_finished_spans()
    assert (span.name, span.kind, span.status.status_code) == ("execute_tool echo", SpanKind.INTERNAL, StatusCode.UNSET)
    wanted = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "echo",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": "Give it back.",
        "gen_ai.tool.call.id": "c1",
    }
    assert wanted.items() <= dict(span.attributes).items()


def test_d3_a_failed_call_names_its_error_type_and_no_text(call, tracer, exported):
    failure(call, traced(tracer, fail), "fail", {"text": MARKER})
    [span] = exported.get_finished_spans()
    assert (span.attributes["error.type"], span.status.status_code) == ("ValueError", StatusCode.ERROR)
    assert MARKER not in span.to_json()
    assert span.events == ()


@pytest.mark.parametrize(("content", "present"), [(False, False), (True, True)])
def test_d3_a_span_has_content_only_when_asked_for(call, tracer, exported, content, present):
    call(traced(tracer, echo, content=content), "echo", {"text": MARKER})
    [span] = exported.get_finished_spans()
    assert (MARKER in span.to_json()) is present
    assert ("gen_ai.tool.call.arguments" in span.attributes) is present
    if present:
        assert json.loads(span.attributes["gen_ai.tool.call.arguments"]) == {"text": MARKER}


def test_d3_an_abort_is_no_error_of_a_span(call, tracer, exported):
    controller = AbortController()

    @tool
    def stop(context: ToolContext) -> None:
        controller.abort()
        context.signal.wait(30)
        raise ZeroDivisionError

    with pytest.raises(AbortedError):
        call(traced(tracer, stop), "stop", signal=controller.signal)
    [span] = exported.get_finished_spans()
    assert span.status.status_code is StatusCode.UNSET


def test_d3_a_call_that_was_refused_leaves_a_span_too(call, tracer, exported):
    registry = traced(tracer, echo)
    failure(call, registry, "echo", {"text": 1})
    failure(call, registry, "echo", {"text": "x"}, tools=[])
    failure(call, registry, "nobody")
    spans = exported.get_finished_spans()
    assert [span.attributes["error.type"] for span in spans] == ["invalid_input", "tool_not_offered", "tool_not_found"]
    assert [span.name for span in spans] == ["execute_tool echo", "execute_tool echo", "execute_tool nobody"]


def test_d3_the_refused_input_of_a_tool_that_takes_secrets_is_recorded_nowhere(call, tracer, exported):
    @tool
    def login(name: str, card: Card) -> None: ...

    memory = MemoryDestination(content=True)
    spans = OpenTelemetryDestination(tracer, content=True)
    registry = ToolRegistry([login, echo], diagnostics=DiagnosticContext.of(memory, spans))
    failure(call, registry, "login", {"name": 1, "card": {"pin": MARKER}})
    failure(call, registry, "login", '{"name": "ann", "card": {"pin": "' + MARKER)
    failure(call, registry, "echo", {"text": 1})
    call(registry, "login", {"name": "ann", "card": {"pin": MARKER}})
    failed = [event.payload.arguments for event in memory.events if event.name == "tool.failed"]
    assert failed == ["[not recorded]", "[not recorded]", {"text": 1}]
    assert MARKER not in repr(memory.events) + "".join(span.to_json() for span in exported.get_finished_spans())


@pytest.mark.parametrize("run_in", ["thread", "inline"])
def test_d3_a_span_that_a_tool_opens_is_below_the_calls_span(call, tracer, exported, run_in):
    def work() -> None:
        with tracer.start_as_current_span("inner"):
            pass

    call(traced(tracer, Tool("work", work, run_in=run_in)), "work")
    spans = {span.name: span for span in exported.get_finished_spans()}
    assert spans["inner"].parent.span_id == spans["execute_tool work"].context.span_id


# ── D3: memory ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_d3_memory_keeps_each_event_of_a_call(call):
    memory = MemoryDestination(content=True)
    registry = ToolRegistry([echo, fail], diagnostics=DiagnosticContext.of(memory))
    call(registry, "echo", {"text": "x"})
    failure(call, registry, "fail", {"text": "y"})
    assert [event.name for event in memory.events] == ["tool.started", "tool.finished", "tool.started", "tool.failed"]
    assert memory.events[0].payload.arguments == {"text": "x"}
    assert memory.events[1].payload.output == '"x"'


def test_d3_redaction_holds_in_every_destination(call, tracer, exported, caplog):
    caplog.set_level(logging.DEBUG, "callgate.contract")
    memory, seen = MemoryDestination(content=True), []
    places = (LoggingDestination("callgate.contract", content=True), OpenTelemetryDestination(tracer, content=True), memory)
    scope = DiagnosticContext.of(*places, redact=["text"]).with_observer(seen.append, "content")
    call(ToolRegistry([hush], diagnostics=scope), "hush", {"text": MARKER})
    said = [caplog.text, repr(memory.events), repr(seen), *(span.to_json() for span in exported.get_finished_spans())]
    assert len(said) == 4
    assert all(MARKER not in each for each in said)
