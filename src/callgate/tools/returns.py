"""Compare what a function returned with its return annotation, which promises and is not enforced (case d15)."""

from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
)
from typing import Any, Final, cast, get_args, get_origin

from pydantic import ConfigDict, TypeAdapter
from pydantic_core import ValidationError

from callgate.tools.annotations import modern_types
from callgate.values import ToolAnswer

__all__ = ("ReturnCheck",)

_AWAITED: Final = (Awaitable, Coroutine)
_COLLECTED: Final = (AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable, Iterator)


class ReturnCheck:
    """Check one function's returned values; the annotation is compiled at the first, so that definitions stay cheap."""

    __slots__ = ("_adapter", "_resolve", "_words")

    def __init__(self, resolve: Callable[[], Any] | None) -> None:
        self._resolve = resolve
        self._adapter: TypeAdapter[Any] | None = None
        self._words = ""

    def check(self, value: object) -> str | None:
        """Say "annotated as …, returned …" when the value is no instance of what was annotated, else None."""
        if self._resolve is not None:
            self._adapter, self._resolve = self._compiled(self._resolve), None
        if self._adapter is None:
            return None
        try:
            self._adapter.validate_python(value, strict=True)
        except ValidationError:
            return f"annotated as {self._words}, returned {type(value).__name__}"
        except Exception:  # noqa: BLE001 - a validator is the tool author's code, and this is advice only
            return None
        return None

    def _compiled(self, resolve: Callable[[], Any]) -> TypeAdapter[Any] | None:
        """Compile what the annotation says of the final value; None when it says nothing that can be checked."""
        try:
            annotation = _final(resolve())
            self._words = annotation.__name__ if isinstance(annotation, type) else str(annotation)
            return TypeAdapter(modern_types(annotation), config=_config_for(annotation))
        except Exception:  # noqa: BLE001 - an annotated class may bring code of its own, and this is advice only
            return None


def _config_for(annotation: object) -> ConfigDict | None:
    has_own = any(hasattr(annotation, name) for name in ("model_config", "__dataclass_fields__", "__required_keys__"))
    return None if has_own else ConfigDict(arbitrary_types_allowed=True)


def _final(annotation: Any) -> Any:
    """Give what the value is once it is awaited, collected and taken out of a ToolAnswer."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in _AWAITED and arguments:
        return _final(arguments[-1])
    if origin in _COLLECTED and arguments:
        return cast("Any", list)[arguments[0]]
    if origin is ToolAnswer:
        return _final(arguments[0])
    return Any if annotation is ToolAnswer else annotation
