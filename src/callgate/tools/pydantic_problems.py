"""Word pydantic's errors for a model."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from pydantic_core import ErrorDetails

from callgate.tools.paths import Step, Steps
from callgate.tools.problems import MAX_FAULTS, OWN_CHECK, Fault, Refusal, kind_of_value, missing_fault, refusal_of, unknown_fault
from callgate.tools.schema_words import (
    DATE,
    DATETIME,
    DURATION,
    NOWHERE,
    TIME,
    Schema,
    children,
    clipped,
    counted,
    filled,
    is_union,
    stepped,
)

__all__ = ("pydantic_refusal",)


def pydantic_refusal(errors: Iterable[ErrorDetails], arguments: object, schema: Schema) -> Refusal:
    """Word pydantic's errors; `arguments` are what was validated, decoded, and `schema` their neutral JSON Schema."""
    return refusal_of([_fault(error, arguments, schema) for error in islice(errors, MAX_FAULTS)])


_AT_KEY: Final = "[key]"
_MISSING_TYPES: Final = frozenset(
    {"missing", "missing_argument", "missing_keyword_only_argument", "missing_positional_only_argument"},
)
_UNKNOWN_TYPES: Final = frozenset({"extra_forbidden", "unexpected_keyword_argument"})
_OWN_CHECK_AT: Final = "a value accepted by the tool's own check"

_EXPECTED: Final[Mapping[str, str]] = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "bytes_invalid_encoding": "base64 text",
    "bytes_too_long": "at most {max_length} bytes",
    "bytes_too_short": "at least {min_length} bytes",
    "bytes_type": "base64 text",
    "complex_str_parsing": "a complex number as text",
    "complex_type": "a complex number as text",
    "dataclass_type": "an object",
    "date_from_datetime_inexact": DATE,
    "date_from_datetime_parsing": DATE,
    "date_future": "a date in the future",
    "date_parsing": DATE,
    "date_past": "a date in the past",
    "date_type": DATE,
    "datetime_from_date_parsing": DATETIME,
    "datetime_future": "a moment in the future",
    "datetime_object_invalid": DATETIME,
    "datetime_parsing": DATETIME,
    "datetime_past": "a moment in the past",
    "datetime_type": DATETIME,
    "decimal_max_digits": "at most {max_digits} digits",
    "decimal_max_places": "at most {decimal_places} decimal places",
    "decimal_parsing": "a decimal number",
    "decimal_type": "a decimal number",
    "decimal_whole_digits": "at most {whole_digits} digits before the point",
    "deque_type": "a list",
    "dict_type": "an object",
    "enum": "one of {expected}",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "fraction_parsing": "a fraction as text",
    "fraction_type": "a fraction as text",
    "frozen_dict_type": "an object",
    "frozen_set_type": "a list",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "int_from_float": "an integer",
    "int_parsing": "an integer",
    "int_parsing_size": "an integer",
    "int_type": "an integer",
    "ip_any_address": "an IP address",
    "ip_any_interface": "an IP address, with or without a network mask",
    "ip_any_network": "an IP network",
    "iterable_type": "a list",
    "json_invalid": "JSON that is nested less deeply",
    "json_type": "JSON as text",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "list_type": "a list",
    "literal_error": "one of {expected}",
    "mapping_type": "an object",
    "model_attributes_type": "an object",
    "model_type": "an object",
    "multiple_of": "a multiple of {multiple_of}",
    "named_tuple_type": "a list or an object",
    "none_required": "null",
    "path_type": "a path as text",
    "pattern_regex": "a regular expression",
    "recursion_loop": "an object that does not hold itself",
    "set_item_not_hashable": "items that are no objects or lists",
    "set_type": "a list",
    "string_not_ascii": "ASCII text",
    "string_pattern_mismatch": "text that matches the pattern {pattern}",
    "string_too_long": "at most {max_length} characters",
    "string_too_short": "at least {min_length} characters",
    "string_type": "text",
    "time_delta_parsing": DURATION,
    "time_delta_type": DURATION,
    "time_parsing": TIME,
    "time_type": TIME,
    "timezone_aware": "a time with a time zone, such as Z or +01:00",
    "timezone_naive": "a time without a time zone",
    "timezone_offset": "another time zone offset",
    "too_long": "at most {max_length} items",
    "too_short": "at least {min_length} items",
    "tuple_type": "a list",
    "unexpected_positional_argument": "fewer items",
    "union_tag_invalid": "one of {expected_tags}",
    "url_parsing": "a URL",
    "url_scheme": "a URL with the scheme {expected_schemes}",
    "url_syntax_violation": "a URL",
    "url_too_long": "a URL of at most {max_length} characters",
    "url_type": "a URL",
    "uuid_parsing": "a UUID",
    "uuid_type": "a UUID",
    "uuid_version": "a UUID of version {expected_version}",
    "zoneinfo_str": "the name of a time zone",
}

_GOT: Final[Mapping[str, str]] = {
    "greater_than": "a smaller number",
    "greater_than_equal": "a smaller number",
    "less_than": "a larger number",
    "less_than_equal": "a larger number",
    "multiple_of": "another number",
    "too_long": "{actual_length} items",
    "too_short": "{actual_length} items",
}
"""Where the kind of the value is right and would say nothing."""

_OTHER_TEXT: Final = re.compile(r"enum|literal_error|string_pattern_mismatch|.*_(parsing|encoding|scheme|version)")


def _fault(error: ErrorDetails, arguments: object, schema: Schema) -> Fault:
    kind = error["type"]
    absent = kind in _MISSING_TYPES or kind in _UNKNOWN_TYPES
    steps, choices = _located(error["loc"], arguments, schema, ends_at_key=absent)
    if kind in _UNKNOWN_TYPES:
        fault = unknown_fault(steps, arguments, schema)
    elif kind in _MISSING_TYPES:
        fault = missing_fault(steps, schema)
    elif kind in {"union_tag_invalid", "union_tag_not_found"}:
        fault = _tag_fault(error, steps, schema)
    else:
        fault = Fault(steps, _expected(error, steps), _got(error))
    if error["loc"] and error["loc"][-1] == _AT_KEY:
        fault = replace(fault, expected=f"a name that is {fault.expected}", got="another name")
    return replace(fault, choices=choices)


def _located(
    location: Sequence[Step], arguments: object, schema: Schema, *, ends_at_key: bool
) -> tuple[Steps, tuple[tuple[Steps, str], ...]]:
    """Tell the keys and positions of pydantic's location from the names of union branches that it mixes in.

    The schema says where a union stands; where it does not (a branch of its own inside a union), a name that is no key of
    the value there is a branch.
    """
    steps: Steps = ()
    choices: list[tuple[Steps, str]] = []
    nodes: list[object] = [schema]
    value = arguments
    keys = location[:-1] if location and location[-1] == _AT_KEY else location
    for index, item in enumerate(keys):
        is_certain = isinstance(item, int) or (ends_at_key and index == len(keys) - 1)
        has_chosen = bool(choices and choices[-1][0] == steps)
        is_choice = stepped(value, item) is NOWHERE or (not has_chosen and len(nodes) == 1 and is_union(nodes[0], schema))
        if is_choice and not is_certain:
            choices.append((steps, str(item)))
        else:
            steps, nodes, value = (*steps, item), children(nodes, item, schema), stepped(value, item)
    return steps, tuple(choices)


def _expected(error: ErrorDetails, steps: Steps) -> str:
    template = _EXPECTED.get(error["type"])
    if template is None:  # the author's error, or a type's of theirs: the schema would ask for the kind that came
        return _OWN_CHECK_AT if steps else OWN_CHECK
    context = error.get("ctx", {})
    phrase = filled(template, context)
    # A single choice is no choice.
    return phrase.removeprefix("one of ") if not re.search(r" or |, ", str(context.get("expected", ", "))) else phrase


def _got(error: ErrorDetails) -> str:
    kind = error["type"]
    if kind in _GOT:
        return filled(_GOT[kind], error.get("ctx", {}))
    if kind.startswith(("string_too", "bytes_too")) and isinstance(error["input"], str):
        return counted(len(error["input"]), "characters")
    if isinstance(error["input"], str) and _OTHER_TEXT.fullmatch(kind):
        return "other text"
    return kind_of_value(error["input"])


def _tag_fault(error: ErrorDetails, steps: Steps, schema: Schema) -> Fault:
    context = error.get("ctx", {})
    field = str(context.get("discriminator", "")).strip("'")
    at = (*steps, field) if field.isidentifier() else steps
    if error["type"] == "union_tag_not_found":
        return missing_fault(at, schema)
    return Fault(at, clipped(f"one of {context.get('expected_tags')}"), "another value")
