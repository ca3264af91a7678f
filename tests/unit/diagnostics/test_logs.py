"""`LoggingDestination`: row D3; cases e8, e14, h9."""

import io
import logging
from dataclasses import replace

import pytest
import structlog

from callgate.diagnostics import (
    CallFacts,
    DiagnosticContext,
    DiagnosticIdentity,
    DiagnosticSpanFields,
    LoggingDestination,
    ReportHandlerFailed,
    ToolFailed,
    ToolFinished,
    ToolLate,
    ToolProgress,
    ToolStarted,
    default_diagnostics,
)
from callgate.errors import ToolDeniedError, ToolFailedError, UsageError
from callgate.values import ToolCallRecord

FACTS = CallFacts(invocation_id="i1", tool="add", kind="read", call_id="c1", limit_s=5.0)
DONE = ToolCallRecord("i1", "add", "read", "succeeded", 1.0, 2.34567, call_id="c1", output_bytes=3)
FAILED = replace(DONE, status="failed", error_code="tool_failed", error_status=500)


def failure(own):
    error = ToolFailedError("add")
    try:
        raise own
    except Exception as raised:
        error.__cause__ = raised
    return error


def test_e14_a_failed_call_is_one_warning_with_its_ids_code_and_duration(caplog):
    default_diagnostics().emit("tool.failed", lambda: ToolFailed(FAILED, failure(ValueError("no user 7")), {"a": "marker"}))
    [record] = caplog.records
    assert (record.name, record.levelno) == ("callgate", logging.WARNING)
    assert record.getMessage() == (
        "callgate.tool_failed tool=add kind=read call_id=c1 invocation_id=i1 attempt=1 status=failed"
        " error_code=tool_failed error_status=500 duration_ms=2.346 input_bytes=0 output_bytes=3"
    )
    assert record.callgate["call_id"] == "c1"
    assert "marker" not in caplog.text


def test_e8_the_very_exception_of_the_tool_reaches_the_log_with_its_traceback(caplog):
    own = ValueError("no user 7")
    default_diagnostics().emit("tool.failed", lambda: ToolFailed(FAILED, failure(own)))
    [record] = caplog.records
    assert record.exc_info[1] is own
    assert record.exc_info[2] is own.__traceback__ is not None
    assert "raise own" in caplog.text


def test_a_refusal_is_logged_without_a_traceback(caplog):
    default_diagnostics().emit("tool.failed", lambda: ToolFailed(replace(FAILED, status="denied"), ToolDeniedError("add", "no")))
    assert caplog.records[0].exc_info is None


def test_what_broke_the_authorization_is_logged_with_its_traceback(caplog):
    error, cause = ToolDeniedError("add"), ValueError("policy")
    error.__cause__ = cause
    default_diagnostics().emit("tool.failed", lambda: ToolFailed(replace(FAILED, status="denied"), error))
    assert caplog.records[0].exc_info[1] is cause


def test_a_success_is_silent_unless_debug(caplog):
    scope = default_diagnostics()
    assert not scope.enabled("tool.finished")
    assert not scope.enabled("tool.started")
    assert not scope.observes_calls()
    assert scope.enabled("tool.failed")
    assert not scope.enabled("tool.failed", "content")
    scope.emit("tool.finished", lambda: ToolFinished(DONE))
    assert caplog.records == []


def test_a_later_set_level_takes_effect(caplog):
    scope = default_diagnostics()
    assert not scope.observes_calls()
    with caplog.at_level(logging.DEBUG, "callgate"):
        assert scope.enabled("tool.finished")
        assert scope.observes_calls()
        scope.emit("tool.finished", lambda: ToolFinished(DONE))
    assert [record.levelno for record in caplog.records] == [logging.DEBUG]
    assert not scope.enabled("tool.finished")


def test_e14_the_levels_are_settable(caplog):
    scope = DiagnosticContext.of(LoggingDestination("x.y", failure_level=logging.ERROR, success_level=logging.INFO))
    caplog.set_level(logging.INFO, "x.y")
    scope.emit("tool.failed", lambda: ToolFailed(FAILED, failure(ValueError())))
    scope.emit("tool.finished", lambda: ToolFinished(DONE))
    scope.emit("report.handler_failed", lambda: ReportHandlerFailed("add", "timed_out", limit_s=1.0))
    scope.emit("tool.late", lambda: ToolLate(replace(DONE, late_ms=9.0)))
    assert [(record.name, record.levelname) for record in caplog.records] == [
        ("x.y", "ERROR"),
        ("x.y", "INFO"),
        ("x.y", "ERROR"),
        ("x.y", "INFO"),
    ]


@pytest.mark.parametrize(
    ("event", "payload", "expected"),
    [
        ("tool.started", ToolStarted(FACTS), "tool=add kind=read call_id=c1 invocation_id=i1 attempt=1 limit_s=5.0"),
        ("tool.progress", ToolProgress(FACTS, 3, 1.0, 2.0), "limit_s=5.0 sequence=3 done=1.0 total=2.0"),
        ("tool.late", ToolLate(replace(FAILED, late_ms=61.5)), "late_ms=61.5"),
        ("report.handler_failed", ReportHandlerFailed("add", "dropped", dropped=4), "tool=add reason=dropped dropped=4"),
    ],
)
def test_each_event_is_one_line_of_its_facts(event, payload, expected, caplog):
    caplog.set_level(logging.DEBUG, "callgate")
    default_diagnostics().emit(event, lambda: payload)
    assert caplog.records[0].getMessage().startswith("callgate." + event.replace(".", "_"))
    assert expected in caplog.records[0].getMessage()


def test_the_scopes_identity_fills_what_the_record_does_not_hold(caplog):
    fields = DiagnosticSpanFields(run_id="r1", call_id="other", node="plan")
    scope = DiagnosticContext.of(LoggingDestination(), identity=DiagnosticIdentity("s1", "s0", fields))
    scope.emit("tool.failed", lambda: ToolFailed(FAILED, failure(ValueError())))
    facts = caplog.records[0].callgate
    assert (facts["span_id"], facts["parent_span_id"], facts["run_id"], facts["node"]) == ("s1", "s0", "r1", "plan")
    assert facts["call_id"] == "c1"


@pytest.mark.parametrize("name", ["a\nERROR forged line", "a\u2028b", "a b=c", 'a"b', "a\rb", "é", ""])
def test_a_name_from_a_model_cannot_forge_a_line_or_a_field(name, caplog):
    default_diagnostics().emit("tool.failed", lambda: ToolFailed(replace(FAILED, tool=name), ToolDeniedError("x")))
    line = caplog.records[0].getMessage()
    assert len(line.splitlines()) == 1
    assert ' tool="' in line


def test_a_huge_name_is_cut(caplog):
    record = replace(FAILED, tool="x" * 100_000)
    default_diagnostics().emit("tool.failed", lambda: ToolFailed(record, ToolDeniedError("x")))
    assert len(caplog.records[0].getMessage()) < 1_000


def test_content_is_logged_only_when_asked_for_and_cut(caplog):
    scope = DiagnosticContext.of(LoggingDestination(content=True), redact=["email"])
    scope.emit("tool.failed", lambda: ToolFailed(FAILED, ToolDeniedError("x"), {"email": "marker", "big": "y" * 9_000}), {"d": 1})
    line = caplog.records[0].getMessage()
    assert "[redacted]" in line
    assert "marker" not in line
    assert "debug=" in line
    assert len(line) < 3_000


def test_a_logger_adapter_is_a_logger(caplog):
    class Adapter(logging.LoggerAdapter):
        def process(self, message, options):
            return f"[app] {message}", options

    scope = DiagnosticContext.of(LoggingDestination(Adapter(logging.getLogger("adapted"), {})))
    assert not scope.observes_calls()
    scope.emit("tool.failed", lambda: ToolFailed(FAILED, ToolDeniedError("x")))
    assert caplog.records[0].getMessage().startswith("[app] callgate.tool_failed")


@pytest.mark.parametrize("wrong", [None, 5, print])
def test_what_is_no_logger_is_refused(wrong):
    with pytest.raises(UsageError, match="logger"):
        LoggingDestination(wrong)


def test_d3_structlog_gets_key_values_and_the_original_error():
    own = ValueError("x")
    with structlog.testing.capture_logs() as lines:
        scope = DiagnosticContext.of(LoggingDestination(structlog.get_logger()))
        scope.emit("tool.failed", lambda: ToolFailed(FAILED, failure(own)))
    [line] = lines
    assert (line["event"], line["log_level"], line["exc_info"]) == ("callgate.tool_failed", "warning", own)
    assert (line["tool"], line["call_id"], line["duration_ms"]) == ("add", "c1", 2.346)


def filtering(level):
    logger = structlog.PrintLogger(io.StringIO())
    return structlog.wrap_logger(logger, wrapper_class=structlog.make_filtering_bound_logger(level), processors=[])


@pytest.mark.parametrize(("level", "expected"), [(logging.DEBUG, True), (logging.WARNING, False)])
def test_d3_structlogs_own_level_decides(level, expected):
    scope = DiagnosticContext.of(LoggingDestination(filtering(level)))
    assert scope.enabled("tool.finished") is expected
    assert scope.observes_calls() is expected
    assert scope.enabled("tool.failed")


def test_d3_a_structlog_logger_over_standard_logging_follows_its_level(caplog):
    logger = structlog.wrap_logger(
        logging.getLogger("over"), wrapper_class=structlog.stdlib.BoundLogger, processors=[structlog.stdlib.render_to_log_kwargs]
    )
    scope = DiagnosticContext.of(LoggingDestination(logger))
    assert not scope.enabled("tool.finished")
    scope.emit("tool.failed", lambda: ToolFailed(FAILED, ToolDeniedError("x")))
    assert caplog.records[0].getMessage() == "callgate.tool_failed"
    assert caplog.records[0].call_id == "c1"


def test_d3_a_generic_structlog_logger_takes_every_event():
    lines = []
    logger = structlog.wrap_logger(
        structlog.PrintLogger(io.StringIO()),
        wrapper_class=structlog.BoundLogger,
        processors=[lambda _, method, fields: lines.append((method, fields["event"])) or "line"],
    )
    scope = DiagnosticContext.of(LoggingDestination(logger))
    assert scope.enabled("tool.finished")
    scope.emit("tool.finished", lambda: ToolFinished(DONE))
    assert lines == [("debug", "callgate.tool_finished")]
