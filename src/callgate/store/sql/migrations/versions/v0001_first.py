"""The first schema: journal, writers, approvals, grants, switches, counters, runs, profiles, spilled outputs."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_BYTEWISE = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _position() -> "sa.Column[int]":
    return sa.Column("position", _NUMBER, primary_key=True, autoincrement=True)


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "callgate_journal",
        _position(),
        sa.Column("writer", sa.String(64), nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("claim", _BYTEWISE, nullable=False),
        sa.Column("event", sa.String(16), nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("tool", sa.Text, nullable=False),
        sa.Column("caller", sa.Text, nullable=False),
        sa.Column("status", sa.String(16)),
        sa.Column("facts", sa.Text, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("content", sa.Text),
        sa.Column("content_for_run", sa.Boolean, nullable=False),
        sa.Column("content_until", sa.Float),
    )
    op.create_index("callgate_journal_claim", "callgate_journal", ["claim"], unique=True)
    op.create_index("callgate_journal_chain", "callgate_journal", ["writer", "seq"], unique=True)
    op.create_table(
        "callgate_writers",
        sa.Column("writer", sa.String(64), primary_key=True),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("pid", sa.BigInteger, nullable=False),
        sa.Column("born", sa.Text, nullable=False),
        sa.Column("beat_at", sa.Float, nullable=False),
        sa.Column("last_seq", sa.BigInteger, nullable=False),
        sa.Column("last_hash", sa.String(64), nullable=False),
        sa.Column("closed", sa.Boolean, nullable=False),
        sa.Column("settled", sa.Boolean, nullable=False),
    )
    _make_approvals()
    _make_runs()


def _make_approvals() -> None:
    op.create_table(
        "callgate_approvals",
        _position(),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("key", _BYTEWISE, nullable=False),
        sa.Column("run_id", sa.Text),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("facts", sa.Text, nullable=False),
    )
    op.create_index("callgate_approvals_id", "callgate_approvals", ["id"], unique=True)
    op.create_index("callgate_approvals_key", "callgate_approvals", ["key"])
    op.create_index("callgate_approvals_state", "callgate_approvals", ["state", "position"])
    op.create_index("callgate_approvals_run", "callgate_approvals", ["run_id"])
    op.create_table(
        "callgate_grants",
        _position(),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("facts", sa.Text, nullable=False),
        sa.Column("expires_at", sa.Float),
        sa.Column("max_uses", sa.Integer),
        sa.Column("uses", sa.Integer, nullable=False),
        sa.Column("revoked_at", sa.Float),
        sa.Column("revoked_by", sa.Text),
    )
    op.create_index("callgate_grants_id", "callgate_grants", ["id"], unique=True)
    op.create_table(
        "callgate_switches", sa.Column("scope", sa.Text, primary_key=True), sa.Column("facts", sa.Text, nullable=False)
    )
    op.create_table(
        "callgate_counters", sa.Column("counter", sa.Text, primary_key=True), sa.Column("used", sa.BigInteger, nullable=False)
    )


def _make_runs() -> None:
    op.create_table(
        "callgate_runs",
        _position(),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("thread_id", sa.Text),
        sa.Column("facts", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
    )
    op.create_index("callgate_runs_id", "callgate_runs", ["id"], unique=True)
    op.create_index("callgate_runs_status", "callgate_runs", ["status", "position"])
    op.create_index("callgate_runs_thread", "callgate_runs", ["thread_id"])
    op.create_table(
        "callgate_profiles", sa.Column("name", sa.Text, primary_key=True), sa.Column("profile", sa.Text, nullable=False)
    )
    op.create_table(
        "callgate_spills",
        _position(),
        sa.Column("handle", sa.String(64), nullable=False),
        sa.Column("thread_id", sa.Text),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_index("callgate_spills_handle", "callgate_spills", ["handle"], unique=True)
