"""Rows R1 to R8 of the contract: the catalog and what it is configured with."""

import re
import threading

import pytest

from callgate import (
    CallContext,
    CallgateError,
    DuplicateToolError,
    ErrorPorts,
    ExecutionOptions,
    RegistrySealedError,
    Tool,
    ToolContext,
    ToolDefinitionError,
    ToolError,
    ToolNotFoundError,
    ToolRegistry,
    UsageError,
    tool,
)
from callgate.diagnostics import DiagnosticContext, MemoryDestination
from tests.contract.kit import (
    PATIENCE_S,
    background,
    by_ainvoke,
    by_answer,
    by_invoke,
    delivered,
    ended,
    failure,
    happens,
    watched,
)


def named(name, **options):
    return Tool(name, lambda: name, **options)


def names(registry):
    return list(registry.ids())


# ── R1 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "tools", [[named("a")], [], (), {}, iter([named("a")])], ids=["one", "none", "tuple", "dict", "iterator"]
)
def test_r1_a_registry_of_given_tools_is_sealed_at_construction(tools):
    registry = ToolRegistry(tools)
    assert registry.sealed
    with pytest.raises(RegistrySealedError):
        registry.register(named("b"))


def test_r1_a_registry_without_tools_takes_them_until_seal():
    registry = ToolRegistry()
    assert not registry.sealed
    registry.register(named("a"))
    registry.register(named("b"))
    assert not registry.sealed
    assert registry.seal().sealed


def test_r1_a_registry_that_is_still_open_runs_its_tools(call):
    registry = ToolRegistry().register(named("a"))
    assert call(registry, "a").value == "a"
    registry.register(named("b"))
    assert call(registry, "b").value == "b"


def test_r1_the_list_that_a_fixed_catalog_was_made_of_can_change(call):
    tools = [named("a")]
    registry = ToolRegistry(tools)
    tools.append(named("b"))
    tools.pop(0)
    assert names(registry) == ["a"]
    assert call(registry, "a").value == "a"


# ── R2 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_r2_register_and_register_all_give_the_registry():
    registry = ToolRegistry()
    assert registry.register(named("a")) is registry
    assert registry.register_all([named("b"), named("c")]) is registry
    assert names(registry) == ["a", "b", "c"]


def breaking_off():
    yield named("b")
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("tools", "error"),
    [
        (lambda: [named("b"), named("a")], DuplicateToolError),
        (lambda: [named("b"), named("c"), named("b")], DuplicateToolError),
        (lambda: [named("b"), 7], ToolDefinitionError),
        (lambda: [named("b"), Tool("p", lambda: 1, run_in="process")], ToolDefinitionError),
        (lambda: [named("b", on_oversize="spill"), named("b")], DuplicateToolError),
        (breaking_off, ZeroDivisionError),
    ],
    ids=["taken", "twice", "no tool", "not sendable", "with the reader", "an iterable that raises"],
)
def test_r2_register_all_is_all_or_nothing(tools, error):
    registry = ToolRegistry().register(named("a"))
    before = registry.definitions
    with pytest.raises(error):
        registry.register_all(tools())
    assert registry.definitions == before
    assert registry.register(named("b")).has("b")


def test_r2_a_duplicate_is_refused_by_name_and_nothing_changes(call):
    first = named("a")
    registry = ToolRegistry().register(first)
    with pytest.raises(DuplicateToolError) as caught:
        registry.register(Tool("a", lambda: "another"))
    assert caught.value.tool == "a"
    assert "'a'" in str(caught.value)
    assert registry.get("a") is first
    assert call(registry, "a").value == "a"


def test_r2_the_same_tool_twice_is_a_duplicate_too():
    once = named("a")
    with pytest.raises(DuplicateToolError):
        ToolRegistry().register(once).register(once)


def test_r2_names_that_differ_in_case_are_two_tools(call):
    registry = ToolRegistry([named("find"), named("Find")])
    assert [call(registry, name).value for name in ("find", "Find")] == ["find", "Find"]


def test_r2_of_two_threads_that_register_one_name_one_succeeds():
    registry, outcomes, start = ToolRegistry(), [], threading.Barrier(8)

    def register():
        start.wait()
        try:
            registry.register(named("a"))
            outcomes.append("registered")
        except DuplicateToolError:
            outcomes.append("refused")

    threads = [threading.Thread(target=register) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused"] * 7 + ["registered"]


# ── R3 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_r3_registration_after_seal_is_refused_with_what_to_do():
    registry = ToolRegistry().register(named("a")).seal()
    with pytest.raises(RegistrySealedError) as caught:
        registry.register(named("late"))
    assert caught.value.tool == "late"
    assert "sealed" in str(caught.value)
    assert "before seal()" in str(caught.value)
    with pytest.raises(RegistrySealedError):
        registry.register_all([named("later"), named("latest")])
    assert names(registry) == ["a"]


def test_r3_seal_gives_the_registry_and_can_be_called_again():
    registry = ToolRegistry().register(named("a"))
    assert registry.seal() is registry
    assert registry.seal() is registry
    assert registry.sealed


def test_r3_seal_does_not_touch_existing_tools(call):
    kept = named("a")
    registry = ToolRegistry().register(kept)
    before = registry.definitions
    registry.seal()
    assert registry.definitions == before
    assert registry.get("a") is kept
    assert call(registry, "a").value == "a"


def test_r3_the_refusal_is_the_programs_error_and_never_a_models():
    assert issubclass(RegistrySealedError, UsageError)
    assert not issubclass(RegistrySealedError, ToolError)


# ── R4 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def three():
    return ToolRegistry([named("c"), named("a"), named("b")])


@pytest.mark.parametrize(
    ("tools", "says"),
    [
        ("add", "a list of tools, not a text: names are accepted where a call is offered tools"),
        (named("add"), "a list of tools, not Tool: pass [tool]"),
    ],
    ids=["text", "tool"],
)
def test_r2_one_thing_is_no_list_of_tools(tools, says):
    with pytest.raises(UsageError, match=re.escape(says)):
        ToolRegistry(tools)


def test_r4_get_gives_the_tool_or_none(three):
    assert three.get("a").name == "a"
    assert three.get("z") is None


def test_r4_require_gives_the_tool_or_raises_404(three):
    assert three.require("a") is three.get("a")
    with pytest.raises(ToolNotFoundError) as caught:
        three.require("z")
    assert (caught.value.status, caught.value.code, caught.value.tool) == (404, "tool_not_found", "z")


def test_r4_require_takes_names_to_the_letter(three):
    with pytest.raises(ToolNotFoundError) as caught:
        three.require("A")
    assert "a" in caught.value.nearest


def test_r4_has_in_and_len(three):
    assert three.has("a")
    assert "a" in three
    assert not three.has("z")
    assert "z" not in three
    assert len(three) == 3


def test_r4_everything_is_in_the_order_of_declaration(three):
    order = ["c", "a", "b"]
    assert list(three.ids()) == order
    assert [name for name, _ in three.entries()] == order
    assert [each.name for each in three.values()] == order
    assert [each.name for each in three.list()] == order
    assert [each.name for each in three.definitions] == order


def test_r4_entries_pair_each_name_with_its_tool(three):
    assert all(three.get(name) is each and each.name == name for name, each in three.entries())


def test_r4_definitions_are_a_frozen_snapshot():
    registry = ToolRegistry().register(named("a"))
    snapshot = registry.definitions
    registry.register(named("b"))
    assert isinstance(snapshot, tuple)
    assert [each.name for each in snapshot] == ["a"]


def test_r4_events_are_a_frozen_snapshot(call, three):
    call(three, "a")
    snapshot = three.events
    call(three, "b")
    assert isinstance(snapshot, tuple)
    assert [each.tool for each in snapshot] == ["a"]


def test_r4_a_list_can_be_changed_without_changing_the_catalog(three):
    three.list().clear()
    assert len(three.list()) == 3


@pytest.mark.parametrize(
    "view", [lambda registry: registry.entries(), lambda registry: registry.values()], ids=["entries", "values"]
)
def test_r4_iterators_are_live_until_sealing(view):
    registry = ToolRegistry().register(named("a"))
    iterator = view(registry)
    assert next(iterator)
    registry.register(named("b")).seal()
    assert len(list(iterator)) == 1
    assert list(iterator) == []


@pytest.mark.parametrize(
    "view", [lambda registry: registry.entries(), lambda registry: registry.values()], ids=["entries", "values"]
)
def test_r4_an_iterator_that_was_not_started_sees_what_is_added_later(view):
    registry = ToolRegistry()
    iterator = view(registry)
    registry.register(named("a"))
    assert len(list(iterator)) == 1


def test_r4_registering_in_the_middle_of_an_iteration_is_allowed():
    registry, seen = ToolRegistry().register(named("t0")), []
    for name, _ in registry.entries():
        seen.append(name)
        if len(seen) < 5:
            registry.register(named(f"t{len(seen)}"))
    assert seen == ["t0", "t1", "t2", "t3", "t4"]


# ── R5 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@tool
def wait(context: ToolContext) -> None:
    """Wait until told to stop."""
    context.signal.wait(30)


def test_r5_the_default_timeout_holds_for_a_tool_without_its_own(call):
    error = failure(call, ToolRegistry([wait], default_timeout_s=0.05), "wait")
    assert (error.status, error.limit_s, error.source) == (504, 0.05, "default")


def test_r5_a_tools_own_timeout_goes_before_the_default(call):
    own = Tool("wait", wait, timeout_s=0.05)
    error = failure(call, ToolRegistry([own], default_timeout_s=30), "wait")
    assert (error.limit_s, error.source) == (0.05, "tool")


def test_r5_a_tool_may_have_no_limit_whatever_the_default_is(call):
    @tool(timeout_s=None)
    def remaining(context: ToolContext) -> float | None:
        return context.remaining_s()

    assert call(ToolRegistry([remaining], default_timeout_s=0.05), "remaining").value is None


def test_r5_there_is_a_default_limit_when_nobody_names_one(call):
    @tool
    def remaining(context: ToolContext) -> float | None:
        return context.remaining_s()

    assert 0 < call(ToolRegistry([remaining]), "remaining").value <= 60


def test_r5_the_default_cap_holds_for_a_tool_without_its_own(call):
    text = Tool("text", lambda: "x" * 100)
    own = Tool("own", lambda: "x" * 100, max_output_bytes=200)
    registry = ToolRegistry([text, own], default_max_output_bytes=50)
    assert failure(call, registry, "text").limit_bytes == 50
    assert call(registry, "own").value == "x" * 100


def test_r5_without_a_default_cap_there_is_none(call):
    registry = ToolRegistry([Tool("text", lambda: "x" * 1_000_000)], default_max_output_bytes=None)
    assert len(call(registry, "text").value) == 1_000_000


class Busy(ToolError):
    code = "busy"
    status = 503


@tool
def hang_until(event: str) -> None:
    """Ignore every signal until the event of this name is set."""
    EVENTS[event].wait(30)


EVENTS: dict[str, threading.Event] = {}


def quarantined(door, event, **settings):
    """Give a registry with a tool of which as many calls hang as it may have."""
    EVENTS[event] = threading.Event()
    registry = ToolRegistry([hang_until], default_timeout_s=0.05, max_abandoned=1, **settings)
    assert failure(door, registry, "hang_until", {"event": event}).status == 504
    return registry


def test_r5_the_factory_unavailable_makes_the_503(call):
    made = []

    def unavailable(name, reason):
        made.append((name, reason))
        return Busy(f"{name} is busy")

    registry = quarantined(call, "factory", errors=ErrorPorts(unavailable=unavailable))
    error = failure(call, registry, "hang_until", {"event": "factory"})
    EVENTS["factory"].set()
    assert isinstance(error, Busy)
    assert (error.code, error.user_message) == ("busy", "hang_until is busy")
    assert [name for name, _ in made] == ["hang_until"]
    assert registry.events[-1].error_code == "busy"


def test_r5_a_tool_that_returns_takes_calls_again(call):
    returned = threading.Event()
    registry = quarantined(call, "again", diagnostics=watched("tool.late", lambda payload: returned.set()))
    assert failure(call, registry, "hang_until", {"event": "again"}).code == "tool_unavailable"
    assert registry.abandoned() == {"hang_until": 1}
    EVENTS["again"].set()
    happens(returned)
    assert registry.abandoned() == {}
    assert call(registry, "hang_until", {"event": "again"}).value is None


class Fault(Exception):
    pass


def test_r5_the_factory_error_code_names_the_code_of_receipts(call):
    given = []

    def error_code(error):
        given.append(error)
        return "fault_7" if isinstance(error, Fault) else None

    @tool
    def fail() -> None:
        raise Fault

    @tool
    def other() -> None:
        raise KeyError

    registry = ToolRegistry([fail, other], errors=ErrorPorts(error_code=error_code))
    error = failure(call, registry, "fail")
    failure(call, registry, "other")
    assert [each.error_code for each in registry.events] == ["fault_7", "tool_failed"]
    assert given[0] is error.__cause__


@pytest.mark.parametrize(
    "port", [{"error_code": lambda error: 1 / 0}, {"error_code": lambda error: 7}], ids=["raising", "no text"]
)
def test_r5_a_broken_error_code_does_not_take_the_place_of_the_failure(call, port):
    @tool
    def fail() -> None:
        raise Fault

    registry = ToolRegistry([fail], errors=ErrorPorts(**port))
    assert failure(call, registry, "fail").code == "tool_failed"
    assert registry.events[-1].error_code == "tool_failed"


@pytest.mark.parametrize("broken", [lambda name, reason: 1 / 0, lambda name, reason: None], ids=["raising", "giving nothing"])
def test_r5_a_broken_unavailable_does_not_take_the_place_of_the_refusal(call, broken):
    registry = quarantined(call, "broken", errors=ErrorPorts(unavailable=broken))
    try:
        assert failure(call, registry, "hang_until", {"event": "broken"}).status == 503
    finally:
        EVENTS["broken"].set()


def test_r5_execution_defaults_hold_for_calls_that_bring_none(call):
    registry = ToolRegistry([wait, named("text")], execution=ExecutionOptions(timeout_s=0.05, max_output_bytes=3))
    assert failure(call, registry, "wait").source == "default"
    assert failure(call, registry, "text").limit_bytes == 3


def test_r5_a_call_that_brings_options_does_not_take_the_defaults(call):
    registry = ToolRegistry([named("text")], execution=ExecutionOptions(max_output_bytes=3))
    assert call(registry, "text", options=ExecutionOptions()).value == "text"
    assert failure(call, registry, "text", options=ExecutionOptions(max_output_bytes=2)).limit_bytes == 2


def test_r5_on_tool_error_is_shared_by_every_tool(call):
    reports = []
    registry = ToolRegistry([Tool("one", lambda: 1 / 0), Tool("two", lambda: 1 / 0)], on_tool_error=reports.append)
    for name in ("one", "two"):
        failure(call, registry, name, call_context=CallContext())
    delivered(registry)
    assert sorted(report.tool for report in reports) == ["one", "two"]


# ── R6 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_r6_every_call_leaves_one_event_whatever_its_end(call):
    fails = Tool("fails", lambda: 1 / 0)
    registry = ToolRegistry([named("fine"), fails], default_max_output_bytes=100)
    call(registry, "fine")
    for name, arguments in (("fails", None), ("nobody", None), ("fine", "{")):
        failure(call, registry, name, arguments)
    assert [(each.tool, each.status, each.error_status) for each in registry.events] == [
        ("fine", "succeeded", None),
        ("fails", "failed", 500),
        ("nobody", "failed", 404),
        ("fine", "failed", 400),
    ]
    assert registry.dropped_events == 0


def test_r6_the_log_is_bounded_and_says_how_many_were_dropped(call):
    registry = ToolRegistry([named("a")], kept_events=3)
    ids = [call(registry, "a").invocation.invocation_id for _ in range(5)]
    assert [each.invocation_id for each in registry.events] == ids[2:]
    assert registry.dropped_events == 2


def test_r6_at_its_bound_nothing_is_dropped_yet(call):
    registry = ToolRegistry([named("a")], kept_events=3)
    for _ in range(3):
        call(registry, "a")
    assert (len(registry.events), registry.dropped_events) == (3, 0)


def test_r6_a_log_is_bounded_when_nobody_says_how():
    registry = ToolRegistry([Tool("a", lambda: 1, run_in="inline")])
    for _ in range(1_005):
        registry.invoke("a")
    assert (len(registry.events), registry.dropped_events) == (1_000, 5)


def test_r6_each_registry_has_its_own_log(call):
    first, second = ToolRegistry([named("a")]), ToolRegistry([named("a")])
    call(first, "a")
    assert (len(first.events), len(second.events)) == (1, 0)


def test_r6_the_event_is_the_receipt_itself(call):
    registry = ToolRegistry([named("a")])
    assert call(registry, "a").invocation is registry.events[0]


def test_r6_a_call_that_is_refused_before_it_is_read_leaves_an_event_without_its_content(call):
    registry = ToolRegistry([named("a")])
    failure(call, registry, "a" * 5_000, {"secret": "hunter2"})
    assert len(registry.events[0].tool) < 200
    assert "hunter2" not in repr(registry.events)


# ── R7 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def seen(memory):
    return [event.name for event in memory.events]


def scope():
    memory = MemoryDestination()
    return memory, DiagnosticContext.of(memory)


def test_r7_set_diagnostics_replaces_the_scope_for_later_calls(call):
    (first, one), (second, two) = scope(), scope()
    registry = ToolRegistry([named("a")], diagnostics=one)
    call(registry, "a")
    registry.set_diagnostics(two)
    call(registry, "a")
    assert seen(first) == seen(second) == ["tool.started", "tool.finished"]


@pytest.mark.parametrize("fails", [False, True])
def test_r7_a_call_in_flight_keeps_its_scope(call, fails):
    begun, go_on = threading.Event(), threading.Event()

    @tool
    def work(context: ToolContext) -> str:
        begun.set()
        go_on.wait(30)
        context.progress("half")
        if fails:
            raise ZeroDivisionError
        return "done"

    (first, one), (second, two) = scope(), scope()
    registry = ToolRegistry([work], diagnostics=one)
    running = background(call, registry, "work")
    happens(begun)
    registry.set_diagnostics(two)
    go_on.set()
    assert (running.exception(PATIENCE_S) is not None) is fails
    assert seen(first) == ["tool.started", "tool.progress", "tool.failed" if fails else "tool.finished"]
    assert seen(second) == []


def test_r7_a_call_that_waits_for_its_turn_keeps_its_scope(call):
    asked, begun, go_on = threading.Semaphore(0), threading.Event(), threading.Event()

    def work(arguments: object) -> None:
        begun.set()
        go_on.wait(30)

    # A call has its scope before its input is parsed.
    single = Tool("work", work, parse_input=lambda arguments: asked.release(), max_concurrency=1)
    (first, one), (second, two) = scope(), scope()
    registry = ToolRegistry([single], diagnostics=one)
    running = background(call, registry, "work")
    happens(begun)
    assert asked.acquire(timeout=PATIENCE_S)
    queued = background(call, registry, "work")
    assert asked.acquire(timeout=PATIENCE_S)
    registry.set_diagnostics(two)
    go_on.set()
    ended(running)
    ended(queued)
    assert len(first.named("tool.finished")) == 2
    assert seen(second) == []


def test_r7_none_gives_the_default_back(call, caplog):
    registry = ToolRegistry([Tool("a", lambda: 1 / 0)], diagnostics=DiagnosticContext())
    failure(call, registry, "a")
    assert caplog.records == []
    registry.set_diagnostics(None)
    failure(call, registry, "a")
    assert len(caplog.records) == 1


# ── R8 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("options", [{"kind": "write"}, {"needs_approval": True}, {"tags": ["secret"]}, {"exclusive": True}])
def test_r8_the_registry_hides_and_refuses_nothing_by_itself(call, options):
    registry = ToolRegistry([named("a", **options)])
    assert [each.name for each in registry.list()] == ["a"]
    assert call(registry, "a").value == "a"


def test_r8_who_is_allowed_is_what_the_host_registered(call):
    registry = ToolRegistry([named("a"), named("b")], authorize=lambda asked: asked.name == "b")
    assert call(registry, "b").value == "b"
    assert failure(call, registry, "a").status == 403
    assert len(registry.list()) == 2


def test_r8_what_is_kept_for_the_host_is_given_back_as_it_was():
    made = named("a", kind="billing", needs_approval=True, tags=["x"], idempotent=True, retries=2, exclusive=True)
    options = ToolRegistry([made]).require("a").options
    assert (options.kind, options.needs_approval, options.tags) == ("billing", True, frozenset({"x"}))
    assert (options.idempotent, options.retries, options.exclusive) == (True, 2, True)


def test_r8_the_errors_of_a_host_and_of_a_model_share_one_root():
    assert issubclass(ToolError, CallgateError)
    assert issubclass(UsageError, CallgateError)


def test_r8_a_reply_says_no_more_of_the_catalog_than_the_host_offered():
    registry = ToolRegistry([named("public"), named("hidden_thing")])
    reply = by_answer(registry, "nobody", tools=["public"])
    assert "hidden_thing" not in reply.text
    assert "public" in reply.text


@pytest.mark.parametrize("door", [by_invoke, by_ainvoke])
def test_r8_a_near_miss_does_not_name_a_tool_that_was_not_offered(door):
    registry = ToolRegistry([named("public"), named("delete_all")])
    error = failure(door, registry, "delete_al", tools=["public"])
    assert "delete_all" not in str(error).replace("'delete_al'", "")
    assert error.nearest == ()
