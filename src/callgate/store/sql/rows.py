"""Between the store's values and rows: facts as canonical JSON, and the hash that chains a record to the one before it."""

import json
from dataclasses import MISSING, Field, fields
from hashlib import sha256
from typing import Any, Final, TypeAlias, TypeVar, cast

from pydantic_core import PydanticSerializationError, SchemaSerializer, core_schema
from sqlalchemy import RowMapping

from callgate.store.records import JournalRecord

__all__ = ("FIRST_HASH", "JournalRow", "chained", "facts_of", "journal_row", "read_facts", "read_record")

T = TypeVar("T")
JournalRow: TypeAlias = tuple[object, ...]

FIRST_HASH: Final = "0" * 64
"""What the first record of a writer is chained to."""

_CONTENT: Final = frozenset({"content", "content_for_run", "content_until"})
_encode: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True).encode
_serializers: Final[dict[tuple[type, frozenset[str]], SchemaSerializer]] = {}


def facts_of(value: object, *, leave_out: frozenset[str] = frozenset()) -> str:
    """Write the fields of a value that differ from their defaults as JSON: in their order, and so in one form only."""
    serializer = _serializers.get((type(value), leave_out)) or _serializer_of(type(value), leave_out)
    try:
        return serializer.to_json(value, exclude_defaults=True).decode()
    except PydanticSerializationError:  # a lone surrogate in a name that a model made up
        return _encode(serializer.to_python(value, exclude_defaults=True))


def _serializer_of(kind: Any, leave_out: frozenset[str]) -> SchemaSerializer:
    written = [_field_of(each, is_left_out=each.name in leave_out) for each in fields(kind)]
    names = [each.name for each in fields(kind)]
    arguments = core_schema.dataclass_args_schema(kind.__name__, written)
    serializer = SchemaSerializer(core_schema.dataclass_schema(kind, arguments, names, slots=True))
    _serializers[kind, leave_out] = serializer
    return serializer


def _field_of(each: Field[Any], *, is_left_out: bool) -> core_schema.DataclassField:
    schema: core_schema.CoreSchema = core_schema.any_schema()
    if each.default is not MISSING:
        schema = core_schema.with_default_schema(schema, default=each.default)
    return core_schema.dataclass_field(each.name, schema, serialization_exclude=is_left_out)


def read_facts(kind: type[T], facts: str, **further: object) -> T:
    """Make a value of its facts, and of what has columns of its own."""
    given = cast("dict[str, Any]", json.loads(facts))
    tupled = {name: tuple(cast("list[Any]", each)) if isinstance(each, list) else each for name, each in given.items()}  # type: ignore[redundant-cast]  # pyright wants it
    return kind(**{**tupled, **further})


def chained(previous: str, facts: str) -> str:
    """Hash a record together with the hash of the one before it."""
    return sha256(f"{previous}\n{facts}".encode()).hexdigest()


def journal_row(record: JournalRecord, writer: str, seq: int, previous: str) -> tuple[JournalRow, str]:
    """Make the row of a record, in the order of the table's columns, and give its hash."""
    facts = facts_of(record, leave_out=_CONTENT)
    hashed = chained(previous, facts)
    return (
        writer,
        seq,
        record.claim,
        record.event,
        record.at,
        record.tool,
        record.caller,
        record.status,
        facts,
        hashed,
        record.content,
        record.content_for_run,
        record.content_until,
    ), hashed


def read_record(row: RowMapping) -> JournalRecord:
    """Read a record of its row."""
    return read_facts(
        JournalRecord,
        row["facts"],
        content=row["content"],
        content_for_run=bool(row["content_for_run"]),
        content_until=row["content_until"],
    )
