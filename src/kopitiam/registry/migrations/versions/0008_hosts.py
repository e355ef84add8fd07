"""The machine that each node runs on."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("nodes", sa.Column("host", sa.Text))
