"""Frozen values that travel along a call: contexts, options, content blocks, receipt, result and reply.

Values hold facts and no behaviour. Times are seconds since the epoch (`_at`), durations milliseconds (`_ms`), sizes
UTF-8 bytes (`_bytes`).
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from hashlib import sha256
from types import MappingProxyType
from typing import Final, Generic, Literal, TypeAlias, TypeVar, cast

from callgate.errors import UsageError

__all__ = (
    "NO_ARTIFACTS",
    "UNSET",
    "BinaryBlock",
    "CallContext",
    "CallStatus",
    "Caller",
    "ContentBlock",
    "EndedCall",
    "ExecutionOptions",
    "ImageBlock",
    "TextBlock",
    "ToolAnswer",
    "ToolCall",
    "ToolCallRecord",
    "ToolReply",
    "ToolResult",
    "Unset",
    "canonical_json",
    "check_limit",
    "digest_of_input",
)

T = TypeVar("T")
NO_ARTIFACTS: Final[Mapping[str, object]] = MappingProxyType({})

CallStatus = Literal["succeeded", "failed", "denied", "aborted", "cancelled", "pending", "dry_run"]


class Unset(Enum):
    """Stand for "not given" where None has a meaning of its own."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


@dataclass(frozen=True, slots=True)
class Caller:
    """Say on whose behalf a call is made: a subject (a user, a service) and the roles that it has."""

    subject: str
    roles: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        subject = cast("object", self.subject)
        if not isinstance(subject, str) or not subject:
            raise UsageError(f"a caller's subject must be a text that is not empty, not {subject!r}")
        roles = cast("object", self.roles)
        if isinstance(roles, str):
            raise UsageError(f"a caller's roles must be a list of texts: write roles=({roles!r},)")
        object.__setattr__(self, "roles", tuple(self.roles))


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """Say which place a call has in its run; a failure is reported only for a call that has one (contract row P10).

    `attempt` counts from 1. `attempts_left` is what the host still grants after this one (None: not limited): at 0 the
    model reads that it was the last. `approved_by` names the person who approved, for the receipt. `key` names the call in
    the journal, whatever its attempt, and `caller` says on whose behalf it is made; a gate sets both.
    """

    run_id: str | None = None
    call_id: str | None = None
    step: int | None = None
    attempt: int = 1
    attempts_left: int | None = None
    approved_by: str | None = None
    key: str | None = None
    caller: Caller | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """Be one call as a model made it: the tool's name, its arguments (JSON text, a mapping or None), and the model's id.

    Within a run no two calls may have the same id; without a run the id is only noted.
    """

    name: str
    arguments: object = field(default=None, repr=False)
    id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionOptions:
    """Say how a call is run where its tool and its registry leave it open.

    `timeout_s` goes before the tool's own and the registry's default (None: no limit). `deadline` is a moment of
    `time.monotonic()` that the call cannot outlive whatever its limits say. `max_output_bytes` goes before the tool's
    own cap (None: no cap). `repair` switches the schema-driven repair of arguments and names. `ignored_arguments` are
    names that this caller's model always adds and that are dropped when a tool does not know them.

    Raises:
        UsageError: a value is out of range or of another type.
    """

    timeout_s: float | None | Unset = UNSET
    deadline: float | None = None
    max_output_bytes: int | None | Unset = UNSET
    repair: bool = True
    ignored_arguments: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.timeout_s is not UNSET:
            check_limit("timeout_s", self.timeout_s)
        if self.max_output_bytes is not UNSET:
            check_limit("max_output_bytes", self.max_output_bytes, whole=True)
        if self.deadline is not None and not _is_number(self.deadline):
            raise UsageError(f"deadline must be a moment of time.monotonic(), or None, not {self.deadline!r}")
        if self.repair not in {True, False}:
            raise UsageError(f"repair must be True or False, not {self.repair!r}")
        ignored: object = self.ignored_arguments
        if isinstance(ignored, str):
            raise UsageError("ignored_arguments must be a set of names, not one text")


def check_limit(name: str, value: object, *, whole: bool = False) -> None:
    """Check a limit that a host sets: None, or a finite number above 0 (`whole`: without a fraction).

    Raises:
        UsageError: it is another thing; nothing has happened then.
    """
    if value is None or (_is_number(value, whole=whole) and value > 0):  # type: ignore[operator]  # it is a number
        return
    raise UsageError(f"{name} must be a {'whole ' if whole else ''}number above 0, or None, not {value!r}")


def _is_number(value: object, *, whole: bool = False) -> bool:
    kinds = int if whole else (int, float)
    return isinstance(value, kinds) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Hold text for the model."""

    text: str


@dataclass(frozen=True, slots=True)
class ImageBlock:
    """Hold an image for the model: its raw bytes and its MIME type, such as `image/png`."""

    data: bytes = field(repr=False)
    mime_type: str


@dataclass(frozen=True, slots=True)
class BinaryBlock:
    """Hold other bytes for the model: raw, with their MIME type."""

    data: bytes = field(repr=False)
    mime_type: str = "application/octet-stream"


ContentBlock: TypeAlias = TextBlock | ImageBlock | BinaryBlock


@dataclass(frozen=True, eq=False)  # no slots: with them, ToolAnswer[int](…) fails on Python 3.11
class ToolAnswer(Generic[T]):
    """Give the program `value` and the model another text than its JSON.

    `text` replaces the JSON text (None: the JSON text of `value`), `blocks` are shown to the model beside it, and
    `artifacts` stay with the program: they are in `ToolResult.artifacts` and reach no model, log or span.
    """

    value: T
    text: str | None = None
    blocks: tuple[ContentBlock, ...] = ()
    artifacts: Mapping[str, object] = field(default_factory=lambda: NO_ARTIFACTS)


@dataclass(frozen=True, slots=True)
class ToolCallRecord:
    """Be the receipt of one call: what ran, for whom, when, and how it ended. It holds digests and sizes, no content.

    `started_at` and `duration_ms` span the whole call, its waiting included. `input_digest` is SHA-256 in hex of the
    arguments as canonical JSON (sorted keys, no blanks), `output_digest` of the output's text; None without one.
    `repairs` names each repair of the name or the arguments, `notes` what was changed on the way out ("truncated",
    "spilled", "surrogates replaced"). `late_ms` is set when a tool that had been given up came back, after so long.
    """

    invocation_id: str
    tool: str
    kind: str
    status: CallStatus
    started_at: float
    duration_ms: float
    call_id: str | None = None
    run_id: str | None = None
    thread_id: str | None = None
    attempt: int = 1
    approved_by: str | None = None
    input_bytes: int = 0
    output_bytes: int = 0
    input_digest: str | None = None
    output_digest: str | None = None
    error_code: str | None = None
    error_status: int | None = None
    repairs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    late_ms: float | None = None


class EndedCall:
    """Hold the facts of a call that has ended until somebody reads its receipt, which is made then, once.

    A receipt with its digests costs more than the rest of a small call, and most are never read. `facts` are the arguments
    of `make`, which writes the receipt; `number` tells the calls of one registry apart.
    """

    __slots__ = ("_facts", "_make", "_record", "number")

    def __init__(self, make: Callable[..., ToolCallRecord], number: int, facts: tuple[object, ...]) -> None:
        self._make = make
        self.number = number
        self._facts: tuple[object, ...] = facts
        self._record: ToolCallRecord | None = None

    def record(self) -> ToolCallRecord:
        """Give the receipt. Two threads that ask first at once get equal ones."""
        record = self._record
        if record is None:
            record = self._record = self._make(*self._facts)
        return record


@dataclass(slots=True, eq=False)  # not frozen: every call makes one, and freezing would triple its price
class ToolResult(Generic[T]):
    """Give the outcome of a call that succeeded. It belongs to the caller; its receipt is frozen.

    `value` is what the tool returned, untouched; `text` is what the model reads, never empty; `blocks` are images and
    other bytes for the model; `artifacts` are for the program alone; `invocation` is the receipt.
    """

    value: T = field(repr=False)
    text: str = field(repr=False)
    ended: EndedCall = field(repr=False)
    blocks: tuple[ContentBlock, ...] = ()
    artifacts: Mapping[str, object] = field(default_factory=lambda: NO_ARTIFACTS, repr=False)

    @property
    def invocation(self) -> ToolCallRecord:
        """The receipt of the call."""
        return self.ended.record()


@dataclass(frozen=True, slots=True, eq=False)
class ToolReply:
    """Give the model its answer, whatever happened: `text` is never empty, `is_error` tells a failure.

    `error` is the failure itself, for the program; `value` what the tool returned when it succeeded.
    """

    text: str = field(repr=False)
    is_error: bool
    invocation: ToolCallRecord
    blocks: tuple[ContentBlock, ...] = ()
    value: object = field(default=None, repr=False)
    error: BaseException | None = field(default=None, repr=False)


_canonical: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def canonical_json(text: bytes | str) -> bytes:
    """Write JSON text again with sorted keys, without blanks and in UTF-8: equal arguments give equal bytes."""
    return _canonical(json.loads(text)).encode("utf-8", "surrogatepass")


def digest_of_input(text: bytes) -> str:
    """Digest arguments given as JSON text, so that neither key order nor blanks matter; text that is no JSON as it is."""
    return _digest_short(text) if len(text) <= _REMEMBERED else _digest(text)


def _digest(text: bytes) -> str:
    try:
        canonical = canonical_json(text)
    except (ValueError, RecursionError):
        canonical = text
    return sha256(canonical).hexdigest()


_REMEMBERED: Final = 1024
_digest_short: Final = lru_cache(maxsize=256)(_digest)  # a journalled call needs it at its start, at its end, and for its key
