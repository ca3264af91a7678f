"""The few statements of every batch, compiled once: building them anew would cost more than the database takes for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Dialect, bindparam, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from callgate.store.sql.tables import COUNTERS, JOURNAL, SWITCHES, WRITERS

__all__ = ("JOURNAL_LOCK", "Statements", "statements_for")

JOURNAL_LOCK: Final = 0x6A6F75726E616C
"""The advisory lock of PostgreSQL that writers share, and that is taken alone to see all of them at one moment."""

_ROWS: Final = (32, 8, 1)
"""Rows that go to SQLite in one statement: for each statement Python gives up its lock, and has to get it back."""


@dataclass(frozen=True, slots=True)
class Statements:
    """Hold statements as a driver takes them, with parameters in their order; "" where a database needs none.

    `add_records` are insertions of so many rows at once, the largest first.
    """

    share: str
    exclude: str
    switches: str
    add_records: tuple[tuple[int, str], ...]
    move_head: str
    open_counters: str
    count: str


def statements_for(dialect: Dialect) -> Statements:
    """Compile the statements for a database."""
    is_postgresql = dialect.name == "postgresql"
    databases: Any = postgresql.psycopg if is_postgresql else sqlite
    own = databases.dialect(paramstyle="format" if is_postgresql else "qmark")

    def written(statement: Any, names: Sequence[str]) -> str:
        compiled = statement.compile(dialect=own, column_keys=names)
        assert tuple(compiled.positiontup) == tuple(names)  # a driver gets bare tuples, in this order
        return str(compiled)

    add_one = written(insert(JOURNAL).inline(), [column.name for column in JOURNAL.c if column is not JOURNAL.c.position])
    start, _, row = add_one.partition(" VALUES ")
    sizes = (1,) if is_postgresql else _ROWS  # that driver sends the rows of one statement without waiting
    insert_or_leave = (postgresql if is_postgresql else sqlite).insert(COUNTERS).on_conflict_do_nothing()
    head = update(WRITERS).where(WRITERS.c.writer == bindparam("of_writer"))
    one = update(COUNTERS).where(COUNTERS.c.counter == bindparam("of_counter"))
    return Statements(
        share=f"SELECT pg_advisory_xact_lock_shared({JOURNAL_LOCK})" if is_postgresql else "",
        exclude=f"SELECT pg_advisory_xact_lock({JOURNAL_LOCK})" if is_postgresql else "",
        switches=written(select(SWITCHES.c.facts), []),
        add_records=tuple((size, f"{start} VALUES {', '.join([row] * size)}") for size in sizes),
        move_head=written(head, ["beat_at", "last_seq", "last_hash", "settled", "of_writer"]),
        open_counters=written(insert_or_leave, ["counter", "used"]),
        count=written(one, ["used", "of_counter"]),
    )
