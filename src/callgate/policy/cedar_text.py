"""Read Cedar's text as far as cedarpy does not say: on which line a policy begins, and what it names that there is not."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, NamedTuple, cast

from callgate.tools.tool import Tool

__all__ = ("CedarWorld", "Statement", "faults_of", "statements")

_PART: Final = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|[^"/;]+|.', re.DOTALL)
_ATTRIBUTES: Final = {
    "context": frozenset({"arguments", "labels", "now", "run_id"}),
    "resource": frozenset({"kind", "tags"}),
}
_ACTIONS: Final = frozenset({"call", "call_with_approval"})


class Statement(NamedTuple):
    """Be one policy of a text, and the line (from 1) on which it begins."""

    line: int
    text: str


def statements(text: str) -> list[Statement]:
    """Part a text into its policies; comments go with the policy that they precede."""
    found: list[Statement] = []
    begun, line, first = 0, 1, 0
    for part in _PART.finditer(text):
        is_code = part[0].strip() != "" and not part[0].startswith("//")
        if is_code and not first:
            space = len(part[0]) - len(part[0].lstrip())
            first = line + part[0].count("\n", 0, space)
        line += part[0].count("\n")
        if part[0] == ";":
            found.append(Statement(first, text[begun : part.end()]))
            begun, first = part.end(), 0
    return [*found, Statement(first, text[begun:])] if first else found


@dataclass(frozen=True, slots=True)
class CedarWorld:
    """Say what policies may name: the types of entities, and with a catalog its tools, kinds, tags, labels and arguments."""

    types: frozenset[str]
    tools: frozenset[str]
    kinds: frozenset[str]
    tags: frozenset[str]
    labels: frozenset[str]
    arguments: frozenset[str] | None

    @classmethod
    def of(cls, catalog: Sequence[Tool[Any, Any]], types: frozenset[str]) -> "CedarWorld":
        """Make it of tools."""
        return cls(
            types,
            frozenset(tool.name for tool in catalog),
            frozenset(tool.kind for tool in catalog),
            frozenset(tag for tool in catalog for tag in tool.tags),
            frozenset(label for tool in catalog for label in tool.options.emits),
            _arguments_of(catalog),
        )

    def problem_of_entity(self, kind: str, name: str) -> str | None:
        """Tell what is wrong with an entity that a policy names."""
        if kind == "Action":
            return None if name in _ACTIONS else _unknown("action", name, _ACTIONS)
        if kind == "Tool":
            return None if name in self.tools else _unknown("tool", name, self.tools)
        return self.problem_of_type(kind)

    def problem_of_type(self, kind: str) -> str | None:
        """Tell what is wrong with a type of entities."""
        return None if kind in self.types else _unknown("type of entities", kind, self.types)

    def problem_of_attribute(self, way: Sequence[str]) -> str | None:
        """Tell what is wrong with an attribute, such as context.arguments.amount."""
        known = _ATTRIBUTES.get(way[0])
        if known is not None and len(way) == 2 and way[1] not in known:
            return _unknown(f"attribute of {way[0]}", way[1], known)
        if way[:2] == ["context", "arguments"] and len(way) == 3 and self.arguments is not None and way[2] not in self.arguments:
            return _unknown("argument", way[2], self.arguments)
        return None

    def problem_of_word(self, way: Sequence[str], word: str) -> str | None:
        """Tell what is wrong with a word that is compared with an attribute."""
        known = {("resource", "kind"): self.kinds, ("resource", "tags"): self.tags, ("context", "labels"): self.labels}
        words = known.get((way[0], way[1])) if len(way) == 2 else None
        return None if words is None or word in words else _unknown(way[1].removesuffix("s"), word, words)


def _arguments_of(catalog: Sequence[Tool[Any, Any]]) -> frozenset[str] | None:
    """Give the names of all arguments; None when a tool takes arguments of any name."""
    names: set[str] = set()
    for tool in catalog:
        schema = tool.input.schema
        properties = cast("Mapping[str, Any]", schema.get("properties", {}))
        if schema.get("additionalProperties", not properties) is not False or "patternProperties" in schema:
            return None
        names.update(properties)
    return frozenset(names)


def _unknown(kind: str, word: str, known: frozenset[str]) -> str:
    near = get_close_matches(word, sorted(known), 1, 0.6)
    hint = f"; the nearest is {near[0]!r}" if near else f"; known are {', '.join(sorted(known)[:10])}" if known else ""
    return f"there is no {kind} {word!r}{hint}"


# ── what a policy names, in Cedar's JSON ─────────────────────────────────────────────────────────────────────────────────


def faults_of(policy: Mapping[str, Any], world: CedarWorld) -> Iterator[str]:
    """Give what is wrong with a policy, in Cedar's JSON form."""
    for part in ("principal", "action", "resource"):
        scope = cast("Mapping[str, Any]", policy[part])
        for entity in [*([scope["entity"]] if "entity" in scope else ()), *scope.get("entities", ())]:
            yield from _some(world.problem_of_entity(str(entity["type"]), str(entity["id"])))
        inner = scope.get("in")
        if isinstance(inner, Mapping) and "entity" in inner:
            entity = cast("Mapping[str, Any]", inner)["entity"]
            yield from _some(world.problem_of_entity(str(entity["type"]), str(entity["id"])))
        if "entity_type" in scope:
            yield from _some(world.problem_of_type(str(scope["entity_type"])))
    for condition in policy["conditions"]:
        for node in _nodes(condition["body"]):
            yield from _faults_of_node(node, world)


def _some(problem: str | None) -> list[str]:
    return [] if problem is None else [problem]


def _nodes(value: object) -> Iterator[tuple[str, Any]]:
    """Give every expression inside of one, as its name and its parts."""
    waiting: list[object] = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            waiting += cast("list[object]", each)
        elif isinstance(each, Mapping):
            for name, parts in cast("Mapping[str, object]", each).items():
                yield name, parts
                waiting.append(parts)


def _faults_of_node(node: tuple[str, Any], world: CedarWorld) -> Iterator[str]:
    name, parts = node
    if name == "__entity":
        yield from _some(world.problem_of_entity(str(parts["type"]), str(parts["id"])))
    elif name == "is":
        yield from _some(world.problem_of_type(str(parts["entity_type"])))
    elif name in {".", "has"}:
        way = _way_of({".": parts})
        yield from _some(world.problem_of_attribute(way) if way else None)
    elif name in {"==", "!=", "contains", "containsAny", "containsAll"}:
        for one, other in ((parts["left"], parts["right"]), (parts["right"], parts["left"])):
            way = _way_of(one)
            for word in _words_of(other) if way else ():
                yield from _some(world.problem_of_word(way, word))


def _way_of(expression: Any) -> list[str]:
    """Give an attribute as its variable and names; nothing for another expression."""
    names: list[str] = []
    while isinstance(expression, Mapping) and "." in expression:
        access = cast("Mapping[str, Any]", expression)["."]
        names.insert(0, str(access["attr"]))
        expression = access["left"]
    variable = cast("Mapping[str, Any]", expression).get("Var") if isinstance(expression, Mapping) else None
    return [str(variable), *names] if variable is not None else []


def _words_of(expression: Any) -> list[str]:
    if not isinstance(expression, Mapping):
        return []
    node = cast("Mapping[str, Any]", expression)
    values = [cast("Mapping[str, Any]", each).get("Value") for each in node.get("Set", [node]) if isinstance(each, Mapping)]
    return [value for value in values if isinstance(value, str)]
