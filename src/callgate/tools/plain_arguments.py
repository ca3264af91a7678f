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
    plain: object
    defaults: Mapping[str, object]
    if not isinstance(parser, FunctionInput):
        plain, defaults = parser.form(parsed, _read(text)), _defaults_in(parser.schema)
    elif not parser.holds_secret and _is_flat(values := cast("dict[str, object]", parsed)):
        plain, defaults = parser.by_wire_name(values), parser.defaults
    else:
        plain, defaults = parser.form(parsed, _read(text)), parser.defaults
    filled = cast("dict[str, object]", plain)
    for name, default in defaults.items():
        if name not in filled:
            filled[name] = default if type(default) in _FLAT else copy.deepcopy(default)
    return filled


def _defaults_in(schema: Mapping[str, object]) -> dict[str, object]:
    """Give the defaults that a schema tells: whoever takes arguments by a schema of their own fills them in themselves."""
    properties = cast("Mapping[str, object]", schema.get("properties", _NOTHING))
    described = {name: cast("Mapping[str, object]", each) for name, each in properties.items() if isinstance(each, dict)}
    return {name: each["default"] for name, each in described.items() if "default" in each}


def _is_flat(values: Mapping[str, object]) -> bool:
    """Tell whether all are their own JSON form, as most arguments are; each call that a policy judges asks this."""
    kinds = set(map(type, values.values()))
    if float in kinds:
        for value in values.values():
            if type(value) is float and not isfinite(value):
                return False
    return kinds <= _FLAT


def _read(text: bytes) -> dict[str, object]:
    read: object = json.loads(text) if text else {}
    return cast("dict[str, object]", read) if isinstance(read, dict) else {}
