"""Attempts at a batch or a final step: they are counted before the work begins."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "attempts",
        sa.Column("attempt", sa.Text, nullable=False),
        sa.Column("run", sa.Text, nullable=False),
        sa.Column("step", sa.Text, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("begun_at", sa.Double, nullable=False),
        sa.Column("reason", sa.Text),
        sa.PrimaryKeyConstraint("attempt", "run", name="pk_attempts"),
        sa.ForeignKeyConstraint(["run"], ["runs.run"], name="fk_attempts_runs", ondelete="CASCADE"),
    )
    op.create_index("ix_attempts_run", "attempts", ["run"])
