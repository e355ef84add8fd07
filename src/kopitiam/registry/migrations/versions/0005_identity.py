"""The identity and mark of the registry; orphans in storage; digests of stored files."""

import uuid

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    identity = op.create_table(
        "identity",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("mark", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_identity"),
    )
    op.bulk_insert(identity, [{"name": "registry", "id": uuid.uuid4().hex, "mark": 0}])
    op.create_table(
        "orphans",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("waited", sa.Double, nullable=False),
        sa.Column("seen_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_orphans"),
    )
    op.add_column("chunks", sa.Column("landed", sa.Text))
    op.add_column("chunks", sa.Column("is_beside", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("results", sa.Column("digests", sa.Text))
