"""What a store keeps: the journal's records, approvals, grants, switches and runs. Values without behaviour.

A call has one key for its life. Its records claim numbered places under the key, and a place can be taken once, whoever
comes: that is what makes a start and an end happen once. Places: number 0 is the call's first record (a start, a request for
approval, or an end without a start), each further start takes the next number, and `!` marks the end of a started one.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol
from urllib.parse import quote

__all__ = (
    "ApprovalRecord",
    "ApprovalState",
    "CallEvent",
    "Entry",
    "Grant",
    "JournalRecord",
    "KillSwitch",
    "Refusal",
    "RunRecord",
    "RunStatus",
    "StartEntry",
    "call_key",
    "digest_of_content",
    "end_claim",
    "key_of",
    "quoted",
    "start_claim",
)

_LONGEST_ID: Final = 1000

CallEvent = Literal["started", "asked", "finished", "unknown"]
ApprovalState = Literal["pending", "approved", "denied", "expired"]
RunStatus = Literal["running", "paused", "completed", "stopped", "failed"]


def quoted(name: str) -> str:
    """Write a name so that it has none of the signs that part a claim, and nothing that a database cannot hold."""
    return quote(name, safe="", errors="surrogatepass")


def call_key(run_id: str, call_id: str) -> str:
    """Name a call of a run for the journal; an id that is too long for an index is named by its digest."""
    call = quoted(call_id)
    if len(call) > _LONGEST_ID:
        call = f"@{hashlib.sha256(call.encode()).hexdigest()}"  # no quoted name begins with this sign
    return f"{quoted(run_id)}/{call}"


def start_claim(key: str, number: int) -> str:
    """Name the place of a call's record of that number (contract row A5)."""
    return f"{key}#{number:04d}"


def key_of(claim: str) -> str:
    """Give the key of the call whose place it is."""
    return claim.rpartition("#")[0]


def end_claim(key: str, number: int) -> str:
    """Name the place of the end of what was started under that number."""
    return f"{key}#{number:04d}!"


def digest_of_content(content: str | None) -> str | None:
    """Digest the content of a record (SHA-256 in hex of its UTF-8), so that the facts cover what may be forgotten."""
    return None if content is None else hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(slots=True, kw_only=True)  # not frozen: every call makes two, and freezing would triple their price
class JournalRecord:
    """Be one record of the journal: a fact about a call, which is never changed.

    `claim` is unique in the journal. `at` is in seconds since the epoch. `status`, `error_code`, `duration_ms` and the
    output's facts are those of an end. `content` is kept where the host asks for it or a run needs it: in a start or a
    request the arguments as JSON, in an end a JSON object with `text`, and `value`, `blocks`, `error` where there are any.
    It is covered by its digest in the facts and can be forgotten without breaking the chain. `repeatable`: the tool may be
    run again after a crash. `labels` are what the result carries. `content_for_run`: the content is forgotten when the run
    ends; `content_until`: it is forgotten after that moment (None: never).
    """

    claim: str
    key: str
    number: int
    event: CallEvent
    at: float
    tool: str
    kind: str
    caller: str
    run_id: str | None = None
    call_id: str | None = None
    thread_id: str | None = None
    step: int | None = None
    attempt: int = 1
    fingerprint: str | None = None
    invocation_id: str | None = None
    approval_id: str | None = None
    approved_by: str | None = None
    repeatable: bool = False
    input_digest: str | None = None
    input_bytes: int = 0
    status: str | None = None
    output_digest: str | None = None
    output_bytes: int = 0
    error_code: str | None = None
    error_status: int | None = None
    duration_ms: float | None = None
    labels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    where: str | None = None
    content_digest: str | None = None
    content: str | None = field(default=None, repr=False)
    content_for_run: bool = False
    content_until: float | None = None


class Entry(Protocol):
    """Be what is to be recorded. The record is written when the store wants it, which may be later and in another thread."""

    @property
    def claim(self) -> str:
        """The place that it takes."""
        ...

    def record(self) -> JournalRecord:
        """Write the record."""
        ...


class EndEntry(Entry, Protocol):
    """Be an end that is to be recorded."""

    @property
    def ends(self) -> str | None:
        """The place of the start that it ends; None when it stands alone, because nothing was started."""
        ...


class StartEntry(Entry, Protocol):
    """Be a start that is to be recorded, with what may forbid it at that very moment."""

    @property
    def tool_name(self) -> str:
        """The tool that is to run."""
        ...

    @property
    def tool_kind(self) -> str:
        """Its kind, because a switch may spare reads."""
        ...

    @property
    def subject(self) -> str:
        """The subject on whose behalf it is to run."""
        ...

    @property
    def reserve(self) -> tuple[tuple[str, int], ...]:
        """The counters of which one use each is to be taken, with the limit of each; all are taken or none."""
        ...


@dataclass(frozen=True, slots=True)
class Refusal:
    """Say why a start was not recorded, so that the tool must not run.

    `claimed`: the place is taken. `switched_off`: a kill switch; `detail` is its reason. `used_up`: `detail` is the counter.
    """

    kind: Literal["claimed", "switched_off", "used_up"]
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRecord:
    """Be one request for approval: what is to run, who asked, why, until when, and what was decided.

    `arguments` is the exact JSON text that runs when it is approved; `shown` the parsed arguments as JSON text, which is what
    a person sees and what `digest` covers together with the tool's name, its `fingerprint` and the call's key.
    `edited` replaces `arguments` when the reviewer has edited them (`edited_digest` covers that). Times are in seconds since
    the epoch.
    """

    id: str
    key: str
    tool: str
    kind: str
    fingerprint: str
    arguments: str = field(repr=False)
    shown: str = field(repr=False)
    digest: str
    caller: str
    roles: tuple[str, ...]
    reason: str
    rules: tuple[str, ...]
    created_at: float
    expires_at: float | None = None
    run_id: str | None = None
    call_id: str | None = None
    thread_id: str | None = None
    step: int | None = None
    state: ApprovalState = "pending"
    decided_by: str | None = None
    decided_at: float | None = None
    decision_reason: str = ""
    edited: str | None = field(default=None, repr=False)
    edited_digest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Be a standing approval: calls of `tool` (a name or glob) by `caller` (None: anybody) whose arguments fit `when`.

    `when` is a JSON text: a list of conditions as in a rule. `max_uses` None is no limit. Times are seconds since the epoch.
    `run_id` binds it to one run (None: any).
    """

    id: str
    tool: str
    granted_by: str
    created_at: float
    caller: str | None = None
    run_id: str | None = None
    when: str = "[]"
    expires_at: float | None = None
    max_uses: int | None = None
    uses: int = 0
    revoked_at: float | None = None
    revoked_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KillSwitch:
    """Be a switch that is thrown: `scope` is `gate`, `tool:NAME` or `caller:SUBJECT`; `spares_reads` lets kind "read" run."""

    scope: str
    by: str
    reason: str
    at: float
    spares_reads: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """Be a run as it is stored. `state` is one JSON text, whose shape belongs to who made the run (`kind`).

    `version` counts its changes, and each change names the version that it read: of two, one is refused. `owner` is the
    writer that runs it at the moment (None: nobody).
    """

    id: str
    kind: Literal["agent", "workflow"]
    status: RunStatus
    state: str = field(repr=False)
    version: int = 0
    owner: str | None = None
    caller: str = ""
    name: str | None = None
    thread_id: str | None = None
    created_at: float = 0.0
    updated_at: float = 0.0
    facts: Mapping[str, object] = field(default_factory=dict[str, object])
