"""The log of a shard has two lanes. Existing chunks are in the express lane."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    for table in ("chunks", "shard_counters", "shard_positions"):
        op.execute(f"ALTER TABLE {table} RENAME COLUMN shard TO lane")
