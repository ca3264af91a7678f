"""Word the errors of a JSON Schema validator for a model."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final, Protocol, cast

from callgate.tools.paths import Step, Steps
from callgate.tools.problems import MAX_FAULTS, UNKNOWN, Fault, Refusal, kind_of_value, missing_fault, refusal_of, unknown_fault
from callgate.tools.schema_words import FORMATS, KINDS, Schema, counted, either, filled, listed, phrase_at, value_at

__all__ = ("SchemaError", "schema_refusal")


def schema_refusal(errors: Iterable["SchemaError"], arguments: object, schema: Schema) -> Refusal:
    """Word the errors; `arguments` are what was validated against `schema`."""
    return refusal_of([fault for error in islice(errors, MAX_FAULTS) for fault in _faults(error, arguments, schema)])


class SchemaError(Protocol):
    """Be what a JSON Schema validator found at one place; `kind.name` is the keyword, `kind.as_dict()` its facts by name."""

    instance_path: list[Step]
    kind: Any


_EXPECTED: Final[Mapping[str, str]] = {
    "additionalItems": "at most {limit} items",
    "contains": "a list with an item of the wanted kind",
    "contentEncoding": "{content_encoding} text",
    "contentMediaType": "text of the type {content_media_type}",
    "exclusiveMaximum": "less than {limit}",
    "exclusiveMinimum": "more than {limit}",
    "maxItems": "at most {limit} items",
    "maxLength": "at most {limit} characters",
    "maxProperties": "at most {limit} entries",
    "maximum": "at most {limit}",
    "minItems": "at least {limit} items",
    "minLength": "at least {limit} characters",
    "minProperties": "at least {limit} entries",
    "minimum": "at least {limit}",
    "multipleOf": "a multiple of {multiple_of}",
    "not": "a value of another kind",
    "oneOf": "a value that fits one of the allowed forms, and one only",
    "pattern": "text that matches the pattern {pattern}",
    "unevaluatedItems": "fewer items",
    "uniqueItems": "items that are all different",
}
_GOT: Final[Mapping[str, str]] = {
    "exclusiveMaximum": "a larger number",
    "exclusiveMinimum": "a smaller number",
    "maximum": "a larger number",
    "minimum": "a smaller number",
    "multipleOf": "another number",
    "pattern": "other text",
    "uniqueItems": "a list with equal items",
}
_SIZED: Final[Mapping[str, str]] = {"Items": "items", "Length": "characters", "Properties": "entries"}


def _faults(error: SchemaError, arguments: object, schema: Schema) -> list[Fault]:
    kind = error.kind
    steps = tuple(error.instance_path)
    facts = kind.as_dict()
    match kind.name:
        case "required":
            return [missing_fault((*steps, facts["property"]), schema)]
        case "additionalProperties" | "unevaluatedProperties":
            return [unknown_fault((*steps, name), arguments, schema) for name in facts["unexpected"]]
        case "anyOf" | "oneOf" if any(kind.context):
            return _branch_faults(kind.context, steps, arguments, schema)
        case "propertyNames":
            return [Fault(steps, "names that the schema allows", "an object with another name")]
        case "falseSchema":
            return [_false_fault(steps, arguments)]
        case _:
            return [Fault(steps, _expected(kind.name, facts, steps, schema), _got(kind.name, steps, arguments))]


def _branch_faults(branches: Sequence[Sequence[SchemaError]], steps: Steps, arguments: object, schema: Schema) -> list[Fault]:
    return [
        replace(fault, choices=((steps, str(number)), *fault.choices))
        for number, errors in enumerate(branches)
        for error in errors
        for fault in _faults(error, arguments, schema)
    ]


def _false_fault(steps: Steps, arguments: object) -> Fault:
    expected = UNKNOWN if steps and isinstance(steps[-1], str) else "nothing: the schema admits no value"
    return Fault(steps, expected, kind_of_value(value_at(steps, arguments)))


def _expected(keyword: str, facts: Mapping[str, Any], steps: Steps, schema: Schema) -> str:
    match keyword:
        case "type":
            return either(KINDS.get(str(kind), str(kind)) for kind in facts["types"])
        case "enum":
            return listed(facts["options"])
        case "const":
            return listed([facts["expected_value"]])
        case "format":
            return FORMATS.get(facts["format"], f"text in the format {facts['format']}")
        case _:
            template = _EXPECTED.get(keyword)
            return phrase_at(steps, schema) if template is None else filled(template, facts)


def _got(keyword: str, steps: Steps, arguments: object) -> str:
    value = value_at(steps, arguments)
    for ending, units in _SIZED.items():
        if keyword in {f"min{ending}", f"max{ending}"}:
            return counted(len(cast("Sequence[object]", value)), units)
    if keyword in {"enum", "const", "format"} and isinstance(value, str):
        return "other text"
    return _GOT.get(keyword) or kind_of_value(value)
