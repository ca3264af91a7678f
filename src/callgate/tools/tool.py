"""What a tool is: `Tool`, the decorator `@tool`, and the one way from anything callable to a `Tool`.

    @tool def f(…)            the function itself, marked; its Tool is made at once, or when its names can be resolved
    Tool.of(f, …)             from a signature: functions, methods, partials, callable objects
    Tool(name, execute, …)    from an explicit input: a type, a JSON Schema, or a callable that parses
    as_tool(anything)         what a registry does with what it is given

Source: contract rows T1 to T5.
"""

import copy
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import FrozenInstanceError
from difflib import get_close_matches
from typing import Any, Concatenate, Final, Generic, Protocol, TypedDict, TypeVar, Unpack, cast, final, overload

from callgate.errors import ToolDefinitionError
from callgate.tools.context import ToolContext
from callgate.tools.fingerprint import fingerprint_of
from callgate.tools.inputs import (
    InputParser,
    OutputParser,
    callable_input,
    callable_output,
    pydantic_input,
    pydantic_output,
    schema_input,
    schema_output,
)
from callgate.tools.options import RunIn, ToolKeywords, ToolOptions, check_name, tool_options
from callgate.tools.signature import (
    FunctionInput,
    UnresolvedNameError,
    context_parameter_of,
    function_input,
    is_async,
    is_unbound_method,
    name_of,
)
from callgate.values import Unset

__all__ = ("Invoke", "Tool", "as_tool", "is_tool", "tool")

In = TypeVar("In")
Out = TypeVar("Out")
F = TypeVar("F", bound=Callable[..., object])

_MARK: Final = "__callgate_tool__"
_COPIED: Final = ("call", "context_parameter", "description", "function", "input", "is_async", "options", "output")


class Invoke(Protocol):
    """Call a tool's function with its parsed input and, where it asked for one, its context."""

    def __call__(self, parsed: Any, context: ToolContext | None, /) -> object:
        """Call it: of an async function this gives what is to be awaited."""
        ...


class FormKeywords(TypedDict, total=False):
    """Name the ways to say what a tool's input and output are: a type, a JSON Schema, or a callable that parses.

    For the input exactly one is given, for the output at most one; a declared output is checked in every call.
    """

    input: Any
    input_schema: Mapping[str, object]
    parse_input: Callable[[Any], Any]
    output: Any
    output_schema: Mapping[str, object]
    parse_output: Callable[[Any], Any]


class ExplicitKeywords(FormKeywords, ToolKeywords, total=False):
    """Name everything that `Tool(...)` takes by keyword."""


class FunctionKeywords(ToolKeywords, total=False):
    """Name everything that `Tool.of` and `@tool` take beside name and description."""

    output: Any
    output_schema: Mapping[str, object]
    parse_output: Callable[[Any], Any]


_INPUT_PARSERS: Final[dict[str, Callable[[str, Any], InputParser]]] = {
    "input": pydantic_input,
    "input_schema": schema_input,
    "parse_input": callable_input,
}
_OUTPUT_PARSERS: Final[dict[str, Callable[[str, Any], OutputParser]]] = {
    "output": pydantic_output,
    "output_schema": schema_output,
    "parse_output": callable_output,
}
_INPUT_FORMS: Final = tuple(_INPUT_PARSERS)
_OUTPUT_FORMS: Final = tuple(_OUTPUT_PARSERS)


@final
class Tool(Generic[In, Out]):
    """Be one tool: its name, what it takes and gives, how it is run. Frozen; a registry binds it at registration.

    `Tool(name, execute, input=…)` builds it from an explicit input, which `execute` gets as its one argument: `input` is a
    pydantic model, TypedDict, dataclass or `TypeAdapter`, `input_schema` a raw JSON Schema, `parse_input` a callable; the
    same three exist for the output. `execute` may have one more parameter annotated with `ToolContext`. Without an input
    form the signature of `execute` is read, as by `@tool`. The further keywords are those of `ToolOptions`.

    `function` is what runs; `input` and `output` parse; `call` calls `function` with a parsed input. `fingerprint` is the same
    for the same definition in every process, and binds an approval to it; the function's code is not part of it.

    Raises:
        ToolDefinitionError: the definition cannot work; it names the tool and the parameter.
    """

    __slots__ = (
        "__orig_class__",  # where typing notes the types of Tool[In, Out](…)
        "__weakref__",
        "call",
        "context_parameter",
        "description",
        "fingerprint",
        "function",
        "input",
        "is_async",
        "name",
        "options",
        "output",
    )

    name: str
    function: Callable[..., Any]
    input: InputParser
    output: OutputParser | None
    call: Invoke
    options: ToolOptions
    description: str | None
    is_async: bool
    context_parameter: str | None
    fingerprint: str

    def __init__(
        self,
        name: str,
        execute: Callable[Concatenate[In, ...], Awaitable[Out]] | Callable[Concatenate[In, ...], Out] | Callable[[], Out],
        *,
        description: str | None = None,
        **keywords: Unpack[ExplicitKeywords],
    ) -> None:
        check_name(name)
        _check_keywords(name, keywords)
        if not callable(execute):
            raise ToolDefinitionError(name, f"execute must be callable, not {type(execute).__name__}")
        forms = {key: value for key, value in keywords.items() if key in FormKeywords.__annotations__}
        options = {key: value for key, value in keywords.items() if key not in forms}
        form = _only_one(name, forms, _INPUT_FORMS)
        if form is None:
            plan = _signature_plan(execute, name)
        else:
            plan = _explicit_plan(name, execute, _INPUT_PARSERS[form](name, forms[form]))
        output = _only_one(name, forms, _OUTPUT_FORMS)
        values = {
            **plan,
            "name": name,
            "function": execute,
            "output": None if output is None else _OUTPUT_PARSERS[output](name, forms[output]),
            "options": tool_options(name, cast("ToolKeywords", options), is_async=bool(plan["is_async"])),
            "description": plan["description"] if description is None else inspect.cleandoc(description),
        }
        for key, value in values.items():
            object.__setattr__(self, key, value)
        object.__setattr__(self, "fingerprint", fingerprint_of(self))

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        **keywords: Unpack[FunctionKeywords],
    ) -> "Tool[Any, Any]":
        """Build a tool from a function, a bound or static method, a `functools.partial` or a callable object.

        The name is the function's, the description and those of the parameters stand in its docstring.

        Raises:
            ToolDefinitionError: the definition cannot work.
        """
        return Tool(name_of(function) if name is None else name, function, description=description, **keywords)

    @property
    def id(self) -> str:
        """The name, by the word of the source documents."""
        return self.name

    @property
    def kind(self) -> str:
        """The host's word for what the tool does, such as "read"."""
        return self.options.kind

    @property
    def tags(self) -> frozenset[str]:
        """The host's tags."""
        return self.options.tags

    @property
    def run_in(self) -> RunIn:
        """Where the tool's body runs."""
        return self.options.run_in

    @property
    def timeout_s(self) -> float | None | Unset:
        """The tool's own time limit in seconds (None: no limit; unset: the registry's default)."""
        return self.options.timeout_s

    @property
    def max_output_bytes(self) -> int | None | Unset:
        """The tool's own cap in UTF-8 bytes (None: no cap; unset: the registry's default)."""
        return self.options.max_output_bytes

    @property
    def wants_context(self) -> bool:
        """Whether the function is handed a `ToolContext`."""
        return self.context_parameter is not None

    @property
    def input_schema(self) -> dict[str, Any]:
        """A copy of the neutral JSON Schema of the arguments."""
        return copy.deepcopy(self.input.schema)

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """A copy of the JSON Schema of the declared output, or None when none is declared."""
        return None if self.output is None else copy.deepcopy(self.output.schema)

    @property
    def check_return(self) -> Callable[[object], str | None] | None:
        """What says how a result differs from the return annotation; None when the input form is explicit."""
        return self.input.check_return if isinstance(self.input, FunctionInput) else None

    def renamed(self, name: str) -> "Tool[In, Out]":
        """Give the same tool under another name.

        Raises:
            ToolDefinitionError: no tool may have that name.
        """
        tool = cast("Tool[In, Out]", object.__new__(Tool))
        for slot in _COPIED:
            object.__setattr__(tool, slot, getattr(self, slot))
        object.__setattr__(tool, "name", check_name(name))
        object.__setattr__(tool, "fingerprint", fingerprint_of(tool))
        return tool

    def bind(self, parsed: Any) -> tuple[tuple[object, ...], dict[str, object]]:
        """Give the positional and keyword arguments with which `function` takes a parsed input, its context left out."""
        if isinstance(self.input, FunctionInput):
            return self.input.bind(parsed)
        return (parsed,), {}

    def __setattr__(self, name: str, value: object) -> None:
        if name != "__orig_class__":
            raise FrozenInstanceError(f"cannot assign to {name!r}: a tool is frozen; build another one")
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete {name!r}: a tool is frozen")

    def __repr__(self) -> str:
        return f"Tool({self.name!r}, kind={self.kind!r})"


def _check_keywords(name: str, keywords: Mapping[str, object]) -> None:
    known = ("name", "description", *ExplicitKeywords.__annotations__)
    for key in keywords:
        if key not in known:
            near = get_close_matches(key, known, 1, 0.5)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ToolDefinitionError(name, f"unknown option {key!r}; {hint}known are {', '.join(sorted(known))}")


def _only_one(name: str, forms: Mapping[str, object], keys: tuple[str, ...]) -> str | None:
    given = [key for key in keys if key in forms]
    if len(given) > 1:
        raise ToolDefinitionError(name, f"{' and '.join(given)} were given; one of {', '.join(keys)} is taken")
    return given[0] if given else None


def _signature_plan(function: Callable[..., Any], name: str) -> dict[str, object]:
    read = function_input(function, name, ToolContext)
    return {
        "input": read,
        "call": read.call,
        "description": read.description,
        "is_async": read.is_async,
        "context_parameter": read.context_parameter,
    }


def _explicit_plan(name: str, execute: Callable[..., Any], parser: InputParser) -> dict[str, object]:
    parameter = context_parameter_of(execute, name, ToolContext)

    def call(parsed: Any, context: ToolContext | None) -> object:
        return execute(parsed) if parameter is None else execute(parsed, **{parameter: context})

    return {
        "input": parser,
        "call": call,
        "description": None,
        "is_async": is_async(execute),
        "context_parameter": parameter,
    }


# ── the decorator ────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Mark:
    """Hold what `@tool` said of a function, and the tool that was made of it (None: not yet)."""

    __slots__ = ("function", "keywords", "tool")

    def __init__(self, function: object, keywords: dict[str, Any]) -> None:
        self.function = function
        self.keywords = keywords
        self.tool: Tool[Any, Any] | None = None


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None, **keywords: Unpack[FunctionKeywords]
) -> Callable[[F], F]: ...
def tool(function: F | None = None, /, **keywords: Any) -> F | Callable[[F], F]:
    """Make a function, sync or async, a tool. It stays the very function that it was, and can be called as before.

    Use it bare or with options: `name`, `description`, and those of `ToolOptions`. In a class body it marks the method;
    register `instance.method` then. Functions of other kinds go to `Tool.of`.

    Raises:
        ToolDefinitionError: the definition cannot work; a name that an annotation uses may be defined later, until the
            tool is registered.
    """
    if isinstance(function, str):
        raise ToolDefinitionError(
            function, f"@tool takes no text by position: write @tool(name={function!r}) or @tool(kind={function!r})"
        )
    if function is None:
        return lambda decorated: _marked(decorated, keywords)
    return _marked(function, keywords)


def _marked(function: F, keywords: dict[str, Any]) -> F:
    plain = _plain_function(function)
    if plain is None:
        raise ToolDefinitionError(
            _spoken_name(function), "@tool decorates functions and methods; use Tool.of(…) for other callables"
        )
    mark = _Mark(plain, keywords)
    setattr(plain, _MARK, mark)
    if plain is function and not is_unbound_method(plain):
        try:
            mark.tool = Tool.of(plain, **keywords)
        except UnresolvedNameError:  # the name may be defined further down in the module; registration asks again
            return function
    return function


def _plain_function(function: object) -> Any:
    is_wrapped = type(function) in {staticmethod, classmethod}
    inner: Any = getattr(function, "__func__", None) if is_wrapped else function
    return inner if inspect.isfunction(inner) else None


def _spoken_name(thing: object) -> str:
    return str(getattr(thing, "__name__", type(thing).__name__))


# ── what registries take ─────────────────────────────────────────────────────────────────────────────────────────────────


def is_tool(thing: object) -> bool:
    """Tell whether somebody meant `thing` to be a tool: it is a `Tool`, or marked by `@tool`."""
    return isinstance(thing, Tool) or isinstance(getattr(thing, _MARK, None), _Mark)


def as_tool(thing: object) -> Tool[Any, Any]:
    """Make a tool of whatever a host registers or offers.

    That is a `Tool`, a function marked by `@tool`, anything that `Tool.of` takes, or an object with `name` (or `id`),
    `execute`, and optionally `kind`, `description`, `parse_input`, `parse_output`, whose methods are bound here and now.

    Raises:
        ToolDefinitionError: it is none of these, or cannot work.
    """
    if isinstance(thing, Tool):
        return thing  # pyright: ignore[reportUnknownVariableType]  # a registry erases the types (contract row T5)
    mark = getattr(thing, _MARK, None)
    if isinstance(mark, _Mark):
        return _tool_of_mark(cast("Callable[..., Any]", thing), mark)
    if not isinstance(thing, type) and callable(getattr(thing, "execute", None)):
        return _tool_of_object(thing)
    if callable(thing):
        return Tool.of(thing)
    raise ToolDefinitionError(
        _spoken_name(thing), f"a tool is a Tool, a function or an object with execute, not {type(thing).__name__}"
    )


def _tool_of_mark(function: Callable[..., Any], mark: _Mark) -> Tool[Any, Any]:
    if inspect.isfunction(function) and is_unbound_method(function):
        advice = f"{function.__qualname__} is a method: register it of an instance, instance.{function.__name__}"
        raise ToolDefinitionError(function.__name__, advice)
    if function is not mark.function:  # a bound method, or a decorator above @tool that took the mark over
        return Tool.of(function, **mark.keywords)
    if mark.tool is None:
        mark.tool = Tool.of(function, **mark.keywords)
    return mark.tool


_OBJECT_PARTS: Final = ("kind", "timeout_s", "max_output_bytes", "debug_steps", "parse_output")


def _tool_of_object(thing: object) -> Tool[Any, Any]:
    name = getattr(thing, "name", None) or getattr(thing, "id", None)
    keywords = {key: getattr(thing, key) for key in _OBJECT_PARTS if getattr(thing, key, None) is not None}
    parse_input = getattr(thing, "parse_input", None)
    if parse_input is not None:
        keywords["parse_input"] = parse_input
    execute: Any = getattr(thing, "execute", None)
    return Tool(check_name(name), execute, description=getattr(thing, "description", None), **keywords)
