"""The few statements of every batch, compiled once: building them anew would cost more than the database takes for them."""

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Dialect, bindparam, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from callgate.store.sql.tables import COUNTERS, JOURNAL, SWITCHES, WRITERS

__all__ = ("JOURNAL_LOCK", "Statements", "statements_for")

JOURNAL_LOCK: Final = 0x6A6F75726E616C
"""The advisory lock of PostgreSQL that writers share, and that is taken alone to see all of them at one moment."""


@dataclass(frozen=True, slots=True)
class Statements:
    """Hold statements as a driver takes them, with named parameters; "" where a database needs none."""

    share: str
    exclude: str
    switches: str
    add_records: str
    move_head: str
    open_counters: str
    count: str


def statements_for(dialect: Dialect) -> Statements:
    """Compile the statements for a database."""
    is_postgresql = dialect.name == "postgresql"
    insert_or_leave = (postgresql if is_postgresql else sqlite).insert(COUNTERS)
    columns = [column.name for column in JOURNAL.c if column is not JOURNAL.c.position]
    head = update(WRITERS).where(WRITERS.c.writer == bindparam("of_writer"))
    one = update(COUNTERS).where(COUNTERS.c.counter == bindparam("of_counter"))

    def written(statement: Any, names: list[str] | None = None) -> str:
        own = dialect if is_postgresql else sqlite.dialect(paramstyle="named")  # the drivers take rows as dictionaries then
        return str(statement.compile(dialect=own, column_keys=names))

    return Statements(
        share=f"SELECT pg_advisory_xact_lock_shared({JOURNAL_LOCK})" if is_postgresql else "",
        exclude=f"SELECT pg_advisory_xact_lock({JOURNAL_LOCK})" if is_postgresql else "",
        switches=written(select(SWITCHES.c.facts)),
        add_records=written(insert(JOURNAL).inline(), columns),
        move_head=written(head, ["last_seq", "last_hash", "beat_at", "settled"]),
        open_counters=written(insert_or_leave.on_conflict_do_nothing(), ["counter", "used"]),
        count=written(one, ["used"]),
    )
