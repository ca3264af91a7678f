"""What each provider refuses, written down a second time for the tests: `broken_rules` names every rule that a tool breaks."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

TOOL_NAMES = {
    "openai": r"[a-zA-Z0-9_-]{1,64}",
    "openai_strict": r"[a-zA-Z0-9_-]{1,64}",
    "anthropic": r"[a-zA-Z0-9_-]{1,64}",
    "gemini": r"[a-zA-Z_][a-zA-Z0-9_.-]{0,63}",
    "mcp": r"[a-zA-Z0-9_.-]{1,128}",
}
SCHEMA_MAPS = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
SCHEMA_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
SCHEMA_PLACES = ("additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then")
SCHEMA_PLACES += ("unevaluatedItems", "unevaluatedProperties")
MAY_BE_BOOLEAN = ("additionalProperties", "unevaluatedItems", "unevaluatedProperties")
STRICT_KEYWORDS = {"$ref", "$defs", "anyOf", "type", "enum", "const", "properties", "required", "additionalProperties", "items"}
STRICT_KEYWORDS |= {"title", "description", "pattern", "format", "multipleOf", "minimum", "maximum"}
STRICT_KEYWORDS |= {"exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems"}
STRICT_FORMATS = {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"}
GEMINI_KEYWORDS = {"type", "format", "title", "description", "nullable", "enum", "maxItems", "minItems", "properties", "required"}
GEMINI_KEYWORDS |= {"minProperties", "maxProperties", "minLength", "maxLength", "pattern", "anyOf", "items", "minimum", "maximum"}
GEMINI_TYPES = {"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"}
FORBIDDEN_AT_TOP = ("oneOf", "anyOf", "allOf", "enum", "not", "$ref")


@dataclass(frozen=True)
class Shape:
    """A tool as rendering sees one."""

    name: str
    input_schema: Any
    description: str | None = "Does it."
    output_schema: Any = None
    kind: str = "write"


def broken_rules(dialect: str, tool: dict[str, Any]) -> list[str]:
    """Name what the provider of the dialect would refuse in a rendered tool."""
    json.dumps(tool, allow_nan=False)
    function = tool["function"] if dialect.startswith("openai") else tool
    broken = [] if re.fullmatch(TOOL_NAMES[dialect], function["name"]) else [f"name {function['name']!r}"]
    match dialect:
        case "openai":
            return broken + list(_openai(function["parameters"]))
        case "openai_strict" if function["strict"]:
            return broken + list(_strict(function["parameters"]))
        case "openai_strict":
            return broken + list(_openai(function["parameters"]))
        case "anthropic":
            return broken + list(_anthropic(function["input_schema"]))
        case "gemini":
            return broken + list(_gemini_top(function.get("parameters")))
        case _:
            return broken + list(_mcp(function))


def nodes(schema: Any, keyword: str = "") -> Iterator[tuple[str, Any]]:
    """Give every schema inside the schema, itself included, with the keyword that holds it."""
    yield keyword, schema
    if isinstance(schema, dict):
        for name in SCHEMA_MAPS:
            for inner in schema.get(name, {}).values():
                yield from nodes(inner, name)
        for name in SCHEMA_LISTS:
            for inner in schema.get(name, ()):
                yield from nodes(inner, name)
        for name in SCHEMA_PLACES:
            if name in schema:
                yield from nodes(schema[name], name)


def _valid(schema: Any) -> Iterator[str]:
    if not jsonschema_rs.meta.is_valid(schema):
        yield "not valid JSON Schema"
    for _, node in nodes(schema):
        if isinstance(node, dict) and "$ref" in node and not _leads_somewhere(schema, node["$ref"]):
            yield f"dangling {node['$ref']}"


def _leads_somewhere(schema: Any, reference: str) -> bool:
    for part in unquote(reference).split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(schema, list):
            schema = schema[int(part)]
        elif part in schema:
            schema = schema[part]
        else:
            return False
    return True


def _openai(schema: Any) -> Iterator[str]:
    yield from _valid(schema)
    if schema.get("type") != "object" or "properties" not in schema:
        yield "top is no object with properties"
    yield from (f"{keyword} at the top" for keyword in FORBIDDEN_AT_TOP if keyword in schema)
    for keyword, node in nodes(schema):
        if isinstance(node, bool) and keyword not in MAY_BE_BOOLEAN:
            yield f"a boolean schema under {keyword}"
        if isinstance(node, dict) and "array" in _types(node) and "items" not in node:
            yield "an array without items"


def _anthropic(schema: Any) -> Iterator[str]:
    yield from _valid(schema)
    if schema.get("type") != "object":
        yield "top is no object"
    yield from (f"{keyword} at the top" for keyword in FORBIDDEN_AT_TOP if keyword in schema)
    yield from (f"key {key!r}" for key in schema.get("properties", {}) if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", key))


def _mcp(tool: Any) -> Iterator[str]:
    if not jsonschema_rs.meta.is_valid(tool["inputSchema"]):
        yield "not valid JSON Schema"
    if tool["inputSchema"].get("type") != "object":
        yield "inputSchema is no object"
    if "outputSchema" in tool and tool["outputSchema"].get("type") != "object":
        yield "outputSchema is no object"
    if not set(tool) <= {"name", "description", "inputSchema", "outputSchema", "annotations"}:
        yield "unknown fields"


def _strict(schema: Any) -> Iterator[str]:
    yield from _valid(schema)
    if schema.get("type") != "object":
        yield "top is no object"
    for keyword, node in nodes(schema):
        if not isinstance(node, dict):
            yield from ["a boolean schema"] if keyword != "additionalProperties" else []
            continue
        if "object" in _types(node):
            yield from _strict_object(node)
        yield from _strict_keywords(node)


def _strict_object(node: Any) -> Iterator[str]:
    if node.get("additionalProperties") is not False:
        yield "an open object"
    if sorted(node["properties"]) != sorted(node["required"]):
        yield "a property that is not required"


def _strict_keywords(node: Any) -> Iterator[str]:
    yield from (f"keyword {keyword}" for keyword in set(node) - STRICT_KEYWORDS)
    if "$ref" in node and len(node) > 1:
        yield "keywords beside $ref"
    if not {"$ref", "anyOf", "type"} & set(node):
        yield "no type"
    if "array" in _types(node) and "items" not in node:
        yield "an array without items"
    if node.get("format", "date") not in STRICT_FORMATS:
        yield f"format {node['format']}"


def _gemini_top(schema: Any) -> Iterator[str]:
    if schema is None:
        return
    if schema.get("type") != "OBJECT" or not schema.get("properties") or schema.get("nullable"):
        yield "top is no object with properties"
    keys = schema.get("properties", {})
    yield from (f"key {key!r}" for key in keys if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}", key))
    for _, node in nodes(schema):
        yield from _gemini_node(node)


def _gemini_node(node: Any) -> Iterator[str]:
    if not isinstance(node, dict):
        yield "a boolean schema"
        return
    if "anyOf" in node:
        yield from ["anyOf with something beside it"] if set(node) != {"anyOf"} else []
        yield from ["anyOf with less than two branches"] if len(node["anyOf"]) < 2 else []
        return
    yield from (f"keyword {keyword}" for keyword in set(node) - GEMINI_KEYWORDS)
    yield from _gemini_typed(node)


def _gemini_typed(node: Any) -> Iterator[str]:
    if node.get("type") not in GEMINI_TYPES:
        yield f"type {node.get('type')!r}"
    if node["type"] == "ARRAY" and "items" not in node:
        yield "an array without items"
    if "enum" in node and (node["type"] != "STRING" or not all(isinstance(one, str) and one for one in node["enum"])):
        yield "an enum that is not of text"
    if not set(node.get("required", ())) <= set(node.get("properties", ())):
        yield "a required property that is not declared"
    if node["type"] == "STRING" and node.get("format", "date-time") != "date-time":
        yield f"format {node['format']}"


def _types(node: Any) -> list[str]:
    named = node.get("type", [])
    return [named] if isinstance(named, str) else named


def gemini_admits(schema: Any, value: Any) -> bool:
    """Tell whether a model that keeps to a Gemini schema may send the value."""
    if "anyOf" in schema:
        return any(gemini_admits(branch, value) for branch in schema["anyOf"])
    if value is None:
        return bool(schema.get("nullable")) or schema["type"] == "NULL"
    if "enum" in schema and value not in schema["enum"]:
        return False
    match schema["type"]:
        case "OBJECT":
            properties = schema.get("properties")
            return isinstance(value, dict) and (
                properties is None
                or (
                    set(schema.get("required", ())) <= set(value) <= set(properties)
                    and all(gemini_admits(properties[key], inner) for key, inner in value.items())
                )
            )
        case "ARRAY":
            return isinstance(value, list) and all(gemini_admits(schema["items"], inner) for inner in value)
        case "STRING":
            return isinstance(value, str)
        case "BOOLEAN":
            return isinstance(value, bool)
        case "INTEGER":
            return isinstance(value, int) and not isinstance(value, bool)
        case _:
            return isinstance(value, (int, float)) and not isinstance(value, bool)


def with_nulls(schema: Any, value: Any) -> Any:
    """Write an instance of a schema made of types, properties and items as strict mode has it: nothing is absent."""
    if isinstance(value, dict) and "properties" in schema:
        properties = schema["properties"]
        return {name: with_nulls(inner, value[name]) if name in value else None for name, inner in properties.items()}
    if isinstance(value, list):
        return [with_nulls(schema.get("items", {}), inner) for inner in value]
    return value
