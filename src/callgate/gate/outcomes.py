"""How a call through the gate ends: one of four values, each with the text that the model reads. Source: contract rows A3, L2."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from callgate.errors import CallgateError
from callgate.store.records import ApprovalRecord
from callgate.values import NO_ARTIFACTS, ContentBlock, EndedCall, ToolCall, ToolCallRecord

__all__ = ("Denied", "Failed", "Outcome", "Pending", "Succeeded")

_NO_RECEIPTS: Final[tuple[EndedCall, ...]] = ()


class _Receipts:
    """Give the receipts of an outcome's executions; they are written when they are read."""

    __slots__ = ()

    ended: tuple[EndedCall, ...]

    @property
    def receipt(self) -> ToolCallRecord | None:
        """The receipt of the last attempt; None when nothing ran in this process for this answer."""
        return self.ended[-1].record() if self.ended else None

    @property
    def attempts(self) -> tuple[ToolCallRecord, ...]:
        """The receipts of all attempts, the first one first."""
        return tuple(each.record() for each in self.ended)


@dataclass(slots=True, eq=False)  # none of the four is frozen: every call makes one, and freezing would triple its price
class Succeeded(_Receipts):
    """Give what the tool returned. `replayed`: it ran before, and the journal answered; `value` is its JSON form then."""

    call: ToolCall
    text: str = field(repr=False)
    value: object = field(default=None, repr=False)
    blocks: tuple[ContentBlock, ...] = ()
    artifacts: Mapping[str, object] = field(default_factory=lambda: NO_ARTIFACTS, repr=False)
    ended: tuple[EndedCall, ...] = _NO_RECEIPTS
    replayed: bool = False

    @property
    def is_error(self) -> Literal[False]:
        """Whether the model reads of a failure."""
        return False


@dataclass(slots=True, eq=False)
class Failed(_Receipts):
    """Tell that the call failed, or was refused before any policy judged it. `error` is for the program."""

    call: ToolCall
    text: str
    error: CallgateError
    ended: tuple[EndedCall, ...] = _NO_RECEIPTS
    replayed: bool = False

    @property
    def is_error(self) -> Literal[True]:
        """Whether the model reads of a failure."""
        return True


@dataclass(slots=True, eq=False)
class Denied(_Receipts):
    """Tell that a policy, a budget, a switch or a person refused the call; it did not run. `by` is the person, if one did."""

    call: ToolCall
    text: str
    error: CallgateError
    by: str | None = None
    reason: str = ""
    ended: tuple[EndedCall, ...] = _NO_RECEIPTS
    replayed: bool = False

    @property
    def is_error(self) -> Literal[True]:
        """Whether the model reads of a failure."""
        return True


@dataclass(slots=True, eq=False)
class Pending(_Receipts):
    """Tell that a person has to decide; `approval` is the request that is stored. The tool has not run."""

    call: ToolCall
    text: str
    approval: ApprovalRecord
    ended: tuple[EndedCall, ...] = _NO_RECEIPTS

    @property
    def approval_id(self) -> str:
        """The id to decide on."""
        return self.approval.id

    @property
    def is_error(self) -> Literal[False]:
        """Whether the model reads of a failure."""
        return False


Outcome: TypeAlias = Succeeded | Failed | Denied | Pending
