"""`require_approval`: let an input parser ask for a person, when only the arguments tell that one is needed (case f21)."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, TypeVar

from callgate.errors import ApprovalRequiredError

__all__ = ("approved_parse", "require_approval")

T = TypeVar("T")

_approved: Final[ContextVar[bool]] = ContextVar("callgate_approved_input", default=False)


def require_approval(reason: str = "a person has to approve it first") -> None:
    """Call it in a validator or in `parse_input`: without an approval the call is not run, and a gate asks a person.

    The input is parsed once more then, with this function doing nothing, so that the person sees arguments that are valid;
    and again when the approved call runs.

    Raises:
        ApprovalRequiredError: nobody has approved the call yet.
    """
    if not _approved.get():
        raise ApprovalRequiredError("", reason)


def approved_parse(parse: Callable[[bytes, dict[str, object]], T]) -> Callable[[bytes, dict[str, object]], T]:
    """Let `require_approval` pass while `parse` is at work, and nowhere else: what the tool itself calls is not approved."""

    def parse_approved(text: bytes, arguments: dict[str, object]) -> T:
        token = _approved.set(True)
        try:
            return parse(text, arguments)
        finally:
            _approved.reset(token)

    return parse_approved
