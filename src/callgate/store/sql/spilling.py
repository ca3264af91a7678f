"""Large outputs in the database, bounded in size: the oldest go first."""

import secrets
from typing import Final

from sqlalchemy import Engine, delete, func, insert, select

from callgate.store.sql.tables import SPILLS
from callgate.tools.spill import SpillPage, page_of

__all__ = ("SQLSpill",)

_MAX_TOTAL_BYTES: Final = 256 * 1024 * 1024


class SQLSpill:
    """Keep outputs that are too large for the model beside the journal; a handle opens only in the thread that wrote it."""

    def __init__(self, writing: Engine, reading: Engine, max_total_bytes: int = _MAX_TOTAL_BYTES) -> None:
        self._writing = writing
        self._reading = reading
        self._max_total_bytes = max_total_bytes

    def put(self, text: str, thread_id: str | None) -> str | None:
        """Keep a text; None when it is larger than all that is kept."""
        data = text.encode("utf-8", "surrogatepass")
        if len(data) > self._max_total_bytes:
            return None
        handle = f"out_{secrets.token_hex(12)}"
        with self._writing.begin() as connection:
            connection.execute(insert(SPILLS).values(handle=handle, thread_id=thread_id, size=len(data), data=data))
            total = connection.execute(select(func.sum(SPILLS.c.size))).scalar_one()
            if total > self._max_total_bytes:
                oldest = select(SPILLS.c.position, SPILLS.c.size).order_by(SPILLS.c.position)
                for position, size in connection.execute(oldest).all():
                    if total <= self._max_total_bytes:
                        break
                    connection.execute(delete(SPILLS).where(SPILLS.c.position == position))
                    total -= size
        return handle

    def read(self, handle: str, offset: int, limit: int, thread_id: str | None) -> SpillPage | None:
        """Give a page of a text; None when the thread has no such handle."""
        wanted = select(SPILLS.c.data, SPILLS.c.thread_id).where(SPILLS.c.handle == handle)
        with self._reading.connect() as connection:
            found = connection.execute(wanted).first()
        return None if found is None or found[1] != thread_id else page_of(bytes(found[0]), offset, limit)
