"""Ask a person: the request that is stored, the grants that make it needless, and the denial that is not asked about again."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from callgate.approvals import approval_digest, denial_text
from callgate.errors import ToolDeniedError
from callgate.gate.gated import GatedCall
from callgate.policy.conditions import Condition, fits
from callgate.policy.decision import Decision, PolicyCall, digest_of
from callgate.policy.globs import matches
from callgate.store.protocol import Store
from callgate.store.records import ApprovalRecord, Grant, JournalRecord

__all__ = (
    "Asked",
    "AskingParts",
    "DeniedByReviewer",
    "covered_by_grant",
    "denied_before",
    "new_approval",
    "shown_arguments",
    "still_covered",
)


@dataclass(frozen=True, slots=True)
class Asked:
    """Be the journal's record of a request, for the store."""

    gated: GatedCall
    approval: ApprovalRecord

    @property
    def claim(self) -> str:
        """The place in the journal that the request takes."""
        return self.gated.claim

    def record(self) -> JournalRecord:
        """Write the record."""
        return self.gated.asked(self.approval)


class DeniedByReviewer(ToolDeniedError):
    """Refuse a call because a person did, or did not decide in time; `by` names the person, `words` are the reason given."""

    by: str | None = None
    words: str = ""

    @classmethod
    def of(cls, approval: ApprovalRecord) -> "DeniedByReviewer":
        """Make it of a request that was denied or that has expired."""
        error = cls(approval.tool, approval.decision_reason)
        if approval.state == "expired":
            text = f"The call of tool {approval.tool!r} was not executed: nobody approved it in time."
        else:
            text = denial_text(approval.tool, approval.decided_by, approval.decision_reason)
        error.args = (text,)
        error.user_message = text
        error.by = approval.decided_by
        error.words = approval.decision_reason
        return error


@dataclass(frozen=True, slots=True)
class AskingParts:
    """Say when a request is made, and how long it holds (seconds; None: for ever)."""

    now: float
    ttl_s: float | None


def shown_arguments(call: PolicyCall) -> str:
    """Write arguments as a person sees them and as the same ones are found again.

    Raises:
        ToolDeniedError: they cannot be written, such as a number of thousands of digits that the tool's own type made.
    """
    try:
        return json.dumps(call.arguments, sort_keys=True, ensure_ascii=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise ToolDeniedError(call.tool.name, "its arguments cannot be shown to a person") from error


def new_approval(gated: GatedCall, call: PolicyCall, decision: Decision, parts: AskingParts) -> ApprovalRecord:
    """Make the request for a call that a person has to approve."""
    fingerprint = call.tool.fingerprint
    return ApprovalRecord(
        id=f"apr_{secrets.token_hex(8)}",
        key=gated.key,
        tool=call.tool.name,
        kind=call.tool.kind,
        fingerprint=fingerprint,
        arguments=gated.text.decode("utf-8", "surrogatepass") or "{}",
        shown=shown_arguments(call),
        digest=approval_digest(gated.key, call.tool.name, fingerprint, call.arguments, gated.text),
        caller=gated.caller.subject,
        roles=gated.caller.roles,
        reason=decision.reason,
        rules=decision.rules,
        created_at=parts.now,
        expires_at=None if parts.ttl_s is None else parts.now + parts.ttl_s,
        run_id=gated.run_id,
        call_id=gated.call.id,
        thread_id=gated.thread_id,
        step=gated.step,
    )


async def covered_by_grant(store: Store, call: PolicyCall) -> Grant | None:
    """Take one use of a standing grant that covers the call; None when there is none."""
    for grant in await store.grants(active_at=call.now):
        if _covers(grant, call) and await store.use_grant(grant.id, call.now):
            return grant
    return None


async def still_covered(store: Store, grant: Grant, call: PolicyCall) -> bool:
    """Tell whether a grant that this very call has taken a use of holds still, for its next attempt."""
    kept = next((each for each in await store.grants() if each.id == grant.id), None)
    if kept is None or kept.revoked_at is not None or (kept.expires_at is not None and kept.expires_at <= call.now):
        return False
    return _covers(kept, call)


def _covers(grant: Grant, call: PolicyCall) -> bool:
    if grant.caller not in {None, call.caller.subject} or grant.run_id not in {None, call.run_id}:
        return False
    conditions = [Condition.of(each) for each in cast("list[Mapping[str, object]]", json.loads(grant.when))]
    return matches(grant.tool, call.tool.name) and fits(conditions, call.arguments)


async def denied_before(store: Store, call: PolicyCall) -> ApprovalRecord | None:
    """Find the same call of the same run that a person has denied: nobody is asked twice about it (case f16)."""
    if call.run_id is None:
        return None
    shown_arguments(call)  # what cannot be shown has been denied by nobody
    for approval in await store.approvals(state="denied", run_id=call.run_id):
        if approval.tool == call.tool.name and digest_of(json.loads(approval.shown)) == call.digest:
            return approval
    return None
