"""An index of the content that is to be forgotten, so that nobody looks through the journal for it."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Index what has a time at which it goes, and is still there."""
    due = sa.text("content IS NOT NULL AND content_until IS NOT NULL")
    op.create_index("callgate_journal_due", "callgate_journal", ["content_until"], sqlite_where=due, postgresql_where=due)
