"""Compile a type into a strict validator of JSON and the JSON Schema that a model may see.

Pydantic is lax where a gate must not be: a nested model ignores unknown keys, reads `"5"` as a number, and takes `true`
for `Literal[1]`. What is set on the outside does not reach nested models, and what is passed at run time overrides what
an author chose on purpose. So the core schema is rewritten once, at definition: our settings become the defaults of every
nested type, and an author's own `extra`, `strict` or `allow_inf_nan` stands.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from pydantic import PydanticUserError, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import CoreConfig, CoreSchema, SchemaError, SchemaValidator, core_schema

from callgate.tools.core_rules import (
    NAMED,
    OPAQUE,
    PYTHON_RULES,
    STRICT_RULES,
    Node,
    Rule,
    decoded_once,
    feeds_python,
    stated_extra,
    without_factory,
)
from callgate.tools.json_forms import MISFIT, WireForm
from callgate.tools.wire_forms import Forms, wire_form

__all__ = (
    "DEFINITION_FAULTS",
    "CompiledOutput",
    "CompiledType",
    "JsonSchema",
    "compile_output_type",
    "compile_type",
    "first_line",
)

JsonSchema: TypeAlias = dict[str, object]

DEFINITION_FAULTS: Final = (PydanticUserError, SchemaError, NameError, TypeError, ValueError, AttributeError, RecursionError)
"""What pydantic raises for a type that it cannot compile."""


def first_line(error: BaseException) -> str:
    """Give the first line of what an error says, or its type when it says nothing: enough for a definition's author."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


_STRICT: Final[CoreConfig] = {"allow_inf_nan": False, "val_json_bytes": "base64", "strict": True}

_WRAPPED_AT: Final = {
    "default": "schema",
    "definitions": "schema",
    "function-after": "schema",
    "function-before": "schema",
    "function-wrap": "schema",
    "json-or-python": "json_schema",
    "lax-or-strict": "strict_schema",
    "nullable": "schema",
}

_BUILT: Final = frozenset(
    {"dataclass", "deque", "dict", "frozenset", "list", "model", "named-tuple", "set", "tuple", "typed-dict"},
)
"""Core types that build something out of parts, so that one JSON value may fit two of them alike."""


@dataclass(frozen=True, slots=True)
class CompiledType:
    """Hold what one type became: `schema` for the model, `validate` for a call's arguments as JSON, `form` for the way back.

    `validate_reversed` is None unless the type has a union of several object forms. Then it tries their branches in the
    opposite order: where both give another type, the union is ambiguous. Source: case a22.
    """

    schema: JsonSchema
    form: WireForm
    validate: Callable[[bytes], object]
    validate_reversed: Callable[[bytes], object] | None = None
    holds_secret: bool = False


@dataclass(frozen=True, slots=True)
class CompiledOutput:
    """Hold what the type of an output became: `validate_object` takes finished objects, `validate` their JSON."""

    schema: JsonSchema
    validate_object: Callable[[object], object]
    validate: Callable[[bytes], object]


def compile_type(adapter: TypeAdapter[Any]) -> CompiledType:
    """Compile the type of a tool's input; nested types that say nothing about unknown keys refuse them.

    Raises:
        Exception: one of DEFINITION_FAULTS, when the type has no JSON Schema or a constraint cannot be compiled.
    """
    settings: CoreConfig = {**_STRICT, "extra_fields_behavior": "forbid"}
    core = cast("Node", adapter.core_schema)
    forms = Forms(core)
    forward = _Rewriting(core, settings, reverse=False)
    validator = _validator(forward.run(), settings)
    backward = _validator(_Rewriting(core, settings, reverse=True).run(), settings) if forward.met_built_union else None
    return CompiledType(
        schema=_written_schema(core, _NeutralJsonSchema(forms)),
        form=wire_form(core, forms),
        validate=validator.validate_json,
        validate_reversed=None if backward is None else backward.validate_json,
        holds_secret=forms.holds_secret(core),
    )


def compile_output_type(adapter: TypeAdapter[Any]) -> CompiledOutput:
    """Compile the type of a tool's output; unknown keys are treated as the type says.

    Raises:
        Exception: one of DEFINITION_FAULTS, when the type has no JSON Schema.
    """
    core = cast("Node", adapter.core_schema)
    validator = _validator(_Rewriting(core, _STRICT, reverse=False).run(), _STRICT)
    return CompiledOutput(
        schema=_written_schema(core, _OutputJsonSchema(), "serialization"),
        validate_object=validator.validate_python,
        validate=validator.validate_json,
    )


def _validator(core: Node, settings: CoreConfig) -> SchemaValidator:
    # Prebuilt validators of nested models would bring the models' own settings back.
    outer = cast("CoreConfig", {key: value for key, value in settings.items() if key != "extra_fields_behavior"})
    return SchemaValidator(cast("CoreSchema", core), outer, _use_prebuilt=False)


class _Rewriting:
    """Rewrite one core schema; the original, which its classes share, is never touched."""

    def __init__(self, core: Node, defaults: CoreConfig, *, reverse: bool) -> None:
        self.core = core
        self.defaults = defaults
        self.reverse = reverse
        self.met_built_union = False
        self.definitions: dict[str, Node] = {}
        self.rules: dict[str, Rule] = {
            "model": self._closed_class,
            "dataclass": self._closed_class,
            "typed-dict": self._closed_typed_dict,
            "union": self._union,
            "function-after": decoded_once,
            **STRICT_RULES,
        }
        if feeds_python(core):
            self.rules |= PYTHON_RULES
        if reverse:
            self.rules |= {"default": without_factory}

    def run(self) -> Node:
        if self.core["type"] == "definitions":
            self.definitions = {definition["ref"]: definition for definition in self.core["definitions"]}
        return cast("Node", self._rewrite(self.core))

    def _rewrite(self, value: Any) -> Any:
        if isinstance(value, dict):
            return self._rewrite_node(cast("Node", value))
        if isinstance(value, list | tuple):
            parts = map(self._rewrite, cast("Iterable[Any]", value))
            return tuple(parts) if isinstance(value, tuple) else list(parts)
        return value

    def _rewrite_node(self, node: Node) -> Node:
        rewritten = {key: value if key in OPAQUE else self._rewrite_part(key, value) for key, value in node.items()}
        rule = self.rules.get(node.get("type", ""))
        return rewritten if rule is None else rule(rewritten)

    def _rewrite_part(self, key: str, value: Any) -> Any:
        if key in NAMED and isinstance(value, dict):
            return {name: self._rewrite(part) for name, part in cast("Node", value).items()}
        return self._rewrite(value)

    def _closed_class(self, node: Node) -> Node:
        config = {**self.defaults, **node.get("config", {})}
        if node.get("root_model"):
            config.pop("extra_fields_behavior", None)
        return {**node, "config": config}

    def _closed_typed_dict(self, node: Node) -> Node:
        config = {**self.defaults, **node.get("config", {})}
        return {**node, "config": config, "extra_behavior": stated_extra(node) or config.get("extra_fields_behavior")}

    def _union(self, node: Node) -> Node:
        if node.get("mode") == "left_to_right" or sum(map(self._is_built, node["choices"])) < 2:
            return node
        self.met_built_union = True
        return {**node, "choices": node["choices"][::-1]} if self.reverse else node

    def _is_built(self, choice: Node | tuple[Node, str]) -> bool:
        node = choice[0] if isinstance(choice, tuple) else choice
        while (kind := node["type"]) not in _BUILT:
            if kind == "definition-ref" and node["schema_ref"] in self.definitions:
                node = self.definitions[node["schema_ref"]]
            elif kind in _WRAPPED_AT:
                node = node[_WRAPPED_AT[kind]]
            else:
                return False
        return True


def _written_schema(core: Node, writer: GenerateJsonSchema, mode: JsonSchemaMode = "validation") -> JsonSchema:
    schema = cast("JsonSchema", writer.generate(cast("CoreSchema", core), mode))
    definitions = cast("dict[str, JsonSchema]", schema.get("$defs", {}))
    for name, definition in definitions.items():
        if definition.get("title") == name:
            del definition["title"]
    root = core["schema"] if core["type"] == "definitions" else core
    if schema.get("title") == getattr(root.get("cls"), "__name__", None):
        schema.pop("title", None)
    return _with_root(schema, definitions)


def _with_root(schema: JsonSchema, definitions: Mapping[str, JsonSchema]) -> JsonSchema:
    """Put a definition that is the whole schema (a recursive model) at the top, where providers look for `properties`."""
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    siblings = {key: value for key, value in schema.items() if key != "$ref"}
    return {**definitions[reference.removeprefix("#/$defs/")], **siblings}


class _OutputJsonSchema(GenerateJsonSchema):
    """Write no titles that repeat a name, and describe bytes as the base64 they are."""

    def __init__(self) -> None:
        super().__init__()
        self.ignored_warning_kinds = {"skipped-choice", "non-serializable-default", "skipped-discriminator"}

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        return False

    def bytes_schema(self, schema: core_schema.BytesSchema) -> JsonSchemaValue:  # noqa: ARG002 - its lengths count bytes
        return {"type": "string", "contentEncoding": "base64"}


class _NeutralJsonSchema(_OutputJsonSchema):
    """Close in the schema what validation closes, and show defaults as a model would write them."""

    def __init__(self, forms: Forms) -> None:
        super().__init__()
        self._forms = forms

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        written = super().default_schema(schema)
        if written.get("default") is None or "default" not in schema:
            return written
        form = self._forms.default(cast("Node", schema))
        rest = {key: value for key, value in written.items() if key != "default"}
        return rest if form is MISFIT else {**rest, "default": form}

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return _closed(super().model_schema(schema), cast("Node", schema))

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return _closed(super().dataclass_schema(schema), cast("Node", schema))

    def dataclass_args_schema(self, schema: core_schema.DataclassArgsSchema) -> JsonSchemaValue:
        """Leave out the fields that nothing but the class itself sets."""
        return super().dataclass_args_schema({**schema, "fields": [each for each in schema["fields"] if each.get("init", True)]})

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        return _closed(super().typed_dict_schema(schema), cast("Node", schema))


def _closed(written: JsonSchemaValue, node: Node) -> JsonSchemaValue:
    if stated_extra(node) is None and not node.get("root_model"):
        written["additionalProperties"] = False
    return written
