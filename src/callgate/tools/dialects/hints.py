"""Tell the model in a description what a dialect has no keyword for."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ("described", "joined_text", "json_text")

_TOLD = (
    "format",
    "contentEncoding",
    "contentMediaType",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "default",
)
_MAX_HINT_CHARACTERS = 200


def json_text(value: object) -> str:
    """Write a JSON value on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def described(schema: Mapping[str, Any], kept: Iterable[str], *more: str) -> dict[str, str]:
    """Give the schema's description with the constraints that are not among the kept keywords, as `{"description": …}`.

    `more` are further remarks. The result is empty when there is nothing to say.
    """
    lost = [
        f"{keyword}: {json_text(schema[keyword])}" for keyword in _TOLD if schema.get(keyword) is not None and keyword not in kept
    ]
    remarks = "; ".join([hint for hint in lost if len(hint) <= _MAX_HINT_CHARACTERS] + [one for one in more if one])
    text = joined_text(schema.get("description"), f"({remarks})" if remarks else "")
    return {"description": text} if text else {}


def joined_text(*parts: object) -> str:
    """Join the parts that are text and not empty with blanks."""
    return " ".join(part for part in parts if isinstance(part, str) and part)
