"""`plain_arguments`: the parsed arguments of a call in JSON form, as policies judge them and people see them.

They are read from what was parsed and not from what the model wrote: a number that came as text is a number here, and a
default that the tool fills in is there. Their names and their form are those of the schema, also deep inside, because the
paths of rules and of redactions are checked against it; what has no such form stands as the model wrote it.
"""

import copy
import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, Final, cast

from callgate.tools.signature import FunctionInput
from callgate.tools.tool import Tool

__all__ = ("plain_arguments",)

_FLAT: Final = frozenset({str, int, float, bool, type(None)})
_NOTHING: Final[Mapping[str, Any]] = {}


def plain_arguments(tool: Tool[Any, Any], parsed: object, text: bytes) -> dict[str, object]:
    """Give the arguments by their names in the schema; `text` is the JSON that was accepted, for what has no JSON form."""
    parser = tool.input
    if isinstance(parser, FunctionInput) and _is_flat(values := cast("dict[str, object]", parsed)):
        plain = parser.by_wire_name(values)
    else:
        plain = cast("dict[str, object]", parser.form(parsed, _read(text)))
    properties = cast("Mapping[str, Mapping[str, Any]]", parser.schema.get("properties", _NOTHING))
    if len(plain) < len(properties):
        for name, described in properties.items():
            if name not in plain and "default" in described:
                default = described["default"]
                plain[name] = default if type(default) in _FLAT else copy.deepcopy(default)
    return plain


def _is_flat(values: Mapping[str, object]) -> bool:
    """Tell whether all are their own JSON form, as most arguments are; each call that a policy judges asks this."""
    kinds = set(map(type, values.values()))
    return kinds <= _FLAT and (
        float not in kinds or all(type(value) is not float or isfinite(value) for value in values.values())
    )


def _read(text: bytes) -> dict[str, object]:
    read: object = json.loads(text) if text else {}
    return cast("dict[str, object]", read) if isinstance(read, dict) else {}
