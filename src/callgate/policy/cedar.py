"""`CedarPolicy`: policies in Cedar's language. It needs the extra `cedar`. Source: contract row A1, Cedar's reference.

A call is a request of `Caller::"subject"` (with a parent `Role::"name"` for each role) to do `Action::"call"` with
`Tool::"name"`. What the policies permit as that runs; what they permit only as `Action::"call_with_approval"` asks; the rest
is denied, and so is what cannot be evaluated. `resource.kind` and `resource.tags` are the tool's; `context` has
`arguments`, `labels`, `now` (seconds since the epoch) and `run_id` where there is one. Cedar has no floats: a number with a
fraction is a text there, and so is a whole number of more than 64 bits; null is left out, and a list is a set. The
annotation `@reason` is what the person or the model reads, and `@id` names a policy for good: an approval covers the ASK of
the policies that permitted it, by name.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any, Final, cast

from callgate.errors import PolicyError, UsageError
from callgate.policy.cedar_text import CedarWorld, Statement, faults_of, statements
from callgate.policy.decision import Decision, PolicyCall
from callgate.policy.protocol import ToolPolicy
from callgate.tools.json_forms import MASKED
from callgate.tools.tool import Tool, as_tool

__all__ = ("CedarPolicy",)

_RUN: Final = {"type": "Action", "id": "call"}
_ASK: Final = {"type": "Action", "id": "call_with_approval"}
_LARGEST: Final = 2**63 - 1
_OWN_TYPES: Final = frozenset({"Caller", "Role", "Tool", "Action"})
_ESCAPES: Final = frozenset({"__entity", "__extn", "__expr"})
"""Keys by which Cedar's JSON says that an object is no object: an argument of that form could pose as an entity."""


def _cedar() -> Any:
    try:
        import cedarpy  # noqa: PLC0415 - an optional extra
    except ModuleNotFoundError as error:
        raise UsageError("CedarPolicy needs cedarpy: install callgate with its extra cedar") from error
    return cedarpy


@dataclass(frozen=True, slots=True)
class _Named:
    """Be one policy: its name, what may be said of it, where it begins, and its JSON form."""

    name: str
    reason: str
    line: int | None
    facts: Mapping[str, Any]


class _NoForm(ValueError):
    """Refuse a value that has no form in Cedar."""


class CedarPolicy(ToolPolicy):
    """Judge calls by Cedar policies, as text, or from a file as a path.

    `entities` are further ones, as Cedar's JSON; what they say of a caller, a role or a tool is added to what a call says.
    With `tools` (or when a gate is made) the policies are checked: an action, tool, kind, tag, label, argument or type of
    entities that there is not is refused. `schema` is a schema of Cedar that they are validated against as well.

    Raises:
        PolicyError: the text cannot be read, is no Cedar, or names what there is not; the error says where.
        UsageError: cedarpy is not installed.
    """

    def __init__(
        self,
        policies: str | PathLike[str],
        *,
        entities: Iterable[Mapping[str, Any]] = (),
        tools: Iterable[object] | None = None,
        schema: str | Mapping[str, Any] | None = None,
        file: str | None = None,
    ) -> None:
        self._cedar = _cedar()
        self._file = file if isinstance(policies, str) else str(policies)
        self._text = policies if isinstance(policies, str) else _read(policies)
        self._entities = _by_uid(entities)
        self._check_entities()
        parts = statements(self._text)
        self._policies = self._parsed(parts)
        self._named = self._names(parts)
        if schema is not None:
            self._validate(dict(schema) if isinstance(schema, Mapping) else schema)
        if tools is not None:
            self.bind([as_tool(tool) for tool in tools])

    @classmethod
    def load(
        cls, path: str | PathLike[str], *, entities: Iterable[Mapping[str, Any]] = (), tools: Iterable[object] | None = None
    ) -> "CedarPolicy":
        """Load policies from a file.

        Raises:
            PolicyError: it cannot be read, or is no Cedar.
        """
        return cls(Path(path), entities=entities, tools=tools)

    @property
    def rules(self) -> tuple[str, ...]:
        """The names of the policies, in their order."""
        return tuple(policy.name for policy in self._named.values())

    @property
    def digest(self) -> str:
        """The same for the same policies and entities (SHA-256 in hex)."""
        covered = [self._text, sorted(json.dumps(each, sort_keys=True) for each in self._entities.values())]
        return sha256(json.dumps(covered).encode()).hexdigest()

    def _check_entities(self) -> None:
        """Refuse entities that Cedar does not take: it would deny every call, and not say why."""
        nobody, no_policies = {"type": "Caller", "id": ""}, self._cedar.PolicySet.from_str("")
        request = {"principal": nobody, "action": _RUN, "resource": {"type": "Tool", "id": ""}, "context": {}}
        try:
            (result,) = self._cedar.is_authorized_batch([request], no_policies, list(self._entities.values()))
        except (TypeError, ValueError, RecursionError) as error:
            raise PolicyError(f"the entities are no JSON: {error}") from error
        for fault in result.diagnostics.errors:
            raise PolicyError(f"the entities are not Cedar's: {fault.rpartition(']: ')[2]}")

    def _parsed(self, parts: Sequence[Statement]) -> Any:
        try:
            return self._cedar.PolicySet.from_str(self._text)
        except ValueError as error:
            wrong, reason = self._first_wrong(parts, error)
            raise PolicyError(f"it is no Cedar: {reason}", file=self._file, line=wrong) from error

    def _first_wrong(self, parts: Sequence[Statement], otherwise: ValueError) -> tuple[int | None, ValueError]:
        for part in parts:
            try:
                self._cedar.PolicySet.from_str(part.text)
            except ValueError as error:
                return part.line, error
        return None, otherwise

    def _names(self, parts: Sequence[Statement]) -> dict[str, _Named]:
        """Give the policies by the ids that Cedar makes for them: their places in the text."""
        try:
            facts = json.loads(self._cedar.policies_to_json_str(self._text))
        except RecursionError as error:
            raise PolicyError("it cannot be read: it is nested too deep", file=self._file) from error
        lines = {f"policy{place}": part.line for place, part in enumerate(parts)}
        for key in facts["templates"]:
            raise PolicyError("a template is without effect; write out its policies", file=self._file, line=lines.get(key))
        named: dict[str, _Named] = {}
        seen: set[str] = set()
        for key, policy in sorted(facts["staticPolicies"].items(), key=lambda item: int(item[0].removeprefix("policy"))):
            notes = policy.get("annotations", {})
            name = notes.get("id") or key
            if name in seen:
                raise PolicyError(f"two policies have the id {name!r}", file=self._file, line=lines.get(key))
            seen.add(name)
            named[key] = _Named(f"cedar:{name}", notes.get("reason") or "", lines.get(key), policy)
        return named

    def _validate(self, schema: str | dict[str, Any]) -> None:
        checked = self._cedar.validate_policies(self._text, schema)
        for error in checked.errors:
            line = self._named[error.policy_id].line if error.policy_id in self._named else None
            raise PolicyError(error.error, file=self._file, line=line)

    def bind(self, catalog: Sequence[Tool[Any, Any]], /) -> None:
        """Check that the policies name what there is; an empty catalog closes nothing.

        Raises:
            PolicyError: one names what there is not.
        """
        if not catalog:
            return
        world = CedarWorld.of(catalog, _OWN_TYPES | {kind for kind, _ in self._entities})
        for policy in self._named.values():
            for fault in faults_of(policy.facts, world):
                raise PolicyError(f"policy {policy.name!r}: {fault}", file=self._file, line=policy.line)

    def decide(self, call: PolicyCall, /) -> Decision:
        """Ask for the call as it is, and when that is not permitted, for the call with an approval."""
        try:
            context = _context_of(call)
        except _NoForm as error:
            return Decision.deny(f"its arguments cannot be put to the policy: {error}")
        caller, tool = _entity(("Caller", call.caller.subject)), _entity(("Tool", call.tool.name))
        requests = [{"principal": caller, "action": action, "resource": tool, "context": context} for action in (_RUN, _ASK)]
        run, ask = self._cedar.is_authorized_batch(requests, self._policies, self._entities_of(call))
        if _permits(run):
            return Decision.allow(rules=self._rules_of(run))
        if _permits(ask):
            return Decision.ask(self._reason_of(ask) or "the policy wants a person to approve it", rules=self._rules_of(ask))
        forbidden = self._reason_of(run) or self._reason_of(ask)
        return Decision.deny(forbidden or "the policy does not permit it", rules=self._rules_of(run) or self._rules_of(ask))

    def _reason_of(self, result: Any) -> str:
        reasons = (self._named[reason].reason for reason in sorted(result.diagnostics.reasons) if reason in self._named)
        return "; ".join(dict.fromkeys(reason for reason in reasons if reason))

    def _rules_of(self, result: Any) -> tuple[str, ...]:
        named = self._named
        return tuple(sorted(named[key].name if key in named else f"cedar:{key}" for key in result.diagnostics.reasons))

    def _entities_of(self, call: PolicyCall) -> list[dict[str, Any]]:
        """Give the host's entities with what the call says of its caller, roles and tool."""
        found = dict(self._entities)
        roles = [("Role", role) for role in dict.fromkeys(call.caller.roles)]
        tool: dict[str, Any] = {"kind": call.tool.kind, "tags": sorted(call.tool.tags)}
        ours: list[tuple[tuple[str, str], dict[str, Any], list[tuple[str, str]]]] = [
            (("Caller", call.caller.subject), {}, roles),
            (("Tool", call.tool.name), tool, []),
            *((role, {}, []) for role in roles),
        ]
        for uid, attributes, parents in ours:
            known: Mapping[str, Any] = found.get(uid, {})
            found[uid] = {
                **known,
                "uid": _entity(uid),
                "attrs": {**known.get("attrs", {}), **attributes},
                "parents": [*known.get("parents", ()), *map(_entity, parents)],
            }
        return list(found.values())


def _read(path: PathLike[str]) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(f"it cannot be read: {type(error).__name__}", file=str(path)) from error


def _by_uid(entities: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for entity in entities:
        if not isinstance(cast("object", entity), Mapping):
            raise PolicyError(f"entities are a list of tables with uid, attrs and parents, not {entity!r}")
        uid = _uid_of(entity)
        if uid in found:
            raise PolicyError(f"two entities have the uid {uid[0]}::{json.dumps(uid[1])}")
        found[uid] = dict(entity)
    return found


def _uid_of(entity: Mapping[str, Any]) -> tuple[str, str]:
    uid: Any = entity.get("uid")
    try:
        named: Any = uid.get("__entity", uid)
        return str(named["type"]), str(named["id"])
    except (AttributeError, KeyError, TypeError) as error:
        raise PolicyError(f'an entity needs a uid such as {{"type": "Caller", "id": "alice"}}, not {uid!r}') from error


def _entity(uid: tuple[str, str]) -> dict[str, str]:
    return {"type": uid[0], "id": uid[1]}


def _permits(result: Any) -> bool:
    """Tell whether a request is permitted; one whose evaluation had an error is not (it fails closed)."""
    return bool(result.allowed) and not result.diagnostics.errors


def _context_of(call: PolicyCall) -> dict[str, Any]:
    context: dict[str, Any] = {
        "arguments": _value_of(dict(call.arguments)),
        "labels": sorted(call.labels),
        "now": math.floor(call.now),
    }
    return context if call.run_id is None else {**context, "run_id": call.run_id}


def _value_of(value: object) -> Any:
    """Write a JSON value as one of Cedar's: it has texts, whole numbers of 64 bits, booleans, sets and records.

    What is null and what is secret is left out: a policy that asks for it cannot be evaluated, and then nothing is permitted.
    """
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int) and abs(value) <= _LARGEST:
        return value
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        if not _ESCAPES.isdisjoint(fields):
            raise _NoForm(f"an object must not have the key {min(_ESCAPES.intersection(fields))!r}")
        return {key: _value_of(item) for key, item in fields.items() if item is not None and item != MASKED}
    if isinstance(value, list):
        return [_value_of(item) for item in cast("list[object]", value) if item is not None and item != MASKED]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) <= _LARGEST else str(value)
