"""Find where two readings of the same arguments chose different branches of a union."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeAlias, cast

from pydantic import BaseModel

from callgate.errors import Problem
from callgate.tools.core_rules import OMITTED
from callgate.tools.paths import Step, Steps, write_path

__all__ = ("ambiguity_in",)

_Difference: TypeAlias = tuple[Steps, str, str]


def ambiguity_in(first: object, second: object) -> Problem | None:
    """Compare two readings and name both branches where they differ in type; None when they agree. Source: case a22."""
    difference = next(_differences(first, second, ()), None)
    if difference is None:
        return None
    steps, one, other = difference
    advice = f"both {one} and {other} fit: give a field that only one of them has"
    return Problem(write_path(steps), f"a value that fits one of {one}, {other} only", "a value that fits both", advice)


def _differences(first: object, second: object, steps: Steps) -> Iterator[_Difference]:
    if second is OMITTED:
        return
    if type(first) is not type(second):
        yield steps, type(first).__name__, type(second).__name__
        return
    others = dict(_parts(second))
    for step, part in _parts(first):
        if step in others:
            yield from _differences(part, others[step], (*steps, step))


def _parts(value: object) -> Iterator[tuple[Step, Any]]:
    """Give what a value was built from; sets have no order to compare by and are left out."""
    if isinstance(value, BaseModel):
        yield from value.__dict__.items()
    elif isinstance(value, Mapping):
        for key, part in cast("Mapping[object, Any]", value).items():
            yield key if isinstance(key, str | int) else str(key), part
    elif isinstance(value, list | tuple):
        yield from enumerate(cast("Sequence[Any]", value))
    elif is_dataclass(value):
        yield from ((field.name, getattr(value, field.name)) for field in fields(value) if hasattr(value, field.name))
