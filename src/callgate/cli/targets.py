"""Find the tools that a command is about: `file.py`, `file.py:attribute`, `module` or `module:attribute`."""

import importlib
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from callgate.errors import ToolDefinitionError, UsageError
from callgate.registry import ToolRegistry
from callgate.tools.tool import Tool, as_tool, is_tool

__all__ = ("TargetError", "load_attribute", "load_registry")


class TargetError(UsageError):
    """Refuse a target that names no tools; `__cause__` is what its module raised, when it raised."""

    code = "invalid_target"


def load_registry(target: str) -> ToolRegistry:
    """Import what `target` names and give the registry in it, or a registry of the tools in it.

    An attribute may be a registry, a tool, a decorated function, or a list of these. Without an attribute it is the one
    registry of the module or, when it has none, all its tools. The folder of a file, and the working directory for a
    module, are put on the import path, so that worker processes find the tools again.

    Raises:
        TargetError: when there is nothing of that name, no tool in it, or its code raised.
        ToolDefinitionError: when a tool of it cannot work.
    """
    try:
        return _found_registry(target)
    except (KeyboardInterrupt, TargetError, ToolDefinitionError):
        raise
    except BaseException as error:  # what is looked at is the user's, and may raise anything
        raise TargetError(f"looking for tools in {target!r} raised {_described(error)}") from error


def load_attribute(target: str) -> object:
    """Import what `target` names, and give the attribute.

    Raises:
        TargetError: there is nothing of that name, or its code raised; a definition in it that cannot work says why.
    """
    try:
        return _found_attribute(target)
    except (KeyboardInterrupt, TargetError):
        raise
    except BaseException as error:  # what is looked at is the user's, and may raise anything
        raise TargetError(f"looking for {target!r} raised {_described(error)}") from error


def _found_attribute(target: str) -> object:
    place, _, attribute = target.partition(":")
    if not attribute:
        raise TargetError(f"{target!r} names no attribute; write file.py:attribute or module:attribute")
    if not place.endswith(".py"):
        _check_module_name(place, target)
    module = _import_file(Path(place)) if place.endswith(".py") else _import_module(place, Path.cwd())
    try:
        return _attribute(module, attribute)
    except AttributeError as error:
        raise TargetError(f"{place!r} has no attribute {attribute!r}; it has {_public_names(module)}") from error


def _found_registry(target: str) -> ToolRegistry:
    place, _, attribute = target.partition(":")
    if not place.endswith(".py"):
        _check_module_name(place, target)
    module = _import_file(Path(place)) if place.endswith(".py") else _import_module(place, Path.cwd())
    if not attribute:
        return _registry_of_module(module, place)
    try:
        return _registry_of_value(_attribute(module, attribute), target)
    except AttributeError as error:
        raise TargetError(f"{place!r} has no attribute {attribute!r}; it has {_public_names(module)}") from error


def _check_module_name(place: str, target: str) -> None:
    """Refuse what cannot be a module before Python is asked for it, whose own words would not help."""
    has_source = Path(f"{place}.py").is_file()
    if all(part.isidentifier() for part in place.split(".")) and (has_source or not Path(place).is_file()):
        return  # a program `tools` beside `tools.py` does not hide the module
    wanted = "a target is file.py, file.py:attribute, module or module:attribute"
    if has_source:
        meant = f"{place}.py{target.removeprefix(place)}"
        raise TargetError(f"{place!r} is no module name; did you mean {meant!r}? {wanted}")
    what = "is a folder" if place and Path(place).is_dir() else "is no .py file" if Path(place).is_file() else "is no module name"
    raise TargetError(f"{place or target!r} {what}; {wanted}")


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise TargetError(f"there is no file {str(path)!r} in {str(Path.cwd())!r}")
    path = path.resolve()
    folder, names = path.parent, [path.stem]
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    module = _import_module(".".join(names), folder)
    if module.__file__ is None or Path(module.__file__).resolve() != path:
        raise TargetError(
            f"the name of {str(path)!r} is taken by {module.__file__ or 'a built-in module'}; give the file another name"
        )
    return module


def _import_module(name: str, folder: Path) -> ModuleType:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise TargetError(
                f"there is no module {error.name!r}; a target is file.py, file.py:attribute or module:attribute"
            ) from error
        raise _import_failure(name, error) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the module is the user's code, and may raise anything: a script's `sys.exit()`, too
        raise _import_failure(name, error) from error


def _import_failure(name: str, error: BaseException) -> TargetError:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return TargetError(f"importing {name!r} raised {_described(error)} ({frame.filename}:{frame.lineno})")


def _described(error: BaseException) -> str:
    kind = type(error).__name__
    try:
        return f"{kind}: {error}"
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - the user's own `__str__`
        return kind


def _attribute(module: ModuleType, attribute: str) -> object:
    value: object = module
    for name in attribute.split("."):
        value = getattr(value, name)
    return value


def _registry_of_value(value: object, target: str) -> ToolRegistry:
    if issubclass(type(value), ToolRegistry):  # not `isinstance`, which asks the value for its `__class__`
        return cast("ToolRegistry", value)
    if issubclass(type(value), list | tuple):
        return ToolRegistry([_tool(each, target) for each in cast("Iterable[object]", value)])
    return ToolRegistry([_tool(value, target)])


def _tool(value: object, target: str) -> Tool[Any, Any]:
    if not _is_tool(value):  # `as_tool` takes any callable, and a module is full of callables that are no tools
        kind = type(value).__name__
        raise TargetError(
            f"{target!r} holds a {kind}; expected a ToolRegistry, a Tool, a function with @tool, or a list of these"
        )
    return as_tool(value)


def _is_tool(value: object) -> bool:
    """Take what cannot be asked for no tool: a module may hold proxies, which raise until what they stand for is there."""
    try:
        return is_tool(value)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - the user's own `__getattr__` or `__class__`
        return False


def _registry_of_module(module: ModuleType, place: str) -> ToolRegistry:
    values = vars(module)
    registries = {id(value): name for name, value in values.items() if issubclass(type(value), ToolRegistry)}
    if len(registries) > 1:
        raise TargetError(
            f"{place!r} has more than one registry; name one: {_joined(f'{place}:{name}' for name in registries.values())}"
        )
    if registries:
        (name,) = registries.values()
        return _registry_of_value(values[name], place)
    tools = {id(value): value for value in values.values() if _is_tool(value)}
    if not tools:
        raise TargetError(
            f"{place!r} has neither a ToolRegistry nor a function with @tool at its top level; it has {_public_names(module)}"
        )
    return _registry_of_value(list(tools.values()), place)


def _public_names(module: ModuleType) -> str:
    return _joined(name for name in vars(module) if not name.startswith("_")) or "nothing public"


def _joined(names: Iterable[str]) -> str:
    return ", ".join(names)
