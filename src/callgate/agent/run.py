"""What a caller knows of a run when its loop has come to a stop."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from callgate.store.records import RunStatus

__all__ = ("PendingCall", "Run")


@dataclass(frozen=True, slots=True)
class PendingCall:
    """Be a call that waits for a person: what is to run, and why somebody is asked. `arguments` is JSON text."""

    approval_id: str
    call_id: str
    tool: str
    arguments: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Tell how far a run came. `output` is the model's last text; `pending` what people have to decide.

    `messages` is the whole history, in the model layer's types, in which every call has exactly one result but those that
    are pending. `error` says why a run failed, or what stopped it, without internals. `cost` is in US dollars, None when the
    model's price is not known.
    """

    run_id: str
    status: RunStatus
    output: str = ""
    pending: tuple[PendingCall, ...] = ()
    messages: Sequence[Any] = field(default=(), repr=False)
    error: str | None = None
    steps: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
