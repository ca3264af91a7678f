"""Say in a model's words what a validator found: where, what was expected, what came, and what to do.

Library text never gets through: each error becomes a `Problem` of our own wording, which names kinds of values ("text",
"an integer") and never the values. Source: cases b7, e5, e6.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Final

from callgate.errors import Problem
from callgate.tools.paths import Steps, write_path
from callgate.tools.schema_words import NOWHERE, Schema, either, known_names, phrase_at, value_at

__all__ = (
    "MAX_FAULTS",
    "OWN_CHECK",
    "UNKNOWN",
    "Fault",
    "Refusal",
    "kind_of_value",
    "missing_fault",
    "refusal_of",
    "unknown_fault",
)

OWN_CHECK: Final = "arguments accepted by the tool's own check"
UNKNOWN: Final = "no argument of this name"
MAX_FAULTS: Final = 200
"""No more errors of one call are looked at."""

_MISSING: Final = "nothing (it is missing)"
_MAX_NAMES: Final = 12


@dataclass(frozen=True, slots=True)
class Refusal:
    """Hold what is wrong with the arguments; `unknown` are the arguments that no one asked for, see `InputRefused`."""

    problems: tuple[Problem, ...]
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """Hold one error at one place; `choices` are the union branches it was found in, each with the place of its union."""

    steps: Steps
    expected: str
    got: str
    hint: str = ""
    unknown: bool = False
    choices: tuple[tuple[Steps, str], ...] = ()


_KINDS: Final[tuple[tuple[type | tuple[type, ...], str], ...]] = (
    (bool, "a boolean"),
    (int, "an integer"),
    (float, "a number with a decimal point"),
    (str, "text"),
    (Mapping, "an object"),
    ((list, tuple), "a list"),
    (type(None), "null"),
)


def kind_of_value(value: object) -> str:
    """Name the kind of a JSON value in words, never the value."""
    if value == "":
        return "empty text"
    foreign = f"a value of type {type(value).__name__}"
    return next((words for kind, words in _KINDS if isinstance(value, kind)), foreign)


def refusal_of(faults: Sequence[Fault]) -> Refusal:
    """Turn faults into problems, of each union only those of the branches that came nearest."""
    kept = _without_other_branches(faults)
    problems = (Problem(write_path(fault.steps), fault.expected, fault.got, fault.hint) for fault in kept)
    return Refusal(tuple(dict.fromkeys(problems)), tuple(_unknown_name(fault.steps) for fault in kept if fault.unknown))


def _unknown_name(steps: Steps) -> str:
    return str(steps[0]) if len(steps) == 1 else write_path(steps)


def unknown_fault(steps: Steps, arguments: object, schema: Schema) -> Fault:
    """Refuse a name that is not known, with the nearest known name that is still free. Source: case b7."""
    known = known_names(steps[:-1], schema)
    free = [name for name in known if value_at((*steps[:-1], name), arguments) is NOWHERE]
    hint = _name_hint(str(steps[-1]), known, free)
    return Fault(steps, UNKNOWN, kind_of_value(value_at(steps, arguments)), hint, unknown=True)


def _name_hint(name: str, known: Sequence[str], free: Sequence[str]) -> str:
    if not known:
        return "no arguments are known here"
    near = get_close_matches(name.casefold(), free, n=1, cutoff=0.6) or get_close_matches(name, free, n=1, cutoff=0.6)
    more = f" and {len(known) - _MAX_NAMES} more" if len(known) > _MAX_NAMES else ""
    names = f"known: {', '.join(known[:_MAX_NAMES])}{more}"
    return f"did you mean '{near[0]}'? {names}" if near else names


def missing_fault(steps: Steps, schema: Schema) -> Fault:
    """Ask for what is missing at `steps`, in the words of the schema."""
    return Fault(steps, phrase_at(steps, schema), _MISSING)


# Unions: a validator reports every branch. The model is told of the branch that it came nearest to.


def _without_other_branches(faults: Sequence[Fault]) -> list[Fault]:
    groups: dict[object, list[Fault]] = {}
    for index, fault in enumerate(faults):
        key = ("union", fault.choices[0][0]) if fault.choices else ("alone", index)
        groups.setdefault(key, []).append(fault)
    kept: list[Fault] = []
    for group in groups.values():
        kept.extend(_nearest_branch(group) if group[0].choices else group)
    return kept


def _nearest_branch(faults: Sequence[Fault]) -> list[Fault]:
    place = faults[0].choices[0][0]
    branches: dict[str, list[Fault]] = {}
    for fault in faults:
        branches.setdefault(fault.choices[0][1], []).append(replace(fault, choices=fault.choices[1:]))
    reached = {label: inner for label, inner in branches.items() if any(fault.steps != place for fault in inner)}
    if not reached:
        return [_merged(place, [fault for inner in branches.values() for fault in _without_other_branches(inner)])]
    nearest = {label: _without_other_branches(inner) for label, inner in reached.items()}
    fewest = min(map(len, nearest.values()))
    best = {label: inner for label, inner in nearest.items() if len(inner) == fewest}
    named = len(branches) > 1
    return [_in_branch(fault, label) if named else fault for label, inner in best.items() for fault in inner]


def _in_branch(fault: Fault, label: str) -> Fault:
    if not label.isidentifier():
        return fault
    return replace(fault, hint="; ".join(filter(None, (f"read as {label}", fault.hint))))


def _merged(place: Steps, faults: Sequence[Fault]) -> Fault:
    return Fault(place, either(fault.expected for fault in faults), faults[0].got)
