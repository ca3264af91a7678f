"""`DiagnosticContext`: rows D1 and D2 of the contract."""

import logging
from dataclasses import FrozenInstanceError, replace
from typing import get_args

import pytest

from callgate.diagnostics import (
    CallFacts,
    DiagnosticContext,
    DiagnosticEvent,
    DiagnosticIdentity,
    DiagnosticSpanFields,
    EventName,
    LoggingDestination,
    MemoryDestination,
    SpanEnding,
    ToolFailed,
    ToolFinished,
    ToolStarted,
    default_diagnostics,
    ending_event,
    event_id,
    original_error,
)
from callgate.errors import ToolDeniedError, ToolFailedError, UsageError
from callgate.values import UNSET, ToolAnswer, ToolCallRecord

FACTS = CallFacts(invocation_id="i1", tool="add", call_id="c1", attempt=2, limit_s=5.0)
RECORD = ToolCallRecord("i1", "add", "read", "succeeded", 1.0, 2.5, call_id="c1")
EVENTS: tuple[EventName, ...] = get_args(EventName)


def started(arguments=UNSET):
    return lambda: ToolStarted(FACTS, arguments)


class Broken:
    """Fails in whatever it is asked."""

    def enabled(self, event, content="metadata"):
        raise ZeroDivisionError

    def write(self, event):
        raise ZeroDivisionError


class BrokenWriter(Broken):
    def enabled(self, event, content="metadata"):
        return True


class Spans:
    """Has spans; `log` tells what was done with them."""

    def __init__(self, wants_content=False, fail=False):
        self.wants_content = wants_content
        self.fail = fail
        self.log = []

    def enabled(self, event, content="metadata"):
        return False

    def write(self, event):
        raise AssertionError(event)

    def open_span(self, facts):
        self.log.append(("open", facts))
        return self

    def activate(self):
        self.log.append(("activate",))
        if self.fail:
            raise ZeroDivisionError

    def end(self, ending):
        self.log.append(("end", ending))


def test_d1_a_scope_is_frozen():
    with pytest.raises(FrozenInstanceError):
        DiagnosticContext().identity = DiagnosticIdentity("s")  # type: ignore[misc]


@pytest.mark.parametrize("event", EVENTS)
def test_d1_a_scope_without_destinations_enables_nothing(event):
    scope = DiagnosticContext()
    assert not scope.enabled(event)
    assert not scope.enabled(event, "content")
    assert not scope.observes_calls()


@pytest.mark.parametrize(("content", "expected"), [(False, False), (True, True)])
def test_d1_content_is_enabled_only_where_a_destination_asks_for_it(content, expected):
    scope = DiagnosticContext.of(MemoryDestination(), MemoryDestination(content=content))
    assert scope.enabled("tool.started")
    assert scope.enabled("tool.started", "content") is expected


def test_d2_a_payload_is_not_built_for_an_event_that_nobody_observes():
    def thunk():
        pytest.fail("built")

    DiagnosticContext().emit("tool.started", thunk)
    DiagnosticContext.of(LoggingDestination("callgate.quiet")).emit("tool.started", thunk)


def test_d2_a_payload_is_built_once_for_all_destinations():
    built = []
    first, second = MemoryDestination(), MemoryDestination(content=True)
    DiagnosticContext.of(first, second).emit("tool.started", lambda: built.append(1) or ToolStarted(FACTS, {"a": 1}))
    assert built == [1]
    assert (len(first.events), len(second.events)) == (1, 1)


def test_d1_content_reaches_only_the_destination_that_asked_for_it():
    bare, full = MemoryDestination(), MemoryDestination(content=True)
    DiagnosticContext.of(bare, full).emit("tool.started", started({"a": "marker"}), debug={"step": "marker"})
    assert bare.events == (DiagnosticEvent("tool.started", ToolStarted(FACTS)),)
    assert full.events == (DiagnosticEvent("tool.started", ToolStarted(FACTS, {"a": "marker"}), None, {"step": "marker"}),)
    assert "marker" not in repr(bare.events)


def test_h11_an_observer_of_content_sees_id_arguments_attempt_and_limit_before_the_call():
    seen = []
    scope = DiagnosticContext.of(redact=["email"]).with_observer(seen.append, content="content")
    scope.emit("tool.started", started({"email": "a@b.c", "n": 1}))
    payload = seen[0].payload
    assert (payload.call.call_id, payload.call.attempt, payload.call.limit_s) == ("c1", 2, 5.0)
    assert payload.arguments == {"email": "[redacted]", "n": 1}


def test_d1_an_observer_is_added_without_changing_destination_or_identity():
    seen, memory = [], MemoryDestination()
    scope = DiagnosticContext.of(memory, identity=DiagnosticIdentity("s1"))
    observed = scope.with_observer(seen.append)
    observed.emit("tool.started", started({"a": 1}))
    assert observed.identity == scope.identity
    assert seen == list(memory.events)
    assert seen[0].payload.arguments is UNSET
    scope.emit("tool.started", started())
    assert (len(seen), len(memory.events)) == (1, 2)


async def noop(event):
    pass


def test_an_async_observer_is_refused():
    with pytest.raises(UsageError, match="deliver"):
        DiagnosticContext().with_observer(noop)


def test_d1_a_child_fills_what_the_parent_does_not_know_and_overwrites_nothing():
    known = DiagnosticSpanFields(run_id="r1", step=1)
    scope = DiagnosticContext(DiagnosticIdentity("s1", None, known))
    child = scope.child("s2", DiagnosticSpanFields(run_id="other", step=9, call_id="c1"))
    assert child.identity == DiagnosticIdentity("s2", "s1", DiagnosticSpanFields(run_id="r1", step=1, call_id="c1"))
    assert scope.identity.fields == known


def test_d1_a_child_of_an_unbound_scope_is_bound():
    assert DiagnosticContext().child("s", DiagnosticSpanFields(node="n")).identity == DiagnosticIdentity(
        "s", None, DiagnosticSpanFields(node="n")
    )
    assert DiagnosticContext().child("s").child("t").identity == DiagnosticIdentity("t", "s")


def test_d1_a_child_writes_to_its_parents_destinations_under_its_own_identity():
    memory = MemoryDestination()
    DiagnosticContext.of(memory).child("s").emit("tool.started", started())
    assert memory.events[0].identity == DiagnosticIdentity("s")


async def test_d1_delivery_brings_the_same_fact_with_content_to_the_sink_and_keeps_its_order():
    memory, taken = MemoryDestination(), []

    async def sink(event):
        taken.append(event)

    scope = DiagnosticContext.of(memory, redact="b")
    for number in range(3):
        await scope.deliver("tool.started", started({"a": number, "b": "secret"}), sink if number else taken.append)
    assert [event.payload.arguments for event in taken] == [{"a": number, "b": "[redacted]"} for number in range(3)]
    assert [event.payload.arguments for event in memory.events] == [UNSET] * 3


@pytest.mark.parametrize("is_async", [False, True])
async def test_d1_a_failing_sink_is_heard_and_the_destinations_have_the_fact(is_async):
    memory = MemoryDestination()

    def sink(event):
        raise LookupError(event.name)

    async def async_sink(event):
        sink(event)

    with pytest.raises(LookupError, match=r"tool\.started"):
        await DiagnosticContext.of(memory).deliver("tool.started", started(), async_sink if is_async else sink)
    assert len(memory.events) == 1


def test_a_destination_that_raises_fails_no_call_and_is_logged_once(caplog):
    memory = MemoryDestination()
    scope = DiagnosticContext.of(BrokenWriter(), memory)
    for _ in range(3):
        scope.child("s").emit("tool.started", started())
    assert len(memory.events) == 3
    assert [record.getMessage().split()[:2] for record in caplog.records] == [
        ["callgate.destination_failed", "destination=BrokenWriter:"]
    ]


def test_a_check_that_raises_counts_as_no(caplog):
    scope = DiagnosticContext.of(Broken())
    assert not scope.enabled("tool.started")
    assert not scope.observes_calls()
    assert len(caplog.records) == 1


def test_an_observer_that_raises_fails_no_call(caplog):
    def observer(event):
        raise RuntimeError

    DiagnosticContext().with_observer(observer).emit("tool.started", started())
    assert "destination_failed" in caplog.text


def test_a_failing_log_about_a_failing_destination_fails_no_call(monkeypatch):
    class Handler(logging.Handler):
        def emit(self, record):
            raise OSError

    logger = logging.getLogger("callgate.diagnostics")
    monkeypatch.setattr(logger, "handlers", [Handler()])
    DiagnosticContext.of(BrokenWriter()).emit("tool.started", started())


@pytest.mark.parametrize("wrong", [object(), None, print])
def test_what_is_no_destination_is_refused(wrong):
    with pytest.raises(UsageError, match="destination"):
        DiagnosticContext.of(wrong)


def test_without_span_support_there_is_no_span():
    assert default_diagnostics().open_span(FACTS) is None
    assert DiagnosticContext.of(MemoryDestination()).open_span(FACTS) is None


@pytest.mark.parametrize("wants_content", [False, True])
def test_a_span_gets_content_only_when_it_wants_it_and_redacted(wants_content):
    spans = Spans(wants_content)
    span = DiagnosticContext.of(spans, redact=["email"]).open_span(FACTS)
    span.activate()
    span.end(SpanEnding(RECORD, None, {"email": "x"}, [1]))
    content = ({"email": "[redacted]"}, [1]) if wants_content else (UNSET, UNSET)
    assert spans.log == [("open", FACTS), ("activate",), ("end", SpanEnding(RECORD, None, *content))]


def test_a_span_is_ended_once_and_a_failing_one_fails_no_call():
    failing, fine = Spans(fail=True), Spans()
    span = DiagnosticContext.of(failing, fine).open_span(FACTS)
    span.activate()
    span.end(SpanEnding(RECORD))
    span.end(SpanEnding(RECORD))
    assert [step[0] for step in fine.log] == [step[0] for step in failing.log] == ["open", "activate", "end"]


def test_h7_one_redaction_holds_for_destination_span_observer_and_debug():
    spans, memory, seen = Spans(wants_content=True), MemoryDestination(content=True), []
    scope = DiagnosticContext.of(spans, memory, redact=["email"]).with_observer(seen.append, "content")
    content = {"user": {"Email": "marker@x"}, "list": [{"EMAIL": "marker@x"}]}
    scope.emit("tool.finished", lambda: ToolFinished(RECORD, content, content), debug={"email": "marker@x"})
    scope.open_span(FACTS).end(SpanEnding(RECORD, None, content, content))
    everything = repr((spans.log, memory.events, seen))
    assert "marker" not in everything
    assert everything.count("[redacted]") == 4 + 5 * 2


@pytest.mark.parametrize("event", EVENTS)
def test_every_event_has_a_level_and_an_id(event, caplog):
    caplog.set_level(1, "callgate")
    assert LoggingDestination().enabled(event)
    assert event_id(event) == "callgate." + event.replace(".", "_")


@pytest.mark.parametrize(
    ("status", "event"),
    [
        ("succeeded", "tool.finished"),
        ("aborted", "tool.finished"),
        ("cancelled", "tool.finished"),
        ("failed", "tool.failed"),
        ("denied", "tool.failed"),
    ],
)
def test_h9_every_status_has_one_ending_event(status, event):
    assert ending_event(status) == event


def test_e8_the_original_error_is_the_very_exception_of_the_tool():
    own = ValueError("x")
    wrapped = ToolFailedError("t")
    wrapped.__cause__ = own
    assert original_error(wrapped) is own
    assert original_error(own) is own
    denied = ToolDeniedError("t")
    denied.__cause__ = own
    assert original_error(denied) is denied


def test_the_error_of_a_failure_is_an_object_and_no_text_in_its_payload():
    payload = ToolFailed(replace(RECORD, status="failed"), ValueError("secret"))
    assert isinstance(payload.error, ValueError)
    assert "secret" not in repr(payload)


def test_artifacts_of_an_answer_are_not_recorded():
    memory = MemoryDestination(content=True)
    answer = ToolAnswer([1], text="one", artifacts={"a": "secret"})
    DiagnosticContext.of(memory).emit("tool.finished", lambda: ToolFinished(RECORD, output=answer))
    assert memory.events[0].payload.output == [1]


def test_memory_keeps_the_last_events_and_forgets_on_demand():
    memory = MemoryDestination(max_events=2)
    scope = DiagnosticContext.of(memory)
    for _ in range(3):
        scope.emit("tool.started", started())
    scope.emit("tool.finished", lambda: ToolFinished(RECORD))
    assert [event.name for event in memory.events] == ["tool.started", "tool.finished"]
    assert len(memory.named("tool.finished")) == 1
    memory.clear()
    assert memory.events == ()
