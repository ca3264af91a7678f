"""The age of spilled outputs, so that old ones can go; those that were kept before count as old."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the moment at which an output was kept."""
    op.add_column("callgate_spills", sa.Column("kept_at", sa.Float, nullable=False, server_default="0"))
    op.create_index("callgate_spills_kept", "callgate_spills", ["kept_at"])
