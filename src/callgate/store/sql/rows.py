"""Between the store's values and rows: facts as canonical JSON, and the hash that chains a record to the one before it."""

import json
from collections.abc import Callable
from dataclasses import MISSING, fields
from hashlib import sha256
from operator import attrgetter
from typing import Any, Final, TypeVar, cast

from pydantic_core import PydanticSerializationError, to_json
from sqlalchemy import RowMapping

from callgate.store.records import JournalRecord

__all__ = ("FIRST_HASH", "chained", "facts_of", "journal_row", "read_facts", "read_record")

T = TypeVar("T")

FIRST_HASH: Final = "0" * 64
"""What the first record of a writer is chained to."""

_CONTENT: Final = frozenset({"content", "content_for_run", "content_until"})
_NO_DEFAULT: Final = object()
_encode: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True).encode


_Plan = tuple[tuple[str, ...], tuple[Any, ...], Callable[[Any], tuple[Any, ...]]]
_plans: Final[dict[tuple[type, frozenset[str]], _Plan]] = {}


def _plan_of(kind: type, leave_out: frozenset[str]) -> _Plan:
    """Give the names of a value's fields, their defaults, and what reads them all: every record needs it."""
    plan = _plans.get((kind, leave_out))
    if plan is None:
        wanted = [each for each in fields(kind) if each.name not in leave_out]
        defaults = tuple(_NO_DEFAULT if each.default is MISSING else each.default for each in wanted)
        names = tuple(each.name for each in wanted)
        plan = _plans[kind, leave_out] = names, defaults, attrgetter(*names)
    return plan


def facts_of(value: object, *, leave_out: frozenset[str] = frozenset()) -> str:
    """Write the fields of a value that differ from their defaults as JSON: in their order, and so in one form only."""
    names, defaults, read = _plan_of(type(value), leave_out)
    facts = {
        name: each
        for name, default, each in zip(names, defaults, read(value), strict=True)
        if each is not default and each != default
    }
    try:
        return to_json(facts).decode()
    except PydanticSerializationError:  # a lone surrogate in a name that a model made up
        return _encode(facts)


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
