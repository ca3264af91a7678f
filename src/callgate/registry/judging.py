"""What became of a call, judged: refusals, failures, aborts, and the facts of an error. Source: contract rows P3, P7, P8."""

from typing import Final, TypeVar, cast

from callgate.errors import AbortedError, ApprovalRequiredError, ToolDeniedError, ToolError, ToolFailedError
from callgate.registry.requests import Call

__all__ = ("Aborted", "check_authorization", "code_of", "denial_of", "failure_of", "reason_of", "status_of")

T = TypeVar("T")

_LONGEST_CODE: Final = 128


class Aborted(Exception):
    """Carry the reason of the caller's abort to the door, which raises it as it is."""

    def __init__(self, reason: BaseException) -> None:
        super().__init__()
        self.reason = reason


def check_authorization(call: Call, answer: object) -> None:
    """Take the answer of the host's authorization: None or True allows, anything else denies.

    Raises:
        ToolDeniedError: the call is not allowed.
    """
    if answer is not None and answer is not True:
        raise ToolDeniedError(call.entry.name)


def denial_of(call: Call, error: BaseException) -> ToolError:
    """Turn what the host's authorization raised into a refusal: a policy that breaks must not let the call through."""
    if issubclass(type(error), KeyboardInterrupt | SystemExit):
        raise error
    if issubclass(type(error), ToolError):
        return cast("ToolError", error)
    denial = ToolDeniedError(call.entry.name, "it could not be authorized")
    denial.__cause__ = error
    return denial


def reason_of(call: Call) -> BaseException:
    """Give the caller's own reason for its abort (contract row P7)."""
    reason = None if call.signal is None else call.signal.reason
    return AbortedError("the call was aborted because its registry was closed") if reason is None else reason


def failure_of(call: Call, error: BaseException) -> ToolError:
    """Turn what a tool's body raised into what the registry raises (contract row P8).

    Raises:
        KeyboardInterrupt, SystemExit: as they are; they are the program's, not the tool's.
        Aborted: the caller has aborted; whatever the tool makes of that is no failure.
    """
    kind = type(error)  # isinstance would believe the error's own `__class__`
    if issubclass(kind, KeyboardInterrupt | SystemExit):
        raise error
    if call.signal is not None and call.signal.aborted:
        raise Aborted(reason_of(call))
    if issubclass(kind, ToolError) and not issubclass(kind, ApprovalRequiredError):
        return cast("ToolError", error)
    late = "it asked for an approval after it had begun" if issubclass(kind, ApprovalRequiredError) else "an internal error"
    failure = ToolFailedError(call.entry.name, late)
    failure.__cause__ = error
    return failure


def code_of(error: ToolError) -> str:
    """Give the code of an error for a receipt: short, and a text whatever the error's class says."""
    return _fact(error, "code", str, ToolError.code)[:_LONGEST_CODE]


def _fact(error: ToolError, name: str, kind: type[T], otherwise: T) -> T:
    """Read a fact of an error; the class may be a tool's own, with anything in it."""
    try:
        value = getattr(error, name)
    except Exception:  # noqa: BLE001 - the tool's own code
        return otherwise
    return value if type(value) is kind else otherwise


def status_of(error: ToolError) -> int:
    """Give the status of an error for a receipt: an HTTP status whatever the error's class says."""
    status = _fact(error, "status", int, ToolError.status)
    return status if 100 <= status <= 599 else ToolError.status
