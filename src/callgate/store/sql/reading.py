"""What is read of the journal, each reading in one transaction of a reader's connection, and what is forgotten of it."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from sqlalchemy import Connection, RowMapping, Select, func, select, update

from callgate.store.protocol import ChainBreak, JournalFilter, Verification
from callgate.store.records import JournalRecord, digest_of_content, quoted
from callgate.store.sql.identity import is_gone
from callgate.store.sql.rows import FIRST_HASH, chained, read_record
from callgate.store.sql.statements import JOURNAL_LOCK
from callgate.store.sql.tables import JOURNAL, WRITERS

__all__ = ("labels_of", "purge", "records_of", "search", "settle", "unfinished", "verify", "within_run")

_PAGE: Final = 1000
_REPEATED: Final = ("claim", "event", "at", "tool", "caller", "status")


def _within(prefix: str, following: str) -> Any:
    """Limit to the claims between two texts, which the index has side by side."""
    return (JOURNAL.c.claim >= prefix) & (JOURNAL.c.claim < following)


def within_run(run_id: str) -> Any:
    """Limit to the records of a run."""
    run = quoted(run_id)
    return _within(f"{run}/", f"{run}0")


def records_of(connection: Connection, key: str) -> tuple[JournalRecord, ...]:
    """Give the records of a call by their places."""
    found = select(JOURNAL).where(_within(f"{key}#", f"{key}$")).order_by(JOURNAL.c.claim)
    return tuple(read_record(row) for row in connection.execute(found).mappings())


def labels_of(connection: Connection, run_id: str) -> frozenset[str]:
    """Give the labels of the results of a run."""
    wanted = select(JOURNAL).where(within_run(run_id), JOURNAL.c.facts.contains('"labels"'))
    return frozenset(label for row in connection.execute(wanted).mappings() for label in read_record(row).labels)


def _newest(connection: Connection) -> int:
    """Give the position up to which every record is visible, because no transaction is on its way that holds a lower one."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({JOURNAL_LOCK})")
    return connection.execute(select(func.max(JOURNAL.c.position))).scalar() or 0


def search(connection: Connection, wanted: JournalFilter, limit: int, after: int) -> tuple[list[JournalRecord], int]:
    """Give records that fit, from a position on, and the position up to which was looked."""
    last = _newest(connection)
    connection.commit()
    rows = connection.execute(_narrowed(wanted, after, last).limit(limit)).mappings().all()
    position = rows[-1]["position"] if rows and len(rows) == limit else max(after, last)
    return [read_record(row) for row in rows], position


def _narrowed(wanted: JournalFilter, after: int, last: int) -> "Select[Any]":
    within = _within(f"{wanted.key}#", f"{wanted.key}$") if wanted.key is not None else None
    if wanted.run_id is not None:
        within = within_run(wanted.run_id) if within is None else within & within_run(wanted.run_id)
    # The records of a run or a call are found by their claims: as a sum, their positions tempt no planner to walk the journal.
    position = JOURNAL.c.position if within is None else JOURNAL.c.position + 0
    narrowed = select(JOURNAL).where(position > after, position <= last).order_by(position)
    if within is not None:
        narrowed = narrowed.where(within)
    for name in ("tool", "caller", "status", "event"):
        value = getattr(wanted, name)
        if value is not None:
            narrowed = narrowed.where(JOURNAL.c[name] == value)
    if wanted.since is not None:
        narrowed = narrowed.where(JOURNAL.c.at >= wanted.since)
    if wanted.until is not None:
        narrowed = narrowed.where(JOURNAL.c.at < wanted.until)
    return narrowed


def unfinished(connection: Connection, stale_after_s: float) -> tuple[list[JournalRecord], dict[str, int]]:
    """Give the starts without an end of writers that are gone; and those writers that have none, with their newest number."""
    lost: list[JournalRecord] = []
    settled: dict[str, int] = {}
    for writer in connection.execute(select(WRITERS).where(WRITERS.c.settled.is_(False))).mappings().all():
        if is_gone(writer, stale_after_s=stale_after_s):
            found = list(_open_starts(connection, writer["writer"]))
            lost += found
            if not found:
                settled[writer["writer"]] = writer["last_seq"]
    return lost, settled


def _open_starts(connection: Connection, writer: str) -> Iterator[JournalRecord]:
    ends = JOURNAL.alias("ends")
    has_end = select(ends.c.position).where(ends.c.claim == JOURNAL.c.claim + "!").exists()
    open_ = select(JOURNAL).where(JOURNAL.c.writer == writer, JOURNAL.c.event == "started", ~has_end)
    for row in connection.execute(open_.order_by(JOURNAL.c.seq)).mappings():
        yield read_record(row)


def settle(connection: Connection, writers: Mapping[str, int]) -> None:
    """Note that these writers have left nothing open, so that nobody looks again; one that has written meanwhile is left."""
    for writer, last_seq in writers.items():
        same = update(WRITERS).where(WRITERS.c.writer == writer, WRITERS.c.last_seq == last_seq)
        connection.execute(same.values(settled=True))


def purge(connection: Connection, now: float) -> int:
    """Forget some of the content whose time has passed; give how much, which is none when there is none left."""
    due = select(JOURNAL.c.position).where(JOURNAL.c.content_until <= now, JOURNAL.c.content.is_not(None)).limit(_PAGE)
    return connection.execute(update(JOURNAL).where(JOURNAL.c.position.in_(due)).values(content=None)).rowcount


def verify(connection: Connection) -> Verification:
    """Check every chain from its first record, one page after the other."""
    breaks: list[ChainBreak] = []
    heads: dict[str, tuple[int, str]] = {}
    count = 0
    writers = {row["writer"]: row for row in connection.execute(select(WRITERS)).mappings()}
    for row in _pages(connection):
        count += 1
        seq, last = heads.get(row["writer"], (0, FIRST_HASH))
        problem = _problem(row, seq, last)
        if problem is not None:
            breaks.append(ChainBreak(row["writer"], row["seq"], problem))
        heads[row["writer"]] = (row["seq"], row["hash"])
    for writer, row in writers.items():
        head = heads.get(writer, (0, FIRST_HASH))
        if head != (row["last_seq"], row["last_hash"]):
            breaks.append(ChainBreak(writer, row["last_seq"], "the newest records are missing or were changed"))
    breaks += [ChainBreak(writer, 0, "its writer is not known") for writer in heads if writer not in writers]
    return Verification(count, heads, tuple(breaks))


def _pages(connection: Connection) -> Iterator[RowMapping]:
    """Walk the journal by its positions, in which each chain has its order: a million records need the memory of one page."""
    position = 0
    while True:
        page = select(JOURNAL).where(JOURNAL.c.position > position).order_by(JOURNAL.c.position).limit(_PAGE)
        rows = connection.execute(page).mappings().all()
        yield from rows
        if len(rows) < _PAGE:
            return
        position = rows[-1]["position"]


def _problem(row: RowMapping, seq: int, last: str) -> str | None:
    if row["seq"] != seq + 1:
        return f"records {seq + 1} to {row['seq'] - 1} are missing"
    if row["hash"] != chained(last, row["facts"]):
        return "it was changed, or the one before it was"
    facts = _facts(row["facts"])
    if facts is None:
        return "its facts cannot be read"
    if any(row[name] != facts.get(name) for name in _REPEATED):
        return "its columns were changed"
    if row["content"] is not None and digest_of_content(row["content"]) != facts.get("content_digest"):
        return "its content was changed"
    return None


def _facts(text: str) -> dict[str, object] | None:
    try:
        facts: object = json.loads(text)
    except ValueError:
        return None
    return cast("dict[str, object]", facts) if isinstance(facts, dict) else None
