"""Write single values as JSON, next to what the model wrote for them: leaves, lists, sets and dicts.

A value that only its class could write has no form here: a class writes itself by names that the schema does not have.
"""

import contextlib
import json
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum
from functools import lru_cache
from math import isfinite
from typing import Any, Final, TypeAlias, cast

from pydantic import PydanticUserError, TypeAdapter
from pydantic_core import PydanticSerializationError, to_jsonable_python

__all__ = (
    "ABSENT",
    "MASKED",
    "MISFIT",
    "SIMPLE",
    "WireForm",
    "as_written",
    "dict_form",
    "each_form",
    "fields_of",
    "forms_of",
    "hidden_form",
    "items_form",
    "json_form",
    "leaf_form",
)

WireForm: TypeAlias = Callable[[Any, Any], object]
"""Give the JSON form of a value, next to what the model wrote for it (or ABSENT); MISFIT where it has none."""

ABSENT: Final = object()
"""Stands for what is not there: a value that the object lacks, or what the model did not write."""

MISFIT: Final = object()
"""Stands for the form of a value that is no value of the schema."""

MASKED: Final[Mapping[str, str]] = {"secret": "**********"}
"""The form of a secret: an object and no text, so that no rule takes it for the secret and no tool takes it for one."""

SIMPLE: Final = frozenset({str, int, bool, type(None)})
"""The types whose values are their own form."""

_UNWRITABLE: Final = (PydanticSerializationError, PydanticUserError, ValueError, TypeError, AttributeError, RecursionError)
_SEQUENCES: Final = (list, tuple, set, frozenset, deque)


def as_written(_value: object, written: object) -> object:
    """Give what the model wrote."""
    return MISFIT if written is ABSENT else written


def hidden_form(value: object, _written: object) -> object:
    """Mask a secret, also when an author's validator has unwrapped it."""
    return None if value is None else dict(MASKED)


def fields_of(written: object) -> Mapping[str, object]:
    """Give the fields of what the model wrote; none when it is no object."""
    return cast("Mapping[str, object]", written) if isinstance(written, dict) else {}


def json_form(value: object, written: object = ABSENT) -> object:
    """Give the form of a value that is JSON already, or nearly; nothing within is shared with it."""
    if _is_a(dict, value):
        return dict_form(json_form, json_form, value, written)
    return items_form(json_form, value, written) if _is_a(_SEQUENCES, value) else leaf_form(value, written)


def _is_a(kinds: type | tuple[type, ...], value: object) -> bool:
    """Tell whether a value is of a type, without a claim about what is in it."""
    return isinstance(value, kinds)


def leaf_form(value: Any, _written: object) -> object:
    """Give the form of a value that has no parts: bytes as base64, a secret masked, what is unknown as pydantic has it."""
    if type(value) in SIMPLE:
        return value
    if isinstance(value, float):
        return value if isfinite(value) else json.dumps(value)
    if hasattr(value, "get_secret_value"):
        return dict(MASKED)
    if isinstance(value, Enum):
        return leaf_form(value.value, ABSENT)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return MISFIT if _is_built(value) else _written_by_pydantic(value)


def _is_built(value: object) -> bool:
    """Tell whether pydantic would use a value up, or let a class write itself by names that the schema does not have."""
    return isinstance(value, (dict, *_SEQUENCES, Iterator)) or is_dataclass(value) or hasattr(value, "__pydantic_fields__")


def _written_by_pydantic(value: object) -> object:
    with contextlib.suppress(*_UNWRITABLE):
        return to_jsonable_python(value)
    write = _writer_of(cast("Hashable", type(value)))
    with contextlib.suppress(*_UNWRITABLE):
        return MISFIT if write is None else write(value, mode="json", warnings="error")
    return MISFIT


@lru_cache(maxsize=256)
def _writer_of(kind: Hashable) -> Callable[..., object] | None:
    """Give what writes the values of a type of the standard library; none for one that says itself how it is written."""
    if hasattr(kind, "__get_pydantic_core_schema__"):
        return None
    try:
        return TypeAdapter[Any](cast("Any", kind)).dump_python
    except _UNWRITABLE:
        return None


def dict_form(key_form: WireForm, item_form: WireForm, value: object, written: object) -> object:
    """Give the form of a dict of any keys; MISFIT where two keys would come to the same."""
    if not isinstance(value, dict):
        return MISFIT
    value = cast("dict[object, object]", value)
    plain: dict[str, object] = {}
    for (key, item), own in zip(value.items(), _alongside(value, written), strict=True):
        name, form = key_form(key, ABSENT), item_form(item, own)
        if name is MISFIT or form is MISFIT:
            return MISFIT
        plain[name if isinstance(name, str) else json.dumps(name)] = form
    return plain if len(plain) == len(value) else MISFIT


def _alongside(value: dict[object, object], written: object) -> Iterable[object]:
    """Give what was written for each item; a validator may have changed the keys, but a dict keeps its order."""
    given = fields_of(written)
    if all(key in given for key in value):
        return [given[cast("str", key)] for key in value]
    return given.values() if len(given) == len(value) else [ABSENT] * len(value)


def items_form(form: WireForm, items: object, written: object) -> object:
    """Give the form of a list, or of what is one in JSON, whose numbers and texts are their own form."""
    if _is_a(list, items) and SIMPLE.issuperset(map(type, cast("list[object]", items))):
        return [*cast("list[object]", items)]
    return each_form(form, items, written)


def each_form(form: WireForm, items: object, written: object) -> object:
    """Give the form of a list, or of what is one in JSON, whose items are all alike."""
    if not _is_a(_SEQUENCES, items):
        return MISFIT
    values = cast("Sequence[object]", items)
    return forms_of([form] * len(values), values, written)


def forms_of(forms: Sequence[WireForm], items: Iterable[object], written: object) -> object:
    """Give the form of a list whose items have a form each."""
    is_set = isinstance(items, set | frozenset)
    given = cast("list[object]", written) if isinstance(written, list) and not is_set else ()
    alongside = given if len(given) == len(forms) else [ABSENT] * len(forms)
    plain = [form(item, own) for form, item, own in zip(forms, items, alongside, strict=True)]
    if any(item is MISFIT for item in plain):
        return MISFIT
    return sorted(plain, key=json.dumps) if is_set else plain  # a set has another order in each process
