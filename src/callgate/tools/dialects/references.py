"""Follow the references of one schema document, and merge what `allOf` and `$ref` bring together.

The rule of every rewriting below: the result may accept more than the original, never less, because the gate checks each
call against the original anyway. So where two constraints cannot be combined the first one is kept alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from callgate.tools.dialects.schemas import (
    JsonSchema,
    is_array,
    is_object,
    is_schema,
    nesting,
    types_of,
    union_of,
    without,
)

__all__ = (
    "Document",
    "Folded",
    "Inexpressible",
    "admits_null",
    "fold",
    "merge",
    "same_json",
    "unique_json",
)

MAX_STEPS = 50_000
"""How many schemas one rendering may visit. Small schemas that multiply when they are expanded end here."""

MAX_NESTING = 100
"""How deep the JSON of a schema may nest; deeper ones would exhaust the stack of this program or of the provider."""


class Inexpressible(Exception):
    """Say why a schema has no form in a dialect; it never leaves this package."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Document:
    """Hold one root schema for one rendering, with the budget that ends endless expansions."""

    __slots__ = ("_steps_left", "root")

    def __init__(self, root: object) -> None:
        if nesting(root) > MAX_NESTING:
            raise Inexpressible(f"the schema nests deeper than {MAX_NESTING} levels")
        self.root = root
        self._steps_left = MAX_STEPS

    def spend(self) -> None:
        """Count one visited schema; raises Inexpressible when there have been too many."""
        self._steps_left -= 1
        if self._steps_left < 0:
            raise Inexpressible(f"the schema expands to more than {MAX_STEPS} parts")

    def resolve(self, reference: str) -> Any:
        """Give the schema that a local JSON pointer names; raises Inexpressible when there is none."""
        self.spend()
        if reference != "#" and not reference.startswith("#/"):
            raise Inexpressible(f"the reference {reference!r} does not point into the schema itself")
        target: Any = self.root
        for part in unquote(reference).split("/")[1:]:
            target = _entered(target, part.replace("~1", "/").replace("~0", "~"))
        if not is_schema(target):
            raise Inexpressible(f"the reference {reference!r} leads to no schema")
        return target


def _entered(target: Any, part: str) -> Any:
    if is_object(target):
        return target.get(part)
    if is_array(target) and part.isdecimal() and int(part) < len(target):
        return target[int(part)]
    return None


@dataclass(frozen=True, slots=True)
class Folded:
    """Hold a schema without `$ref` and `allOf` at its top, and the references followed on the way to it, in order."""

    node: JsonSchema
    seen: tuple[str, ...]


def fold(document: Document, schema: object, seen: tuple[str, ...] = ()) -> Folded:
    """Follow `$ref` and merge `allOf` until the schema has neither at its top.

    `seen` are the references that were entered around this place. Raises Inexpressible, naming the cycle, when one of them
    would be entered again.
    """
    node = _as_object(schema)
    if isinstance(node.get("$ref"), str):
        inside = _enter(seen, node["$ref"])
        target = fold(document, document.resolve(node["$ref"]), inside)
        return fold(document, merge(without(node, "$ref"), target.node), target.seen)
    if not is_array(node.get("allOf")):
        return Folded(dict(node), seen)
    merged, followed = without(node, "allOf"), list(seen)
    for part in node["allOf"]:
        document.spend()
        folded = fold(document, part, seen)
        merged = merge(merged, folded.node)
        followed += [one for one in folded.seen if one not in followed]
    return Folded(merged, tuple(followed))


def _as_object(schema: object) -> Mapping[str, Any]:
    if schema is False:
        raise Inexpressible("a place in the schema accepts no value")
    return schema if is_object(schema) else {}


def _enter(seen: tuple[str, ...], reference: str) -> tuple[str, ...]:
    if reference in seen:
        names = [one.rsplit("/", 1)[-1] for one in (*seen[seen.index(reference) :], reference)]
        raise Inexpressible(f"the schema refers to itself ({' > '.join(names)}) and cannot be written without references")
    return (*seen, reference)


def merge(first: Mapping[str, Any], second: Mapping[str, Any]) -> JsonSchema:
    """Combine two schemas that both apply to one value; of two values of a keyword that cannot be combined the first stays."""
    merged = dict(first)
    for keyword, value in second.items():
        merged[keyword] = _combined(keyword, first[keyword], value) if keyword in first else value
    return merged


def _combined(keyword: str, first: Any, second: Any) -> Any:
    match keyword:
        case "properties" | "$defs" | "definitions" if is_object(first) and is_object(second):
            return {**{name: _both(one, second.get(name, one)) for name, one in first.items()}, **without(second, *first)}
        case "required" | "allOf" if is_array(first) and is_array(second):
            return unique_json([*first, *second])
        case "type":
            return _common_types(types_of({"type": first}), types_of({"type": second})) or first
        case "enum" if is_array(first) and is_array(second):
            return [one for one in first if any(same_json(one, other) for other in second)] or first
        case _:
            return first


def _both(first: Any, second: Any) -> Any:
    return first if same_json(first, second) else {"allOf": [first, second]}


def _common_types(first: Sequence[str], second: Sequence[str]) -> list[str] | str:
    common = [one for one in first if one in second or (one == "integer" and "number" in second)]
    common += [one for one in second if one == "integer" and "number" in first and one not in common]
    return common[0] if len(common) == 1 else common


def same_json(first: object, second: object) -> bool:
    """Compare as JSON does: `true` is not 1, while 1 and 1.0 are one number."""
    if is_object(first) and is_object(second):
        return first.keys() == second.keys() and all(same_json(value, second[key]) for key, value in first.items())
    if is_array(first) and is_array(second):
        return len(first) == len(second) and all(map(same_json, first, second))
    return isinstance(first, bool) == isinstance(second, bool) and first == second


def unique_json(values: Sequence[Any]) -> list[Any]:
    """Drop what repeats an earlier value."""
    kept: list[Any] = []
    for value in values:
        if not any(same_json(value, other) for other in kept):
            kept.append(value)
    return kept


def admits_null(document: Document, schema: object, seen: tuple[str, ...] = ()) -> bool:
    """Tell whether null fits the schema, as far as types, values and combinations tell."""
    if not is_object(schema):
        return schema is not False
    document.spend()
    node, seen = _referred(document, schema, seen)
    types, branches, values = types_of(node), union_of(node), node.get("enum")
    return (
        (not types or "null" in types)
        and (not is_array(values) or None in values)
        and ("const" not in node or node["const"] is None)
        and (not branches or any(admits_null(document, one, seen) for one in branches))
    )


def _referred(document: Document, schema: Mapping[str, Any], seen: tuple[str, ...]) -> tuple[JsonSchema, tuple[str, ...]]:
    folded = fold(document, schema, seen)
    return folded.node, folded.seen
