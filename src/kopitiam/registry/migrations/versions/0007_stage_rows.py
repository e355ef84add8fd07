"""Rows into and out of each stage of a run, by shard."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "stage_progress",
        sa.Column("run", sa.Text, nullable=False),
        sa.Column("stage", sa.Text, nullable=False),
        sa.Column("shard", sa.Integer, nullable=False),
        sa.Column("rows_in", sa.BigInteger, nullable=False),
        sa.Column("rows_out", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("run", "stage", "shard", name="pk_stage_progress"),
        sa.ForeignKeyConstraint(["run"], ["runs.run"], name="fk_stage_progress_runs", ondelete="CASCADE"),
    )
