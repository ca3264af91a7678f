"""The tables of a store, as they are after the newest migration. What is searched for is a column, the rest is JSON."""

from typing import Final

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, LargeBinary, MetaData, String, Table, Text, text
from sqlalchemy.dialects import postgresql

__all__ = ("APPROVALS", "COUNTERS", "GRANTS", "JOURNAL", "METADATA", "PROFILES", "RUNS", "SPILLS", "SWITCHES", "WRITERS")

METADATA: Final = MetaData()

# Claims are compared byte by byte, so that the records of a run or a call are one range of the index.
_BYTEWISE: Final = Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")
_NUMBER: Final = BigInteger().with_variant(Integer(), "sqlite")

_IS_DUE: Final = text("content IS NOT NULL AND content_until IS NOT NULL")

JOURNAL: Final = Table(
    "callgate_journal",
    METADATA,
    Column("position", _NUMBER, primary_key=True, autoincrement=True),
    Column("writer", String(64), nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("claim", _BYTEWISE, nullable=False),
    Column("event", String(16), nullable=False),
    Column("at", Float, nullable=False),
    Column("tool", Text, nullable=False),
    Column("caller", Text, nullable=False),
    Column("status", String(16)),
    Column("facts", Text, nullable=False),
    Column("hash", String(64), nullable=False),
    Column("content", Text),
    Column("content_for_run", Boolean, nullable=False),
    Column("content_until", Float),
    Index("callgate_journal_claim", "claim", unique=True),
    Index("callgate_journal_chain", "writer", "seq", unique=True),
    Index("callgate_journal_due", "content_until", sqlite_where=_IS_DUE, postgresql_where=_IS_DUE),
)

WRITERS: Final = Table(
    "callgate_writers",
    METADATA,
    Column("writer", String(64), primary_key=True),
    Column("host", Text, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("born", Text, nullable=False),
    Column("beat_at", Float, nullable=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("last_hash", String(64), nullable=False),
    Column("closed", Boolean, nullable=False),
    Column("settled", Boolean, nullable=False),
)

APPROVALS: Final = Table(
    "callgate_approvals",
    METADATA,
    Column("position", _NUMBER, primary_key=True, autoincrement=True),
    Column("id", String(64), nullable=False),
    Column("key", _BYTEWISE, nullable=False),
    Column("run_id", Text),
    Column("state", String(16), nullable=False),
    Column("facts", Text, nullable=False),
    Index("callgate_approvals_id", "id", unique=True),
    Index("callgate_approvals_key", "key"),
    Index("callgate_approvals_state", "state", "position"),
    Index("callgate_approvals_run", "run_id"),
)

GRANTS: Final = Table(
    "callgate_grants",
    METADATA,
    Column("position", _NUMBER, primary_key=True, autoincrement=True),
    Column("id", String(64), nullable=False),
    Column("facts", Text, nullable=False),
    Column("expires_at", Float),
    Column("max_uses", Integer),
    Column("uses", Integer, nullable=False),
    Column("revoked_at", Float),
    Column("revoked_by", Text),
    Index("callgate_grants_id", "id", unique=True),
)

SWITCHES: Final = Table(
    "callgate_switches", METADATA, Column("scope", Text, primary_key=True), Column("facts", Text, nullable=False)
)

COUNTERS: Final = Table(
    "callgate_counters", METADATA, Column("counter", Text, primary_key=True), Column("used", BigInteger, nullable=False)
)

RUNS: Final = Table(
    "callgate_runs",
    METADATA,
    Column("position", _NUMBER, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False),
    Column("status", String(16), nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("thread_id", Text),
    Column("facts", Text, nullable=False),
    Column("state", Text, nullable=False),
    Index("callgate_runs_id", "id", unique=True),
    Index("callgate_runs_status", "status", "position"),
    Index("callgate_runs_thread", "thread_id"),
)

PROFILES: Final = Table(
    "callgate_profiles", METADATA, Column("name", Text, primary_key=True), Column("profile", Text, nullable=False)
)

SPILLS: Final = Table(
    "callgate_spills",
    METADATA,
    Column("position", _NUMBER, primary_key=True, autoincrement=True),
    Column("handle", String(64), nullable=False),
    Column("thread_id", Text),
    Column("size", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Column("kept_at", Float, nullable=False, server_default="0"),
    Index("callgate_spills_handle", "handle", unique=True),
    Index("callgate_spills_kept", "kept_at"),
)
