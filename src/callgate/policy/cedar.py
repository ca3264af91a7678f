"""`CedarPolicy`: policies in Cedar's language. It needs the extra `cedar`. Source: contract row A1, Cedar's reference.

A call is a request of `Caller::"subject"` (with a parent `Role::"name"` for each role) to do `Action::"call"` with
`Tool::"name"`. What the policies permit as that runs; what they permit only as `Action::"call_with_approval"` asks; the rest
is denied, and so is what cannot be evaluated. `resource.kind` and `resource.tags` are the tool's; `context` has
`arguments`, `labels`, `now` (seconds since the epoch) and `run_id` where there is one. Cedar has no floats: a number with a
fraction is a text there, and null is left out.
"""

import json
import math
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final, cast

from callgate.errors import PolicyError, UsageError
from callgate.policy.decision import Decision, PolicyCall
from callgate.policy.protocol import ToolPolicy

__all__ = ("CedarPolicy",)

_RUN: Final = 'Action::"call"'
_ASK: Final = 'Action::"call_with_approval"'
_LARGEST: Final = 2**63 - 1


def _cedar() -> Any:
    try:
        import cedarpy  # noqa: PLC0415 - an optional extra
    except ModuleNotFoundError as error:
        raise UsageError("CedarPolicy needs cedarpy: install callgate with its extra cedar") from error
    return cedarpy


class CedarPolicy(ToolPolicy):
    """Judge calls by Cedar policies, as text or, with `load`, from a file. `entities` are further ones, as Cedar's JSON.

    Raises:
        PolicyError: the text is no Cedar.
        UsageError: cedarpy is not installed.
    """

    def __init__(self, policies: str, *, entities: Iterable[Mapping[str, Any]] = (), file: str | None = None) -> None:
        self._cedar = _cedar()
        self._policies = policies
        self._entities = [dict(entity) for entity in entities]
        try:
            self._cedar.policies_to_json_str(policies)
        except ValueError as error:
            raise PolicyError(f"it is no Cedar: {error}", file=file) from error

    @classmethod
    def load(cls, path: str | PathLike[str], *, entities: Iterable[Mapping[str, Any]] = ()) -> "CedarPolicy":
        """Load policies from a file.

        Raises:
            PolicyError: it cannot be read, or is no Cedar.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PolicyError(f"it cannot be read: {type(error).__name__}", file=str(path)) from error
        return cls(text, entities=entities, file=str(path))

    def decide(self, call: PolicyCall, /) -> Decision:
        """Ask for the call as it is, and when that is not permitted, for the call with an approval."""
        entities = [*self._entities, *_entities_of(call)]
        context = _context_of(call)
        requests = [
            {"principal": _uid("Caller", call.caller.subject), "action": action, "resource": _uid("Tool", call.tool.name)}
            | {"context": context}
            for action in (_RUN, _ASK)
        ]
        run, ask = self._cedar.is_authorized_batch(requests, self._policies, entities)
        if _permits(run):
            return Decision.allow(rules=_rules_of(run))
        if _permits(ask):
            return Decision.ask("the policy wants a person to approve it", rules=_rules_of(ask))
        return Decision.deny("the policy does not permit it", rules=_rules_of(run))


def _permits(result: Any) -> bool:
    """Tell whether a request is permitted; one whose evaluation had an error is not (it fails closed)."""
    return bool(result.allowed) and not result.diagnostics.errors


def _rules_of(result: Any) -> tuple[str, ...]:
    return tuple(sorted(f"cedar:{reason}" for reason in result.diagnostics.reasons))


def _uid(kind: str, name: str) -> str:
    return f"{kind}::{json.dumps(name, ensure_ascii=False)}"


def _entities_of(call: PolicyCall) -> list[dict[str, Any]]:
    roles = [{"type": "Role", "id": role} for role in call.caller.roles]
    tool = {"kind": call.tool.kind, "tags": sorted(call.tool.tags)}
    return [
        {"uid": {"type": "Caller", "id": call.caller.subject}, "attrs": {}, "parents": roles},
        {"uid": {"type": "Tool", "id": call.tool.name}, "attrs": tool, "parents": []},
        *({"uid": role, "attrs": {}, "parents": []} for role in roles),
    ]


def _context_of(call: PolicyCall) -> dict[str, Any]:
    context: dict[str, Any] = {
        "arguments": _value_of(dict(call.arguments)),
        "labels": sorted(call.labels),
        "now": math.floor(call.now),
    }
    return context if call.run_id is None else {**context, "run_id": call.run_id}


def _value_of(value: object) -> Any:
    """Write a JSON value as one of Cedar's: it has texts, whole numbers of 64 bits, booleans, sets and records."""
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int) and abs(value) <= _LARGEST:
        return value
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        return {key: _value_of(item) for key, item in fields.items() if item is not None}
    if isinstance(value, list):
        return [_value_of(item) for item in cast("list[object]", value) if item is not None]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) <= _LARGEST else str(value)
