"""Rewrite single nodes of pydantic's core schemas, so that JSON is read as strictly as it is written.

Each rule gets a node whose parts are rewritten already and gives the node to put in its place. None changes its node.
"""

import re
import sys
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from typing import Any, Final, TypeAlias, cast

from pydantic_core import CoreSchema, PydanticKnownError, SchemaValidator, core_schema, to_json

__all__ = (
    "NAMED",
    "OMITTED",
    "OPAQUE",
    "PYTHON_RULES",
    "STRICT_RULES",
    "Node",
    "Rule",
    "decoded_once",
    "feeds_python",
    "loaded_module",
    "parts_of",
    "stated_extra",
    "without_factory",
)

Node: TypeAlias = dict[str, Any]
Rule: TypeAlias = Callable[[Node], Node]

OPAQUE: Final = frozenset(
    {"cls", "config", "custom_error_context", "default", "expected", "members", "metadata", "serialization"},
)
"""Keys whose values are the author's own objects or settings: never looked into."""

NAMED: Final = frozenset({"fields", "choices"})
"""Keys whose dicts are indexed by names that the author chose."""


def loaded_module(name: str) -> Any:
    """Give a module that is loaded, or None: then no value of its types can be about.

    `pydantic.fields` and `pydantic.types` take 18 ms, a third of what importing pydantic does, and `import callgate` has a limit.
    """
    return sys.modules.get(name)


def stated_extra(node: Node) -> str | None:
    """Tell what the author said about unknown keys; pydantic writes "ignore" into a typed dict whose author said nothing."""
    stated = node.get("config", {}).get("extra_fields_behavior")
    behavior = node.get("extra_behavior")
    return stated or (behavior if behavior != "ignore" else None)


def _strict_literal(node: Node) -> Node:
    """Let `true` and `1.0` be no `Literal[1]`, and `1` no `Literal[True]`: they are equal in Python and not in JSON."""
    groups: dict[str, list[Any]] = {}
    for value in node["expected"]:
        groups.setdefault(_json_number_kind(value), []).append(value)
    steps = [_checked_first(kind, {**node, "expected": values}) for kind, values in groups.items()]
    return steps[0] if len(steps) == 1 else {"type": "union", "choices": steps}


def _strict_enum(node: Node) -> Node:
    return _checked_first("int", node) if node.get("sub_type") == "int" else node


def _json_number_kind(value: Any) -> str:
    bare = value.value if isinstance(value, Enum) else value
    return "bool" if isinstance(bare, bool) else "int" if isinstance(bare, int) else ""


def _checked_first(kind: str, node: Node) -> Node:
    if not kind:
        return node
    inner = {key: value for key, value in node.items() if key != "ref"}
    chain: Node = {"type": "chain", "steps": [{"type": kind, "strict": True}, inner]}
    return {**chain, "ref": node["ref"]} if "ref" in node else chain


def decoded_once(node: Node) -> Node:
    """Keep pydantic's `Base64Bytes` from decoding what is decoded already; its own decoder would drop wrong characters."""
    owner: Any = getattr(node["function"]["function"], "__self__", None)
    types = loaded_module("pydantic.types")
    if types is None or not isinstance(owner, types.EncodedBytes):
        return node
    if owner.encoder in (types.Base64Encoder, types.Base64UrlEncoder):
        return cast("Node", node["schema"])
    return {**node, "schema": core_schema.no_info_after_validator_function(str.encode, core_schema.str_schema())}


def feeds_python(value: Any) -> bool:
    """Tell whether a validator of the author sees values first: what comes after it reads Python objects, not JSON."""
    if isinstance(value, dict):
        node = cast("Node", value)
        if node.get("type") in {"function-wrap", "function-before"}:
            return True
        return any(map(feeds_python, parts_of(node)))
    return isinstance(value, list | tuple) and any(map(feeds_python, cast("Iterable[Any]", value)))


def parts_of(node: Node) -> Iterator[Any]:
    """Give what a core schema is made of: each a schema, or a list or dict of them."""
    for key, value in node.items():
        if key in NAMED and isinstance(value, dict):
            yield from cast("Node", value).values()
        elif key not in OPAQUE:
            yield value


_NUMBER: Final = re.compile(r"\s*[+-]?[\d_.]+(?:[eE][+-]?\d+)?\s*")


_TIME_ERRORS: Final[Mapping[str, core_schema.ErrorType]] = {
    "date": "date_type",
    "datetime": "datetime_type",
    "time": "time_type",
    "timedelta": "time_delta_type",
}


def _time_but_no_number(node: Node) -> Node:
    """Refuse `"20250131"`, which pydantic takes for seconds since 1970, a day in August of that year.

    A union that chooses by a look at the value leaves it JSON for what comes next; any other validator of ours would not.
    """
    bare = {key: value for key, value in node.items() if key != "ref"}
    return {
        "type": "tagged-union",
        "choices": {"time": bare},
        "discriminator": _tag_of_time,
        "custom_error_type": _TIME_ERRORS[node["type"]],
    }


def _tag_of_time(value: object) -> str | None:
    return None if isinstance(value, str) and _NUMBER.fullmatch(value) else "time"


def _time_read_first(node: Node) -> Node:
    bare = cast("CoreSchema", {"type": node["type"], "strict": True})
    return _read_first(partial(_read_time, SchemaValidator(bare).validate_json, _TIME_ERRORS[node["type"]]), node)


def _read_time(validate: Callable[[bytes], object], error: core_schema.ErrorType, value: object) -> object:
    if not isinstance(value, str):
        return value
    if _tag_of_time(value) is None:
        raise PydanticKnownError(error)
    return validate(to_json(value))


def _relaxed(node: Node) -> Node:
    return {**node, "strict": False}


def _relaxed_bytes(node: Node) -> Node:
    return _read_first(_from_base64, node)


def _from_base64(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return b64decode(value, validate=True)
    except ValueError as error:
        raise PydanticKnownError("bytes_invalid_encoding", {"encoding": "base64", "encoding_error": ""}) from error


def _read_first(reader: Callable[[object], object], node: Node) -> Node:
    return cast("Node", core_schema.no_info_before_validator_function(reader, cast("CoreSchema", node)))


STRICT_RULES: Final[Mapping[str, Rule]] = {
    "literal": _strict_literal,
    "enum": _strict_enum,
    **dict.fromkeys(_TIME_ERRORS, _time_but_no_number),
}
"""What pydantic converts even where it is strict."""

PYTHON_RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(_TIME_ERRORS, _time_read_first),
    **dict.fromkeys(("decimal", "deque", "frozenset", "set", "tuple", "uuid"), _relaxed),
    "bytes": _relaxed_bytes,
}
"""What pydantic reads strictly from JSON but, after a validator of the author's, would demand as a finished Python object."""


class _Omitted:
    """Stand for what an author's factory would have made."""


OMITTED: Final = _Omitted()
_FACTORY_KEYS: Final = frozenset({"default_factory", "default_factory_takes_data", "validate_default"})


def without_factory(node: Node) -> Node:
    """Keep a second reading of the arguments from running the author's factories again. Source: case a20."""
    if "default_factory" not in node:
        return node
    return {**{key: value for key, value in node.items() if key not in _FACTORY_KEYS}, "default": OMITTED}
