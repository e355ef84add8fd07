"""Claims name the holder of the lease; a SQLite registry stores its own clock."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("runs", sa.Column("claimed_holder", sa.Text))
    op.create_table(
        "registry_clock",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("boot", sa.Text, nullable=False),
        sa.Column("offset_seconds", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_registry_clock"),
    )
