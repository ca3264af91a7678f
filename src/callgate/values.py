"""Frozen values that travel along a call: contexts, options, content blocks, receipt, result and reply.

Values hold facts and no behaviour. Times are seconds since the epoch (`_at`), durations milliseconds (`_ms`), sizes
UTF-8 bytes (`_bytes`).
"""

import json
import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from hashlib import sha256
from types import MappingProxyType
from typing import Final, Generic, Literal, TypeAlias, TypeVar

__all__ = (
    "NO_ARTIFACTS",
    "UNSET",
    "BinaryBlock",
    "CallContext",
    "CallStatus",
    "ContentBlock",
    "ExecutionOptions",
    "ImageBlock",
    "TextBlock",
    "ToolAnswer",
    "ToolCallRecord",
    "ToolReply",
    "ToolResult",
    "Unset",
    "canonical_json",
    "digest_of_input",
    "draft_of",
)

T = TypeVar("T")
NO_ARTIFACTS: Final[Mapping[str, object]] = MappingProxyType({})

CallStatus = Literal["succeeded", "failed", "denied", "aborted", "cancelled"]


class Unset(Enum):
    """Stand for "not given" where None has a meaning of its own."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """Say which place a call has in its run; a failure is reported only for a call that has one (contract row P10).

    `attempt` counts from 1. `attempts_left` is what the host still grants after this one (None: not limited): at 0 the
    model reads that it was the last. `approved_by` names the person who approved, for the receipt.
    """

    run_id: str | None = None
    call_id: str | None = None
    step: int | None = None
    attempt: int = 1
    attempts_left: int | None = None
    approved_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionOptions:
    """Say how a call is run where its tool and its registry leave it open.

    `timeout_s` goes before the tool's own and the registry's default (None: no limit). `deadline` is a moment of
    `time.monotonic()` that the call cannot outlive whatever its limits say. `max_output_bytes` goes before the tool's
    own cap (None: no cap). `repair` switches the schema-driven repair of arguments and names. `ignored_arguments` are
    names that this caller's model always adds and that are dropped when a tool does not know them.
    """

    timeout_s: float | None | Unset = UNSET
    deadline: float | None = None
    max_output_bytes: int | None | Unset = UNSET
    repair: bool = True
    ignored_arguments: frozenset[str] = frozenset()


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


@dataclass(frozen=True, slots=True, eq=False)
class ToolAnswer(Generic[T]):
    """Give the program `value` and the model another text than its JSON.

    `text` replaces the JSON text (None: the JSON text of `value`), `blocks` are shown to the model beside it, and
    `artifacts` stay with the program: they are in `ToolResult.artifacts` and reach no model, log or span.
    """

    value: T
    text: str | None = None
    blocks: tuple[ContentBlock, ...] = ()
    artifacts: Mapping[str, object] = field(default_factory=lambda: NO_ARTIFACTS)


class _Digests:
    """Hold what the digests of a receipt are made of until somebody asks for them.

    A digest costs more than the rest of a receipt and is seldom read. Bytes stand for content still to be digested
    (small: larger content is digested at once), text for a finished digest.
    """

    __slots__ = ("_input", "_output")
    _input: bytes | str | None
    _output: bytes | str | None

    @property
    def input_digest(self) -> str | None:
        """SHA-256 in hex of the arguments as canonical JSON (sorted keys, no blanks), or None without arguments."""
        source = getattr(self, "_input", None)
        if isinstance(source, bytes):
            source = digest_of_input(source)
            object.__setattr__(self, "_input", source)
        return source

    @property
    def output_digest(self) -> str | None:
        """SHA-256 in hex of the output's JSON text, or None without an output."""
        source = getattr(self, "_output", None)
        if isinstance(source, bytes):
            source = sha256(source).hexdigest()
            object.__setattr__(self, "_output", source)
        return source


@dataclass(frozen=True, slots=True)
class ToolCallRecord(_Digests):
    """Be the receipt of one call: what ran, for whom, when, and how it ended. It holds digests and sizes, no content.

    `started_at` and `duration_ms` span the whole call, its waiting included. `repairs` names each repair of the name or
    the arguments, `notes` what was changed on the way out ("truncated", "spilled", "surrogates replaced"). `late_ms` is
    set when a tool that had been given up came back, after so long from its start.
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
    error_code: str | None = None
    error_status: int | None = None
    repairs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    late_ms: float | None = None

    def __reduce__(self) -> tuple[object, ...]:
        values = tuple(getattr(self, each.name) for each in fields(self))
        return _restore_record, (values, self.input_digest, self.output_digest)


@dataclass(frozen=True, slots=True, eq=False)
class ToolResult(Generic[T]):
    """Give the outcome of a call that succeeded.

    `value` is what the tool returned, untouched; `text` is what the model reads, never empty; `blocks` are images and
    other bytes for the model; `artifacts` are for the program alone; `invocation` is the receipt.
    """

    value: T
    text: str
    invocation: ToolCallRecord
    blocks: tuple[ContentBlock, ...] = ()
    artifacts: Mapping[str, object] = field(default_factory=lambda: NO_ARTIFACTS)


@dataclass(frozen=True, slots=True, eq=False)
class ToolReply:
    """Give the model its answer, whatever happened: `text` is never empty, `is_error` tells a failure.

    `error` is the failure itself, for the program; `value` what the tool returned when it succeeded.
    """

    text: str
    is_error: bool
    invocation: ToolCallRecord
    blocks: tuple[ContentBlock, ...] = ()
    value: object = None
    error: BaseException | None = None


def _restore_record(values: tuple[object, ...], input_digest: str | None, output_digest: str | None) -> ToolCallRecord:
    record = ToolCallRecord(*values)  # type: ignore[arg-type]  # the values of a receipt, in the order of its fields
    object.__setattr__(record, "_input", input_digest)
    object.__setattr__(record, "_output", output_digest)
    return record


def canonical_json(text: bytes | str) -> bytes:
    """Write JSON text again with sorted keys, without blanks and in UTF-8: equal arguments give equal bytes."""
    parsed = json.loads(text)
    return json.dumps(parsed, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def digest_of_input(text: bytes) -> str:
    """Digest arguments given as JSON text, so that neither key order nor blanks matter; text that is no JSON as it is."""
    try:
        canonical = canonical_json(text)
    except (ValueError, RecursionError):
        canonical = text
    return sha256(canonical).hexdigest()


def draft_of(kind: type) -> type:
    """Make the mutable twin of a frozen, slotted dataclass: fill an instance, then set its `__class__` to `kind`.

    A frozen dataclass sets each field through `object.__setattr__`: 1.5 µs for a receipt, where the twin with the same
    slots takes a quarter of that. Both have one layout, so the change of class is allowed.
    """
    twin = types.new_class(f"{kind.__name__}Draft", getattr(kind, "__orig_bases__", kind.__bases__))
    twin.__module__ = kind.__module__
    twin.__annotations__ = {each.name: each.type for each in fields(kind)}
    for each in fields(kind):
        if each.default is not MISSING:
            setattr(twin, each.name, each.default)
        elif each.default_factory is not MISSING:
            setattr(twin, each.name, field(default_factory=each.default_factory))
    return dataclass(slots=True)(twin)
