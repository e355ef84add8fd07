"""The stream: positions of shards, processed volumes, partials, barriers; the nodes of a fleet."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("runs", sa.Column("claimed_epoch", sa.BigInteger))
    # Final used to mean claimed. Now the barrier comes first, and nothing has been processed yet.
    op.execute(
        "UPDATE runs SET state = 'sealed', claimed_by = NULL, version = version + 1 WHERE state = 'final'"
    )
    _create_progress()
    op.create_table(
        "partials",
        sa.Column("path", sa.Text, nullable=False),
        _run(),
        sa.Column("level", sa.Integer, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("path", name="pk_partials"),
        _belongs_to_run("partials"),
    )
    op.create_index("ix_partials_run", "partials", ["run"])
    op.create_table(
        "provisional",
        _run(),
        sa.Column("attempt", sa.Text, nullable=False),
        sa.Column("figures", sa.Text, nullable=False),
        sa.Column("published_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("run", name="pk_provisional"),
        _belongs_to_run("provisional"),
    )
    op.create_table(
        "nodes",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("pid", sa.BigInteger),
        sa.Column("url", sa.Text),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("since", sa.Double, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("alarm", sa.Text),
        sa.Column("leader", sa.Boolean, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_nodes"),
    )


def _create_progress() -> None:
    op.create_table(
        "shard_positions",
        sa.Column("shard", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("shard", name="pk_shard_positions"),
    )
    op.create_table(
        "shard_progress",
        _run(),
        sa.Column("table_name", sa.Text, nullable=False),
        sa.Column("shard", sa.Integer, nullable=False),
        sa.Column("chunks", sa.BigInteger, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("run", "table_name", "shard", name="pk_shard_progress"),
        _belongs_to_run("shard_progress"),
    )
    op.create_table(
        "batches",
        sa.Column("query", sa.Text, nullable=False),
        sa.Column("batch", sa.BigInteger, nullable=False),
        sa.Column("spans", sa.Text, nullable=False),
        sa.Column("ignored", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("query", "batch", name="pk_batches"),
    )


def _run() -> sa.Column[str]:
    return sa.Column("run", sa.Text, nullable=False)


def _belongs_to_run(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["run"], ["runs.run"], name=f"fk_{table}_runs", ondelete="CASCADE")
