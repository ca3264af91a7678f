"""Turn the arguments that a model gave in a dialect back into arguments of the tool's own schema."""

from collections.abc import Mapping
from typing import Any

from callgate.tools.dialects.gemini import value_text
from callgate.tools.dialects.names import Dialect, wire_keys
from callgate.tools.dialects.references import Document, Inexpressible, admits_null, fold, same_json
from callgate.tools.dialects.roots import root_object
from callgate.tools.dialects.schemas import is_array, is_object, types_of, union_of

__all__ = ("restore_by_schema",)

_CHANGED_VALUES = frozenset(("gemini", "openai_strict"))


def restore_by_schema(schema: Mapping[str, Any], dialect: Dialect, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Undo what a dialect did to a schema, in the arguments that came back; the arguments given are left alone.

    At any depth: null for an optional property that does not take null is dropped, so that the default applies; text that
    stands for a listed number, boolean or other value becomes that value; a renamed parameter gets its own name again. A value
    that fits already is never touched, and one that fits nothing stays, for the gate to refuse.
    """
    renamed = _renamed(schema, dialect)
    own = {renamed.get(key, key): value for key, value in arguments.items()} if renamed else dict(arguments)
    if dialect not in _CHANGED_VALUES:
        return own
    try:
        restored: dict[str, Any] = _Restoration(Document(schema)).value(schema, own)
    except (Inexpressible, RecursionError):
        return own
    return restored


def _renamed(schema: Mapping[str, Any], dialect: Dialect) -> dict[str, str]:
    try:
        return {wire: key for key, wire in wire_keys(_parameters(schema), dialect).items()}
    except Inexpressible:
        return {}


def _parameters(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if schema.get("type") == "object" and not any(keyword in schema for keyword in ("$ref", "allOf", "anyOf", "oneOf")):
        return schema.get("properties", {})  # type: ignore[no-any-return]  # a schema's values are of any JSON type
    return root_object(Document(schema)).get("properties", {})  # type: ignore[no-any-return]


class _Restoration:
    """Walk one arguments object beside its schema. `seen` are the references entered for the value at hand."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def value(self, schema: Any, value: Any, seen: tuple[str, ...] = ()) -> Any:
        """Give the value as the schema means it."""
        if not is_object(schema):
            return value
        self._document.spend()
        folded = fold(self._document, schema, seen)
        node = folded.node
        if is_object(value):
            value = self._object(node, value)
        elif is_array(value):
            value = self._list(node, value)
        elif isinstance(value, str):
            value = _listed_value(node, value)
        return self._alternative(union_of(node), value, folded.seen)

    def _object(self, node: Mapping[str, Any], value: Mapping[str, Any]) -> dict[str, Any]:
        properties, required = node.get("properties", {}), node.get("required", ())
        rest = node.get("additionalProperties")
        return {
            key: self.value(properties.get(key, rest), inner)
            for key, inner in value.items()
            if inner is not None or key in required or key not in properties or admits_null(self._document, properties[key])
        }

    def _list(self, node: Mapping[str, Any], value: list[Any] | tuple[Any, ...]) -> list[Any]:
        places, items = node.get("prefixItems", ()), node.get("items")
        if is_array(items):
            places, items = items, node.get("additionalItems")
        schemas = (*places[: len(value)], *([items] * max(0, len(value) - len(places))))
        return [self.value(schema, inner) for schema, inner in zip(schemas, value, strict=True)]

    def _alternative(self, branches: tuple[Any, ...], value: Any, seen: tuple[str, ...]) -> Any:
        if not branches or any(self._fits(branch, value, seen) for branch in branches):
            return value
        for branch in branches:
            if self._resembles(branch, value, seen):
                restored = self.value(branch, value, seen)
                if self._fits(branch, restored, seen):
                    return restored
        return value

    def _resembles(self, schema: Any, value: Any, seen: tuple[str, ...]) -> bool:
        if not is_object(value) or not is_object(schema):
            return True
        node = fold(self._document, schema, seen).node
        properties = node.get("properties", {})
        return all(key in value for key in node.get("required", ())) and (
            not properties or all(key in properties for key in value) or node.get("additionalProperties", False) is not False
        )

    def _fits(self, schema: Any, value: Any, seen: tuple[str, ...] = ()) -> bool:
        if not is_object(schema):
            return schema is not False
        self._document.spend()
        folded = fold(self._document, schema, seen)
        node, branches = folded.node, union_of(folded.node)
        return (
            _is_of_type(node, value)
            and _is_listed(node, value)
            and (not branches or any(self._fits(branch, value, folded.seen) for branch in branches))
            and self._parts_fit(node, value)
        )

    def _parts_fit(self, node: Mapping[str, Any], value: Any) -> bool:
        if is_array(value):
            items = node.get("items")
            return not is_object(items) or all(self._fits(items, inner) for inner in value)
        if not is_object(value):
            return True
        properties = node.get("properties", {})
        rest = node.get("additionalProperties", not properties)
        return all(key in value for key in node.get("required", ())) and all(
            self._fits(properties.get(key, rest), inner) for key, inner in value.items()
        )


def _listed_value(node: Mapping[str, Any], text: str) -> Any:
    if _is_listed(node, text):
        return text
    values = node["enum"] if is_array(node.get("enum")) else (node.get("const"),)
    return next((value for value in values if value is not None and value_text(value) == text), text)


def _is_listed(node: Mapping[str, Any], value: Any) -> bool:
    listed = node.get("enum")
    if is_array(listed) and not any(same_json(value, one) for one in listed):
        return False
    return "const" not in node or same_json(node["const"], value)


def _is_of_type(node: Mapping[str, Any], value: Any) -> bool:
    types = types_of(node)
    return not types or any(_is_a(kind, value) for kind in types)


def _is_a(kind: str, value: Any) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "integer":
            return not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "array":
            return is_array(value)
        case "object":
            return is_object(value)
        case _:
            return value is None if kind == "null" else isinstance(value, bool)
