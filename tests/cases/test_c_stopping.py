"""Cases c2 to c18: time limits, cancellation, threads and context. Each is shown for its whole kind, sync and async."""

import asyncio
import collections
import contextvars
import socket
import threading
import time

import anyio
import anyio.lowlevel
import pytest

from callgate import (
    AbortController,
    AbortedError,
    CallContext,
    ExecutionOptions,
    ToolContext,
    ToolFailedError,
    ToolRegistry,
    ToolTimeoutError,
    ToolUnavailableError,
    tool,
)
from tests.contract.kit import PATIENCE_S, background, by_invoke, ended, happens

LONG_S = 60.0


class Stopped(Exception):
    pass


@pytest.fixture
def let_go():
    """Give the event that every hanging thread of a test waits for; it is set when the test is over."""
    event = threading.Event()
    yield event
    event.set()


def hanging(let_go, **options):
    """Make a sync tool that hangs in its thread until the end of the test, and the event of its start."""
    started = threading.Event()

    @tool(**options)
    def hang():
        started.set()
        let_go.wait(LONG_S)

    return hang, started


async def seen(event):
    """Wait for an event of another thread without holding the loop."""
    async with asyncio.timeout(PATIENCE_S):
        while not event.is_set():
            await asyncio.sleep(0)


async def answered_in_time(awaitable):
    async with asyncio.timeout(PATIENCE_S):
        return await awaitable


# ── c2 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_c2_a_nested_tool_without_a_limit_does_not_inherit_the_limit_of_its_caller():
    limits = []

    @tool(timeout_s=None)
    def inner(context: ToolContext):
        limits.append((context.deadline, context.remaining_s()))

    @tool(timeout_s=LONG_S)
    async def outer(context: ToolContext):
        assert context.remaining_s() > 0
        await registry.ainvoke("inner")
        await registry.ainvoke("inner", options=ExecutionOptions(timeout_s=LONG_S))

    registry = ToolRegistry([inner, outer])
    await registry.ainvoke("outer")
    assert limits[0] == (None, None)
    assert 0 < limits[1][1] <= LONG_S


async def test_c2_the_limit_of_a_caller_names_the_caller_and_its_nested_tool_is_cancelled_not_timed_out(let_go):
    heard = threading.Event()

    @tool(timeout_s=None)
    def inner(context: ToolContext):
        context.signal.wait(LONG_S)
        heard.set()

    @tool(timeout_s=0.2)
    async def outer():
        await registry.ainvoke("inner")

    registry = ToolRegistry([inner, outer])
    with pytest.raises(ToolTimeoutError) as caught:
        await answered_in_time(registry.ainvoke("outer"))
    assert (caught.value.tool, caught.value.source) == ("outer", "tool")
    await seen(heard)
    async with asyncio.timeout(PATIENCE_S):
        while len(registry.events) < 2:
            await asyncio.sleep(0)
    assert {event.tool: event.status for event in registry.events} == {"outer": "failed", "inner": "cancelled"}


# ── c3 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_c3_cancelling_the_task_reaches_the_running_tools_and_waits_for_their_cleanup():
    began, cleaned = [], []

    @tool
    async def worker(number: int):
        began.append(number)
        try:
            while True:
                await asyncio.sleep(LONG_S)
        finally:
            await asyncio.sleep(0)
            cleaned.append(number)

    registry = ToolRegistry([worker])
    run = asyncio.gather(*(registry.answer("worker", {"number": number}) for number in range(5)))
    while len(began) < 5:
        await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answered_in_time(run)
    assert sorted(cleaned) == [0, 1, 2, 3, 4]
    assert [event.status for event in registry.events] == ["cancelled"] * 5


async def test_c3_a_sync_tool_hears_of_the_cancellation_by_its_signal_and_is_waited_for():
    began, ended_ = threading.Event(), []

    @tool(timeout_s=None)
    def worker(context: ToolContext):
        began.set()
        ended_.append(context.signal.wait(LONG_S))

    registry = ToolRegistry([worker])
    task = asyncio.create_task(registry.execute("worker"))
    await seen(began)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended_ == [True]
    assert registry.abandoned() == {}


# ── c4 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_c4_sync_tools_of_one_turn_run_side_by_side_while_the_loop_goes_on():
    together, pulse = threading.Barrier(3), threading.Event()

    @tool
    def block():
        together.wait(PATIENCE_S)  # passes only when three calls are in it at the same moment
        return pulse.wait(PATIENCE_S)  # and returns only when the loop is alive meanwhile

    registry = ToolRegistry([block])
    calls = [asyncio.create_task(registry.execute("block")) for _ in range(3)]
    async with asyncio.timeout(PATIENCE_S):
        while together.n_waiting == 0 and not together.broken and len(registry.running()) < 3:
            await asyncio.sleep(0)
    pulse.set()
    assert await asyncio.gather(*calls) == [True] * 3


# ── c5 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_c5_fifty_timed_out_calls_hold_a_bounded_number_of_threads_and_the_rest_is_refused_fast(let_go):
    hang, _ = hanging(let_go, timeout_s=0.05)
    registry = ToolRegistry([hang], max_abandoned=4)
    before = threading.active_count()
    statuses = collections.Counter()
    for _ in range(50):
        reply = await answered_in_time(registry.answer("hang"))
        statuses[reply.invocation.error_status] += 1
        assert threading.active_count() <= before + 5
    assert statuses == {504: 4, 503: 46}
    assert registry.abandoned() == {"hang": 4}


async def test_c5_fifty_timed_out_async_calls_hold_no_thread_at_all():
    @tool(timeout_s=0.02)
    async def hang():
        await asyncio.sleep(LONG_S)

    registry = ToolRegistry([hang])
    before = threading.active_count()
    replies = await asyncio.gather(*(registry.answer("hang") for _ in range(50)))
    assert {reply.invocation.error_status for reply in replies} == {504}
    assert threading.active_count() <= before
    assert registry.abandoned() == {}


# ── c6 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_c6_neither_the_caller_nor_the_end_of_a_run_waits_for_a_hung_thread(let_go):
    hang, started = hanging(let_go, timeout_s=0.2)
    registry = ToolRegistry([hang])

    def run():
        return asyncio.run(registry.answer("hang"))

    reply = ended(background(run))  # returns although asyncio.run joins the loop's own threads
    assert reply.invocation.error_status == 504
    registry.close()
    assert started.is_set()
    assert not let_go.is_set()
    assert registry.abandoned() == {"hang": 1}


# ── c7 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def silent_host():
    """Give the address of a server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()


def patient_async_client(address, began):
    @tool
    async def fetch():
        reader, writer = await asyncio.open_connection(*address)
        try:
            while True:
                began.set()
                try:
                    async with asyncio.timeout(0.01):
                        return await reader.read(1)
                except TimeoutError:  # the read timeout is swallowed, as in the report
                    continue
        finally:
            writer.close()

    return fetch


def patient_sync_client(address, began):
    @tool
    def fetch(context: ToolContext):
        with socket.create_connection(address, timeout=0.01) as connection:
            while not context.signal.aborted:
                began.set()
                try:
                    return connection.recv(1)
                except TimeoutError:
                    continue
        return None

    return fetch


@pytest.mark.parametrize("client", [patient_async_client, patient_sync_client])
async def test_c7_a_call_to_a_silent_remote_ends_at_the_default_limit(silent_host, client):
    registry = ToolRegistry([client(silent_host, threading.Event())], default_timeout_s=0.2)
    with pytest.raises(ToolTimeoutError) as caught:
        await answered_in_time(registry.ainvoke("fetch"))
    assert caught.value.source == "default"


@pytest.mark.parametrize("client", [patient_async_client, patient_sync_client])
async def test_c7_a_call_to_a_silent_remote_ends_at_its_abort_and_at_its_cancellation(silent_host, client):
    began, controller, reason = threading.Event(), AbortController(), Stopped()
    registry = ToolRegistry([client(silent_host, began)], default_timeout_s=None)
    call = asyncio.create_task(registry.execute("fetch", signal=controller.signal))
    await seen(began)
    controller.abort(reason)
    with pytest.raises(Stopped) as caught:
        await answered_in_time(call)
    assert caught.value is reason
    began.clear()
    call = asyncio.create_task(registry.execute("fetch"))
    await seen(began)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answered_in_time(call)


# ── c8, c11, c12 ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@tool
async def raise_cancelled():
    raise asyncio.CancelledError


@tool
async def raise_cancelled_later():
    await asyncio.sleep(0)
    raise asyncio.CancelledError


@tool
def raise_cancelled_in_a_thread():
    raise asyncio.CancelledError


@tool(run_in="inline")
def raise_cancelled_inline():
    raise asyncio.CancelledError


@tool
async def cancel_itself():
    asyncio.current_task().cancel()
    await asyncio.sleep(LONG_S)


@tool
async def cancel_itself_later():
    await asyncio.sleep(0)
    asyncio.current_task().cancel()
    await asyncio.sleep(LONG_S)


@tool
async def use_a_client_that_cancels():
    """Do as a client that gets a 504 and cancels the request it made for us (c12)."""
    request = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(request.cancel)
    await request


CANCELLERS = (
    raise_cancelled,
    raise_cancelled_later,
    raise_cancelled_in_a_thread,
    raise_cancelled_inline,
    cancel_itself,
    cancel_itself_later,
    use_a_client_that_cancels,
)


@pytest.mark.parametrize("canceller", CANCELLERS, ids=lambda canceller: canceller.__name__)
async def test_c8_c12_a_cancellation_that_a_tool_makes_is_its_failure_and_touches_nobody_else(canceller):
    registry = ToolRegistry([canceller])
    with pytest.raises(ToolFailedError):
        await answered_in_time(registry.ainvoke(canceller.__name__))
    assert asyncio.current_task().cancelling() == 0
    reply = await answered_in_time(registry.answer(canceller.__name__))
    assert reply.is_error
    assert reply.text
    await asyncio.sleep(0)  # would raise here, were a request to cancel left
    assert [event.status for event in registry.events] == ["failed", "failed"]


@pytest.mark.parametrize("canceller", CANCELLERS, ids=lambda canceller: canceller.__name__)
def test_c8_c12_the_same_holds_without_a_loop(canceller):
    registry = ToolRegistry([canceller])
    with pytest.raises(ToolFailedError):
        registry.invoke(canceller.__name__)
    assert [event.status for event in registry.events] == ["failed"]


async def test_c8_an_outer_cancellation_propagates_and_every_open_call_is_closed_in_the_record():
    gate, began = asyncio.Event(), []

    @tool
    async def wait(number: int):
        began.append(number)
        await gate.wait()

    registry = ToolRegistry([wait])
    calls = asyncio.gather(
        *(registry.answer("wait", {"number": n}, call_context=CallContext(call_id=f"c{n}")) for n in range(3)),
    )
    while len(began) < 3:
        await asyncio.sleep(0)
    calls.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calls
    assert {event.call_id: event.status for event in registry.events} == {f"c{n}": "cancelled" for n in range(3)}


@pytest.mark.parametrize("canceller", CANCELLERS, ids=lambda canceller: canceller.__name__)
async def test_c11_a_batch_ends_when_all_its_calls_have_ended_although_one_cancels_itself(canceller):
    written, cancelled = [], asyncio.Event()

    @tool
    async def write():
        await cancelled.wait()
        await asyncio.sleep(0)
        written.append("the side effect")

    registry = ToolRegistry([canceller, write])

    async def first():
        reply = await registry.answer(canceller.__name__)
        cancelled.set()
        return reply

    replies = await answered_in_time(asyncio.gather(first(), registry.answer("write")))
    assert [reply.is_error for reply in replies] == [True, False]
    assert written == ["the side effect"]


@pytest.mark.parametrize("stop", ["limit", "abort"])
async def test_c11_a_tool_that_once_cancelled_itself_and_went_on_is_stopped_like_any_other(stop):
    began, cleaned, controller = asyncio.Event(), [], AbortController()

    @tool(timeout_s=0.1 if stop == "limit" else None)
    async def go_on():
        asyncio.current_task().cancel()
        try:
            await asyncio.sleep(LONG_S)
        except asyncio.CancelledError:
            began.set()
        try:
            await asyncio.sleep(LONG_S)
        finally:
            cleaned.append("cleaned")

    registry = ToolRegistry([go_on])
    call = asyncio.create_task(registry.execute("go_on", signal=controller.signal))
    await answered_in_time(began.wait())
    if stop == "abort":
        controller.abort(Stopped())
    with pytest.raises(ToolTimeoutError if stop == "limit" else Stopped):
        await answered_in_time(call)
    assert cleaned == ["cleaned"]
    assert registry.abandoned() == {}


# ── c13 ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def echo(reader, writer):
    while line := await reader.readline():
        writer.write(line)
    writer.close()
    await writer.wait_closed()


async def the_others():
    """Wait for all other tasks of the loop: a connection whose task is cut off is closed by the collector, with a warning."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=PATIENCE_S)


def connection_tools():
    """Make three tools that open a connection, talk over it, and close it."""
    kept = {}

    @tool
    async def connect(port: int):
        kept["reader"], kept["writer"] = await asyncio.open_connection("127.0.0.1", port)

    @tool
    async def talk(line: str) -> str:
        kept["writer"].write(f"{line}\n".encode())
        async with asyncio.timeout(PATIENCE_S):
            return (await kept["reader"].readline()).decode().strip()

    @tool
    async def disconnect():
        kept["writer"].close()
        await kept["writer"].wait_closed()

    return connect, talk, disconnect


async def test_c13_a_connection_opened_in_one_task_serves_another_and_is_closed_by_a_third():
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    registry = ToolRegistry(connection_tools())
    await asyncio.create_task(registry.execute("connect", {"port": port}))
    lines = [await asyncio.create_task(registry.execute("talk", {"line": str(n)})) for n in range(3)]
    await asyncio.create_task(registry.execute("disconnect"))
    server.close()
    await the_others()
    assert lines == ["0", "1", "2"]


def test_c13_without_a_loop_all_calls_share_one_so_that_a_connection_outlives_the_call_that_opened_it():
    ready, port, stop = threading.Event(), [], threading.Event()

    async def serve():
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        port.append(server.sockets[0].getsockname()[1])
        ready.set()
        await seen(stop)
        server.close()
        await the_others()

    serving = background(asyncio.run, serve())
    happens(ready)
    registry = ToolRegistry(connection_tools())
    ended(background(by_invoke, registry, "connect", {"port": port[0]}))
    lines = [ended(background(by_invoke, registry, "talk", {"line": str(n)})).value for n in range(3)]
    ended(background(by_invoke, registry, "disconnect"))
    stop.set()
    ended(serving)
    assert lines == ["0", "1", "2"]


async def test_c13_a_cancel_scope_that_a_tool_opens_is_left_in_the_task_that_opened_it():
    @tool
    async def scoped():
        entered = asyncio.current_task()
        with anyio.move_on_after(LONG_S):
            await anyio.lowlevel.checkpoint()
            await anyio.sleep(0.001)
        return entered is asyncio.current_task()

    registry = ToolRegistry([scoped])
    assert await asyncio.gather(*(registry.execute("scoped") for _ in range(10))) == [True] * 10


# ── c14 ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────

UNSET = object()


@pytest.mark.parametrize(
    ("default", "of_tool", "of_call", "source"),
    [
        (0.05, UNSET, UNSET, "default"),
        (LONG_S, 0.05, UNSET, "tool"),
        (None, 0.05, UNSET, "tool"),
        (LONG_S, LONG_S, 0.05, "call"),
        (None, None, 0.05, "call"),
        (0.05, None, 0.05, "call"),
    ],
)
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_c14_the_call_goes_before_the_tool_before_the_default_and_the_error_says_which_one_fired(
    default, of_tool, of_call, source, kind, let_go
):
    options = {} if of_tool is UNSET else {"timeout_s": of_tool}

    @tool(name="wait", **options)
    async def wait_async():
        await asyncio.sleep(LONG_S)

    @tool(name="wait", **options)
    def wait_sync():
        let_go.wait(LONG_S)

    registry = ToolRegistry([wait_sync if kind == "sync" else wait_async], default_timeout_s=default)
    call_options = None if of_call is UNSET else ExecutionOptions(timeout_s=of_call)
    with pytest.raises(ToolTimeoutError) as caught:
        await answered_in_time(registry.ainvoke("wait", options=call_options))
    assert (caught.value.source, caught.value.limit_s) == (source, 0.05)
    assert "0.05 s" in caught.value.user_message


@pytest.mark.parametrize(
    ("default", "of_tool", "of_call"),
    [(0.001, LONG_S, UNSET), (0.001, None, UNSET), (0.001, 0.001, None), (0.001, 0.001, LONG_S), (None, UNSET, UNSET)],
)
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_c14_a_longer_limit_is_settable_in_each_place_and_none_is_no_limit(default, of_tool, of_call, kind):
    options = {} if of_tool is UNSET else {"timeout_s": of_tool}

    @tool(name="wait", **options)
    async def wait_async(context: ToolContext):
        await asyncio.sleep(0.1)
        return context.signal.aborted

    @tool(name="wait", **options)
    def wait_sync(context: ToolContext):
        return context.signal.wait(0.1)

    registry = ToolRegistry([wait_sync if kind == "sync" else wait_async], default_timeout_s=default)
    call_options = None if of_call is UNSET else ExecutionOptions(timeout_s=of_call)
    assert await registry.execute("wait", options=call_options) is False


async def test_c14_a_deadline_can_only_shorten_and_is_named_when_it_fires():
    @tool(timeout_s=LONG_S)
    async def wait():
        await asyncio.sleep(LONG_S)

    registry = ToolRegistry([wait])
    with pytest.raises(ToolTimeoutError) as caught:
        await answered_in_time(registry.ainvoke("wait", options=ExecutionOptions(deadline=time.monotonic() + 0.05)))
    assert caught.value.source == "deadline"
    with pytest.raises(ToolTimeoutError) as caught:
        far = ExecutionOptions(deadline=time.monotonic() + LONG_S, timeout_s=0.05)
        await answered_in_time(registry.ainvoke("wait", options=far))
    assert caught.value.source == "call"


# ── c16 ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_c16_every_call_id_has_exactly_one_receipt_however_its_call_ends(let_go):
    controller, entered = AbortController(), []

    @tool(timeout_s=0.05)
    async def run_out():
        await asyncio.sleep(LONG_S)

    @tool(timeout_s=None)
    async def wait():
        entered.append("wait")
        await asyncio.sleep(LONG_S)

    @tool(timeout_s=None)
    def wait_in_a_thread(context: ToolContext):
        entered.append("thread")
        context.signal.wait(LONG_S)

    @tool
    def fail():
        raise ValueError

    @tool
    def succeed():
        return 1

    registry = ToolRegistry([run_out, wait, wait_in_a_thread, fail, succeed])

    def call(call_id, name, raw=None, **keywords):
        return asyncio.create_task(registry.answer(name, raw, call_context=CallContext(call_id=call_id), **keywords))

    ordinary = [call("ok", "succeed"), call("failed", "fail"), call("limit", "run_out"), call("unknown", "nothing")]
    ordinary += [call("input", "succeed", '{"x": 1'), call("offer", "succeed", tools=["fail"])]
    aborted = [call("abort", "wait", signal=controller.signal), call("abort 2", "wait_in_a_thread", signal=controller.signal)]
    cancelled = [call("cancel", "wait"), call("cancel 2", "wait_in_a_thread")]
    async with asyncio.timeout(PATIENCE_S):
        while len(entered) < 4:
            await asyncio.sleep(0)
    controller.abort()
    for task in cancelled:
        task.cancel()
    await answered_in_time(asyncio.gather(*ordinary, *aborted, *cancelled, return_exceptions=True))
    ids = collections.Counter(event.call_id for event in registry.events)
    names = ["ok", "failed", "limit", "unknown", "input", "offer", "abort", "abort 2", "cancel", "cancel 2"]
    assert ids == dict.fromkeys(names, 1)
    statuses = {event.call_id: event.status for event in registry.events}
    assert statuses["abort"] == statuses["abort 2"] == "aborted"
    assert statuses["cancel"] == statuses["cancel 2"] == "cancelled"
    # The next turn starts with the same registry as if nothing had been.
    assert (await registry.answer("succeed")).text == "1"


# ── c17 ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_c17_close_waits_for_nobody_and_ends_the_stuck_calls_as_aborted(let_go):
    hang, started = hanging(let_go, timeout_s=None)
    entered = threading.Event()

    @tool(timeout_s=None)
    async def swallow():
        while not let_go.is_set():
            entered.set()
            try:
                await asyncio.sleep(LONG_S)
            except asyncio.CancelledError:
                continue

    registry = ToolRegistry([hang, swallow])
    stuck = [background(by_invoke, registry, "hang"), background(by_invoke, registry, "swallow")]
    happens(started)
    happens(entered)
    ended(background(registry.close))
    for call in stuck:
        with pytest.raises(AbortedError):
            ended(call)
    assert [event.status for event in registry.events] == ["aborted", "aborted"]
    with pytest.raises(ToolUnavailableError):
        registry.invoke("hang")
    registry.close()


async def test_c17_close_reaches_calls_that_wait_in_line_for_a_slot(let_go):
    hang, started = hanging(let_go, timeout_s=None, max_concurrency=1)
    registry = ToolRegistry([hang])
    calls = [asyncio.create_task(registry.answer("hang")) for _ in range(3)]
    await seen(started)
    registry.close()
    ends = await answered_in_time(asyncio.gather(*calls, return_exceptions=True))
    assert isinstance(ends[0], AbortedError)
    for end in ends[1:]:
        assert isinstance(end, AbortedError) or end.invocation.error_status == 503


# ── c18 ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_c18_the_live_status_shows_start_and_limit_of_a_call_and_never_one_that_is_over_it(kind, let_go):
    @tool(name="stuck", timeout_s=0.2)
    async def stuck_async():
        while not let_go.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    @tool(name="stuck", timeout_s=0.2)
    def stuck_sync():
        let_go.wait(LONG_S)

    registry = ToolRegistry([stuck_sync if kind == "sync" else stuck_async])
    assert registry.running() == ()
    before = time.time()
    context = CallContext(run_id="r", call_id="c")
    call = asyncio.create_task(registry.answer("stuck", call_context=context, thread_id="t"))
    async with asyncio.timeout(PATIENCE_S):
        while not registry.running():
            await asyncio.sleep(0)
    [shown] = registry.running()
    assert (shown.tool, shown.call_id, shown.run_id, shown.thread_id) == ("stuck", "c", "r", "t")
    assert before <= shown.started_at <= time.time()
    assert 0 <= shown.remaining_s <= 0.2
    assert (await answered_in_time(call)).invocation.error_status == 504
    assert registry.running() == ()  # answered for, although its body still runs:
    assert registry.abandoned() == {"stuck": 1}
    let_go.set()  # before the loop ends, which would wait for it


def test_c18_a_context_variable_of_the_caller_does_not_decide_how_a_call_is_stopped(let_go):
    """Show c2's and c18's common root: what stops a call is in the call, so any context gives the same end."""
    hang, _ = hanging(let_go, timeout_s=0.05)
    registry = ToolRegistry([hang])
    for context in (contextvars.copy_context(), contextvars.Context()):
        with pytest.raises(ToolTimeoutError):
            context.run(registry.invoke, "hang")
