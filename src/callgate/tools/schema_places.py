"""Look up what a JSON Schema says about one place of the arguments: the kinds of value that it can admit at most.

An upper bound is enough for a repair, and it can be read off without validating: a keyword that is not understood here
can only admit less. Only local references are followed. None means that the schema does not say.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias, cast
from urllib.parse import unquote

from callgate.tools.paths import Step

__all__ = ("Kinds", "SchemaPlaces", "kind_in_schema")

Kinds: TypeAlias = frozenset[str] | None
"""Type names of JSON Schema, with `integer` wherever there is `number`; None: any."""

_Schema: TypeAlias = Mapping[str, object]
_MAX_LOOKUPS: Final = 50_000
_MAX_REFERENCES: Final = 32
_KINDS: Final[dict[type, str]] = {bool: "boolean", int: "integer", float: "number", str: "string", dict: "object", list: "array"}


def kind_in_schema(value: object) -> str:
    """Name the type of a decoded JSON value as JSON Schema does."""
    return _KINDS.get(type(value), "null")


class SchemaPlaces:
    """Answer questions about places of the arguments that `schema` describes.

    One instance looks at 50,000 subschemas at most, and follows references and alternatives 32 deep for one place:
    a schema that refers to itself in a circle, or many times over, costs no more. Beyond that it does not say.
    """

    def __init__(self, schema: _Schema) -> None:
        self._root = schema
        self._left = _MAX_LOOKUPS

    def kinds_at(self, steps: Sequence[Step]) -> Kinds:
        """Give the kinds of value that can be admitted at most at the end of `steps`."""
        schemas = self._schemas_at(steps)
        return None if schemas is None else _united([self._kinds(schema, 0) for schema in schemas])

    def is_optional(self, steps: Sequence[Step]) -> bool:
        """Tell whether the end of `steps` is a property that its object declares and does not require."""
        parents, key = self._schemas_at(steps[:-1]), steps[-1]
        if parents is None or not isinstance(key, str):
            return False
        parts = [part for parent in parents for part in self._parts(parent, 0)]
        declared = any(key in _mapping(part.get("properties")) for part in parts)
        return declared and not any(key in _sequence(part.get("required")) for part in parts)

    def _schemas_at(self, steps: Sequence[Step]) -> list[object] | None:
        schemas: list[object] = [self._root]
        for step in steps:
            found = [self._below(schema, step, 0) for schema in schemas]
            if any(below is None for below in found):
                return None
            schemas = [schema for below in found for schema in below or ()]
        return schemas

    def _below(self, schema: object, step: Step, depth: int) -> list[object] | None:
        """Give the schemas of which a value at `step` below a value of `schema` has to fit one."""
        if not isinstance(schema, Mapping) or self._is_exhausted(depth):
            return None
        known = cast("_Schema", schema)
        own = _own_property(known, step) if isinstance(step, str) else _own_item(known, step)
        if own is not None:
            return own
        if (target := self._target(known)) is not None:
            return self._below(target, step, depth + 1)
        for branches in _alternatives(known):
            return self._below_any(branches, step, depth + 1)
        answers = (self._below(part, step, depth + 1) for part in _sequence(known.get("allOf")))
        return next((answer for answer in answers if answer is not None), None)

    def _below_any(self, branches: Sequence[object], step: Step, depth: int) -> list[object] | None:
        container = "object" if isinstance(step, str) else "array"
        below: list[object] = []
        for branch in branches:
            kinds = self._kinds(branch, depth)
            if kinds is not None and container not in kinds:
                continue
            found = self._below(branch, step, depth)
            if found is None:
                return None
            below += found
        return below

    def _kinds(self, schema: object, depth: int) -> Kinds:
        if not isinstance(schema, Mapping) or self._is_exhausted(depth):
            return None
        known = cast("_Schema", schema)
        bounds = [_own_kinds(known)]
        if (target := self._target(known)) is not None:
            bounds.append(self._kinds(target, depth + 1))
        bounds += [_united([self._kinds(branch, depth + 1) for branch in branches]) for branches in _alternatives(known)]
        bounds += [self._kinds(part, depth + 1) for part in _sequence(known.get("allOf"))]
        told = [bound for bound in bounds if bound is not None]
        return told[0].intersection(*told) if told else None

    def _parts(self, schema: object, depth: int) -> Iterator[_Schema]:
        """Give the schema and all that it refers to for the same place."""
        if not isinstance(schema, Mapping) or self._is_exhausted(depth):
            return
        known = cast("_Schema", schema)
        yield known
        below = [self._target(known), *_sequence(known.get("allOf"))]
        for branches in _alternatives(known):
            below += branches
        for part in below:
            yield from self._parts(part, depth + 1)

    def _target(self, schema: _Schema) -> object:
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        target: object = self._root
        for token in unquote(reference[1:]).split("/")[1:]:
            target = _mapping(target).get(token.replace("~1", "/").replace("~0", "~"))
        return target

    def _is_exhausted(self, depth: int) -> bool:
        self._left -= 1
        return self._left < 0 or depth > _MAX_REFERENCES


def _own_kinds(schema: _Schema) -> Kinds:
    if "const" in schema:
        kinds = {kind_in_schema(schema["const"])}
    elif "enum" in schema:
        kinds = {kind_in_schema(value) for value in _sequence(schema["enum"])}
    else:
        told = schema.get("type")
        kinds = {kind for kind in (told, *_sequence(told)) if isinstance(kind, str)}
    if "number" in kinds:
        kinds.add("integer")
    return frozenset(kinds) or None


def _own_property(schema: _Schema, name: str) -> list[object] | None:
    properties = _mapping(schema.get("properties"))
    if name in properties:
        return [properties[name]]
    others = schema.get("additionalProperties")
    if "patternProperties" in schema or others is None or others is True:
        return None
    return [] if others is False else [others]


def _own_item(schema: _Schema, index: int) -> list[object] | None:
    first = _sequence(schema.get("prefixItems"))
    if index < len(first):
        return [first[index]]
    others = schema.get("items")
    if others is False:
        return []
    return [others] if isinstance(others, Mapping) else None


def _alternatives(schema: _Schema) -> list[Sequence[object]]:
    return [_sequence(schema[keyword]) for keyword in ("anyOf", "oneOf") if keyword in schema]


def _united(bounds: Sequence[Kinds]) -> Kinds:
    told = [bound for bound in bounds if bound is not None]
    return frozenset[str]().union(*told) if len(told) == len(bounds) else None


def _mapping(value: object) -> _Schema:
    return cast("_Schema", value) if isinstance(value, Mapping) else {}


def _sequence(value: object) -> Sequence[object]:
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else ()
