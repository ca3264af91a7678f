"""Write schemas for the providers that take JSON Schema as it is, but for a few rules: MCP, Anthropic, OpenAI.

A schema that breaks none of the rules is sent as it was given.
"""

from collections.abc import Mapping
from typing import Any

from callgate.tools.dialects.names import Dialect, wire_keys
from callgate.tools.dialects.references import Document, Inexpressible
from callgate.tools.dialects.roots import root_object
from callgate.tools.dialects.schemas import (
    JsonSchema,
    is_array,
    is_object,
    map_children,
    references,
    thaw,
    types_of,
    without,
    without_refused,
)

__all__ = ("anthropic_schema", "mcp_output_schema", "mcp_schema", "openai_schema", "with_wire_keys")

_SPEAK_OF_KEYS = (
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "not",
    "patternProperties",
    "propertyNames",
    "then",
)
_BOOLEAN_IS_USUAL = frozenset(("additionalItems", "additionalProperties", "unevaluatedItems", "unevaluatedProperties"))


def mcp_schema(schema: object) -> JsonSchema:
    """Give the schema unchanged, or with `"type": "object"` at its top where it does not say so.

    Raises Inexpressible when it says something else. Source: MCP specification 2025-11-25, schema of `Tool.inputSchema`.
    """
    document = Document(schema)
    if is_object(schema) and schema.get("type") == "object":
        copy: JsonSchema = thaw(schema)
        return copy
    root_object(document)  # raises where no object fits
    return {"type": "object", **(without(thaw(schema), "type") if is_object(schema) else {})}


def mcp_output_schema(schema: Mapping[str, Any]) -> JsonSchema | None:
    """Give the output's schema, or None when it is not one of an object.

    Source: MCP specification 2025-11-25, `Tool.outputSchema`, whose type is `"object"` since structured content is an object.
    """
    try:
        Document(schema)
    except Inexpressible:
        return None
    copy: JsonSchema = thaw(schema)
    return copy if schema.get("type") == "object" else None


def anthropic_schema(schema: object) -> JsonSchema:
    """Write a schema for Anthropic's `input_schema`; raises Inexpressible.

    Source: Anthropic's errors "input_schema does not support oneOf, allOf, or anyOf at the top level", "Property keys should
    match pattern", "JSON schema is invalid. It must match JSON Schema draft 2020-12", and `input_schema.type` = `"object"`.
    """
    document = Document(schema)
    written = with_wire_keys(root_object(document), "anthropic")
    return _checked(map_children(written, _modern))


def openai_schema(schema: object) -> JsonSchema:
    """Write a schema for a function's `parameters` of OpenAI, without strict mode; raises Inexpressible.

    Source: OpenAI's errors "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top
    level", "object schema missing properties", "array schema missing items".
    """
    written = _openai_node(root_object(Document(schema)))
    return _checked(written if "properties" in written else {**written, "properties": {}})


def _modern(_keyword: str, schema: Any) -> Any:
    return _with_prefix_items(map_children(schema, _modern)) if is_object(schema) else schema


def _for_openai(keyword: str, schema: Any) -> Any:
    if is_object(schema):
        return _openai_node(schema)
    return schema if keyword in _BOOLEAN_IS_USUAL else {} if schema else {"not": {}}


def _openai_node(schema: Mapping[str, Any]) -> JsonSchema:
    written = _with_prefix_items(map_children(without_refused(schema), _for_openai))
    return {**written, "items": {}} if "array" in types_of(written) and "items" not in written else written


def _with_prefix_items(schema: JsonSchema) -> JsonSchema:
    if not is_array(schema.get("items")):
        return schema
    rest = schema.get("additionalItems")
    tail = {} if rest is None else {"items": rest}
    return {**without(schema, "items", "additionalItems"), "prefixItems": schema["items"], **tail}


def _checked(schema: JsonSchema) -> JsonSchema:
    document = Document(schema)
    for reference in set(references(schema)):
        document.resolve(reference)
    return schema


def with_wire_keys(root: JsonSchema, dialect: Dialect) -> JsonSchema:
    """Rename the parameters that the provider does not accept; raises Inexpressible when two would have one name.

    What else speaks of parameters by name is left out then: it would speak of names that no longer exist.
    """
    renamed = wire_keys(root.get("properties", {}), dialect)
    if not renamed:
        return root
    changed = without(root, *_SPEAK_OF_KEYS)
    changed["properties"] = {renamed.get(key, key): schema for key, schema in root["properties"].items()}
    if "required" in root:
        changed["required"] = [renamed.get(key, key) for key in root["required"]]
    return changed
