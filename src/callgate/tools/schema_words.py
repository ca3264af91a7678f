"""Read a JSON Schema for words about one place of the arguments: what it admits there, and which names it knows.

Only local references are followed, and recursion is cut off: these are words for a message, not a check.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, cast

from callgate.tools.paths import Step, Steps

__all__ = (
    "DATE",
    "DATETIME",
    "DURATION",
    "FORMATS",
    "KINDS",
    "NOWHERE",
    "TIME",
    "Schema",
    "admits",
    "children",
    "clipped",
    "counted",
    "either",
    "filled",
    "is_union",
    "known_names",
    "listed",
    "phrase_at",
    "resolved",
    "stepped",
    "value_at",
)

Schema: TypeAlias = Mapping[str, object]

_MAX_CHOICES: Final = 20
_MAX_PHRASE: Final = 400
_MAX_NODES: Final = 64
NOWHERE: Final = object()
"""Stands for the value at a place that the arguments do not have."""

KINDS: Final = {
    "array": "a list",
    "boolean": "true or false",
    "integer": "an integer",
    "null": "null",
    "number": "a number",
    "object": "an object",
    "string": "text",
}
DATE: Final = "a date as YYYY-MM-DD"
TIME: Final = "a time as HH:MM:SS"
DATETIME: Final = "a date and time as YYYY-MM-DDTHH:MM:SS, with Z or an offset where a time zone matters"
DURATION: Final = "a duration in ISO 8601, such as PT1H30M"
FORMATS: Final = {
    "date": DATE,
    "date-time": DATETIME,
    "duration": DURATION,
    "email": "an e-mail address",
    "ipv4": "an IPv4 address",
    "ipv6": "an IPv6 address",
    "path": "a path as text",
    "time": TIME,
    "uri": "a URL",
    "uuid": "a UUID",
}
_SINGULAR: Final = {
    "bytes": "byte",
    "characters": "character",
    "decimal places": "decimal place",
    "digits": "digit",
    "entries": "entry",
    "items": "item",
}
_COUNTED: Final = re.compile(rf"\{{(?P<fact>\w+)\}} (?P<units>{'|'.join(_SINGULAR)})\b")


def _phrase_of(node: object, root: Schema) -> str:
    """Say in a few words what a schema admits: "an integer", "one of 'a', 'b'", "a list or null"."""
    return either(_phrase(leaf) for leaf in _alternatives(node, root)) or "a value"


def _phrase(node: Schema) -> str:
    if "const" in node:
        return listed([node["const"]])
    if isinstance(values := node.get("enum"), list):
        return listed(cast("list[object]", values))
    if (form := FORMATS.get(str(node.get("format", "")))) is not None:
        return form
    if node.get("contentEncoding") == "base64":
        return "base64 text"
    kinds = node.get("type", "object" if "properties" in node else "")
    return either(KINDS.get(str(kind), "a value") for kind in _as_list(kinds) or [kinds])


def listed(values: Sequence[object]) -> str:
    """Name the admitted values of an enum as "one of …", a single one alone."""
    shown = [_literal(value) for value in values[:_MAX_CHOICES]]
    if len(values) > _MAX_CHOICES:
        shown.append(f"{len(values) - _MAX_CHOICES} more")
    return shown[0] if len(shown) == 1 else clipped(f"one of {', '.join(shown)}")


def _literal(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def resolved(node: object, root: Schema) -> Schema:
    """Follow local references, as many as a sane schema chains."""
    for _ in range(8):
        if not isinstance(node, Mapping):
            return {}
        reference = cast("Schema", node).get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#"):
            break
        node = _pointed_at(root, reference)
    return cast("Schema", node) if isinstance(node, Mapping) else {}


def _pointed_at(root: object, reference: str) -> object:
    for step in reference.removeprefix("#").removeprefix("/").split("/"):
        if step and isinstance(root, Mapping):
            root = cast("Schema", root).get(step.replace("~1", "/").replace("~0", "~"))
    return root


def _alternatives(node: object, root: Schema) -> list[Schema]:
    """Flatten anyOf, oneOf and allOf into the plain schemas inside, without end for none: recursion is cut off."""
    found: list[Schema] = []
    waiting: list[object] = [node]
    while waiting and len(found) < _MAX_NODES:
        current = resolved(waiting.pop(0), root)
        inner = [part for word in ("anyOf", "oneOf", "allOf") for part in _as_list(current.get(word))][:_MAX_NODES]
        if inner and len(waiting) < _MAX_NODES:
            waiting.extend(inner)
        if not inner or "properties" in current:
            found.append(current)
    return found


def _as_list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def children(nodes: Iterable[object], step: Step, root: Schema) -> list[object]:
    """Give the schemas of what is at key or position `step` in values of `nodes`."""
    return [child for node in nodes for leaf in _alternatives(node, root) for child in _child(leaf, step)][:_MAX_NODES]


def _child(node: Schema, step: Step) -> Iterator[object]:
    if isinstance(step, int):
        prefix = _as_list(node.get("prefixItems"))
        yield prefix[step] if step < len(prefix) else node.get("items", {})
        return
    properties = node.get("properties")
    if isinstance(properties, Mapping) and step in properties:
        yield cast("Schema", properties)[step]
    elif isinstance(node.get("additionalProperties"), Mapping):
        yield node["additionalProperties"]


def _nodes_at(steps: Steps, schema: Schema) -> list[object]:
    nodes: list[object] = [schema]
    for step in steps:
        nodes = children(nodes, step, schema)
    return nodes


def phrase_at(steps: Steps, schema: Schema) -> str:
    """Say in a few words what the schema admits at a place."""
    return either(_phrase_of(node, schema) for node in _nodes_at(steps, schema)) or "a value"


def known_names(steps: Steps, schema: Schema) -> list[str]:
    """Give the names that an object at a place may have."""
    leaves = (leaf for node in _nodes_at(steps, schema) for leaf in _alternatives(node, schema))
    return list(dict.fromkeys(name for leaf in leaves for name in cast("Schema", leaf.get("properties", {}))))


def value_at(steps: Steps, arguments: object) -> object:
    """Give the value at a place, or NOWHERE."""
    value = arguments
    for step in steps:
        value = stepped(value, step)
    return value


def stepped(value: object, step: Step) -> object:
    """Give what `value` has at key or position `step`, or NOWHERE."""
    if isinstance(value, Mapping):
        return cast("Mapping[object, object]", value).get(step, NOWHERE)
    if isinstance(value, list | tuple) and isinstance(step, int) and step < len(cast("Sequence[object]", value)):
        return cast("Sequence[object]", value)[step]
    return NOWHERE


def is_union(node: object, root: Schema) -> bool:
    """Tell whether a schema leaves a choice between several forms, null not counted."""
    union = resolved(node, root)
    branches = _as_list(union.get("anyOf")) + _as_list(union.get("oneOf"))
    return sum(resolved(branch, root).get("type") != "null" for branch in branches) > 1


def either(phrases: Iterable[str]) -> str:
    """Join alternatives, each named once."""
    return clipped(" or ".join(dict.fromkeys(phrases)))


def clipped(phrase: str) -> str:
    """Keep a phrase short enough for a message."""
    return phrase if len(phrase) <= _MAX_PHRASE else f"{phrase[:_MAX_PHRASE]}…"


class _Facts(dict[str, object]):
    def __missing__(self, name: str) -> str:
        return f"its {name}"


def filled(template: str, facts: Mapping[str, object]) -> str:
    """Fill a phrase with a validator's facts, "{n} items" as `counted` does; one that a later version lacks is named instead."""
    worded = _COUNTED.sub(lambda found: f"{{{found['fact']}}} {_units(facts.get(found['fact']), found['units'])}", template)
    return clipped(worded.format_map(_Facts(facts)))


def counted(number: int, units: str) -> str:
    """Write a number of units, which are given in the plural: "2 items", "1 item"."""
    return f"{number} {_units(number, units)}"


def _units(number: object, units: str) -> str:
    return _SINGULAR.get(units, units) if number == 1 else units


_PYTHON_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int,),
    "null": (type(None),),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
}


def admits(node: object, value: object, root: Schema) -> bool:
    """Tell whether a value is of the kind, and of the values, that a schema admits. Bounds are not looked at."""
    return any(_leaf_admits(leaf, value) for leaf in _alternatives(node, root))


def _leaf_admits(leaf: Schema, value: object) -> bool:
    if "const" in leaf or "enum" in leaf:
        return any(type(known) is type(value) and known == value for known in _as_list(leaf.get("enum", [leaf.get("const")])))
    kinds = leaf.get("type")
    if kinds is None:
        return True
    names = [str(kind) for kind in _as_list(kinds) or [kinds]]
    if isinstance(value, bool):
        return "boolean" in names
    return any(isinstance(value, _PYTHON_KINDS.get(name, ())) for name in names)
