"""`SQLStore`, loaded when it is first asked for, and `open_store`, which makes a store of what stands in a configuration."""

from typing import Any

from callgate.errors import UsageError
from callgate.store.memory import MemoryStore
from callgate.store.protocol import Store

__all__ = ("open_store", "sql_store_class")


def sql_store_class() -> Any:
    """Give the class `SQLStore`.

    Raises:
        UsageError: the packages that it needs are not installed.
    """
    try:
        from callgate.store.sql.store import SQLStore  # noqa: PLC0415 - SQLAlchemy and Alembic are an optional extra
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in {"sqlalchemy", "alembic"}:
            raise
        raise UsageError(f"SQLStore needs {error.name}: install callgate with its extra store") from error
    return SQLStore


def open_store(place: str) -> Store:
    """Open the store of a place: `memory:`, an address such as `postgresql://…` or `sqlite:///file.db`, or a file's name.

    Raises:
        UsageError: it is none of these, or a package is missing.
        StoreError: the database cannot be opened.
    """
    if place == "memory:":
        return MemoryStore()
    opened: Store = sql_store_class()(place if "://" in place else f"sqlite:///{place}")
    return opened
