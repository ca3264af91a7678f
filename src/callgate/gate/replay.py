"""Answer a call from the journal: what became of it decides whether it may run again. Source: contract row A5, cases f18, g9.

asked       Pending, until somebody decides            started, not ended   runs elsewhere: Failed (409)
finished    its stored outcome, replayed               unknown, cancelled   again if the tool may be repeated
"""

import json
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast

from callgate.errors import ConflictError, OutcomeUnknownError
from callgate.gate.content import StoredError, blocks_of
from callgate.gate.outcomes import Denied, Failed, Outcome, Succeeded
from callgate.store.records import JournalRecord
from callgate.values import ToolCall

__all__ = ("Past", "past_of", "replayed")

PastState: TypeAlias = Literal["new", "asked", "running", "ended", "interrupted"]
_FORGOTTEN: Final = "It ran before, and its result is not kept any more. It is not run again."
_ELSEWHERE: Final = "This very call is being run elsewhere at the moment, and is not run twice."


@dataclass(frozen=True, slots=True)
class Past:
    """Say what became of a call so far, and which place in the journal is the next one that is free.

    "interrupted" is a call that was started and whose end is not known or was a cancellation; `repeatable` says that its
    tool may run again then.
    """

    state: PastState
    next_number: int
    attempts: int
    repeatable: bool
    first: JournalRecord | None
    last: JournalRecord | None


def past_of(records: tuple[JournalRecord, ...]) -> Past:
    """Read the records of a call."""
    if not records:
        return Past("new", 0, 0, repeatable=False, first=None, last=None)
    last = max(records, key=lambda record: (record.number, record.event in {"finished", "unknown"}))
    starts = [record for record in records if record.event == "started"]
    repeatable = bool(starts) and starts[-1].repeatable
    return Past(_state_of(last), last.number + 1, len(starts), repeatable, records[0], last)


def _state_of(last: JournalRecord) -> PastState:
    match last.event:
        case "asked":
            return "asked"
        case "started":
            return "running"
        case "unknown":
            return "interrupted"
        case "finished":
            return "interrupted" if last.status in {"cancelled", "retried"} else "ended"


def replayed(call: ToolCall, past: Past) -> Outcome:
    """Give the outcome of a call that is not run again."""
    last = past.last
    assert last is not None
    if past.state == "running":
        return Failed(call, _ELSEWHERE, ConflictError(_ELSEWHERE), replayed=True)
    if last.event == "unknown":
        unknown = OutcomeUnknownError(last.tool)
        return Failed(call, unknown.user_message, unknown, replayed=True)
    content: dict[str, Any] = {} if last.content is None else json.loads(last.content)
    if "text" not in content:
        gone = StoredError(_FORGOTTEN, code="result_forgotten", status=410)
        return Failed(call, _FORGOTTEN, gone, replayed=True)
    return _outcome_of(call, last, content)


def _outcome_of(call: ToolCall, last: JournalRecord, content: dict[str, Any]) -> Outcome:
    text = cast("str", content["text"])
    if last.status in {"succeeded", "dry_run"}:
        value = content["value"] if "value" in content else _value_of(text)
        return Succeeded(call, text, value, blocks_of(content.get("blocks")), replayed=True)
    facts = cast("dict[str, Any]", content.get("error") or {})
    error = StoredError(str(facts.get("message", text)), code=str(facts.get("code")), status=int(facts.get("status", 500)))
    if last.status == "denied":
        return Denied(call, text, error, content.get("by"), str(content.get("reason", "")), replayed=True)
    return Failed(call, text, error, replayed=True)


def _value_of(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
