"""Find out how any callable can be called: what is left to bind, who wrote its annotations, and how it runs."""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Final, Literal, TypeAlias, cast

from callgate.errors import ToolDefinitionError

__all__ = ("Kind", "Shape", "doc_of", "is_async", "is_unbound_method", "kind_of", "name_of", "shape_of")

Kind: TypeAlias = Literal["sync", "async", "generator", "async_generator"]

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_CATCH_ALL: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_PLACEHOLDER: Final = getattr(functools, "Placeholder", object())


@dataclass(frozen=True, slots=True)
class Shape:
    """Hold what is left to bind of a callable.

    `owner` is the function in whose module the annotations were written. `bound` are the names that are taken already: a
    call that gave one of them again would override it or fail.
    """

    parameters: tuple[inspect.Parameter, ...]
    returns: object
    owner: Any
    bound: frozenset[str] = frozenset()


def shape_of(function: object, tool: str) -> Shape:
    """Find the shape of a function, a bound or static method, a partial, or an object with `__call__`.

    Raises:
        ToolDefinitionError: when it is something else, or its signature cannot be known.
    """
    if isinstance(function, functools.partial):
        return _partial_shape(cast("Any", function), tool)
    if isinstance(function, MethodType):
        return _method_shape(function, tool)
    if isinstance(function, staticmethod):
        return shape_of(cast("Any", function).__func__, tool)
    if isinstance(function, FunctionType):
        return _function_shape(function, tool)
    return _object_shape(function, tool)


def _function_shape(function: FunctionType, tool: str) -> Shape:
    """Read an explicit `__signature__`, else the function's own unless it takes just anything, else what it wraps (a29)."""
    wrapped = getattr(function, "__wrapped__", None)
    stated = vars(function).get("__signature__")
    if stated is not None and stated is not getattr(wrapped, "__signature__", None):
        if not isinstance(stated, inspect.Signature):
            raise ToolDefinitionError(tool, f"its __signature__ is no inspect.Signature but a {type(stated).__name__}")
        return Shape(tuple(stated.parameters.values()), stated.return_annotation, function)
    own = _own_signature(function)
    if wrapped is not None and tuple(parameter.kind for parameter in own.parameters.values()) == _CATCH_ALL:
        return shape_of(wrapped, tool)
    return Shape(tuple(own.parameters.values()), own.return_annotation, function)


def _own_signature(function: FunctionType) -> inspect.Signature:
    """Read the signature without a `__signature__` that functools.wraps copied from the wrapped function."""
    if "__signature__" not in vars(function):
        return inspect.signature(function, follow_wrapped=False)
    bare = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    bare.__kwdefaults__, bare.__annotations__ = function.__kwdefaults__, function.__annotations__
    return inspect.signature(bare)


def _method_shape(method: MethodType, tool: str) -> Shape:
    shape = shape_of(method.__func__, tool)
    first = next(iter(shape.parameters), None)
    if first is None or first.kind not in _POSITIONAL:
        return shape
    return replace(shape, parameters=shape.parameters[1:], bound=shape.bound | {first.name})


def _partial_shape(partial: "functools.partial[Any]", tool: str) -> Shape:
    """Take away what the partial has bound; `__wrapped__` and `__signature__` of an `update_wrapper`ed one are not its own."""
    inner = shape_of(partial.func, tool)
    taken = _taken_positions(partial, inner, tool)
    unknown = set(partial.keywords) - {parameter.name for parameter in inner.parameters}
    if unknown and not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in inner.parameters):
        raise ToolDefinitionError(tool, "the partial binds a parameter that the function does not have", parameter=min(unknown))
    left = [parameter for parameter in inner.parameters if parameter.name not in taken and parameter.name not in partial.keywords]
    return replace(inner, parameters=tuple(left), bound=inner.bound | taken | partial.keywords.keys())


def _taken_positions(partial: "functools.partial[Any]", inner: Shape, tool: str) -> frozenset[str]:
    places = [parameter for parameter in inner.parameters if parameter.kind in _POSITIONAL]
    takes_more = any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in inner.parameters)
    if len(partial.args) > len(places) and not takes_more:
        raise ToolDefinitionError(tool, f"the partial binds {len(partial.args)} positions; the function has {len(places)}")
    return frozenset(place.name for place, value in zip(places, partial.args, strict=False) if value is not _PLACEHOLDER)


def _object_shape(thing: Any, tool: str) -> Shape:
    call = _call_of(thing)
    if isinstance(call, FunctionType):
        return shape_of(MethodType(call, thing), tool)
    if isinstance(call, staticmethod | classmethod | functools.partialmethod):
        return shape_of(cast("Any", call).__get__(thing, type(thing)), tool)
    wrapped = getattr(thing, "__wrapped__", None)  # functools.cache and its kin
    if wrapped is not None and callable(thing) and not isinstance(thing, classmethod | type):
        return shape_of(wrapped, tool)
    raise ToolDefinitionError(tool, _refusal_of(cast("object", thing)))


def _call_of(thing: object) -> object:
    """Give `__call__` as its class defines it, unbound; an instance's own attribute of that name is not what runs."""
    found = (vars(kind)["__call__"] for kind in type(thing).__mro__ if "__call__" in vars(kind))
    return None if isinstance(thing, type) else next(found, None)


def _refusal_of(thing: object) -> str:
    if isinstance(thing, classmethod):
        return "it is a class method without its class: register Class.method after the class body"
    if isinstance(thing, type):
        return "it is a class: pass a function, or an instance with __call__"
    if isinstance(thing, BuiltinFunctionType):
        return "it is built in and has no annotations: wrap it in a function that has them"
    return f"it is no function but a value of type {type(thing).__name__}"


def _innermost(function: Any) -> Any:
    """Unwrap partials, methods and callable objects down to what runs."""
    for _ in range(64):
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, MethodType | staticmethod | classmethod):
            function = cast("Any", function).__func__
        elif isinstance(call := _call_of(function), FunctionType) and not isinstance(function, FunctionType):
            function = call
        else:
            break
    return function


_KINDS: Final[tuple[tuple[Callable[[Any], bool], Kind], ...]] = (
    (inspect.isasyncgenfunction, "async_generator"),
    (inspect.iscoroutinefunction, "async"),
    (inspect.isgeneratorfunction, "generator"),
)


def kind_of(function: object) -> Kind:
    """Tell how a callable runs. One that only returns an awaitable is "sync": what it gives must be looked at."""
    candidates = (function, _innermost(function))
    found: list[Kind] = [kind for test, kind in _KINDS for candidate in candidates if test(candidate)]
    return found[0] if found else "sync"


def is_async(function: object) -> bool:
    """Tell whether calling it gives a coroutine or an async generator."""
    return kind_of(function) in {"async", "async_generator"}


def name_of(function: object) -> str:
    """Give the name that a callable is known by: of a partial that of the inner function, of an object that of its class."""
    name = getattr(_without_partials(function), "__name__", None)
    return name if isinstance(name, str) else type(_without_partials(function)).__name__


def doc_of(function: object) -> str | None:
    """Give the docstring of a callable: of a partial that of the inner function, of an object that of `__call__` or its class."""
    inner = _without_partials(function)
    call = _call_of(inner)
    spoken = (call, inner) if isinstance(call, FunctionType) else (inner,)
    found: Iterator[str | None] = (getattr(thing, "__doc__", None) for thing in spoken)
    return next(filter(None, found), None)


def _without_partials(function: object) -> object:
    while isinstance(function, functools.partial):
        function = cast("Any", function).func
    return function


def is_unbound_method(function: object) -> bool:
    """Tell whether a function was defined in a class body and still wants `self` or `cls`. Source: case a12."""
    if isinstance(function, classmethod):
        return True
    if not isinstance(function, FunctionType) or not _in_class_body(function):
        return False
    parameters: Mapping[str, inspect.Parameter] = inspect.signature(function).parameters
    return next(iter(parameters), "") in {"self", "cls"}


def _in_class_body(function: FunctionType) -> bool:
    outer = function.__qualname__.rpartition(".")[0]
    return bool(outer) and not outer.endswith("<locals>")
