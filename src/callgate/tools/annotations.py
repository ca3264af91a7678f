"""Make a function's annotations into types: names resolved where the function was written, old TypedDicts renewed."""

import sys
from collections import ChainMap
from collections.abc import Mapping
from types import FrameType, FunctionType, SimpleNamespace, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NotRequired,
    Required,
    TypeAlias,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import typing_extensions

from callgate.errors import ToolDefinitionError

__all__ = ("Names", "UnresolvedNameError", "modern_types", "names_of", "resolve_annotation", "typed_dict")

Names: TypeAlias = Mapping[str, Any]

_UNREADABLE: Final = (AttributeError, IndexError, KeyError, SyntaxError, TypeError, ValueError)


class UnresolvedNameError(ToolDefinitionError):
    """Refuse an annotation with a name that is not known where the function was written; `name` is that name.

    A decorator may define the tool again later: a name further down in the module is known by then.
    """

    def __init__(self, tool: str, parameter: str, name: str) -> None:
        advice = "import or define it at module level, before the tool is defined (not under TYPE_CHECKING)"
        super().__init__(tool, f"its annotation uses the unknown name {name!r}; {advice}", parameter=parameter)
        self.name = name


def names_of(function: object, extra: Names) -> Names:
    """Give the names that a function's annotations may use, the nearest first.

    These are its closure, the scopes it was written in and its module, then those of what it wraps, then `extra`.
    """
    scopes: list[Any] = []
    current: object = function
    while isinstance(current, FunctionType) and len(scopes) < 64:
        scopes += [_closure(current), *_enclosing(current), current.__globals__]
        current = getattr(current, "__wrapped__", None)
    return ChainMap(*scopes, dict(extra))


def _closure(function: FunctionType) -> dict[str, object]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    parameters = {parameter.__name__: parameter for parameter in getattr(function, "__type_params__", ())}
    return {**{name: cell.cell_contents for name, cell in cells if _is_filled(cell)}, **parameters}


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _enclosing(function: FunctionType) -> list[dict[str, object]]:
    """Give the local names of the functions and classes around a function that is being defined right now."""
    wanted = _outer_names(function.__qualname__)
    found: list[dict[str, object]] = []
    frame = sys._getframe(1) if wanted else None  # noqa: SLF001 - there is no other way to a definition in progress
    while frame is not None and len(found) < len(wanted):
        if _is_scope(frame, function, wanted):
            found.append(frame.f_locals)
        frame = frame.f_back
    return found


def _outer_names(qualified_name: str) -> set[str]:
    parts = qualified_name.split(".")[:-1]
    return {".".join(parts[:size]) for size in range(1, len(parts) + 1) if parts[size - 1] != "<locals>"}


def _is_scope(frame: FrameType, function: FunctionType, wanted: set[str]) -> bool:
    return frame.f_globals is function.__globals__ and frame.f_code.co_qualname in wanted


def resolve_annotation(annotation: object, parameter: str, tool: str, names: Names) -> Any:
    """Give the type that an annotation stands for, text and forward references inside it resolved.

    Raises:
        UnresolvedNameError: when it uses a name that is not known.
        ToolDefinitionError: when it is no type.
    """
    if type(annotation) is type:
        return annotation
    carrier = SimpleNamespace(__annotations__={parameter: annotation})
    try:
        return get_type_hints(carrier, {}, cast("dict[str, Any]", names), include_extras=True)[parameter]
    except NameError as error:
        raise UnresolvedNameError(tool, parameter, error.name or str(error)) from error
    except _UNREADABLE as error:
        raise ToolDefinitionError(tool, f"its annotation is no type: {error}", parameter=parameter) from error


# Pydantic refuses `typing.TypedDict` before Python 3.12, where a class does not tell all that it was declared with. The
# annotations do, so a twin is made from them.

_NEEDS_TWINS: Final = sys.version_info < (3, 12)


def modern_types(annotation: Any) -> Any:
    """Replace each `typing.TypedDict` in a type by a twin that pydantic reads on every Python version. Source: case a24."""
    return _modern(annotation, {}) if _NEEDS_TWINS else annotation


def _modern(annotation: Any, twins: dict[type, Any]) -> Any:
    if isinstance(annotation, type) and type(annotation).__module__ == "typing" and hasattr(annotation, "__required_keys__"):
        return twins[annotation] if annotation in twins else _twin(annotation, twins)
    arguments = get_args(annotation)
    if not arguments or get_origin(annotation) is Literal:
        return annotation
    renewed = tuple(_modern(argument, twins) for argument in arguments)
    if all(new is old for new, old in zip(renewed, arguments, strict=True)):
        return annotation
    return _rebuilt(annotation, renewed)


def _rebuilt(annotation: Any, arguments: tuple[Any, ...]) -> Any:
    origin = get_origin(annotation)
    if origin is Annotated:
        return Annotated[(arguments[0], *annotation.__metadata__)]
    if origin in (Union, UnionType):
        return cast("Any", Union)[arguments]
    return annotation.copy_with(arguments) if hasattr(annotation, "copy_with") else origin[arguments]


def _twin(old: type, twins: dict[type, Any]) -> Any:
    twin = typed_dict(old.__name__, {})
    twins[old] = twin
    hints = get_type_hints(old, include_extras=True)
    required = {key for key in hints if _is_required(hints[key], stated=key in old.__required_keys__)}  # type: ignore[attr-defined]  # a TypedDict
    twin.__annotations__ = {key: _modern(hint, twins) for key, hint in hints.items()}
    twin.__required_keys__ = frozenset(required)
    twin.__optional_keys__ = frozenset(hints) - required
    twin.__module__, twin.__qualname__, twin.__doc__ = old.__module__, old.__qualname__, old.__doc__
    if (config := getattr(old, "__pydantic_config__", None)) is not None:
        twin.__pydantic_config__ = config
    return twin


def _is_required(hint: object, *, stated: bool) -> bool:
    """Read Required and NotRequired, which a class with postponed annotations has not read. Source: case a24."""
    origin = get_origin(hint)
    return origin is Required or (stated and origin is not NotRequired)


def typed_dict(name: str, fields: Mapping[str, Any], extra_items: Any = None) -> Any:
    """Make a TypedDict class; any text is a key. `extra_items` is the type of all other keys (None: none are known)."""
    make: Any = typing_extensions.TypedDict
    return make(name, dict(fields)) if extra_items is None else make(name, dict(fields), extra_items=extra_items)
