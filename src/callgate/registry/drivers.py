"""The two drivers of the pipeline: one waits in a coroutine, one blocks a thread; the rules are the pipeline's.

    run_async   slot → a coroutine stepped here and carried by a host | a function in a thread | a job in a process
    run_sync    slot → the same for sync tools; what must be awaited is awaited on the portal's loop

Both give the tool's value, or raise a `ToolError`, `Aborted`, or what ends the program.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextvars import Context
from functools import partial
from types import CoroutineType
from typing import Final, TypeVar, cast

from callgate.errors import AbortedError
from callgate.registry.bodies import call_here, needs_await, ready, thread_work, to_coroutine
from callgate.registry.judging import Aborted, check_authorization, denial_of, failure_of, reason_of
from callgate.registry.pipeline import Pipeline
from callgate.registry.requests import Call
from callgate.registry.starting import holders, seconds_left, start, timeout_of
from callgate.running.driving import await_flight, block_on_flight, call_in_loop, settle_cancelled
from callgate.running.flight import Flight, Verdict
from callgate.running.portal import run_in_portal
from callgate.running.queueing import Place, block_for_slot, wait_for_slot
from callgate.running.stepping import Body, Host, HostPool, Ride, current_pool
from callgate.running.threads import ThreadPool

__all__ = ("WAITING", "in_time", "run_async", "run_at_once", "run_sync", "wait_for_authorization")

T = TypeVar("T")

WAITING: Final = object()
"""What `run_at_once` gives for a tool that has no value yet."""

_NO_THREAD: Final = "the system gives no more threads"
_KILL_GRACE_S: Final = 2.0
_threads: Final = ThreadPool()


def run_at_once(pipeline: Pipeline, call: Call) -> object:
    """Run an async inline tool as far as it goes without waiting: nothing here is awaited, so nothing costs a task.

    Gives the tool's value, or `WAITING` when it waits (`call.flight` is under way then) or could not begin at once.

    Raises:
        ToolError: the tool failed.
    """
    entry = call.entry
    if not entry.is_async or entry.run_in != "inline" or entry.slots.limit is not None or entry.slots.refusing:
        return WAITING
    try:
        context = start(pipeline, call)
        body = _body_of(call)
        pool = current_pool()
        host = pool.take()
        if host is None:
            call.begun = context, body
            return WAITING
        value = _first_step(pipeline, call, (context, pool, host), body)
    except BaseException:
        _leave(call)
        raise
    if value is not WAITING and call.deafen is not None:
        call.deafen()
    return value


async def run_async(pipeline: Pipeline, call: Call) -> object:
    """Run the tool of an admitted call for a coroutine, or carry on what `run_at_once` began.

    Raises:
        ToolError: the tool failed, passed its limit, or could not be started.
        Aborted: the caller aborted.
        asyncio.CancelledError: the calling task was cancelled.
    """
    entry = call.entry
    try:
        if call.ride is not None:
            return await _ride(pipeline, call, call.ride)
        if call.begun is not None:
            return await _await_body(pipeline, call, *call.begun)
        if entry.slots.limit is not None:
            _refuse_waiting_for_itself(pipeline, call)
            _take_place(pipeline, call, await wait_for_slot(entry.slots, call.signal, _patience_s(call)))
        elif entry.slots.refusing:
            raise pipeline.refused(entry)
        context = start(pipeline, call)
        if entry.run_in != "inline":
            value = await _fly_async(pipeline, call, _launch(pipeline, call, context))
        elif entry.is_async:
            return await _await_body(pipeline, call, context, _body_of(call))
        else:
            value = _call_inline(call, context)
        return await _await_body(pipeline, call, context, to_coroutine(call, value)) if needs_await(value) else value
    finally:
        _leave(call)


async def wait_for_authorization(pipeline: Pipeline, call: Call, answer: Awaitable[object]) -> None:
    """Wait for an authorization that takes its time.

    Raises:
        ToolError: the call is not allowed, or the deadline came first; the tool does not run.
        Aborted: the caller aborted.
    """
    try:
        allowed = await in_time(pipeline, call, answer)
    except Aborted:
        raise
    except BaseException as error:  # noqa: BLE001 - the host's own code
        denial = denial_of(call, error)
    else:
        check_authorization(call, allowed)
        return
    raise denial


async def in_time(pipeline: Pipeline, call: Call, answer: Awaitable[T]) -> T:
    """Wait for what the host has to say of a call, no longer than the call's deadline and its caller do.

    Raises:
        ToolTimeoutError: the deadline came first; the tool does not run.
        Aborted: the caller aborted.
        BaseException: what `answer` raises.
    """
    flight = Flight(_nothing)
    task = asyncio.ensure_future(_tell_end(answer, flight))
    flight.interrupt = partial(_cancel, task)
    try:
        await await_flight(flight, _patience_s(call), call.signal, same_thread=True)
    finally:
        flight.give_up()
        _detach(flight)
    if flight.verdict == "timeout":
        raise timeout_of(pipeline, call, began=False)
    if call.signal is not None and call.signal.aborted:
        raise Aborted(reason_of(call))
    if flight.error is not None:
        raise flight.error
    return cast("T", flight.value)


def _reason_for(pipeline: Pipeline, call: Call, verdict: Verdict | None) -> BaseException:
    if verdict == "timeout":
        return timeout_of(pipeline, call)
    return AbortedError("the calling task was cancelled") if verdict == "cancelled" else reason_of(call)


def _cancel_host(flight: Flight, host: Host) -> None:
    # The host may have been lent to another body since this was asked for. And a body that is told already that the
    # calling task was cancelled is cleaning up: a second cancellation would break into that.
    if not flight.ended and not (flight.verdict == "cancelled" and host.task.cancelling()):
        host.cancel()


def _cancel(task: asyncio.Future[None]) -> None:
    task.cancel()


async def _tell_end(answer: Awaitable[object], flight: Flight) -> None:
    try:
        value = await answer
    except BaseException as error:  # noqa: BLE001 - the host's own code
        flight.finish(None, error)
    else:
        flight.finish(value, None)


def run_sync(pipeline: Pipeline, call: Call) -> object:
    """Run the tool of an admitted call for a blocked thread.

    Raises:
        ToolError, Aborted: as `run_async`.
    """
    entry = call.entry
    if entry.is_async and entry.run_in == "inline":
        return run_in_portal(partial(run_async, pipeline, call))
    _refuse_waiting_for_itself(pipeline, call)
    _take_place(pipeline, call, block_for_slot(entry.slots, call.signal, _patience_s(call)))
    try:
        context = start(pipeline, call)
        if entry.run_in == "inline":
            value = _call_inline(call, context)
        else:
            value = _fly_sync(pipeline, call, _launch(pipeline, call, context))
        if needs_await(value):
            return run_in_portal(partial(_await_body, pipeline, call, context, to_coroutine(call, value)))
        return value
    finally:
        _leave(call)


def _call_inline(call: Call, context: Context) -> object:
    """Call a sync tool's function in this thread, to its end."""
    try:
        return context.run(call_here, call)
    except BaseException as error:  # noqa: BLE001 - the tool's own body
        failure = failure_of(call, error)
    raise failure


def _body_of(call: Call) -> Body:
    """Make the coroutine of an async tool; of a coroutine function this runs nothing of the tool yet."""
    try:
        value = call.entry.call(call.arguments, call.context)
        if type(value) is CoroutineType:
            return cast("Body", value)
        return to_coroutine(call, value) if needs_await(value) else ready(value)
    except BaseException as error:  # noqa: BLE001 - the tool's own body
        failure = failure_of(call, error)
    raise failure


async def _await_body(pipeline: Pipeline, call: Call, context: Context, body: Body) -> object:
    """Await a coroutine of the tool: take its first step here, and let a host carry it on when it waits."""
    pool = current_pool()
    try:
        host = pool.take() or await pool.make()
    except BaseException:
        body.close()
        raise
    value = _first_step(pipeline, call, (context, pool, host), body)
    if value is WAITING:
        assert call.ride is not None
        return await _ride(pipeline, call, call.ride)
    return value


def _first_step(pipeline: Pipeline, call: Call, place: tuple[Context, HostPool, Host], body: Body) -> object:
    context, pool, host = place
    try:
        yielded = pool.step(host, context, body.send, None)
    except StopIteration as stop:
        host.give_back()
        return stop.value
    except BaseException as error:  # noqa: BLE001 - the tool's own body
        host.give_back()
        failure = failure_of(call, error)
    else:
        flight = call.flight = Flight(partial(pipeline.late, call))
        flight.interrupt = partial(_interrupt, pipeline, call, partial(call_in_loop, pool.loop, _cancel_host, flight, host))
        ride = call.ride = Ride(pool, host, body, context)
        ride.begin(yielded, flight)
        return WAITING
    raise failure


async def _ride(pipeline: Pipeline, call: Call, ride: Ride) -> object:
    """Take the further steps of a coroutine in this task, until it ends or has to be left to its host."""
    flight = call.flight
    assert flight is not None
    loop = asyncio.get_running_loop()
    limit_s = _begin(pipeline, call, flight)
    timer = None if limit_s is None else loop.call_later(limit_s, flight.stop, "timeout")
    deaf = None if call.signal is None else call.signal.add_listener(partial(call_in_loop, loop, flight.stop, "aborted"))
    try:
        if not await ride.steps():
            await await_flight(flight, None, None, same_thread=True)
    except asyncio.CancelledError:
        await settle_cancelled(flight)
        raise
    finally:
        if timer is not None:
            timer.cancel()
        if deaf is not None:
            deaf()
        _land(pipeline, call, flight)
    return _outcome(pipeline, call, flight)


def _launch(pipeline: Pipeline, call: Call, context: Context) -> Flight:
    """Start the body in a thread of its own, or in a process that such a thread supervises."""
    flight = Flight(partial(pipeline.late, call))
    if call.entry.run_in == "process":
        # Imported here, once: the process runner takes 10 ms, and most programs have no tool that runs in a process.
        from callgate.registry.process_bodies import process_work  # noqa: PLC0415

        flight.grace_s = _KILL_GRACE_S
        work = partial(process_work, call, context, flight, seconds_left(pipeline, call))
    else:
        flight.interrupt = partial(_interrupt, pipeline, call, _nothing)
        if not call.entry.wants_context:  # it cannot hear that it is to stop: to wait for it would only be to wait
            flight.cancel_grace_s = flight.grace_s
        work = partial(thread_work, call, context, flight)
    try:
        _threads.submit(work)
    except RuntimeError:
        refusal = pipeline.unavailable(call.entry, _NO_THREAD)
    else:
        return flight
    raise refusal


async def _fly_async(pipeline: Pipeline, call: Call, flight: Flight) -> object:
    limit_s = _begin(pipeline, call, flight)
    try:
        await await_flight(flight, limit_s, call.signal, same_thread=False)
    finally:
        _land(pipeline, call, flight)
    return _outcome(pipeline, call, flight)


def _fly_sync(pipeline: Pipeline, call: Call, flight: Flight) -> object:
    limit_s = _begin(pipeline, call, flight)
    try:
        block_on_flight(flight, limit_s, call.signal)
    finally:
        _land(pipeline, call, flight)
    return _outcome(pipeline, call, flight)


def _begin(pipeline: Pipeline, call: Call, flight: Flight) -> float | None:
    """Enter a flight among the running calls; give the seconds that its driver is to wait, None when a process counts them."""
    if not call.holds_slot:
        call.entry.slots.hold()
        call.holds_slot = True
    call.flight = flight
    limit_s = seconds_left(pipeline, call)
    pipeline.running[call.invocation_id] = call
    return None if call.entry.run_in == "process" else limit_s


def _outcome(pipeline: Pipeline, call: Call, flight: Flight) -> object:
    """Judge a flight whose driver has come back.

    Raises:
        ToolError: at the limit, or for what the body raised.
        Aborted: for an abort.
    """
    if flight.verdict == "timeout":
        raise timeout_of(pipeline, call)
    aborted = call.signal is not None and call.signal.aborted
    if flight.verdict == "aborted" or (aborted and flight.error is not None):
        raise Aborted(reason_of(call))
    if flight.error is not None:
        raise failure_of(call, flight.error)
    return flight.value


def _land(pipeline: Pipeline, call: Call, flight: Flight) -> None:
    """Take a flight off the running calls; a body that has not ended is given up here, and counted."""
    pipeline.running.pop(call.invocation_id, None)
    if flight.give_up():
        call.abandoned = True
        call.entry.slots.abandon()
        if call.ride is not None:
            call.ride.disown()
    else:  # call, flight, ride and watch refer to one another: free them without the collector
        call.flight = call.ride = None
        _detach(flight)


def _detach(flight: Flight) -> None:
    flight.interrupt = _nothing
    flight.on_stop(_nothing)


def _interrupt(pipeline: Pipeline, call: Call, stop_body: Callable[[], None]) -> None:
    """Tell the body that it is to stop: by its signal, and by a cancellation when it is a coroutine's."""
    if call.stopper is not None and call.flight is not None:
        call.stopper.abort(_reason_for(pipeline, call, call.flight.verdict))
    stop_body()


def _refuse_waiting_for_itself(pipeline: Pipeline, call: Call) -> None:
    """Refuse a call that would wait for a turn which its own callers hold, one inside the other, for ever."""
    slots = call.entry.slots
    if slots.limit is not None and slots.held >= slots.limit and holders().count(slots) >= slots.limit:
        raise pipeline.unavailable(call.entry, "all its turns are held by calls that wait for this one")


def _take_place(pipeline: Pipeline, call: Call, place: Place) -> None:
    if place == "refused":
        raise pipeline.refused(call.entry)
    if place == "aborted":
        raise Aborted(reason_of(call))
    if place == "too_late":
        raise timeout_of(pipeline, call, began=False)
    call.holds_slot = True


def _leave(call: Call) -> None:
    if call.holds_slot and not call.abandoned:
        call.holds_slot = False
        call.entry.slots.release()
    if call.deafen is not None:
        call.deafen()


def _patience_s(call: Call) -> float | None:
    deadline = call.options.deadline
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _nothing() -> None:
    return None
