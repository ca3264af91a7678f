"""The moment before a tool's body runs: its limit, its context, its span, the start event."""

import time
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import Final

from callgate.diagnostics import ToolProgress, ToolStarted
from callgate.errors import TimeoutSource, ToolTimeoutError
from callgate.registry.pipeline import Pipeline
from callgate.registry.receipts import facts_of
from callgate.registry.requests import Call
from callgate.running.slots import Slots
from callgate.signals import AbortController
from callgate.tools.context import ToolContext
from callgate.values import UNSET

__all__ = ("holders", "limit_of", "seconds_left", "start", "timeout_of")


_holders: Final[ContextVar[tuple[Slots, ...]]] = ContextVar("callgate_holders", default=())


def holders() -> tuple[Slots, ...]:
    """Give the slots that the calls hold in which this one is made, outermost first."""
    return _holders.get()


def start(pipeline: Pipeline, call: Call) -> Context:
    """Make ready the context that the tool's body runs in: a copy of the caller's, so that nothing leaks out of it.

    Raises:
        ToolTimeoutError: the call's deadline has passed; the tool does not run.
    """
    context = copy_context()
    if call.entry.slots.limit is not None:
        context.run(_holders.set, (*_holders.get(), call.entry.slots))
    if call.options.deadline is not None or call.entry.wants_context:
        limit_s = seconds_left(pipeline, call)
        if limit_s is not None and limit_s <= 0:
            raise timeout_of(pipeline, call, began=False)
        if call.entry.wants_context:
            _give_context(call)
    scope = call.scope
    if scope.opens_spans or scope.observes_calls():
        seconds_left(pipeline, call)
        _observe_start(call, context)
    return context


def _observe_start(call: Call, context: Context) -> None:
    call.observed = True
    call.span = call.scope.open_span(facts_of(call))
    if call.span is not None:
        context.run(call.span.activate)
    call.scope.emit("tool.started", lambda: ToolStarted(facts_of(call), call.arguments))


def limit_of(pipeline: Pipeline, call: Call) -> tuple[float | None, TimeoutSource]:
    """Give the time limit of a call in seconds (None: none) and whose it is: the call's, the tool's, the registry's."""
    options, default = call.options, pipeline.settings.options
    if options is not default and options.timeout_s is not UNSET:
        return options.timeout_s, "call"
    if call.entry.timeout_s is not UNSET:
        return call.entry.timeout_s, "tool"
    return (pipeline.settings.timeout_s if options.timeout_s is UNSET else options.timeout_s), "default"


def seconds_left(pipeline: Pipeline, call: Call) -> float | None:
    """Give the seconds that the body still has, or None without a limit. The limit begins when this is first asked.

    A deadline that comes before the limit takes its place (it can only shorten).
    """
    now = time.monotonic()
    if not call.limited:
        call.limited = True
        limit_s, call.limit_source = limit_of(pipeline, call)
        deadline = call.options.deadline
        if deadline is not None and (limit_s is None or deadline - now < limit_s):
            limit_s, call.limit_source = max(0.0, deadline - now), "deadline"
        call.limit_s = limit_s
        call.ends_at = None if limit_s is None else now + limit_s
    return None if call.ends_at is None else call.ends_at - now


def timeout_of(pipeline: Pipeline, call: Call, *, began: bool = True) -> ToolTimeoutError:
    """Make the 504 of a call, which says whose limit fired and whether the tool had begun."""
    if not call.limited:
        seconds_left(pipeline, call)
    return ToolTimeoutError(call.entry.name, call.limit_s or 0.0, call.limit_source, began=began)


def _give_context(call: Call) -> None:
    call.stopper = AbortController()
    caller = call.signal
    if caller is not None:
        stopper = call.stopper
        call.deafen = caller.add_listener(lambda: stopper.abort(caller.reason))
    keywords = {} if call.logger is None else {"logger": call.logger}
    call.context = ToolContext(
        tool=call.entry.name,
        invocation_id=call.invocation_id,
        thread_id=call.thread_id,
        user_context=call.user_context,
        call_context=call.call_context,
        signal=call.stopper.signal,
        deadline=call.ends_at,
        send_progress=partial(tell_progress, call),
        arguments=call.text,
        **keywords,
    )


def tell_progress(call: Call, item: object) -> None:
    """Tell the call's scope how far the tool is, from whichever thread it is told."""
    call.progressed += 1
    sequence = call.progressed
    call.scope.emit("tool.progress", lambda: ToolProgress(facts_of(call), sequence, item=item))
