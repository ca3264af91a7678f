"""Make one plain object of the top of an arguments schema, as every provider wants it."""

from collections.abc import Sequence
from typing import Any

import jsonschema_rs

from callgate.tools.dialects.references import MAX_NESTING, Document, Folded, Inexpressible, fold, merge, unique_json
from callgate.tools.dialects.schemas import JsonSchema, is_object, nesting, thaw, types_of, union_of, without

__all__ = ("refuse_invalid", "root_object")

_DRAFTS = frozenset(
    (
        "https://json-schema.org/draft/2020-12/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "http://json-schema.org/draft-07/schema",
        "http://json-schema.org/draft-06/schema",
        "http://json-schema.org/draft-04/schema",
    )
)


def refuse_invalid(schema: object) -> None:
    """Raise Inexpressible for what is no JSON Schema at all, so that everything after this may rely on its keywords."""
    if nesting(schema) > MAX_NESTING:
        raise Inexpressible(f"the schema nests deeper than {MAX_NESTING} levels")
    checked = thaw(schema)
    if is_object(schema) and str(schema.get("$schema", "")).rstrip("#") not in _DRAFTS:
        checked.pop("$schema", None)  # the validator would fetch a draft that it does not know
    if not jsonschema_rs.meta.is_valid(checked):
        raise Inexpressible("the schema is not valid JSON Schema")


def root_object(document: Document) -> JsonSchema:
    """Give the arguments' schema as one whose top says `"type": "object"` and has no `$ref` and no combination.

    Alternatives at the top become one object that has the properties of all and requires what all of them require.
    Raises Inexpressible when no object fits. A schema that needs no change is given as an equal copy.
    """
    folded = fold(document, document.root)
    node = folded.node
    if types_of(node) and "object" not in types_of(node):
        raise Inexpressible(f"arguments are an object, but the schema asks for {' or '.join(types_of(node))}")
    node = without(_joined(document, folded), "const", "enum", "not")
    if node.get("type") != "object":
        node = {"type": "object", **without(node, "type")}
    copy: JsonSchema = thaw(node)
    return copy


def _joined(document: Document, folded: Folded) -> JsonSchema:
    branches = union_of(folded.node)
    if not branches:
        return folded.node
    document.spend()
    rest = without(folded.node, "anyOf", "oneOf", "discriminator")
    parts = [fold(document, branch, folded.seen) for branch in branches if branch is not False]
    taken = [Folded(merge(rest, part.node), part.seen) for part in parts]
    objects = [_joined(document, one) for one in taken if not types_of(one.node) or "object" in types_of(one.node)]
    if not objects:
        raise Inexpressible("arguments are an object, but no alternative of the schema is one")
    return _one_object(rest, objects)


def _one_object(rest: JsonSchema, objects: Sequence[JsonSchema]) -> JsonSchema:
    joined = without(rest, "additionalProperties", "unevaluatedProperties", "required", "properties")
    joined["properties"] = _alternatives(objects)
    required = [name for name in objects[0].get("required", ()) if all(name in one.get("required", ()) for one in objects)]
    if required:
        joined["required"] = required
    if all(one.get("additionalProperties") is False for one in objects):
        joined["additionalProperties"] = False
    return joined


def _alternatives(objects: Sequence[JsonSchema]) -> JsonSchema:
    found: dict[str, list[Any]] = {}
    for one in objects:
        for name, schema in one.get("properties", {}).items():
            found.setdefault(name, []).append(schema)
    unique = {name: unique_json(schemas) for name, schemas in found.items()}
    return {name: schemas[0] if len(schemas) == 1 else {"anyOf": schemas} for name, schemas in unique.items()}
