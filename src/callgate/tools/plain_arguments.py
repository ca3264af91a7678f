"""`plain_arguments`: the parsed arguments of a call in JSON form, as policies judge them and people see them.

They are read from what was parsed and not from what the model wrote: a number that came as text is a number here, a default
that the tool fills in is there, and a nested model is an object under the names of the schema.
"""

import copy
import json
import math
from collections.abc import Mapping
from typing import Any, Final, cast

from pydantic_core import PydanticSerializationError, to_jsonable_python

from callgate.tools.inputs import is_parsed_by_callable
from callgate.tools.signature import FunctionInput
from callgate.tools.tool import Tool

__all__ = ("plain_arguments",)

_PLAIN: Final = frozenset({str, int, bool, type(None)})
_NOTHING: Final[Mapping[str, Any]] = {}


def plain_arguments(tool: Tool[Any, Any], parsed: object, text: bytes) -> dict[str, object]:
    """Give the arguments by their names in the schema; `text` is the JSON that was accepted, for what has no JSON form."""
    parser = tool.input
    if isinstance(parser, FunctionInput):
        plain = {parser.wire_name(name): _plain(value) for name, value in cast("dict[str, object]", parsed).items()}
    elif is_parsed_by_callable(parser):
        return _read(text)
    else:
        dumped = _plain(parsed)
        plain = cast("dict[str, object]", dumped) if isinstance(dumped, dict) else _read(text)
    if _UNWRITABLE in plain.values():
        written = _read(text)
        plain = {name: written.get(name) if value is _UNWRITABLE else value for name, value in plain.items()}
    properties = cast("Mapping[str, Mapping[str, Any]]", parser.schema.get("properties", _NOTHING))
    if len(plain) < len(properties):
        for name, described in properties.items():
            if name not in plain and "default" in described:
                plain[name] = copy.deepcopy(described["default"])
    return plain


class _Unwritable:
    """Stand for a value that has no JSON form."""


_UNWRITABLE: Final = _Unwritable()


def _plain(value: object) -> object:
    kind = type(value)
    if kind in _PLAIN or (kind is float and math.isfinite(cast("float", value))):
        return value
    try:
        return to_jsonable_python(value, by_alias=True, inf_nan_mode="strings")
    except (PydanticSerializationError, ValueError, TypeError, RecursionError):
        return _UNWRITABLE


def _read(text: bytes) -> dict[str, object]:
    read: object = json.loads(text) if text else {}
    return cast("dict[str, object]", read) if isinstance(read, dict) else {}
