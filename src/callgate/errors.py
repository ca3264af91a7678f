"""Every exception that callgate raises, each with a stable code, an HTTP-like status and a text safe to show.

The tree::

    CallgateError
    ├── UsageError                      a bug in the calling program; never caused by a model
    │   ├── ToolDefinitionError         a tool that cannot work as it is defined
    │   ├── DuplicateToolError          a second tool with a name that is taken
    │   ├── RegistrySealedError         a registration after `seal()`
    │   ├── PolicyError                 a policy that cannot be loaded as it is written
    │   └── WorkflowDefinitionError     a workflow that cannot work as it is defined
    ├── AbortedError               499  the default reason of an abort
    ├── NotFoundError              404  no approval, run, grant or profile of that name
    ├── ConflictError              409  somebody else was first: decided, resumed or running already
    ├── RunStateError              422  a stored run that is damaged or newer than this release
    ├── RunPausedError             202  a workflow waits for people; it is stored
    ├── WorkflowError              500  a node of a workflow failed, or a bound of its run is reached
    ├── StoreError                 503  the store did not take or give a record
    └── ToolError                       what a model may read as the answer to its call
        ├── InvalidInputError      400  arguments that the schema refuses
        ├── ToolNotFoundError      404  no tool of that name
        ├── ToolNotOfferedError    403  a tool that this call was not offered
        ├── ToolDeniedError        403  authorization said no
        │   ├── ApprovalRequiredError   403  a person has to approve first
        │   └── BudgetExceededError     429  a budget of the policy is used up
        ├── OutputTooLargeError    413  an output over the tool's cap
        ├── ToolFailedError        500  the tool raised something of its own
        ├── OutcomeUnknownError    500  the tool was started, and how it ended is not known
        ├── InvalidOutputError     502  an output that is no JSON or not what was declared
        ├── ToolUnavailableError   503  the tool cannot take calls at the moment
        └── ToolTimeoutError       504  no answer within the time limit
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Self

__all__ = (
    "AbortedError",
    "ApprovalRequiredError",
    "BudgetExceededError",
    "CallgateError",
    "ConflictError",
    "DuplicateToolError",
    "InvalidInputError",
    "InvalidOutputError",
    "NotFoundError",
    "OutcomeUnknownError",
    "OutputTooLargeError",
    "PolicyError",
    "Problem",
    "RegistrySealedError",
    "RunPausedError",
    "RunStateError",
    "StoreError",
    "TimeoutSource",
    "ToolDefinitionError",
    "ToolDeniedError",
    "ToolError",
    "ToolFailedError",
    "ToolNotFoundError",
    "ToolNotOfferedError",
    "ToolTimeoutError",
    "ToolUnavailableError",
    "UsageError",
    "WorkflowDefinitionError",
    "WorkflowError",
)

TimeoutSource = Literal["call", "tool", "default", "deadline"]

_LIMIT_OWNERS: Final[dict[TimeoutSource, str]] = {
    "call": "the call's own limit",
    "tool": "the tool's limit",
    "default": "the default limit",
    "deadline": "the deadline",
}


def _restore(kind: type["CallgateError"], args: tuple[object, ...], state: dict[str, object]) -> "CallgateError":
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class CallgateError(Exception):
    """Stand at the root of every error of this library.

    `code` is a stable word for programs, `status` the HTTP status of the same meaning, and `user_message` a text
    without secrets or internals. `str(error)` is the same text: what must stay on the server is in `__cause__`.
    """

    code: str = "callgate_error"
    status: int = 500

    def __init__(self, user_message: str) -> None:
        super().__init__(user_message)
        self.user_message = user_message

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (type(self), self.args, self.__dict__)


class UsageError(CallgateError):
    """Tell the programmer that callgate was called in a way that cannot work."""

    code = "usage_error"


class ToolDefinitionError(UsageError):
    """Refuse a tool that cannot work, when it is defined; nothing was registered.

    `tool` names it; `parameter` names the parameter at fault, or is None when the fault is elsewhere.
    """

    code = "invalid_tool_definition"

    def __init__(self, tool: str, reason: str, *, parameter: str | None = None) -> None:
        where = f"tool {tool!r}" if parameter is None else f"tool {tool!r}, parameter {parameter!r}"
        super().__init__(f"{where}: {reason}")
        self.tool = tool
        self.parameter = parameter
        self.reason = reason


class DuplicateToolError(UsageError):
    """Refuse a second tool named `tool`; the registry is as it was."""

    code = "duplicate_tool"

    def __init__(self, tool: str, reason: str = "a tool of that name is registered already") -> None:
        super().__init__(f"tool {tool!r}: {reason}; give one of the two another name")
        self.tool = tool


class RegistrySealedError(UsageError):
    """Refuse a registration after `seal()`; the registry is as it was."""

    code = "registry_sealed"

    def __init__(self, tool: str) -> None:
        super().__init__(f"tool {tool!r} cannot be registered: the registry is sealed; register every tool before seal()")
        self.tool = tool


class PolicyError(UsageError):
    """Refuse a policy that names what does not exist or says what cannot be; nothing was loaded.

    `file` and `line` say where it is written (None: it was made in Python).
    """

    code = "invalid_policy"

    def __init__(self, reason: str, *, file: str | None = None, line: int | None = None) -> None:
        where = "" if file is None else f"{file}: " if line is None else f"{file}:{line}: "
        super().__init__(f"{where}{reason}")
        self.reason = reason
        self.file = file
        self.line = line


class WorkflowDefinitionError(UsageError):
    """Refuse a workflow that cannot work, when it is defined; `node` and `route` (its place, from 1) say where, if anywhere."""

    code = "invalid_workflow"

    def __init__(self, workflow: str, reason: str, *, node: str | None = None, route: int | None = None) -> None:
        where = (
            f"workflow {workflow!r}"
            + ("" if node is None else f", node {node!r}")
            + ("" if route is None else f", route {route}")
        )
        super().__init__(f"{where}: {reason}")
        self.workflow = workflow
        self.node = node
        self.route = route
        self.reason = reason


class AbortedError(CallgateError):
    """Stand as the reason of an abort for which the caller gave none of its own."""

    code = "aborted"
    status = 499

    def __init__(self, user_message: str = "the call was aborted by its caller") -> None:
        super().__init__(user_message)


class NotFoundError(CallgateError):
    """Tell that there is no `kind` (an approval, a run, a grant, a profile) of that id; nothing was done."""

    code = "not_found"
    status = 404

    def __init__(self, kind: str, name: str, hint: str = "") -> None:
        super().__init__(f"there is no {kind} {name!r}{f': {hint}' if hint else ''}")
        self.kind = kind
        self.name = name


class ConflictError(CallgateError):
    """Tell that somebody else was first; nothing was done by this attempt.

    `decided_by` names who decided, where that is what happened.
    """

    code = "conflict"
    status = 409

    def __init__(self, user_message: str, *, decided_by: str | None = None) -> None:
        super().__init__(user_message)
        self.decided_by = decided_by


class RunStateError(CallgateError):
    """Refuse a stored run that is damaged, or written by a newer release; nothing was resumed."""

    code = "invalid_run_state"
    status = 422


class RunPausedError(CallgateError):
    """Tell that a workflow's run waits for people and is stored; `pending` are the ids of the requests for approval."""

    code = "run_paused"
    status = 202

    def __init__(self, run_id: str, pending: Sequence[str]) -> None:
        super().__init__(f"run {run_id!r} waits for the approval of {', '.join(pending)}; decide, and resume it")
        self.run_id = run_id
        self.pending = tuple(pending)


class WorkflowError(CallgateError):
    """Tell that a run of a workflow ended without delivering; what a node raised is `__cause__` and stays on the server.

    `node` and `round` say where it was.
    """

    code = "workflow_failed"
    status = 500

    def __init__(self, run_id: str, reason: str, *, node: str | None = None, round_number: int = 0) -> None:
        where = "" if node is None else f" at node {node!r} in round {round_number}"
        super().__init__(f"run {run_id!r} ended{where}: {reason}")
        self.run_id = run_id
        self.node = node
        self.round = round_number
        self.reason = reason


class StoreError(CallgateError):
    """Tell that the store could not take or give a record; what was asked for did not happen. `__cause__` says why."""

    code = "store_unavailable"
    status = 503


class ToolError(CallgateError):
    """Answer the model on purpose: raise it in a tool, and its message is what the model reads.

    `try_other_arguments` tells the model whether calling again with other arguments makes sense (None: not said).
    `invocation_id` is set by the registry, so that a caller finds the receipt of the failed call.
    """

    code = "tool_error"
    status = 422
    try_other_arguments: bool | None = None
    invocation_id: str | None = None

    def __init__(
        self,
        user_message: str,
        *,
        code: str | None = None,
        status: int | None = None,
        try_other_arguments: bool | None = None,
    ) -> None:
        super().__init__(user_message)
        if code is not None:
            self.code = code
        if status is not None:
            self.status = status
        if try_other_arguments is not None:
            self.try_other_arguments = try_other_arguments


@dataclass(frozen=True, slots=True)
class Problem:
    """Say what is wrong at one place of a tool's arguments or output.

    `path` is written as in code (`lines[2].price`, `""` for the whole); `expected` and `got` are short phrases and
    never hold the value itself; `hint` is advice such as the nearest known name, or `""`.
    """

    path: str
    expected: str
    got: str
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.path}: " if self.path else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{place}expected {self.expected}, got {self.got}{hint}"


_MAX_LISTED_PROBLEMS = 8


def _listed(problems: Sequence[Problem]) -> str:
    lines = [f"- {problem}" for problem in problems[:_MAX_LISTED_PROBLEMS]]
    if len(problems) > _MAX_LISTED_PROBLEMS:
        lines.append(f"- and {len(problems) - _MAX_LISTED_PROBLEMS} more problems of this kind")
    return "\n".join(lines)


class InvalidInputError(ToolError):
    """Refuse arguments that are no JSON object or do not fit the tool's schema; the tool did not run.

    `problems` has one entry for each place at fault, in the order of the schema's check.
    """

    code = "invalid_input"
    status = 400
    try_other_arguments = True

    def __init__(self, tool: str, problems: Sequence[Problem]) -> None:
        super().__init__(f"The arguments of tool {tool!r} were refused and it did not run:\n{_listed(problems)}")
        self.tool = tool
        self.problems = tuple(problems)

    @classmethod
    def of(cls, tool: str, path: str, expected: str, got: str, hint: str = "") -> Self:
        """Build the error for a single problem."""
        return cls(tool, (Problem(path, expected, got, hint),))


class ToolNotFoundError(ToolError):
    """Refuse a call to a name that no tool has; `nearest` are known names that resemble it."""

    code = "tool_not_found"
    status = 404
    try_other_arguments = False

    def __init__(self, tool: str, nearest: Sequence[str] = (), available: Sequence[str] = ()) -> None:
        near = f" Nearest: {', '.join(nearest)}." if nearest else ""
        known = f" Available: {', '.join(available)}." if available else ""
        super().__init__(f"There is no tool {tool!r}.{near}{known}")
        self.tool = tool
        self.nearest = tuple(nearest)


class ToolNotOfferedError(ToolError):
    """Refuse a call to a tool that is outside the tools offered to it."""

    code = "tool_not_offered"
    status = 403
    try_other_arguments = False

    def __init__(self, tool: str, nearest: Sequence[str] = (), available: Sequence[str] = ()) -> None:
        near = f" Nearest: {', '.join(nearest)}." if nearest else ""
        known = f" Offered: {', '.join(available)}." if available else ""
        super().__init__(f"Tool {tool!r} is not offered to this call.{near}{known}")
        self.tool = tool
        self.nearest = tuple(nearest)


class ToolDeniedError(ToolError):
    """Refuse a call that authorization does not allow; `reason` is shown to the model."""

    code = "tool_denied"
    status = 403
    try_other_arguments = False

    def __init__(self, tool: str, reason: str = "") -> None:
        super().__init__(f"The call of tool {tool!r} is not allowed{f': {reason}' if reason else '.'}")
        self.tool = tool
        self.reason = reason


class ApprovalRequiredError(ToolDeniedError):
    """Ask for a person's approval of this call: a gate stores the request, elsewhere the call is refused.

    A policy or an input parser may raise it; a tool's body may not, because it has begun.
    """

    code = "approval_required"

    def __init__(self, tool: str, reason: str = "a person has to approve it first") -> None:
        super().__init__(tool, reason)


class BudgetExceededError(ToolDeniedError):
    """Refuse a call because a budget of the policy is used up; the tool did not run."""

    code = "budget_exceeded"
    status = 429


class OutcomeUnknownError(ToolError):
    """Tell that the tool was started and that how it ended is not known, because its process ended first."""

    code = "outcome_unknown"
    status = 500
    try_other_arguments = False

    def __init__(self, tool: str) -> None:
        super().__init__(
            f"Tool {tool!r} was started, and the program ended before it did: what it was to do may have happened or not."
            " Find out before anything is done again; it is not repeated by itself."
        )
        self.tool = tool


class OutputTooLargeError(ToolError):
    """Refuse an output whose JSON text has `size_bytes` UTF-8 bytes where `limit_bytes` are allowed.

    The tool has run; what it did stands.
    """

    code = "output_too_large"
    status = 413
    try_other_arguments = True

    def __init__(self, tool: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"Tool {tool!r} ran, but its output of {size_bytes} bytes is over the limit of {limit_bytes} bytes."
            " Ask for less, for example for a smaller page or fewer fields."
        )
        self.tool = tool
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class InvalidOutputError(ToolError):
    """Refuse an output that cannot be written as JSON or does not fit the declared output; the tool has run.

    `problems` name the paths and what stood there, never a value; the model reads them too.
    """

    code = "invalid_output"
    status = 502
    try_other_arguments = False

    def __init__(self, tool: str, problems: Sequence[Problem]) -> None:
        super().__init__(f"Tool {tool!r} ran, but its output is invalid:\n{_listed(problems)}")
        self.tool = tool
        self.problems = tuple(problems)

    @classmethod
    def of(cls, tool: str, path: str, expected: str, got: str, hint: str = "") -> Self:
        """Build the error for a single problem."""
        return cls(tool, (Problem(path, expected, got, hint),))


class ToolUnavailableError(ToolError):
    """Refuse a call to a tool that cannot take one now; it did not run. `reason` says why."""

    code = "tool_unavailable"
    status = 503
    try_other_arguments = False

    def __init__(self, tool: str, reason: str) -> None:
        super().__init__(f"Tool {tool!r} is not available now: {reason}")
        self.tool = tool
        self.reason = reason


class ToolTimeoutError(ToolError):
    """Tell that the tool gave no answer within `limit_s` seconds.

    `source` says whose limit fired: the call's own, the tool's, the registry's default, or the call's deadline. What the
    tool did until then stands; `began` is False when the deadline came before the tool was started.
    """

    code = "tool_timeout"
    status = 504

    def __init__(self, tool: str, limit_s: float, source: TimeoutSource, *, began: bool = True) -> None:
        whose = _LIMIT_OWNERS[source]
        after = "what it did until then stands" if began else "it did not run"
        super().__init__(f"Tool {tool!r} gave no answer within {limit_s:g} s ({whose}); {after}.")
        self.began = began
        self.tool = tool
        self.limit_s = limit_s
        self.source: TimeoutSource = source


class ToolFailedError(ToolError):
    """Tell that the tool raised; what it raised is `__cause__` and stays on the server."""

    code = "tool_failed"
    status = 500

    def __init__(self, tool: str, detail: str = "an internal error") -> None:
        super().__init__(f"Tool {tool!r} failed: {detail}.")
        self.tool = tool
