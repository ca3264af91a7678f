"""What a tool may know of its own call: annotate a parameter with `ToolContext` and it is handed in, never shown."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256

from callgate.signals import AbortSignal
from callgate.values import CallContext, digest_of_input

__all__ = ("ToolContext",)


def _drop(item: object) -> None:
    """Take progress that nobody follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """Tell a running tool about its call (contract rows T3, P4, P12).

    `signal` is aborted at the time limit and when the caller aborts; a tool in a thread should look at it. `deadline`
    is the moment of `time.monotonic()` at which the call ends (None: no limit). In a tool with `run_in="process"` the
    signal never speaks, because the process is killed instead. `arguments` is their JSON text.
    """

    tool: str
    invocation_id: str
    thread_id: str | None = None
    user_context: object = field(default=None, repr=False)
    call_context: CallContext | None = None
    logger: logging.Logger = field(default_factory=lambda: logging.getLogger("callgate.tool"))
    signal: AbortSignal = field(default_factory=AbortSignal)
    deadline: float | None = None
    send_progress: Callable[[object], None] = field(default=_drop, repr=False)
    arguments: bytes = field(default=b"", repr=False)

    def progress(self, item: object) -> None:
        """Tell whoever follows the call how far it is; `item` is any value that the host can show."""
        self.send_progress(item)

    @property
    def idempotency_key(self) -> str:
        """A text for the systems behind the tool that tells one call from another (case j2).

        It is the same when the call is tried again, resumed or run after a crash, and another one when its arguments are.
        """
        place = self.call_context or CallContext()
        key = place.key or (f"{place.run_id}/{place.call_id}" if place.run_id and place.call_id else self.invocation_id)
        covered = f"{len(key)}:{key}{self.tool}:{digest_of_input(self.arguments)}"
        return sha256(covered.encode("utf-8", "surrogatepass")).hexdigest()

    def remaining_s(self) -> float | None:
        """Tell the seconds left until the time limit, never below 0, or None without a limit."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())
