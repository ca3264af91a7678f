"""Parse what a tool is given and what it gives: by a Python type, a JSON Schema, or the author's own function.

A parser is built once, when its tool is defined, and holds nothing that the author could change later (contract row T4).
What does not fit is an `InputRefused` or `OutputRefused` with problems in a model's words; no library's text, and no text
of the author's that is not marked safe, is in them.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, cast

from pydantic import TypeAdapter
from pydantic_core import ValidationError, from_json, to_json, to_jsonable_python

from callgate.errors import ApprovalRequiredError, Problem, ToolDefinitionError
from callgate.tools.annotations import modern_types
from callgate.tools.author_errors import PROGRAM_STOPS, problems_for_model, words_for_model
from callgate.tools.branches import ambiguity_in
from callgate.tools.json_forms import WireForm, as_written, json_form
from callgate.tools.problems import OWN_CHECK, Refusal
from callgate.tools.pydantic_problems import pydantic_refusal
from callgate.tools.schema_cost import has_costly_errors, most_alternatives
from callgate.tools.schema_problems import schema_refusal
from callgate.tools.strictness import (
    DEFINITION_FAULTS,
    CompiledOutput,
    CompiledType,
    JsonSchema,
    compile_output_type,
    compile_type,
    first_line,
)

__all__ = (
    "InputParser",
    "InputRefused",
    "OutputParser",
    "OutputRefused",
    "callable_input",
    "callable_output",
    "compiled_input",
    "pydantic_input",
    "pydantic_output",
    "schema_input",
    "schema_output",
)

Schema: TypeAlias = Mapping[str, object] | bool
"""A raw JSON Schema: `True` admits anything, `False` nothing."""

Parse: TypeAlias = Callable[[bytes, dict[str, object]], object]

_OWN_OUTPUT_CHECK: Final = "an output accepted by the tool's own check"


PASSED_ON: Final = (*PROGRAM_STOPS, ApprovalRequiredError)
"""What an author's check may raise that is no refusal of the arguments."""


class InputRefused(Exception):
    """Tell that the arguments do not fit. The tool has not run.

    `unknown` are the arguments that the tool does not know: at the top their plain names, deeper their paths.
    """

    def __init__(self, problems: tuple[Problem, ...], unknown: tuple[str, ...] = ()) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems
        self.unknown = unknown


class OutputRefused(Exception):
    """Tell that an output is not what was declared. The tool has run."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


class InputParser(Protocol):
    """Turn a call's arguments into what the tool's body gets. `schema` is their neutral JSON Schema (draft 2020-12)."""

    @property
    def schema(self) -> JsonSchema:
        """The schema of the arguments' object, with `$defs` and local `$ref`s, as a model may see it."""
        ...

    @property
    def form(self) -> WireForm:
        """What gives the JSON form of what was parsed, an object by the names of the schema, next to what the model wrote."""
        ...

    def parse(self, text: bytes, arguments: dict[str, object], /) -> object:
        """Parse arguments that were read already: `text` is their JSON, one object in UTF-8, `arguments` the same decoded.

        Raises:
            InputRefused: when they do not fit.
        """
        ...


class OutputParser(Protocol):
    """Check what a tool's body gave. `schema` is its JSON Schema, or None when it is not known."""

    @property
    def schema(self) -> JsonSchema | None:
        """The schema of the output."""
        ...

    def parse(self, value: object, /) -> object:
        """Give the output as declared.

        Raises:
            OutputRefused: when it does not fit.
        """
        ...


@dataclass(frozen=True, slots=True)
class _TypedInput:
    schema: JsonSchema
    form: WireForm
    parse: Parse


def _parse_function(compiled: CompiledType, check: Callable[[bytes, object], None] | None) -> Parse:
    """Make `parse` a closure: every call of every tool runs it, and a method would look its attributes up first."""
    validate, schema = compiled.validate, compiled.schema

    def parse(text: bytes, arguments: dict[str, object]) -> object:
        try:
            return validate(text)
        except ValidationError as error:
            raise _refused_by_pydantic(error, arguments, schema) from error
        except PASSED_ON:
            raise
        except BaseException as error:  # a validator is the tool author's code
            raise _refused_by_author(error) from error

    def parse_and_check(text: bytes, arguments: dict[str, object]) -> object:
        parsed = parse(text, arguments)
        if check is not None:
            check(text, parsed)
        return parsed

    return parse if check is None else parse_and_check


def compiled_input(compiled: CompiledType, check: Callable[[bytes, object], None] | None = None) -> InputParser:
    """Build a parser from a compiled type; `check` looks at what was parsed and raises InputRefused."""
    checks = [check] if check is not None else []
    if compiled.validate_reversed is not None:
        checks.append(_ambiguity_check(compiled.validate_reversed))
    return _TypedInput(compiled.schema, compiled.form, _parse_function(compiled, _all_of(checks) if checks else None))


def _all_of(checks: list[Callable[[bytes, object], None]]) -> Callable[[bytes, object], None]:
    if len(checks) == 1:
        return checks[0]

    def run_all(text: bytes, parsed: object) -> None:
        for check in checks:
            check(text, parsed)

    return run_all


def _ambiguity_check(validate_reversed: Callable[[bytes], object]) -> Callable[[bytes, object], None]:
    """Refuse arguments that another order of a union's branches would have read as another type. Source: case a22."""

    def check(text: bytes, parsed: object) -> None:
        try:
            other = validate_reversed(text)
        except PROGRAM_STOPS:
            raise
        except BaseException:  # noqa: BLE001 - a validator of the author's that misses what a factory makes: no second reading
            return
        problem = ambiguity_in(parsed, other)
        if problem is not None:
            raise InputRefused((problem,))

    return check


def pydantic_input(tool: str, source: Any) -> InputParser:
    """Build a parser from a pydantic model, a TypedDict, a dataclass or a `TypeAdapter`; the tool gets the instance.

    Raises:
        ToolDefinitionError: when `source` has no JSON Schema or is no object in JSON.
    """
    try:
        compiled = compile_type(_adapter(source))
    except DEFINITION_FAULTS as error:
        raise ToolDefinitionError(tool, f"its input type cannot be read from JSON: {first_line(error)}") from error
    _require_object(compiled.schema, tool)
    return compiled_input(compiled)


def _adapter(source: Any) -> TypeAdapter[Any]:
    if inspect.isroutine(source):  # pydantic would take a function's parameters for a type
        raise TypeError("a function is no type; to parse with a function use parse_input or parse_output")
    return cast("Any", source) if isinstance(source, TypeAdapter) else TypeAdapter[Any](modern_types(source))


def _require_object(schema: JsonSchema, tool: str) -> None:
    kinds = schema.get("type", "object")
    if "object" not in (cast("list[object]", kinds) if isinstance(kinds, list) else [kinds]):
        raise ToolDefinitionError(tool, "its input must be an object, because a model names each argument")


def _input_refused(refusal: Refusal) -> InputRefused:
    return InputRefused(refusal.problems, refusal.unknown)


def _refused_by_pydantic(error: ValidationError, arguments: object, schema: JsonSchema) -> InputRefused:
    try:
        return _input_refused(pydantic_refusal(error.errors(include_url=False), arguments, schema))
    except PROGRAM_STOPS:
        raise
    except BaseException as odd:  # noqa: BLE001 - pydantic writes down the author's errors by their own methods
        return _refused_by_author(odd)


def _refused_by_author(error: BaseException) -> InputRefused:
    """Keep what an author's check raised from the model, unless it was raised for the model: a ToolError."""
    own = Problem("", OWN_CHECK, "arguments that it refuses", words_for_model(error))
    return InputRefused(problems_for_model(error) or (own,))


# Raw JSON Schema.


class _SchemaInput:
    __slots__ = ("_closed", "_validator", "schema")

    def __init__(self, schema: JsonSchema, closed: JsonSchema, validator: "_Validator") -> None:
        self.schema = schema
        self._closed = closed
        self._validator = validator

    @property
    def form(self) -> WireForm:
        return json_form

    def parse(self, _text: bytes, arguments: dict[str, object], /) -> object:
        if self._validator.is_valid(arguments):
            return arguments
        raise _input_refused(_explained(self._validator, arguments, self._closed) or _UNEXPLAINED_INPUT)


class _Validator(Protocol):
    def is_valid(self, instance: Any) -> bool: ...

    def iter_errors(self, instance: Any) -> Any: ...


_UNEXPLAINED_INPUT: Final = Refusal((Problem("", "arguments that fit the tool's schema", "other arguments"),))
_UNEXPLAINED_OUTPUT: Final = Refusal((Problem("", "an output that fits the tool's output schema", "another output"),))


def _explained(validator: _Validator, value: object, schema: JsonSchema) -> Refusal | None:
    """Say what is wrong with a value, or give None where it would take the validator too long to tell."""
    if has_costly_errors(schema, value):
        return None
    return schema_refusal(validator.iter_errors(value), value, schema)


def schema_input(tool: str, schema: Schema) -> InputParser:
    """Build a parser from a raw JSON Schema, which is copied; the tool gets the arguments as they came.

    A plain object with `properties` that leaves open whether others are allowed refuses them (contract row P2).

    Raises:
        ToolDefinitionError: when the schema is invalid, is no JSON, admits no object, or refers to anything outside itself.
    """
    copied = _copied(schema, tool)
    _require_object(copied, tool)
    closed = {**copied, "additionalProperties": False} if _is_open_by_silence(copied) else copied
    return _SchemaInput(copied, closed, _compiled_schema(closed, tool))


def _copied(schema: Schema, tool: str) -> JsonSchema:
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    try:
        return cast("JsonSchema", json.loads(json.dumps(schema, allow_nan=False, default=_as_dict)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolDefinitionError(tool, f"its JSON Schema is no JSON: {first_line(error)}") from error


def _as_dict(value: object) -> dict[str, object]:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, object]", value))
    raise TypeError(f"it holds a value of type {type(value).__name__}")


_SAYS_MORE: Final = frozenset(
    {
        "$dynamicRef", "$ref", "additionalProperties", "allOf", "anyOf", "dependentSchemas", "else", "if", "not", "oneOf",
        "patternProperties", "then", "unevaluatedProperties",
    },
)  # fmt: skip


def _is_open_by_silence(schema: JsonSchema) -> bool:
    return isinstance(schema.get("properties"), dict) and not _SAYS_MORE.intersection(schema)


def _compiled_schema(schema: JsonSchema, tool: str) -> _Validator:
    # Imported here, once: 8 ms that only a tool with a raw JSON Schema pays for (`import callgate` has a limit).
    import jsonschema_rs  # noqa: PLC0415

    _refuse_remote_references(schema, tool)
    if most_alternatives(schema) > _MAX_ALTERNATIVES:
        raise ToolDefinitionError(tool, "its JSON Schema refers to the same alternatives too many times over to be checked")
    try:
        return jsonschema_rs.validator_for(schema, offline=True)
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise ToolDefinitionError(tool, f"its JSON Schema is invalid: {first_line(error)}") from error


_MAX_ALTERNATIVES: Final = 100_000_000
"""Subschemas for one value: the validator says yes or no to so many in a quarter of a second."""

_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_DATA: Final = frozenset({"const", "default", "enum", "examples"})
_NAMED: Final = frozenset({"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"})


def _refuse_remote_references(schema: object, tool: str) -> None:
    if isinstance(schema, list):
        for part in cast("list[object]", schema):
            _refuse_remote_references(part, tool)
    if not isinstance(schema, dict):
        return
    node = cast("JsonSchema", schema)
    for word in _REFERENCES:
        if isinstance(reference := node.get(word), str) and not reference.startswith("#"):
            raise ToolDefinitionError(tool, f"its JSON Schema refers to {reference!r}; only local references (#…) are followed")
    for word, part in node.items():
        inner = list(cast("JsonSchema", part).values()) if word in _NAMED and isinstance(part, dict) else part
        if word not in _DATA:
            _refuse_remote_references(inner, tool)


# The author's own function.


class _CallableInput:
    __slots__ = ("_parse_input", "schema")

    def __init__(self, parse_input: Callable[[Any], object]) -> None:
        self.schema: JsonSchema = {"type": "object"}
        self._parse_input = parse_input

    @property
    def form(self) -> WireForm:
        return as_written  # nothing is known of what an author's own function makes

    def parse(self, _text: bytes, arguments: dict[str, object], /) -> object:
        try:
            return self._parse_input(arguments)
        except ValidationError as error:
            raise _refused_by_pydantic(error, arguments, self.schema) from error
        except PASSED_ON:
            raise
        except BaseException as error:  # the tool author's code
            raise _refused_by_author(error) from error


def callable_input(tool: str, parse_input: Callable[[Any], object]) -> InputParser:
    """Build a parser from a function that gets the arguments and gives the tool's input, or raises.

    The schema says no more than that it is an object. What the function raises is a refusal; its text reaches the model
    only when it is a `ToolError`.

    Raises:
        ToolDefinitionError: when it is no plain function.
    """
    _require_plain(parse_input, "parse_input", tool)
    return _CallableInput(parse_input)


def _require_plain(function: object, what: str, tool: str) -> None:
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise ToolDefinitionError(tool, f"{what} must be a plain function; an async one cannot be used to parse")


# Outputs.


class _TypedOutput:
    __slots__ = ("_compiled", "schema")

    def __init__(self, compiled: CompiledOutput) -> None:
        self.schema: JsonSchema | None = compiled.schema
        self._compiled = compiled

    def parse(self, value: object) -> object:
        try:
            return self._compiled.validate_object(value)
        except PROGRAM_STOPS:
            raise
        except BaseException:  # noqa: BLE001 - a validator or the value itself; what is wrong is told of its JSON
            return self._parse_as_json(value)

    def _parse_as_json(self, value: object) -> object:
        """Accept what is right once it is written, such as a dict for a declared model, as strictly as arguments."""
        text = _written(value)
        try:
            return self._compiled.validate(text)
        except ValidationError as error:
            raise _output_refused(error, text, self._compiled.schema) from error
        except PROGRAM_STOPS:
            raise
        except BaseException as error:  # a validator is the tool author's code
            raise _output_refused_by_author(error) from error


def _output_refused(error: ValidationError, text: bytes, schema: JsonSchema) -> OutputRefused:
    try:
        plain: object = from_json(text)
    except ValueError:  # an integer of more digits than Python reads
        plain = None
    return OutputRefused(_refused_by_pydantic(error, plain, schema).problems)


def _output_refused_by_author(error: BaseException) -> OutputRefused:
    return OutputRefused((Problem("", _OWN_OUTPUT_CHECK, "an output that it refuses", words_for_model(error)),))


def _written(value: object) -> bytes:
    try:
        return to_json(value, bytes_mode="base64", inf_nan_mode="constants")
    except PROGRAM_STOPS:
        raise
    except BaseException as error:  # the value is the tool author's
        raise _without_json(value) from error


def _without_json(value: object) -> OutputRefused:
    return OutputRefused((Problem("", "a value that has a form in JSON", f"a value of type {type(value).__name__}"),))


def pydantic_output(tool: str, source: Any) -> OutputParser:
    """Build a parser from any type that pydantic knows; what fits is given as an instance of it.

    Unknown keys follow the type's own `extra` (pydantic's default drops them).

    Raises:
        ToolDefinitionError: when the type has no JSON Schema.
    """
    try:
        return _TypedOutput(compile_output_type(_adapter(source)))
    except DEFINITION_FAULTS as error:
        raise ToolDefinitionError(tool, f"its output type has no JSON Schema: {first_line(error)}") from error


class _SchemaOutput:
    __slots__ = ("_validator", "schema")

    def __init__(self, schema: JsonSchema, validator: _Validator) -> None:
        self.schema: JsonSchema | None = schema
        self._validator = validator

    def parse(self, value: object) -> object:
        plain = _plain(value)
        if self._validator.is_valid(plain):
            return value
        raise OutputRefused((_explained(self._validator, plain, self.schema or {}) or _UNEXPLAINED_OUTPUT).problems)


def _plain(value: object) -> object:
    try:
        plain = to_jsonable_python(value, bytes_mode="base64", inf_nan_mode="constants")
        text = json.dumps(plain, ensure_ascii=False)
        if text.isascii():
            return plain
        sendable = text.encode("utf-8", "replace")  # without the lone surrogates, which the model is not sent either
        return plain if b"?" not in sendable else json.loads(sendable)
    except PROGRAM_STOPS:
        raise
    except BaseException as error:  # the value is the tool author's
        raise _without_json(value) from error


def schema_output(tool: str, schema: Schema) -> OutputParser:
    """Build a parser from a raw JSON Schema, which is copied; a value that fits once it is written is given unchanged.

    Raises:
        ToolDefinitionError: when the schema is invalid, is no JSON, or refers to anything outside itself.
    """
    copied = _copied(schema, tool)
    return _SchemaOutput(copied, _compiled_schema(copied, tool))


class _CallableOutput:
    __slots__ = ("_parse_output", "schema")

    def __init__(self, parse_output: Callable[[Any], object]) -> None:
        self.schema: JsonSchema | None = None
        self._parse_output = parse_output

    def parse(self, value: object) -> object:
        try:
            return self._parse_output(value)
        except PROGRAM_STOPS:
            raise
        except BaseException as error:  # the tool author's code
            raise _output_refused_by_author(error) from error


def callable_output(tool: str, parse_output: Callable[[Any], object]) -> OutputParser:
    """Build a parser from a function that gets what the body gave and gives the output, or raises. It has no schema.

    Raises:
        ToolDefinitionError: when it is no plain function.
    """
    _require_plain(parse_output, "parse_output", tool)
    return _CallableOutput(parse_output)
