"""Hooks around a call: they see it before it is judged and its outcome after, and can change, block or replace. Case j7.

The first hook is the outermost. What a hook changes is validated, judged, and shown to the person who approves; a call that has
been approved already comes with its `approval`, and a hook that changes its arguments then voids it (case f20).
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, cast

from callgate.errors import CallgateError, ToolDeniedError, ToolError, ToolFailedError, UsageError
from callgate.gate.outcomes import Denied, Failed, Outcome, Pending, Succeeded
from callgate.reporting import format_tool_error
from callgate.store.records import ApprovalRecord
from callgate.tools.tool import Tool
from callgate.values import Caller, ToolCall

__all__ = ("GateHook", "HookCall", "Next", "through_hooks")

_log: Final = logging.getLogger("callgate")


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCall:
    """Be a call as a hook sees it: not parsed yet, `tool` None when the name is not a tool's."""

    call: ToolCall
    tool: Tool[Any, Any] | None
    caller: Caller
    run_id: str | None
    step: int | None
    approval: ApprovalRecord | None


Next: TypeAlias = Callable[[ToolCall], Awaitable[Outcome]]
GateHook: TypeAlias = Callable[[HookCall, Next], Awaitable[Outcome]]


async def through_hooks(hooks: Sequence[GateHook], seen: HookCall, last: Next) -> Outcome:
    """Carry a call through the hooks to `last`. A hook that fails ends the call as a failure: it fails closed.

    Raises:
        BaseException: what a hook was given by going on, such as the reason of an abort, and lets through.
        UsageError: a hook gave something that is no outcome, or another name or id; what ran until then stands.
    """
    if not hooks:
        return await last(seen.call)
    passing: list[Exception] = []

    async def go_on(call: ToolCall) -> Outcome:
        if (call.name, call.id) != (seen.call.name, seen.call.id):
            raise UsageError("a hook may change the arguments of a call, not its name or its id")
        try:
            return await through_hooks(hooks[1:], replace(seen, call=call), last)
        except Exception as error:
            passing.append(error)
            raise

    try:
        return _checked(cast("object", await hooks[0](seen, go_on)))
    except Exception as error:
        ours = isinstance(error, CallgateError) and not isinstance(error, ToolError)
        if ours or any(each is error for each in passing):
            raise
        return _ended(seen.call, error)
    finally:
        passing.clear()  # their traces have this frame: free both without the collector


def _ended(call: ToolCall, error: Exception) -> Failed | Denied:
    """Give the outcome of a call whose hook raised: a tool's error in its own words, anything else without a word of it."""
    if isinstance(error, ToolDeniedError):
        return Denied(call, format_tool_error(error), error, reason=error.reason)
    if isinstance(error, ToolError):
        return Failed(call, format_tool_error(error), error)
    _log.error("callgate.hook_failed tool=%s", call.name, exc_info=error)
    failure = ToolFailedError(call.name, "a hook of the program failed")
    failure.__cause__ = error
    return Failed(call, failure.user_message, failure)


def _checked(outcome: object) -> Outcome:
    if not isinstance(outcome, Succeeded | Failed | Denied | Pending):
        raise UsageError(f"a hook gives an outcome: await next(call), or Denied(…), not {type(outcome).__name__}")
    if not isinstance(cast("object", outcome.text), str):
        raise UsageError(f"the text of a hook's outcome is a text, not {type(outcome.text).__name__}")
    if isinstance(outcome, Failed | Denied) and not isinstance(cast("object", outcome.error), CallgateError):
        raise UsageError(f"the error of a hook's outcome is a CallgateError, not {type(outcome.error).__name__}")
    return outcome
