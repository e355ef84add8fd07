"""Runs, their tables and chunks, the chunk log, answers and leases."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    _create_runs()
    _create_chunks()
    op.create_table(
        "results",
        _run(),
        sa.Column("attempt", sa.Text, nullable=False),
        sa.Column("figures", sa.Text, nullable=False),
        sa.Column("published_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("run", name="pk_results"),
        _belongs_to_run("results"),
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_leases"),
    )
    op.create_table(
        "readiness",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("checks", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_readiness"),
    )


def _create_runs() -> None:
    op.create_table(
        "owners",
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("runs_opened", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("owner", name="pk_owners"),
    )
    op.create_table(
        "runs",
        _run(),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("questions", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("idempotency_key", sa.Text),
        sa.Column("shards", sa.Integer, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("lease_seconds", sa.Double, nullable=False),
        sa.Column("lease_expires_at", sa.Double, nullable=False),
        sa.Column("finished_at", sa.Double),
        sa.Column("error", sa.Text),
        sa.Column("claimed_by", sa.Text),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("run", name="pk_runs"),
        sa.UniqueConstraint("owner", "idempotency_key", name="uq_runs_owner_idempotency_key"),
    )
    op.create_index("ix_runs_created_at_run", "runs", ["created_at", "run"])
    op.create_index("ix_runs_state", "runs", ["state"])
    op.create_table(
        "run_tables",
        _run(),
        sa.Column("table_name", sa.Text, nullable=False),
        sa.Column("chunks", sa.BigInteger, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("rejected", sa.BigInteger, nullable=False),
        sa.Column("expected_chunks", sa.BigInteger),
        sa.Column("expected_rows", sa.BigInteger),
        sa.Column("sealed", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.PrimaryKeyConstraint("run", "table_name", name="pk_run_tables"),
        _belongs_to_run("run_tables"),
    )


def _create_chunks() -> None:
    op.create_table(
        "chunks",
        _run(),
        sa.Column("table_name", sa.Text, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("rejected", sa.BigInteger, nullable=False),
        sa.Column("shard", sa.Integer, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("run", "table_name", "number", name="pk_chunks"),
        sa.UniqueConstraint("shard", "sequence", name="uq_chunks_shard_sequence"),
        _belongs_to_run("chunks"),
    )
    op.create_table(
        "shard_counters",
        sa.Column("shard", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("last", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("shard", name="pk_shard_counters"),
    )
    op.create_table(
        "shard_expectations",
        _run(),
        sa.Column("table_name", sa.Text, nullable=False),
        sa.Column("shard", sa.Integer, nullable=False),
        sa.Column("chunks", sa.BigInteger, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("run", "table_name", "shard", name="pk_shard_expectations"),
        _belongs_to_run("shard_expectations"),
    )


def _run() -> sa.Column[str]:
    return sa.Column("run", sa.Text, nullable=False)


def _belongs_to_run(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["run"], ["runs.run"], name=f"fk_{table}_runs", ondelete="CASCADE")
