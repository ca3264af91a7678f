"""Repair arguments that validation refused, at the refused places alone and only where the schema leaves one reading.

A value is read as another only where the schema can admit nothing of the value's own kind, so what is valid is never
touched. The caller validates what comes out, so a repair lets nothing pass that the schema refuses.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Final, cast

from callgate.errors import Problem
from callgate.tools.paths import Step, Steps, write_path
from callgate.tools.reading import parse_strictly
from callgate.tools.schema_places import SchemaPlaces, kind_in_schema

__all__ = ("Repaired", "repair_arguments")

_LITERAL: Final = re.compile(r"true|false|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_CONTAINER: Final = re.compile(r"\s*[\[{]")
_INDEX: Final = re.compile(r"\[([0-9]{1,9})\]")
_END_OF_KEY: Final = re.compile(r"[.\[]|\Z")
_EXACT_AS_FLOAT: Final = 2**53
_WORDS: Final = {
    "object": "JSON text read as an object",
    "array": "JSON text read as a list",
    "integer": "text read as an integer",
    "number": "text read as a number",
    "boolean": "text read as true or false",
}


@dataclass(frozen=True, slots=True)
class Repaired:
    """Hold repaired arguments, and a line for each repair that names the path and what was done, without values.

    Parts without a repair are shared with the arguments that were given, which are as they were.
    """

    arguments: dict[str, object]
    repairs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Repair:
    what: str
    value: object = None
    is_removal: bool = False


def repair_arguments(schema: Mapping[str, object], arguments: dict[str, object], problems: Sequence[Problem]) -> Repaired | None:
    """Repair `arguments` at the paths of `problems`, or give None when nothing there has exactly one other reading.

    Read are: an object, a list, a number or a boolean sent as text where no text can be admitted (numbers and booleans
    exactly as JSON writes them); a float without fraction where integers and no other numbers are; and null for a
    property that is optional and admits none, which is left out.

    Source: cases a23, b4, b5, b13.
    """
    draft = _Draft(arguments)
    places = SchemaPlaces(schema)
    done: dict[Steps, str] = {}
    for steps in _places_of(problems, arguments):
        if steps in done or (repair := _repair_for(places, steps, _value_at(arguments, steps))) is None:
            continue
        draft.apply(steps, repair)
        done[steps] = f"{write_path(steps)}: {repair.what}"
    return Repaired(draft.arguments, tuple(done.values())) if done else None


def _places_of(problems: Sequence[Problem], arguments: dict[str, object]) -> Iterator[Steps]:
    for problem in problems:
        found = list(_located(problem.path, arguments, ())) if problem.path else []
        if len(found) == 1:  # a key may look like a path of several; then nobody knows which place was meant
            yield found[0]


def _located(rest: str, value: object, steps: Steps) -> Iterator[Steps]:
    """Find the places in `value` whose written path is `rest`."""
    if not rest:
        yield steps
    elif isinstance(value, list):
        items = cast("list[object]", value)
        index = _INDEX.match(rest)
        if index and int(index[1]) < len(items):
            yield from _located(rest[index.end() :], items[int(index[1])], (*steps, int(index[1])))
    elif isinstance(value, dict):
        members = cast("dict[str, object]", value)
        for key, end in _keys_at(rest, is_first=not steps):
            if key in members:
                yield from _located(rest[end:], members[key], (*steps, key))


def _keys_at(rest: str, *, is_first: bool) -> Iterator[tuple[str, int]]:
    if rest.startswith('["'):
        try:
            key, end = json.JSONDecoder().raw_decode(rest, 1)
        except ValueError:
            return
        if rest.startswith("]", end):
            yield key, end + 1
    start = 0 if is_first else 1
    if is_first or rest.startswith("."):
        for match in _END_OF_KEY.finditer(rest, start):
            yield rest[start : match.start()], match.start()


def _value_at(value: object, steps: Steps) -> object:
    for step in steps:
        value = cast("dict[Step, object]", value)[step]
    return value


def _repair_for(places: SchemaPlaces, steps: Steps, value: object) -> _Repair | None:
    kinds = places.kinds_at(steps)
    if kinds is None or kind_in_schema(value) in kinds:
        return None
    match value:
        case None if places.is_optional(steps):
            return _Repair("null left out", is_removal=True)
        case str():
            return _reading_of(value, kinds)
        case float() if "integer" in kinds and value.is_integer() and abs(value) <= _EXACT_AS_FLOAT:
            return _Repair("number without a fraction read as an integer", int(value))
        case _:
            return None


def _reading_of(text: str, kinds: frozenset[str]) -> _Repair | None:
    if not (_LITERAL.fullmatch(text) or _CONTAINER.match(text)):
        return None
    try:
        value = parse_strictly(text)
    except ValueError:
        return None
    kind = kind_in_schema(value)
    return _Repair(_WORDS[kind], value) if kind in kinds else None


class _Draft:
    """Copy arguments as far as they are changed: each object and list on the way to a repair, once."""

    def __init__(self, arguments: dict[str, object]) -> None:
        self.arguments = dict(arguments)
        self._copies: dict[Steps, object] = {(): self.arguments}

    def apply(self, steps: Steps, repair: _Repair) -> None:
        container = cast("dict[Step, object]", self._copy(steps[:-1]))
        if repair.is_removal:
            del container[steps[-1]]
        else:
            container[steps[-1]] = repair.value

    def _copy(self, steps: Steps) -> object:
        if steps not in self._copies:
            parent = cast("dict[Step, object]", self._copy(steps[:-1]))
            parent[steps[-1]] = self._copies[steps] = copy(parent[steps[-1]])
        return self._copies[steps]
