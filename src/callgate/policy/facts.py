"""Read the facts of which policies are made, and say which fact is wrong, so that its line can be found."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, cast

from callgate.errors import PolicyError

__all__ = ("FactError", "Reader", "read_at", "read_list", "read_table", "text_of", "texts_of")

Reader: TypeAlias = Callable[[Any], Any]


class FactError(PolicyError):
    """Refuse one fact; `at` is the way to it, from the table or list that was read: its keys and places."""

    def __init__(self, reason: str, *at: str | int) -> None:
        super().__init__(reason)
        self.at = at


def read_at(read: Reader, value: object, *at: str | int) -> Any:
    """Read a value that stands at `at`.

    Raises:
        FactError: it cannot be.
    """
    try:
        return read(value)
    except FactError as error:
        raise FactError(error.reason, *at, *error.at) from error
    except PolicyError as error:
        raise FactError(error.reason, *at) from error


def read_table(facts: object, what: str, readers: Mapping[str, Reader], needed: Iterable[str] = ()) -> dict[str, Any]:
    """Read each value of a table by the reader of its key.

    Raises:
        FactError: a key is unknown or missing, or a value cannot be.
    """
    if not isinstance(facts, Mapping):
        raise FactError(f"{what} must be a table, not {facts!r}")
    table = cast("Mapping[str, object]", facts)
    for key in table:
        if key not in readers:
            raise FactError(f"unknown key {key!r} in {what}; known are {', '.join(sorted(readers))}", key)
    for key in needed:
        if key not in table:
            raise FactError(f"{what} needs {key!r}")
    return {key: read_at(readers[key], value, key) for key, value in table.items()}


def read_list(values: object, what: str, read: Reader) -> tuple[Any, ...]:
    """Read each item of a list.

    Raises:
        FactError: it is no list, or an item cannot be.
    """
    if not isinstance(values, list | tuple):
        raise FactError(f"{what}, not {values!r}")
    return tuple(read_at(read, value, place) for place, value in enumerate(cast("list[object]", values)))


def text_of(key: str) -> Reader:
    """Make the reader of a text."""

    def read(value: object) -> str:
        if not isinstance(value, str):
            raise PolicyError(f"{key} must be a text, not {value!r}")
        return value

    return read


def texts_of(key: str) -> Reader:
    """Make the reader of a list of texts, of which there has to be one at least.

    An empty list is refused: a key that is left out fits every call, and a list that came out empty must not mean so.
    """

    def read(value: object) -> tuple[str, ...]:
        if not isinstance(value, list | tuple | set | frozenset):
            raise PolicyError(f"{key} must be a list of texts, not {value!r}")
        items = cast("Iterable[object]", value)
        # A set has another order in each process, and the digest of a policy is the same in all.
        texts = tuple(sorted(items, key=str) if isinstance(value, set | frozenset) else items)
        if not texts:
            raise PolicyError(f"{key} must not be empty; leave it out when every call fits")
        if not all(isinstance(text, str) and text for text in texts):
            raise PolicyError(f"{key} must hold texts that are not empty, not {value!r}")
        return cast("tuple[str, ...]", texts)

    return read
