"""Write schemas for Gemini's `FunctionDeclaration.parameters`, a small subset of OpenAPI's schema object.

Source: Gemini API reference, `Schema` (fields type, format, title, description, nullable, enum of text, maxItems, minItems,
properties, required, minProperties, maxProperties, minLength, maxLength, pattern, anyOf, items, minimum, maximum; `default` is
accepted and ignored), so no `$ref`, `const`, `additionalProperties`, `oneOf`, `prefixItems`, no list of types. Google's errors
"schema specified other fields alongside any_of", "should be non-empty for OBJECT type", "items: missing field", "schema didn't
specify the schema type field", "enum[0]: cannot be empty", "required[0]: property is not defined".

What has no keyword is told in the description, and the gate checks it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from callgate.tools.dialects.hints import described, joined_text, json_text
from callgate.tools.dialects.plain import with_wire_keys
from callgate.tools.dialects.references import Document, Inexpressible, fold, merge, unique_json
from callgate.tools.dialects.roots import root_object
from callgate.tools.dialects.schemas import (
    ANNOTATIONS,
    JsonSchema,
    is_array,
    is_object,
    types_of,
    union_of,
    without,
    without_refused,
)

__all__ = ("INLINE_DEPTH", "gemini_schema", "value_text")

INLINE_DEPTH = 16
"""How many references may lie inside each other when they are written out."""

_KEPT: Mapping[str, tuple[str, ...]] = {
    "string": ("minLength", "maxLength", "pattern"),
    "number": ("minimum", "maximum"),
    "integer": ("minimum", "maximum"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}
_FORMATS: Mapping[str, frozenset[str]] = {
    "string": frozenset(("date-time",)),
    "number": frozenset(("double", "float")),
    "integer": frozenset(("int32", "int64")),
}
_NULL: JsonSchema = {"type": "NULL"}
_SCALARS = ("STRING", "NUMBER", "BOOLEAN", "OBJECT")


def gemini_schema(schema: object) -> JsonSchema | None:
    """Write a schema for Gemini, or None for a tool without parameters, which has to leave `parameters` out.

    References are written out, down to `INLINE_DEPTH`. Raises Inexpressible, naming the cycle, for a schema that refers to
    itself, and for arguments whose names the schema does not list.
    """
    document = Document(schema)
    root = with_wire_keys(without_refused(root_object(document)), "gemini")
    if root.get("properties"):
        return without(_GeminiWriter(document).node(without(root, "default"), ()), "nullable")
    if root.get("additionalProperties") or root.get("patternProperties") or root.get("required"):
        raise Inexpressible("its arguments have names that the schema does not list, and this dialect has no form for that")
    return None


def value_text(value: object) -> str:
    """Give the text that stands for a listed value: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json_text(value)


class _GeminiWriter:
    """Write one document. `seen` is always the path of references that led to a place."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def node(self, schema: Any, seen: tuple[str, ...]) -> JsonSchema:
        """Write one schema."""
        self._document.spend()
        folded = fold(self._document, schema, seen)
        if len(folded.seen) > INLINE_DEPTH:
            raise Inexpressible(f"more than {INLINE_DEPTH} references lie inside each other at {folded.seen[-1]!r}")
        node = without_refused(folded.node)
        branches = union_of(node)
        if branches:
            return self._union(node, branches, folded.seen)
        if "enum" in node or "const" in node:
            return _listed_values(node)
        types = [one for one in types_of(node) or _guessed_types(node) if one != "null"]
        written = self._typed(node, types, folded.seen)
        return _nullable(written) if "null" in types_of(node) else written

    def _typed(self, node: JsonSchema, types: Sequence[str], seen: tuple[str, ...]) -> JsonSchema:
        match types:
            case [] if types_of(node):
                return {**_NULL, **described(node, ())}
            case []:
                return _any_value(node)
            case ["object"]:
                return self._object(node, seen)
            case ["array"]:
                return self._array(node, seen)
            case [single]:
                return _scalar(node, single)
            case _:
                return self._union(without(node, "type"), tuple({"type": one} for one in types), seen)

    def _union(self, node: JsonSchema, branches: tuple[Any, ...], seen: tuple[str, ...]) -> JsonSchema:
        outer = without(node, "anyOf", "oneOf", "discriminator", "$defs", "definitions")
        shared = {keyword: value for keyword, value in outer.items() if keyword not in ANNOTATIONS}
        merged = [merge(shared, branch if is_object(branch) else {}) for branch in branches if branch is not False]
        written = [self.node(branch, seen) for branch in merged]
        return _one_of(written, described({key: outer[key] for key in outer if key in ANNOTATIONS}, ()).get("description", ""))

    def _object(self, node: JsonSchema, seen: tuple[str, ...]) -> JsonSchema:
        properties = {name: self.node(schema, seen) for name, schema in node.get("properties", {}).items()}
        required = [name for name in node.get("required", ()) if name in properties]
        written = {**_top(node, "object", self._other_keys(node, seen)), "properties": properties, "required": required}
        return {keyword: value for keyword, value in written.items() if value not in ({}, [])}

    def _other_keys(self, node: JsonSchema, seen: tuple[str, ...]) -> str:
        rest = node.get("additionalProperties")
        if is_object(rest) and rest:
            which = "any other key" if node.get("properties") else "any key"
            return f"{which}, each with a value of: {json_text(self.node(rest, seen))}"
        return "any keys" if not node.get("properties") and rest is not False else ""

    def _array(self, node: JsonSchema, seen: tuple[str, ...]) -> JsonSchema:
        items = node.get("items", True)
        places = node.get("prefixItems") or (items if is_array(items) else [])
        if not places:
            return {**_top(node, "array"), "items": self.node(items, seen) if items not in (True, False, {}) else _any_item()}
        written = [self.node(one, seen) for one in places]
        more = [self.node(items, seen)] if is_object(items) and items else []
        order = f"items in this order: {json_text(written)}"
        return {**_top(node, "array", order), "items": _one_of([*written, *more], "")}


def _guessed_types(node: JsonSchema) -> tuple[str, ...]:
    if "properties" in node or "additionalProperties" in node:
        return ("object",)
    return ("array",) if "items" in node or "prefixItems" in node else ()


def _top(node: JsonSchema, kind: str, *remarks: str) -> JsonSchema:
    kept = [keyword for keyword in _KEPT.get(kind, ()) if keyword in node]
    if node.get("format") in _FORMATS.get(kind, ()):
        kept.append("format")
    title = {"title": node["title"]} if isinstance(node.get("title"), str) else {}
    return {"type": kind.upper(), **title, **described(node, kept, *remarks), **{keyword: node[keyword] for keyword in kept}}


def _scalar(node: JsonSchema, kind: str) -> JsonSchema:
    return _top(node, kind)


def _listed_values(node: JsonSchema) -> JsonSchema:
    values = node["enum"] if is_array(node.get("enum")) else [node.get("const")]
    texts = unique_json([value_text(value) for value in values if value is not None])
    named = without(node, "enum", "const", "format", "pattern", "minimum", "maximum")
    if not texts:
        return {**_NULL, **described(named, ())}
    remark = f"one of: {json_text(texts)}" if "" in texts else ""
    written = {**_top(named, "string", remark), **({} if remark else {"enum": texts})}
    return _nullable(written) if None in values else written


def _any_value(node: JsonSchema) -> JsonSchema:
    any_list = {"type": "ARRAY", "items": _any_item()}
    branches = [{"type": kind} for kind in _SCALARS]
    return _one_of([*branches, any_list, _NULL], described(node, ()).get("description", ""))


def _any_item() -> JsonSchema:
    return {"anyOf": [{"type": kind} for kind in _SCALARS]}


def _nullable(written: JsonSchema) -> JsonSchema:
    if "anyOf" in written:
        return {"anyOf": [_nullable(branch) for branch in written["anyOf"]]}
    return written if written.get("type") == "NULL" else {**written, "nullable": True}


def _one_of(written: Sequence[JsonSchema], description: str) -> JsonSchema:
    """Join alternatives; `anyOf` stands alone in Gemini, so the description goes into them and null into `nullable`."""
    flat = unique_json([inner for one in written for inner in one.get("anyOf", (one,))])
    kinds = [one for one in flat if one.get("type") != "NULL"]
    described_kinds = _with_description(kinds, description)
    if not kinds:
        return {**_NULL, **({"description": description} if description else {})}
    joined = described_kinds[0] if len(kinds) == 1 else {"anyOf": described_kinds}
    return _nullable(joined) if len(kinds) < len(flat) else joined


def _with_description(kinds: Sequence[JsonSchema], description: str) -> list[JsonSchema]:
    if not description or not kinds:
        return list(kinds)
    if len(kinds) == 1:
        return [{**kinds[0], "description": joined_text(description, kinds[0].get("description"))}]
    if all("description" in kind for kind in kinds):
        first, *others = kinds
        return [{**first, "description": joined_text(description, first["description"])}, *others]
    return [{**kind, "description": kind.get("description", description)} for kind in kinds]
