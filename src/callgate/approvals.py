"""What a person says of a call that waits, and what an approval covers. Source: contract rows A3, A5; docs/adr/0012."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast

from callgate.errors import UsageError

__all__ = ("Approve", "Decided", "Deny", "Edit", "approval_digest", "check_decision", "denial_text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Approve:
    """Let the call run as it was shown.

    `remember` makes a standing grant of it as well: for every call of the tool in the same run ("run"), or by the same
    caller ("caller"). A denial always beats a grant.
    """

    by: str
    remember: Literal["run", "caller"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deny:
    """Refuse the call; the model reads `reason` as the reviewer's words."""

    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Let the call run with other arguments (JSON text or a mapping): they are validated and judged by the policy first."""

    by: str
    arguments: str | Mapping[str, object] = field(repr=False)


Decided: TypeAlias = Approve | Deny | Edit


def check_decision(decision: object) -> Decided:
    """Give back a decision that is one.

    Raises:
        UsageError: it is something else, does not say by whom, or a part of it is of another type; nothing was decided.
    """
    if not isinstance(decision, Approve | Deny | Edit):
        raise UsageError(f"a decision is Approve(by=…), Deny(by=…) or Edit(by=…, arguments=…), not {type(decision).__name__}")
    by = cast("object", decision.by)
    if not isinstance(by, str) or not by:
        raise UsageError(f"a decision says by whom: by= must be a text that is not empty, not {by!r}")
    if isinstance(decision, Deny) and not isinstance(cast("object", decision.reason), str):
        raise UsageError(f"reason= must be a text, not {type(decision.reason).__name__}")
    if isinstance(decision, Edit) and not isinstance(cast("object", decision.arguments), str | Mapping):
        raise UsageError(f"arguments= must be JSON text or a mapping, not {type(decision.arguments).__name__}")
    if isinstance(decision, Approve) and decision.remember not in {None, "run", "caller"}:
        raise UsageError(f'remember= must be "run", "caller" or None, not {decision.remember!r}')
    return decision


def approval_digest(key: str, tool: str, fingerprint: str, arguments: Mapping[str, object], text: bytes) -> str:
    """Digest what an approval covers: this call, this tool as it is defined, these arguments (SHA-256 in hex).

    `arguments` are what a person sees; `text` is the JSON that is read when it runs, which holds secrets unmasked.
    """
    exact = hashlib.sha256(text).hexdigest()
    covered = json.dumps([key, tool, fingerprint, arguments, exact], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(covered.encode("utf-8", "surrogatepass")).hexdigest()


def denial_text(tool: str, by: str | None, reason: str) -> str:
    """Write what the model reads of a reviewer's refusal: not executed, by whom, in whose words, and what to do (case f16)."""
    words = f" The reviewer's words: {reason}" if reason else ""
    who = f" by the reviewer {by}" if by else ""
    return f"The call of tool {tool!r} was denied{who} and was not executed.{words} Do not repeat it unchanged."
