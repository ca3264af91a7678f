"""Large outputs in the database, bounded in size and age: the oldest go first."""

import secrets
import time
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from sqlalchemy import Connection, delete, func, insert, select

from callgate.store.sql.tables import SPILLS
from callgate.tools.spill import SpillPage, page_of

__all__ = ("SQLSpill",)

T = TypeVar("T")

_MAX_TOTAL_BYTES: Final = 256 * 1024 * 1024
_MAX_AGE_S: Final = 30 * 24 * 3600.0


class Access(Protocol):
    """Run something on a connection to the database, and wait for its answer."""

    def __call__(self, act: Callable[[Connection], T], /) -> T:
        """Run it.

        Raises:
            StoreError: it did not happen.
        """
        ...


class SQLSpill:
    """Keep outputs that are too large for the model beside the journal; a handle opens only in the thread that wrote it.

    `write` runs in the writer's transaction, `read` in a reader's. What is older than `max_age_s` (seconds) is not given any
    more, and goes with the next text that is kept.
    """

    def __init__(
        self, write: Access, read: Access, *, max_total_bytes: int = _MAX_TOTAL_BYTES, max_age_s: float = _MAX_AGE_S
    ) -> None:
        self._write = write
        self._read = read
        self._max_total_bytes = max_total_bytes
        self._max_age_s = max_age_s

    def put(self, text: str, thread_id: str | None) -> str | None:
        """Keep a text; None when it is larger than all that is kept."""
        data = text.encode("utf-8", "surrogatepass")
        if len(data) > self._max_total_bytes:
            return None
        handle = f"out_{secrets.token_hex(16)}"
        row = {"handle": handle, "thread_id": thread_id, "size": len(data), "data": data, "kept_at": time.time()}

        def keep(connection: Connection) -> None:
            connection.execute(delete(SPILLS).where(SPILLS.c.kept_at < time.time() - self._max_age_s))
            connection.execute(insert(SPILLS).values(row))
            self._make_room(connection)

        self._write(keep)
        return handle

    def _make_room(self, connection: Connection) -> None:
        total: int = connection.execute(select(func.sum(SPILLS.c.size))).scalar_one()
        last: int | None = None
        if total > self._max_total_bytes:
            oldest = select(SPILLS.c.position, SPILLS.c.size).order_by(SPILLS.c.position)
            for position, size in connection.execute(oldest).all():
                if total <= self._max_total_bytes:
                    break
                last = position
                total -= size
        if last is not None:
            connection.execute(delete(SPILLS).where(SPILLS.c.position <= last))

    def read(self, handle: str, offset: int, limit: int, thread_id: str | None) -> SpillPage | None:
        """Give a page of a text; None when the thread has no such handle."""
        wanted = select(SPILLS.c.data, SPILLS.c.thread_id, SPILLS.c.kept_at).where(SPILLS.c.handle == handle)
        found: Any = self._read(lambda connection: connection.execute(wanted).first())
        if found is None or found[1] != thread_id or found[2] < time.time() - self._max_age_s:
            return None
        return page_of(bytes(found[0]), offset, limit)
