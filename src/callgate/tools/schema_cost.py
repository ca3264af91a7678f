"""Measure what a JSON Schema of shared references costs a validator, before it is asked.

A validator looks at each alternative again wherever it is referred to: sixteen levels of two references to the next make
65,536 looks at one value. A yes or no takes some nanoseconds for each, an explanation some microseconds, so the first is
bounded when a tool is defined and the second when arguments were refused.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, cast
from urllib.parse import unquote

__all__ = ("has_costly_errors", "most_alternatives")

_Node: TypeAlias = Mapping[str, object]

_MAX_VISITS: Final = 100_000
_MAX_REPEATS: Final = 10_000
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS: Final = ("$anchor", "$dynamicAnchor")
_SAME_PLACE_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SAME_PLACE: Final = ("else", "if", "not", "then")
_SAME_PLACE_MAPS: Final = ("dependencies", "dependentSchemas")
_OTHER_PROPERTIES: Final = ("additionalProperties", "unevaluatedProperties")
_EVERY_ITEM: Final = ("additionalItems", "contains", "items", "unevaluatedItems")
_LISTED_ITEMS: Final = ("items", "prefixItems")


def most_alternatives(schema: _Node) -> int:
    """Count the subschemas that one value is looked at by, at worst; a reference to what it stands in counts once."""
    index = _Index.of(schema)
    counts: dict[int, int] = {}
    opened: set[int] = set()
    waiting = list(index.nodes)
    while waiting:
        node = waiting[-1]
        inner = list(_same_place(node, index))
        pending = [part for part in inner if id(part) not in counts and id(part) not in opened]
        if pending and id(node) not in counts:
            opened.add(id(node))
            waiting.extend(pending)
            continue
        waiting.pop()
        counts.setdefault(id(node), 1 + sum(counts.get(id(part), 0) for part in inner))
    return max(counts.values(), default=0)


def has_costly_errors(schema: _Node, value: object) -> bool:
    """Tell whether explaining why `value` does not fit would take more than some tenths of a second.

    It would when 10,000 times a subschema is come upon for a place in the value that it was already held against, or
    when there are more than 100,000 such pairs to look at.
    """
    index = _Index.of(schema)
    if not index.has_references:
        return False
    return _is_costly(index, _Visit(schema, value, ()))


@dataclass(frozen=True, slots=True)
class _Visit:
    """Hold a subschema and the value it is held against; `place` is where that is, `followed` the schemas it came by there."""

    node: _Node
    value: object
    place: tuple[object, ...]
    followed: frozenset[int] = frozenset()


def _is_costly(index: "_Index", first: _Visit) -> bool:
    waiting, seen, visits = [first], set[tuple[object, ...]](), 0
    while waiting:
        visit = waiting.pop()
        visits += 1
        seen.add((id(visit.node), *visit.place))
        if visits > _MAX_VISITS or visits - len(seen) > _MAX_REPEATS:
            return True
        followed = visit.followed | {id(visit.node)}
        parts = (part for part in _same_place(visit.node, index) if id(part) not in followed)
        waiting.extend(_Visit(part, visit.value, visit.place, followed) for part in parts)
        waiting.extend(_inside(visit.node, visit.value))
    return False


def _inside(node: _Node, value: object) -> Iterator[_Visit]:
    if isinstance(value, dict):
        yield from _properties(node, cast("dict[str, object]", value))
    elif isinstance(value, list):
        yield from _items(node, cast("list[object]", value))


def _properties(node: _Node, value: dict[str, object]) -> Iterator[_Visit]:
    declared = _map(node.get("properties"))
    others = _schemas(node.get(word) for word in _OTHER_PROPERTIES)
    patterns = _schemas(_map(node.get("patternProperties")).values())
    for name, part in value.items():
        own = _schemas([declared[name]]) if name in declared else others
        yield from (_Visit(schema, part, (id(value), name)) for schema in (*own, *patterns))


def _items(node: _Node, value: list[object]) -> Iterator[_Visit]:
    every = _schemas(node.get(word) for word in _EVERY_ITEM)
    for number, part in enumerate(value):
        own = _schemas(listed[number] for word in _LISTED_ITEMS if number < len(listed := _list(node.get(word))))
        yield from (_Visit(schema, part, (id(value), number)) for schema in (*own, *every))


def _same_place(node: _Node, index: "_Index") -> Iterator[_Node]:
    """Give the subschemas that look at the same value as `node` does."""
    for word in _REFERENCES:
        if isinstance(reference := node.get(word), str):
            yield from _schemas([index.resolve(reference)])
    for word in _SAME_PLACE_LISTS:
        yield from _schemas(_list(node.get(word)))
    yield from _schemas(node.get(word) for word in _SAME_PLACE)
    for word in _SAME_PLACE_MAPS:
        yield from _schemas(_map(node.get(word)).values())


@dataclass(frozen=True, slots=True)
class _Index:
    """Hold every object in a schema, and those that can be referred to by name; data in it does no harm there."""

    root: _Node
    nodes: list[_Node] = field(default_factory=list[_Node])
    anchors: dict[str, _Node] = field(default_factory=dict[str, _Node])

    @classmethod
    def of(cls, schema: _Node) -> "_Index":
        index = cls(schema)
        waiting: list[object] = [schema]
        while waiting:
            part = waiting.pop()
            if isinstance(part, list):
                waiting.extend(cast("list[object]", part))
            elif isinstance(part, Mapping):
                index._add(cast("_Node", part))
                waiting.extend(cast("_Node", part).values())
        return index

    def _add(self, node: _Node) -> None:
        self.nodes.append(node)
        for word in _ANCHORS:
            if isinstance(name := node.get(word), str):
                self.anchors.setdefault(name, node)
        if isinstance(name := node.get("$id"), str) and name.startswith("#"):  # an anchor of draft 7
            self.anchors.setdefault(name[1:], node)

    @property
    def has_references(self) -> bool:
        return any(word in node for node in self.nodes for word in _REFERENCES)

    def resolve(self, reference: str) -> object:
        """Give what a local reference points to, or None: one into a part with an `$id` of its own is not counted."""
        pointer = unquote(reference.removeprefix("#"))
        if pointer and not pointer.startswith("/"):
            return self.anchors.get(pointer)
        found: object = self.root
        for step in pointer.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            found = _list(found)[int(key)] if key.isdecimal() and _holds(found, int(key)) else _map(found).get(key)
        return found


def _holds(listed: object, number: int) -> bool:
    return number < len(_list(listed))


def _schemas(parts: Iterable[object]) -> list[_Node]:
    return [cast("_Node", part) for part in parts if isinstance(part, Mapping)]


def _map(value: object) -> _Node:
    return cast("_Node", value) if isinstance(value, Mapping) else {}


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []
