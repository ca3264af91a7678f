"""What is read of the journal, each reading in one short transaction of a reader's connection."""

from collections.abc import Iterator
from typing import Any, Final

from sqlalchemy import Connection, RowMapping, Select, select, update

from callgate.store.protocol import ChainBreak, JournalFilter, Verification
from callgate.store.records import JournalRecord, digest_of_content, quoted
from callgate.store.sql.identity import is_gone
from callgate.store.sql.rows import FIRST_HASH, chained, read_record
from callgate.store.sql.tables import JOURNAL, WRITERS
from callgate.store.switching import record_fits

__all__ = ("gone_writers", "labels_of", "records_of", "search", "unfinished", "verify", "within_run")

_PAGE: Final = 1000


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


def search(connection: Connection, wanted: JournalFilter, limit: int, after: int) -> tuple[list[JournalRecord], int]:
    """Give records that fit, from a position on; the position from which to read on is that of the last one looked at."""
    found: list[JournalRecord] = []
    position = after
    while len(found) < limit:
        rows = list(connection.execute(_narrowed(wanted).where(JOURNAL.c.position > position).limit(_PAGE)).mappings())
        for row in rows:
            position = row["position"]
            record = read_record(row)
            if record_fits(wanted, record):
                found.append(record)
                if len(found) == limit:
                    break
        if len(rows) < _PAGE:
            break
    return found, position


def _narrowed(wanted: JournalFilter) -> "Select[Any]":
    narrowed = select(JOURNAL).order_by(JOURNAL.c.position)
    for name in ("tool", "caller", "status", "event"):
        value = getattr(wanted, name)
        if value is not None:
            narrowed = narrowed.where(JOURNAL.c[name] == value)
    if wanted.key is not None:
        narrowed = narrowed.where(_within(f"{wanted.key}#", f"{wanted.key}$"))
    if wanted.run_id is not None:
        narrowed = narrowed.where(within_run(wanted.run_id))
    return narrowed


def gone_writers(connection: Connection, stale_after_s: float) -> list[str]:
    """Give the writers that are gone and may have left something unfinished."""
    rows = connection.execute(select(WRITERS).where(WRITERS.c.settled.is_(False))).mappings()
    return [row["writer"] for row in rows if is_gone(row, stale_after_s=stale_after_s)]


def unfinished(connection: Connection, writers: list[str]) -> list[JournalRecord]:
    """Give the starts of some writers that have no end; a writer without any is settled, and not looked at again."""
    lost: list[JournalRecord] = []
    for writer in writers:
        ends = JOURNAL.alias("ends")
        has_end = select(ends.c.position).where(ends.c.claim == JOURNAL.c.claim + "!").exists()
        open_ = select(JOURNAL).where(JOURNAL.c.writer == writer, JOURNAL.c.event == "started", ~has_end)
        found = [read_record(row) for row in connection.execute(open_.order_by(JOURNAL.c.seq)).mappings()]
        lost += found
        if not found:
            connection.execute(update(WRITERS).where(WRITERS.c.writer == writer).values(settled=True))
    return lost


def verify(connection: Connection) -> Verification:
    """Check every chain from its first record, one page after the other."""
    breaks: list[ChainBreak] = []
    heads: dict[str, tuple[int, str]] = {}
    count = 0
    writers = {row["writer"]: row for row in connection.execute(select(WRITERS)).mappings()}
    for row in _chain_rows(connection):
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


def _chain_rows(connection: Connection) -> Iterator[RowMapping]:
    """Walk all chains in their order, a page at a time, so that a million records need no more memory than a thousand."""
    writer, seq = "", 0
    while True:
        behind = (JOURNAL.c.writer > writer) | ((JOURNAL.c.writer == writer) & (JOURNAL.c.seq > seq))
        page = select(JOURNAL).where(behind).order_by(JOURNAL.c.writer, JOURNAL.c.seq).limit(_PAGE)
        rows = list(connection.execute(page).mappings())
        yield from rows
        if len(rows) < _PAGE:
            return
        writer, seq = rows[-1]["writer"], rows[-1]["seq"]


def _problem(row: RowMapping, seq: int, last: str) -> str | None:
    if row["seq"] != seq + 1:
        return f"records {seq + 1} to {row['seq'] - 1} are missing"
    if row["hash"] != chained(last, row["facts"]):
        return "it was changed, or the one before it was"
    try:
        record = read_record(row)
    except (TypeError, ValueError):
        return "its facts cannot be read"
    columns = (row["claim"], row["event"], row["at"], row["tool"], row["caller"], row["status"])
    if columns != (record.claim, record.event, record.at, record.tool, record.caller, record.status):
        return "its columns were changed"
    if record.content is not None and digest_of_content(record.content) != record.content_digest:
        return "its content was changed"
    return None
