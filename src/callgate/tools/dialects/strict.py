"""Write schemas for OpenAI's strict mode, in which the model cannot but fit them.

Source: OpenAI guide "Structured model outputs", section "Supported schemas" (2026): the root is an object and no `anyOf`;
every object closes itself with `"additionalProperties": false` and requires all its properties, an optional one being a union
with null; `anyOf`, `$ref`, `$defs` and recursion are supported; `allOf`, `oneOf`, `not`, `if`, `dependentRequired`,
`dependentSchemas`, `patternProperties`, `default` are not; 5,000 properties, 10 levels, 1,000 enum values, 120,000 characters
of names and values. OpenAI's errors "$ref cannot have keywords {'description'}" and "'uri' is not a valid format".
"""

import re
from collections.abc import Mapping
from typing import Any

from callgate.tools.dialects.hints import described
from callgate.tools.dialects.references import Document, admits_null, fold, merge
from callgate.tools.dialects.roots import root_object
from callgate.tools.dialects.schemas import (
    ANNOTATIONS,
    JsonSchema,
    children,
    is_array,
    is_object,
    types_of,
    union_of,
    without,
    without_refused,
)

__all__ = ("NotStrict", "strict_schema")

_FORMATS = frozenset(("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"))
_KEPT = (
    "title",
    "enum",
    "const",
    "multipleOf",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minItems",
    "maxItems",
)
_LOOKAROUND = re.compile(r"\(\?[=!<]")
_STRUCTURE = frozenset(
    ("additionalProperties", "allOf", "anyOf", "items", "oneOf", "patternProperties", "prefixItems", "properties", "required")
)
_LIMITS: Mapping[str, int] = {"properties": 5_000, "levels": 10, "values": 1_000, "characters": 120_000}
_LONG_ENUM_VALUES = 250
_LONG_ENUM_CHARACTERS = 15_000


class NotStrict(Exception):
    """Say why a tool has to go without strict mode; it never leaves this package."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def strict_schema(schema: object) -> JsonSchema:
    """Write a schema for strict mode.

    Optional parameters become required ones that also take null, which `restore_arguments` turns back into absence. Raises
    NotStrict for a schema that strict mode cannot hold, Inexpressible for one that cannot be written or fits no arguments.
    """
    document = Document(schema)
    root = root_object(document)
    if is_object(schema) and union_of(fold(document, schema).node):
        raise NotStrict("its arguments are one of several objects")
    root.setdefault("properties", {})
    written = _StrictWriter(document).write(root)
    _check_limits(written)
    return written


class _StrictWriter:
    """Write one document; hold the definitions that are still to be written, so that recursion needs no expansion."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._names: dict[str, str] = {}

    def write(self, root: JsonSchema) -> JsonSchema:
        """Write the root and then every definition that something refers to."""
        written = self._node(root, ())
        definitions: JsonSchema = {}
        while len(definitions) < len(self._names):
            for reference, name in list(self._names.items())[len(definitions) :]:
                definitions[name] = self._node(self._document.resolve(reference), ())
        return {**written, **({"$defs": definitions} if definitions else {})}

    def _node(self, schema: object, seen: tuple[str, ...]) -> JsonSchema:
        self._document.spend()
        if not is_object(schema):
            raise NotStrict("a part of it takes any value, or none")
        node = _lone_part_raised(schema)
        if isinstance(node.get("$ref"), str):
            return self._reference(node)
        folded = fold(self._document, node, seen)
        branches = union_of(folded.node)
        return self._union(folded.node, branches, folded.seen) if branches else self._single(folded.node, folded.seen)

    def _reference(self, node: Mapping[str, Any]) -> JsonSchema:
        beside = _STRUCTURE.intersection(node)
        if beside:
            raise NotStrict(f"a reference has {min(beside)} beside it")
        plain = {"$ref": f"#/$defs/{self._definition(node['$ref'])}"}
        text = described(node, ())
        return {"anyOf": [plain], **text} if text else plain

    def _definition(self, reference: str) -> str:
        if reference not in self._names:
            self._document.resolve(reference)
            stem = re.sub(r"[^a-zA-Z0-9_.-]", "_", reference.rsplit("/", 1)[-1]).strip("_") or "root"
            taken = set(self._names.values())
            numbered = (f"{stem}_{number}" for number in range(2, len(taken) + 3))
            self._names[reference] = stem if stem not in taken else next(one for one in numbered if one not in taken)
        return self._names[reference]

    def _union(self, node: JsonSchema, branches: tuple[Any, ...], seen: tuple[str, ...]) -> JsonSchema:
        outer = without(node, "anyOf", "oneOf", "discriminator", "$defs", "definitions")
        shared = {keyword: value for keyword, value in outer.items() if keyword not in ANNOTATIONS}
        written = [self._branch(shared, branch, seen) for branch in branches if branch is not False]
        if not written:
            raise NotStrict("a part of it takes no value")
        return {"anyOf": written, **described({key: outer[key] for key in outer if key in ANNOTATIONS}, ())}

    def _branch(self, shared: JsonSchema, branch: Any, seen: tuple[str, ...]) -> JsonSchema:
        return self._node(merge(shared, branch) if is_object(branch) and shared else branch, seen)

    def _single(self, node: JsonSchema, seen: tuple[str, ...]) -> JsonSchema:
        types = types_of(node) or _types_of_values(node)
        kept = (*_KEPT, *_usable_text_keywords(node))
        written: JsonSchema = {"type": types[0] if len(types) == 1 else list(types), **described(node, kept)}
        written |= {keyword: node[keyword] for keyword in kept if keyword in node}
        if "object" in types:
            written |= self._object(node, seen)
        if "array" in types:
            written["items"] = self._items(node, seen)
        return written

    def _object(self, node: JsonSchema, seen: tuple[str, ...]) -> JsonSchema:
        _refuse_free_keys(node)
        node = without_refused(node)
        required = set(node.get("required", ()))
        unknown = required.difference(node.get("properties", {}))
        if unknown:
            raise NotStrict(f"it requires {min(unknown)!r}, which it does not describe")
        properties = {
            name: self._property(schema, seen, required=name in required) for name, schema in node.get("properties", {}).items()
        }
        return {"properties": properties, "required": list(properties), "additionalProperties": False}

    def _property(self, schema: Any, seen: tuple[str, ...], *, required: bool) -> JsonSchema:
        written = self._node(schema, seen)
        if required or admits_null(self._document, schema):
            return written
        return _nullable(written)

    def _items(self, node: JsonSchema, seen: tuple[str, ...]) -> JsonSchema:
        if node.get("prefixItems") or is_array(node.get("items")):
            raise NotStrict("a list in it has a type for each place")
        if "items" not in node:
            raise NotStrict("a list in it takes any items")
        return self._node(node["items"], seen)


def _lone_part_raised(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Write `allOf` with one part as that part, so that a reference in it stays a reference."""
    parts = schema.get("allOf")
    if not is_array(parts) or len(parts) != 1 or not is_object(parts[0]) or "$ref" in schema:
        return schema
    return merge(without(schema, "allOf"), parts[0])


def _refuse_free_keys(node: JsonSchema) -> None:
    rest = node.get("additionalProperties", node.get("unevaluatedProperties", False))
    if rest is not False or node.get("patternProperties") or not ("properties" in node or "additionalProperties" in node):
        raise NotStrict("an object in it takes keys that it does not list")


def _usable_text_keywords(node: JsonSchema) -> tuple[str, ...]:
    pattern, form = node.get("pattern"), node.get("format")
    usable = isinstance(pattern, str) and not _LOOKAROUND.search(pattern)
    return (*(("pattern",) if usable else ()), *(("format",) if form in _FORMATS else ()))


def _types_of_values(node: JsonSchema) -> tuple[str, ...]:
    values = node["enum"] if is_array(node.get("enum")) else (node["const"],) if "const" in node else ()
    found = tuple(dict.fromkeys(_type_of(value) for value in values))
    if found:
        return found
    if "properties" in node:
        return ("object",)
    if "items" in node or "prefixItems" in node:
        return ("array",)
    raise NotStrict("a part of it takes any value")


def _type_of(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case _:
            raise NotStrict("a part of it lists objects or lists as its values")


def _nullable(written: JsonSchema) -> JsonSchema:
    if "anyOf" in written:
        return {**written, "anyOf": [*written["anyOf"], {"type": "null"}]}
    if "$ref" in written:
        return {"anyOf": [written, {"type": "null"}]}
    return _with_null_value({**written, "type": [*types_of(written), *(() if "null" in types_of(written) else ("null",))]})


def _with_null_value(written: JsonSchema) -> JsonSchema:
    values = written.get("enum", [written["const"]] if "const" in written else None)
    if values is None or None in values:
        return written
    return {**without(written, "const"), "enum": [*values, None]}


def _check_limits(schema: JsonSchema) -> None:
    counts = dict.fromkeys(_LIMITS, 0)
    pending: list[tuple[Any, int]] = [(schema, 0)]
    while pending:
        node, level = pending.pop()
        if not is_object(node):
            continue
        inner = level + (1 if "properties" in node else 0)
        counts["levels"] = max(counts["levels"], inner)
        _count(node, counts)
        pending.extend((child, 0 if keyword == "$defs" else inner) for keyword, child in children(node))
    over = [f"{counts[what]} {what} where {limit} are allowed" for what, limit in _LIMITS.items() if counts[what] > limit]
    if over:
        raise NotStrict(f"it has {over[0]}")


def _count(node: Mapping[str, Any], counts: dict[str, int]) -> None:
    names = [*node.get("properties", ()), *node.get("$defs", ())]
    values = [*node.get("enum", ()), *([node["const"]] if "const" in node else [])]
    texts = sum(len(value) for value in values if isinstance(value, str))
    if len(values) > _LONG_ENUM_VALUES and texts > _LONG_ENUM_CHARACTERS:
        raise NotStrict(f"a list of values has {texts} characters where {_LONG_ENUM_CHARACTERS} are allowed")
    counts["properties"] += len(node.get("properties", ()))
    counts["values"] += len(node.get("enum", ()))
    counts["characters"] += texts + sum(map(len, names))
