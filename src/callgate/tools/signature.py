"""Make an input parser of a function's signature: the schema a model sees, and how the function is called with what came.

The schema is that of a TypedDict with one key for each parameter. A parameter with a default is a key that may be
missing, so that the function's own default applies; whether it admits null is its type's business alone (case a19).
"""

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Final, NotRequired, Required, Union, Unpack, cast, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter

from callgate.errors import ToolDefinitionError
from callgate.tools.annotations import Names, UnresolvedNameError, modern_types, names_of, resolve_annotation, typed_dict
from callgate.tools.core_rules import loaded_module
from callgate.tools.docstrings import DocstringFinding, Documentation, docstring_findings, read_docstring
from callgate.tools.inputs import InputParser, InputRefused, compiled_input
from callgate.tools.problems import refusal_of, unknown_fault
from callgate.tools.returns import ReturnCheck
from callgate.tools.schema_words import admits
from callgate.tools.shapes import Kind, Shape, doc_of, is_async, is_unbound_method, kind_of, name_of, shape_of
from callgate.tools.strictness import DEFINITION_FAULTS, CompiledType, JsonSchema, compile_type, first_line

__all__ = (
    "FunctionInput",
    "UnresolvedNameError",
    "context_parameter_of",
    "function_input",
    "is_async",
    "is_unbound_method",
    "name_of",
)

Invoker = Callable[[Any, Any], Any]

_NOTHING: Final = inspect.Parameter.empty
_BY_POSITION: Final = inspect.Parameter.POSITIONAL_ONLY


class FunctionInput:
    """Parse the arguments of one function, and call it with them. Built by `function_input`; never changed.

    `parse` gives the keyword arguments, without the defaults that the function fills in itself. `call(parsed, context)`
    calls the function; `bind(parsed)` tells with which arguments, the context left out. `context_parameter` is the
    parameter that gets the context (None: there is none), `description` and `documentation` come from the docstring. `defaults`
    are what the function fills in, in JSON form by the names of the schema; `holds_secret` tells whether an argument may be one.
    """

    __slots__ = (
        "_aliases",
        "_named",
        "_positional",
        "_returns",
        "call",
        "context_parameter",
        "defaults",
        "description",
        "documentation",
        "form",
        "holds_secret",
        "kind",
        "name",
        "parse",
        "schema",
    )

    def __init__(self, plan: "_Plan", parser: InputParser, function: Callable[..., Any]) -> None:
        self.name = plan.tool
        self.schema = parser.schema
        self.parse = parser.parse
        self.form = parser.form
        self.holds_secret = plan.holds_secret
        self.kind: Kind = kind_of(function)
        self.context_parameter = plan.context
        self.defaults: Mapping[str, object] = plan.default_forms
        self.documentation = plan.documentation
        self.description = plan.documentation.description
        self.call = _invoker(function, plan)
        self._positional = {name: default for name, default in plan.positional.items() if name != plan.context}
        self._named = {name: wire for name, wire in plan.wire_names.items() if name not in plan.catch_all}
        self._returns = plan.returns
        self._aliases = {name: wire for name, wire in plan.wire_names.items() if name != wire}

    @property
    def is_async(self) -> bool:
        """Whether calling the function gives a coroutine or an async generator."""
        return self.kind in {"async", "async_generator"}

    def bind(self, parsed: Any) -> tuple[tuple[object, ...], dict[str, object]]:
        """Give the positional and the keyword arguments of the function, its context left out."""
        named = dict(parsed)
        return tuple(named.pop(name, default) for name, default in self._positional.items()), named

    def by_wire_name(self, parsed: Mapping[str, object]) -> dict[str, object]:
        """Give what was parsed by its names in the schema."""
        if not self._aliases:
            return dict(parsed)
        return {self._aliases.get(name, name): value for name, value in parsed.items()}

    def check_return(self, value: object) -> str | None:
        """Say how a returned value differs from the return annotation, or None. It never raises (case d15)."""
        return self._returns.check(value)

    @property
    def findings(self) -> tuple[DocstringFinding, ...]:
        """What the docstring says of parameters that the tool does not have, and which parameters have no description."""
        properties = cast("Mapping[str, Mapping[str, object]]", self.schema.get("properties", {}))
        described = {name: "description" in _with_target(properties[wire], self.schema) for name, wire in self._named.items()}
        documented = self.documentation.parameters.keys() - {self.context_parameter}
        return docstring_findings(sorted(documented), described, open_ended=self.schema.get("additionalProperties") is not False)


def _with_target(property_: Mapping[str, object], schema: JsonSchema) -> Mapping[str, object]:
    """Count the description of the definition that a parameter refers to as its own."""
    definitions = cast("Mapping[str, Mapping[str, object]]", schema.get("$defs", {}))
    return {**definitions.get(str(property_.get("$ref", "")).removeprefix("#/$defs/"), {}), **property_}


@dataclass(slots=True)
class _Plan:
    """Collect what the parameters of one function come to."""

    tool: str
    names: Names
    context_type: type
    documentation: Documentation
    returns: ReturnCheck
    bound: frozenset[str] = frozenset()
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    """The type of each parameter that the model sees."""
    defaults: dict[str, object] = field(default_factory=dict[str, object])
    """The defaults that the function fills in itself."""
    default_forms: dict[str, object] = field(default_factory=dict[str, object])
    """The same by their names in the schema and in JSON form; one without such a form is not among them."""
    positional: dict[str, object] = field(default_factory=dict[str, object])
    """The parameters that can only be passed by position, in order, with their defaults."""
    extra: Any = None
    """The type of every other keyword (None: the function takes no others)."""
    holds_secret: bool = False
    catch_all: frozenset[str] = frozenset()
    """The name of the parameter that takes the other keywords."""
    context: str | None = None
    wire_names: dict[str, str] = field(default_factory=dict[str, str])
    """The name in the schema of each parameter: an alias, or its own."""

    def refuse(self, parameter: str, reason: str) -> ToolDefinitionError:
        return ToolDefinitionError(self.tool, reason, parameter=parameter)


def function_input(function: Callable[..., Any], name: str, context_type: type) -> FunctionInput:
    """Read a callable's signature and docstring.

    A parameter annotated with `context_type` (also `| None`, or inside Annotated) is handed in by the caller: it is not in
    the schema, and a model that gives it anyway is refused. Source: contract row T3, cases a1 to a30.

    Raises:
        UnresolvedNameError: when an annotation uses a name that is not known (yet).
        ToolDefinitionError: when a parameter cannot be described; it is named.
    """
    shape = shape_of(function, name)
    names = names_of(shape.owner, {context_type.__name__: context_type})
    plan = _Plan(
        tool=name,
        names=names,
        context_type=context_type,
        documentation=read_docstring(doc_of(function)),
        returns=_return_check(shape, name, names),
        bound=shape.bound,
    )
    for parameter in shape.parameters:
        _add(plan, parameter)
    compiled = _compiled(plan)
    return FunctionInput(plan, compiled_input(compiled, _guard(plan, compiled.schema)), function)


def _return_check(shape: Shape, tool: str, names: Names) -> ReturnCheck:
    if shape.returns is _NOTHING:
        return ReturnCheck(None)
    return ReturnCheck(lambda: resolve_annotation(shape.returns, "return", tool, names))


def context_parameter_of(function: Callable[..., Any], name: str, context_type: type) -> str | None:
    """Give the parameter that is to get the context, without asking anything of the other parameters.

    Raises:
        ToolDefinitionError: when more than one would get it, or it can only be passed by position.
    """
    try:
        shape = shape_of(function, name)
    except ToolDefinitionError:
        return None  # built in, or a class: callable, and without a place for a context
    names = names_of(shape.owner, {context_type.__name__: context_type})
    found = [parameter for parameter in shape.parameters if _wants_context(parameter, name, context_type, names)]
    if len(found) > 1:
        raise ToolDefinitionError(name, "a second parameter asks for the context; one is enough", parameter=found[1].name)
    if found and found[0].kind is _BY_POSITION:
        raise ToolDefinitionError(name, "the context cannot be passed by position only: remove the /", parameter=found[0].name)
    return found[0].name if found else None


def _wants_context(parameter: inspect.Parameter, tool: str, context_type: type, names: Names) -> bool:
    if parameter.annotation is _NOTHING:
        return False
    try:
        resolved = resolve_annotation(parameter.annotation, parameter.name, tool, names)
    except ToolDefinitionError:
        return False  # what is no type is no context type
    return _is_context(resolved, context_type)


# Parameters.


def _add(plan: _Plan, parameter: inspect.Parameter) -> None:
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        raise plan.refuse(parameter.name, "a model names each argument, so *args cannot be filled: take a list instead")
    if parameter.annotation is _NOTHING:
        advice = "**kwargs need a type for their values" if parameter.kind is inspect.Parameter.VAR_KEYWORD else "write its type"
        raise plan.refuse(parameter.name, f"it has no annotation: {advice}, or Any if anything goes")
    annotation = resolve_annotation(parameter.annotation, parameter.name, plan.tool, plan.names)
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        _add_keywords(plan, parameter.name, annotation)
    elif _is_context(annotation, plan.context_type):
        _add_context(plan, parameter)
    else:
        _add_field(plan, parameter, modern_types(annotation))


def _is_context(annotation: Any, context_type: type) -> bool:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if isinstance(annotation, type) and issubclass(annotation, context_type):
        return True
    options = [option for option in get_args(annotation) if option is not type(None)]
    return _is_union(annotation) and len(options) == 1 and _is_context(options[0], context_type)


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) is Union or get_origin(annotation) is type(int | None)


def _add_context(plan: _Plan, parameter: inspect.Parameter) -> None:
    if plan.context is not None:
        raise plan.refuse(parameter.name, f"parameter {plan.context!r} gets the context already; one is enough")
    plan.context = parameter.name
    if parameter.kind is _BY_POSITION:
        plan.positional[parameter.name] = None


def _add_keywords(plan: _Plan, name: str, annotation: Any) -> None:
    plan.catch_all = frozenset({name})
    if get_origin(annotation) is not Unpack:
        plan.extra = modern_types(annotation)
        return
    (unpacked,) = get_args(annotation)
    required: frozenset[str] = getattr(unpacked, "__required_keys__", frozenset())
    for key, hint in get_type_hints(unpacked, include_extras=True).items():
        if key in plan.fields:
            raise plan.refuse(key, f"**{name} has the same name once more")
        is_stated = key in required or get_origin(hint) in (Required, NotRequired)
        plan.fields[key] = modern_types(hint if is_stated else NotRequired[hint])


def _add_field(plan: _Plan, parameter: inspect.Parameter, annotation: Any) -> None:
    name, default = parameter.name, parameter.default
    if parameter.kind is _BY_POSITION:
        plan.positional[name] = default
    if _is_field(default):
        plan.fields[name] = _field_type(Annotated[annotation, default], is_required=default.is_required())
        return
    filled = _has_own_default(annotation)
    if filled and default is not _NOTHING:
        raise plan.refuse(name, "it has two defaults: keep the one behind = and remove the one in Field")
    if default is not _NOTHING:
        plan.defaults[name] = default
    plan.fields[name] = _field_type(annotation, is_required=default is _NOTHING and not filled)


def _has_own_default(annotation: Any) -> bool:
    extras = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return any(_is_field(extra) and not extra.is_required() for extra in extras)


def _is_field(value: object) -> bool:
    fields = loaded_module("pydantic.fields")
    return fields is not None and isinstance(value, fields.FieldInfo)


def _field_type(annotation: Any, *, is_required: bool) -> Any:
    return annotation if is_required else NotRequired[annotation]


# From the plan to the schema.


def _compiled(plan: _Plan) -> CompiledType:
    arguments = typed_dict("Arguments", plan.fields, plan.extra)
    try:
        adapter = TypeAdapter[Any](arguments)
        compiled = compile_type(adapter)
    except DEFINITION_FAULTS as error:
        raise _blamed(plan, error) from error
    schema = compiled.schema
    schema.pop("title", None)
    schema.setdefault("properties", {})
    plan.wire_names = _wire_names(plan, adapter)
    plan.holds_secret = compiled.holds_secret
    _describe(plan, compiled)
    return compiled


def _blamed(plan: _Plan, error: BaseException) -> ToolDefinitionError:
    """Find the parameter whose type cannot be compiled: each is tried alone."""
    advice = "use types that JSON can carry: numbers, text, lists, dicts, enums, dates, pydantic models, dataclasses, TypedDicts"
    for name, annotation in {**plan.fields, **dict.fromkeys(plan.catch_all, plan.extra)}.items():
        try:
            compile_type(TypeAdapter[Any](typed_dict("Arguments", {name: annotation})))
        except DEFINITION_FAULTS as own:
            return plan.refuse(name, f"its type has no JSON Schema ({first_line(own)}); {advice}")
    return ToolDefinitionError(plan.tool, f"its parameters have no JSON Schema: {first_line(error)}")


def _wire_names(plan: _Plan, adapter: TypeAdapter[Any]) -> dict[str, str]:
    core = cast("dict[str, Any]", adapter.core_schema)
    core = core["schema"] if core["type"] == "definitions" else core
    aliases = {name: field.get("validation_alias", name) for name, field in core["fields"].items()}
    for name, alias in aliases.items():
        if not isinstance(alias, str):
            raise plan.refuse(name, "its alias must be one name, because a model gives each argument under one name")
    if len(set(aliases.values())) < len(aliases):
        name = next(name for name, alias in aliases.items() if list(aliases.values()).count(alias) > 1)
        raise plan.refuse(name, f"another parameter is called {aliases[name]!r} too")
    return aliases


def _describe(plan: _Plan, compiled: CompiledType) -> None:
    """Add to the schema what only the function knows: its own defaults and what its docstring says."""
    schema = compiled.schema
    properties = cast("dict[str, JsonSchema]", schema["properties"])
    for name, wire in plan.wire_names.items():
        written = properties[wire]
        if name in plan.defaults:
            default = plan.defaults[name]
            form = cast("dict[str, object]", compiled.form({name: default}, {}))[wire]
            if form is not None or default is None:
                plan.default_forms[wire] = form
                _show_default(written, default, form, schema)
        words = plan.documentation.parameters.get(name) or plan.documentation.parameters.get(wire)
        if words is not None:
            written.setdefault("description", words)
    others = schema.get("additionalProperties")
    for name in plan.catch_all & plan.documentation.parameters.keys():
        if isinstance(others, dict):
            cast("JsonSchema", others).setdefault("description", plan.documentation.parameters[name])


def _show_default(written: JsonSchema, default: object, form: object, schema: JsonSchema) -> None:
    """Show a default that a model could send itself; a sentinel of the function's own would only mislead it."""
    if admits(written, form, schema) and not (isinstance(default, Enum) and "enum" not in str(written) and "$ref" not in written):
        written.setdefault("default", copy.deepcopy(form))


def _guard(plan: _Plan, schema: JsonSchema) -> Callable[[bytes, object], None] | None:
    """Refuse hidden names where any other keyword would be let through. Source: cases a10, a16, a30."""
    if plan.extra is None:
        return None
    hidden: set[str | None] = {*plan.bound, plan.context}

    def check(_text: bytes, parsed: object) -> None:
        given = cast("dict[str, object]", parsed)
        faults = [unknown_fault((name,), given, schema) for name in given if name in hidden and name not in plan.fields]
        if faults:
            refusal = refusal_of(faults)
            raise InputRefused(refusal.problems, refusal.unknown)

    return check


# Calling.


def _invoker(function: Callable[..., Any], plan: _Plan) -> Invoker:
    """Make `call(parsed, context)`, with nothing in it that this function does not need."""
    context = plan.context
    if plan.positional:
        return _positional_invoker(function, plan)
    if context is None:
        return lambda parsed, _context: function(**parsed)
    return lambda parsed, given: function(**parsed, **{context: given})


def _positional_invoker(function: Callable[..., Any], plan: _Plan) -> Invoker:
    context, places = plan.context, tuple(plan.positional.items())

    def call(parsed: Any, given: Any) -> Any:
        named = dict(parsed)
        if context is not None:
            named[context] = given
        by_position = [named.pop(name, default) for name, default in places]
        return function(*by_position, **named)

    return call
