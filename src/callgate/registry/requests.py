"""What a caller may say of a call, and the call itself while it is under way."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import Context
from dataclasses import dataclass, field, fields
from typing import Any, Final, Protocol, TypeAlias, TypedDict, cast

from callgate.diagnostics import CallSpan, DiagnosticContext
from callgate.errors import TimeoutSource, ToolError, UsageError
from callgate.registry.entry import Entry
from callgate.running.flight import Flight
from callgate.running.stepping import Body, Ride
from callgate.signals import AbortController, AbortSignal
from callgate.tools.context import ToolContext
from callgate.tools.tool import Tool
from callgate.values import CallContext, CallStatus, ContentBlock, EndedCall, ExecutionOptions, ToolResult

__all__ = (
    "NO_OPTIONS",
    "Call",
    "CallKeywords",
    "ErrorCode",
    "ErrorPorts",
    "Guard",
    "Held",
    "ToolInvocationRequest",
    "Unavailable",
    "plain_name",
)


NO_OPTIONS: Final = ExecutionOptions()
"""The options of a call that brings none; the registry puts its own in their place."""


class Unavailable(Protocol):
    """Make the error for a tool that cannot take a call now; `reason` may be shown to the model."""

    def __call__(self, tool: str, reason: str, /) -> ToolError:
        """Make it; nothing ran."""
        ...


class ErrorCode(Protocol):
    """Give the code that the receipt of a failed call carries, or None for the error's own."""

    def __call__(self, error: BaseException, /) -> str | None:
        """Name it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorPorts:
    """Let a host make the errors that its programs expect (contract row R5).

    `unavailable` makes the 503 of a tool that cannot take calls; `error_code` names the code in receipts and logs, from the
    error that the tool raised. None keeps what callgate does itself.
    """

    unavailable: Unavailable | None = None
    error_code: ErrorCode | None = None


class CallKeywords(TypedDict, total=False):
    """Name what a call may carry beside its name and its input; `ToolInvocationRequest` says what each means."""

    signal: AbortSignal | None
    diagnostics: DiagnosticContext | None
    logger: logging.Logger | None
    thread_id: str | None
    user_context: object
    call_context: CallContext | None
    tools: Iterable[Any] | None
    options: ExecutionOptions | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInvocationRequest:
    """Carry one call (contract row P12).

    `input` is JSON text, a mapping, or None for no arguments. `signal` can only shorten the call. `tools` are the tools
    offered to it, by name or as tools, additional ones among them; None offers the catalog. `options` None takes the
    registry's. `logger` and `user_context` are handed to the tool.
    """

    tool_id: str
    input: object = field(default=None, repr=False)
    signal: AbortSignal | None = None
    diagnostics: DiagnosticContext | None = None
    logger: logging.Logger | None = None
    thread_id: str | None = None
    user_context: object = field(default=None, repr=False)
    call_context: CallContext | None = None
    tools: Iterable[Any] | None = None
    options: ExecutionOptions | None = None


_KEYWORDS: Final = frozenset(CallKeywords.__annotations__)
_TYPES: Final[dict[str, tuple[type, str]]] = {
    "signal": (AbortSignal, "an AbortSignal: AbortController().signal"),
    "diagnostics": (DiagnosticContext, "a DiagnosticContext"),
    "thread_id": (str, "a text"),
    "call_context": (CallContext, "a CallContext: CallContext(run_id=…, call_id=…)"),
    "options": (ExecutionOptions, "ExecutionOptions: ExecutionOptions(timeout_s=…)"),
}
_HINTS: Final = {key: f"; pass options=ExecutionOptions({key}=…)" for key in ExecutionOptions.__dataclass_fields__}
_REQUEST_FIELDS: Final = tuple(each.name for each in fields(ToolInvocationRequest) if each.name in _KEYWORDS)


def plain_name(name: object) -> object:
    """Give a text as an exact `str`, for a subclass may answer anything; what is no text stays as it is."""
    return str.__str__(cast("str", name)) if issubclass(type(name), str) else name


def _unknown_keyword(key: str) -> UsageError:
    hint = _HINTS.get(key, "; a tool's own arguments go as one mapping after the name")
    return UsageError(f"unknown keyword {key!r}; a call takes {', '.join(sorted(_KEYWORDS))}{hint}")


Names: TypeAlias = tuple[str | None, str | None, int, str | None]
"""Whose call it is, for its receipt: `call_id`, `run_id`, `attempt`, `approved_by`."""

_NAMELESS: Final[Names] = (None, None, 1, None)

Guard: TypeAlias = Callable[["Call"], Awaitable[None] | None]
"""What a gate has to say of an admitted call before its tool runs: it returns to let it run, and raises to end it."""


class Held(Exception):
    """End a call before its tool runs, without a failure: raised by a guard, with what it wants to know again.

    `status` is what the receipt says (None: there is none, because the call is not of this execution); `ended` is that receipt.
    """

    status: CallStatus | None
    ended: EndedCall | None = None

    def __init__(self, status: CallStatus | None, detail: object = None) -> None:
        super().__init__()
        self.status = status
        self.detail = detail


class Call:
    """Be one call under way: what was asked, and what became of it so far.

    `authorize` reads it: `name`, `tool`, `arguments` (parsed), `thread_id`, `user_context`, `call_context`, `signal`. The
    attributes that most calls do not set are class attributes, because an instance that sets five is made in a third of
    the time that one takes which sets twenty.
    """

    signal: AbortSignal | None
    tools: Iterable[Any] | None
    diagnostics: DiagnosticContext | None = None
    logger: logging.Logger | None = None
    thread_id: str | None = None
    user_context: object = None
    options: ExecutionOptions = NO_OPTIONS
    names: Names = _NAMELESS
    repairs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    text: bytes = b""
    arguments: object = None
    parsed: bool = False
    span: CallSpan | None = None
    context: ToolContext | None = None
    stopper: AbortController | None = None
    deafen: Callable[[], None] | None = None
    flight: Flight | None = None
    begun: tuple[Context, Body] | None = None
    ride: Ride | None = None
    holds_slot: bool = False
    observed: bool = False
    abandoned: bool = False
    limited: bool = False
    limit_s: float | None = None
    limit_source: TimeoutSource = "default"
    ends_at: float | None = None
    late_ms: float | None = None
    progressed: int = 0
    reworded: bool = False
    approved: bool = False
    guard: "Guard | None" = None
    _context: CallContext | None = None
    entry: Entry
    scope: DiagnosticContext
    prefix: str
    number: int
    started_at: float
    began: float

    def __init__(self, request: "ToolInvocationRequest | str", raw: object, keywords: CallKeywords) -> None:
        self.signal = self.tools = None  # read often, and an attribute of the class is slow to read
        if type(request) is str:
            self.name: object = request
            self.raw: object = raw
        elif issubclass(type(request), ToolInvocationRequest):
            self.name = plain_name(request.tool_id)  # type: ignore[union-attr]  # the check is on its type
            self.raw = request.input  # type: ignore[union-attr]
            self._take(request)  # type: ignore[arg-type]
        else:
            self.name = plain_name(request)
            self.raw = raw
        if keywords:
            unknown = keywords.keys() - _KEYWORDS
            if unknown:
                raise _unknown_keyword(min(unknown))
            for key, value in keywords.items():
                self._set(key, value)

    @property
    def call_context(self) -> CallContext | None:
        """Which place the call has in its run, if any."""
        if self._context is None:
            self._context = self._make_context()
        return self._context

    @call_context.setter
    def call_context(self, context: CallContext) -> None:
        self._context = context
        self.names = (context.call_id, context.run_id, context.attempt, context.approved_by)

    def _make_context(self) -> CallContext | None:
        """Make the context of a call that knows it by itself: few calls are asked for it."""
        return None

    @property
    def invocation_id(self) -> str:
        """The id of this call in its registry, which no other call of the process has."""
        return f"{self.prefix}{self.number:x}"

    @property
    def tool(self) -> Tool[Any, Any]:
        """The tool that the call runs; the name in the request may have been spelt in another way."""
        return self.entry.tool

    @property
    def input(self) -> object:
        """The input, parsed when the schema accepted it and as it came otherwise (contract row P10)."""
        return self.arguments if self.parsed else self.raw

    def succeed(
        self,
        value: object,
        text: str,
        ended: EndedCall,
        blocks: tuple[ContentBlock, ...],
        artifacts: Mapping[str, object],
    ) -> ToolResult[Any]:
        """Make what `ToolRegistry.begin` gives when the tool has succeeded; a gate's call makes its own outcome."""
        return ToolResult(value, text, ended, blocks, artifacts)

    def _take(self, request: ToolInvocationRequest) -> None:
        for key in _REQUEST_FIELDS:
            self._set(key, getattr(request, key))

    def _set(self, key: str, value: object) -> None:
        if value is None:
            return
        kind, wanted = _TYPES.get(key, (object, ""))
        if not isinstance(value, kind):
            raise UsageError(f"{key} must be {wanted}, not {type(value).__name__}")
        setattr(self, key, value)
