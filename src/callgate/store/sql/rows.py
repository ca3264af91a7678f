"""Between the store's values and rows: facts as canonical JSON, and the hash that chains a record to the one before it."""

import json
from dataclasses import MISSING, fields
from hashlib import sha256
from typing import Any, Final, TypeVar, cast

from sqlalchemy import RowMapping

from callgate.store.records import JournalRecord

__all__ = ("FIRST_HASH", "chained", "facts_of", "journal_row", "read_facts", "read_record")

T = TypeVar("T")

FIRST_HASH: Final = "0" * 64
"""What the first record of a writer is chained to."""

_CONTENT: Final = frozenset({"content", "content_for_run", "content_until"})
_DEFAULTS: Final[dict[type, tuple[tuple[str, Any], ...]]] = {}


def _fields_of(kind: type) -> tuple[tuple[str, Any], ...]:
    known = _DEFAULTS.get(kind)
    if known is None:
        known = _DEFAULTS[kind] = tuple(
            (each.name, each.default if each.default is not MISSING else _NO_DEFAULT) for each in fields(kind)
        )
    return known


_NO_DEFAULT: Final = object()


def facts_of(value: object, *, leave_out: frozenset[str] = frozenset()) -> str:
    """Write the fields of a value that differ from their defaults as JSON, in one form only."""
    facts: dict[str, object] = {}
    for name, default in _fields_of(type(value)):
        if name not in leave_out:
            each = getattr(value, name)
            if default is _NO_DEFAULT or each != default:
                facts[name] = each
    return json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def read_facts(kind: type[T], facts: str, **further: object) -> T:
    """Make a value of its facts, and of what has columns of its own."""
    given = cast("dict[str, Any]", json.loads(facts))
    tupled = {name: tuple(cast("list[Any]", each)) if isinstance(each, list) else each for name, each in given.items()}  # type: ignore[redundant-cast]  # pyright wants it
    return kind(**{**tupled, **further})


def chained(previous: str, facts: str) -> str:
    """Hash a record together with the hash of the one before it."""
    return sha256(f"{previous}\n{facts}".encode()).hexdigest()


def journal_row(record: JournalRecord, writer: str, seq: int, previous: str) -> dict[str, object]:
    """Make the row of a record."""
    facts = facts_of(record, leave_out=_CONTENT)
    return {
        "writer": writer,
        "seq": seq,
        "claim": record.claim,
        "event": record.event,
        "at": record.at,
        "tool": record.tool,
        "caller": record.caller,
        "status": record.status,
        "facts": facts,
        "hash": chained(previous, facts),
        "content": record.content,
        "content_for_run": record.content_for_run,
        "content_until": record.content_until,
    }


def read_record(row: RowMapping) -> JournalRecord:
    """Read a record of its row."""
    return read_facts(
        JournalRecord,
        row["facts"],
        content=row["content"],
        content_for_run=bool(row["content_for_run"]),
        content_until=row["content_until"],
    )
