"""The gate's judgement of one call: the policy's decision, the tool's wish, and what a person has approved. Nothing runs here.

policy.decide   strictest with   needs_approval of the tool, what its input parser asks for
approved call   the tool and the arguments are what the person saw; a DENY wins; an ASK of other rules is asked anew
"""

import copy
import logging
from collections.abc import Awaitable, Container, Sequence
from inspect import isawaitable
from types import CoroutineType
from typing import Any, Final, cast

from callgate.approvals import approval_digest
from callgate.errors import ApprovalRequiredError, ToolDeniedError, ToolError, UsageError
from callgate.gate.gated import GatedCall
from callgate.policy.decision import Decision, PolicyCall, Verdict, strictest
from callgate.policy.protocol import ToolPolicy
from callgate.tools.tool import Tool

__all__ = (
    "INPUT_RULE",
    "WISH_RULE",
    "check_approved",
    "check_bound",
    "check_offered",
    "decided",
    "decision_for",
    "policy_call",
    "policy_decision",
)

WISH_RULE: Final = "tool:needs_approval"
"""The rule that a tool's own `needs_approval` stands for."""

INPUT_RULE: Final = "tool:require_approval"
"""The rule that an input parser stands for which asks for approval."""

_log: Final = logging.getLogger("callgate")
_VOID: Final = "what was approved is not what would run now; call it again to have it approved anew"


def policy_call(gated: GatedCall, now: float, labels: frozenset[str]) -> PolicyCall:
    """Make what the policy sees of a call that has been parsed."""
    return PolicyCall(gated.entry.tool, gated.plain, gated.caller, now, gated.run_id, gated.thread_id, gated.step, labels)


def policy_decision(policy: ToolPolicy, call: PolicyCall) -> Decision | Awaitable[Decision]:
    """Ask the policy; what it raises denies (it fails closed), or asks when it is an `ApprovalRequiredError`.

    Raises:
        UsageError: it answers with something that is no decision; nothing runs.
    """
    name = call.tool.name
    try:
        decision: object = policy.decide(call)
    except Exception as error:  # noqa: BLE001 - the host's own code
        return failed_closed(name, error)
    if type(decision) is Decision:
        return decision
    return decision if isawaitable(decision) else checked(decision)


async def decided(policy: ToolPolicy, call: PolicyCall) -> Decision:
    """Do as `policy_decision` with a copy of the call, and wait for the answer; one that is no decision then denies."""
    name, decision = call.tool.name, policy_decision(policy, copy.copy(call))
    if isinstance(decision, Decision):
        return decision
    try:
        return checked(await decision)
    except Exception as error:  # noqa: BLE001 - the host's own code
        return failed_closed(name, error)


def check_offered(policy: ToolPolicy, name: str, offered: Container[str]) -> None:
    """Let the policy refuse a tool that this step did not offer; whatever else it raises denies the call.

    Raises:
        ToolError: it refuses, or fails.
        UsageError: it answers with something, such as a coroutine that nobody would wait for; nothing runs.
    """
    try:
        answer = cast("object", policy.assert_offered_in_step(name, offered))
    except Exception as error:
        decision = failed_closed(name, error)
        raise ToolDeniedError(name, decision.reason) from error
    _check_nothing("assert_offered_in_step", answer)


def check_bound(policy: ToolPolicy, catalog: Sequence[Tool[Any, Any]]) -> None:
    """Let the policy take note of the tools.

    Raises:
        PolicyError: it names what is not among them.
        UsageError: it answers with something, such as a coroutine that nobody would wait for.
    """
    _check_nothing("bind", cast("object", policy.bind(catalog)))


def _check_nothing(name: str, answer: object) -> None:
    if answer is not None:
        if isinstance(answer, CoroutineType):
            answer.close()
        raise UsageError(f"{name} raises, or gives nothing back; it must not be async")


def failed_closed(tool: str, error: Exception) -> Decision:
    """Turn what a policy raised into its decision.

    Raises:
        ToolError: a refusal that the policy chose.
    """
    if isinstance(error, ApprovalRequiredError):
        return Decision.ask(error.reason, rules=("policy:raised",))
    if isinstance(error, ToolError):
        raise error
    _log.error("callgate.policy_failed tool=%s: the call is denied", tool, exc_info=error)
    return Decision.deny("its policy could not judge it")


def checked(decision: object) -> Decision:
    """Give back a decision that is one.

    Raises:
        UsageError: it is something else (case f27).
    """
    if not isinstance(decision, Decision):
        raise UsageError(f"a policy answers Decision.allow(), .ask(…) or .deny(…), not {type(decision).__name__}")
    return decision


def decision_for(gated: GatedCall, call: PolicyCall, decision: Decision) -> Decision:
    """Add to the policy's decision what the tool and its input parser wish for, once in the life of the call (case f7)."""
    if gated.asks is not None:
        decision = strictest(decision, gated.asks)
    wish = call.tool.options.needs_approval
    if wish is False or gated.approval is not None:
        return decision
    return strictest(decision, _wish(call)) if wish is True or _wishes(call, wish) else decision


def _wish(call: PolicyCall) -> Decision:
    return Decision.ask(f"the tool {call.tool.name!r} needs an approval for it", rules=(WISH_RULE,))


def _wishes(call: PolicyCall, wish: object) -> bool:
    try:
        return bool(wish(call.arguments))  # type: ignore[operator]  # the definition was checked
    except Exception:  # noqa: BLE001 - the host's own code
        _log.exception("callgate.needs_approval_failed tool=%s: a person is asked", call.tool.name)
        return True


def check_approved(gated: GatedCall, call: PolicyCall, decision: Decision, now: float) -> bool:
    """Check an approved call once more before it runs; tell whether a person has to be asked anew.

    Raises:
        ToolDeniedError: it expired, or the tool or the arguments are not those that were approved.
    """
    approval = gated.approval
    assert approval is not None
    if approval.expires_at is not None and approval.expires_at <= now:
        raise ToolDeniedError(call.tool.name, "its approval has expired")
    covered = approval.digest if approval.edited_digest is None else approval.edited_digest
    fingerprint = call.tool.fingerprint
    same = approval_digest(approval.key, call.tool.name, fingerprint, call.arguments, gated.text) == covered
    if not same or fingerprint != approval.fingerprint:
        raise ToolDeniedError(call.tool.name, _VOID)
    return decision.verdict is Verdict.ASK and not set(decision.rules) <= set(approval.rules)
