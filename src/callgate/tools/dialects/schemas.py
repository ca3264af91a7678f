"""Walk JSON Schema: which keywords hold schemas, and copies of a schema with its subschemas changed.

Every function here is pure and leaves its input alone. Source: JSON Schema draft 2020-12, core sections 10 and 11
(applicators, unevaluated), and the older keywords `definitions`, `dependencies`, `additionalItems` that schemas still use.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeGuard

__all__ = (
    "ANNOTATIONS",
    "JsonSchema",
    "children",
    "is_array",
    "is_object",
    "is_schema",
    "map_children",
    "nesting",
    "references",
    "thaw",
    "types_of",
    "union_of",
    "without",
    "without_refused",
)

JsonSchema = dict[str, Any]

ANNOTATIONS = frozenset(("$comment", "default", "deprecated", "description", "examples", "readOnly", "title", "writeOnly"))
"""Keywords that describe a value and never refuse one."""

_MAPS = frozenset(("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"))
_LISTS = frozenset(("allOf", "anyOf", "items", "oneOf", "prefixItems"))
_SINGLES = frozenset(
    (
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    )
)


def is_object(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Tell whether the value is a JSON object, frozen ones included."""
    return isinstance(value, Mapping)


def is_array(value: object) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    """Tell whether the value is a JSON array, frozen ones included."""
    return isinstance(value, (list, tuple))


def is_schema(value: object) -> bool:
    """Tell whether the value can stand where a schema is expected."""
    return isinstance(value, bool) or is_object(value)


def thaw(value: object) -> Any:
    """Copy a JSON value into plain dicts and lists, all the way down; key order stays."""
    if is_object(value):
        return {key: thaw(inner) for key, inner in value.items()}
    if is_array(value):
        return [thaw(inner) for inner in value]
    return value


def without(schema: Mapping[str, Any], *keywords: str) -> JsonSchema:
    """Copy the schema, one level deep, without these keywords."""
    return {key: value for key, value in schema.items() if key not in keywords}


def without_refused(schema: Mapping[str, Any]) -> JsonSchema:
    """Copy the schema without the properties that it declares only to refuse them (`"name": false`)."""
    properties = schema.get("properties")
    if not is_object(properties) or False not in properties.values():
        return dict(schema)
    kept = {name: inner for name, inner in properties.items() if inner is not False}
    required = [name for name in schema.get("required", ()) if name in kept or name not in properties]
    return {**schema, "properties": kept, **({"required": required} if "required" in schema else {})}


def children(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Give each direct subschema with the keyword that holds it."""
    for keyword, value in schema.items():
        if keyword in _MAPS and is_object(value):
            yield from ((keyword, inner) for inner in value.values() if is_schema(inner))
        elif keyword in _LISTS and is_array(value):
            yield from ((keyword, inner) for inner in value if is_schema(inner))
        elif keyword in _SINGLES and is_schema(value):
            yield keyword, value


def map_children(schema: Mapping[str, Any], change: Callable[[str, Any], Any]) -> JsonSchema:
    """Copy the schema with each direct subschema replaced by `change(keyword, subschema)`."""
    return {keyword: _changed(keyword, value, change) for keyword, value in schema.items()}


def _changed(keyword: str, value: Any, change: Callable[[str, Any], Any]) -> Any:
    if keyword in _MAPS and is_object(value):
        return {name: change(keyword, inner) if is_schema(inner) else thaw(inner) for name, inner in value.items()}
    if keyword in _LISTS and is_array(value):
        return [change(keyword, inner) if is_schema(inner) else thaw(inner) for inner in value]
    if keyword in _SINGLES and is_schema(value):
        return change(keyword, value)
    return thaw(value)


def references(schema: object) -> Iterator[str]:
    """Give each `$ref` of the schema and of everything below it."""
    pending = [schema]
    while pending:
        node = pending.pop()
        if is_object(node):
            if isinstance(node.get("$ref"), str):
                yield node["$ref"]
            pending.extend(inner for _, inner in children(node))


def types_of(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Give the types that the schema names, or none when it names none."""
    named = schema.get("type")
    if isinstance(named, str):
        return (named,)
    return tuple(named) if is_array(named) else ()


def union_of(schema: Mapping[str, Any]) -> tuple[Any, ...]:
    """Give the branches of `anyOf`, or else of `oneOf`, or none."""
    for keyword in ("anyOf", "oneOf"):
        branches = schema.get(keyword)
        if is_array(branches) and branches:
            return tuple(branches)
    return ()


def nesting(value: object) -> int:
    """Measure how many objects and arrays lie inside each other, without recursion."""
    deepest, pending = 0, [(value, 1)]
    while pending:
        node, depth = pending.pop()
        inner = tuple(node.values()) if is_object(node) else node if is_array(node) else None
        if inner is not None:
            deepest = max(deepest, depth)
            pending.extend((one, depth + 1) for one in inner)
    return deepest
