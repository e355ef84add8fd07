"""Data sets, their versions, files and chunks; partials that are kept for later runs."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("runs", sa.Column("data_set", sa.Text))
    op.add_column("runs", sa.Column("data", sa.Text))
    op.add_column("runs", _flag("is_purged"))
    op.create_index("ix_runs_data_set", "runs", ["data_set"])
    for column in (
        sa.Column("origin", sa.Text),
        sa.Column("origin_shard", sa.Integer),
        sa.Column("origin_number", sa.BigInteger),
    ):
        op.add_column("chunks", column)
    op.add_column("partials", sa.Column("origin", sa.Text))
    _create_data_sets()
    _create_files()
    _create_progress()
    _create_kept_partials()


def _create_data_sets() -> None:
    op.create_table(
        "data_sets",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("newest", sa.BigInteger, nullable=False),
        _flag("is_dropped"),
        sa.PrimaryKeyConstraint("id", name="pk_data_sets"),
        sa.UniqueConstraint("owner", "name", name="uq_data_sets_owner_name"),
    )
    op.create_table(
        "data_versions",
        sa.Column("data_set", sa.Text, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("run", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("changes", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("data_set", "number", name="pk_data_versions"),
        _belongs("data_versions", "data_sets", ["data_set"], ["id"]),
    )


def _create_files() -> None:
    op.create_table(
        "data_files",
        sa.Column("file", sa.Text, nullable=False),
        sa.Column("data_set", sa.Text, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("table_name", "name", "digest")),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("columns", "run")),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("chunks", "rows", "rejected")),
        *(_flag(name) for name in ("is_ended", "is_removed")),
        sa.PrimaryKeyConstraint("file", name="pk_data_files"),
        sa.ForeignKeyConstraint(["data_set"], ["data_sets.id"], name="fk_data_files_data_sets"),
    )
    op.create_index(
        "ix_data_files_data_set_table_name_name", "data_files", ["data_set", "table_name", "name"]
    )
    op.create_index("ix_data_files_run", "data_files", ["run"])
    op.create_table(
        "version_files",
        sa.Column("data_set", sa.Text, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("file", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("data_set", "number", "file", name="pk_version_files"),
        sa.ForeignKeyConstraint(["file"], ["data_files.file"], name="fk_version_files_data_files"),
        _belongs("version_files", "data_versions", ["data_set", "number"]),
    )
    op.create_index("ix_version_files_file", "version_files", ["file"])
    op.create_table(
        "data_chunks",
        sa.Column("file", sa.Text, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("digest", sa.Text, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("rows", "bytes", "rejected")),
        sa.Column("shard", sa.Integer, nullable=False),
        sa.Column("landed", sa.Text),
        _flag("is_beside"),
        sa.PrimaryKeyConstraint("file", "number", name="pk_data_chunks"),
        _belongs("data_chunks", "data_files", ["file"]),
    )


def _create_progress() -> None:
    op.create_table(
        "run_files",
        sa.Column("run", sa.Text, nullable=False),
        sa.Column("file", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("run", "file", name="pk_run_files"),
        _belongs("run_files", "runs", ["run"]),
        _belongs("run_files", "data_files", ["file"]),
    )
    op.create_index("ix_run_files_file", "run_files", ["file"])
    op.create_table(
        "file_progress",
        *(sa.Column(name, sa.Text, nullable=False) for name in ("run", "file", "plan")),
        *(sa.Column(name, sa.Integer, nullable=False, autoincrement=False) for name in ("step", "shard")),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("run", "file", "plan", "step", "shard", name="pk_file_progress"),
        _belongs("file_progress", "runs", ["run"]),
    )


def _create_kept_partials() -> None:
    op.create_table(
        "kept_plans",
        *(sa.Column(name, sa.Text, nullable=False) for name in ("file", "plan", "counts")),
        sa.Column("used_at", sa.Double, nullable=False),
        _flag("is_removed"),
        sa.PrimaryKeyConstraint("file", "plan", name="pk_kept_plans"),
        _belongs("kept_plans", "data_files", ["file"]),
    )
    op.create_table(
        "kept_partials",
        *(sa.Column(name, sa.Text, nullable=False) for name in ("path", "file", "plan")),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("path", name="pk_kept_partials"),
        _belongs("kept_partials", "kept_plans", ["file", "plan"]),
    )
    op.create_index("ix_kept_partials_file_plan", "kept_partials", ["file", "plan"])
    op.create_table(
        "used_partials",
        *(sa.Column(name, sa.Text, nullable=False) for name in ("run", "path", "kind")),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("origin", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("run", "path", name="pk_used_partials"),
        _belongs("used_partials", "runs", ["run"]),
    )
    op.create_index("ix_used_partials_path", "used_partials", ["path"])


def _flag(name: str) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean, nullable=False, server_default=sa.false())


def _belongs(
    table: str, owner: str, columns: list[str], keys: list[str] | None = None
) -> sa.ForeignKeyConstraint:
    names = [f"{owner}.{key}" for key in keys or columns]
    return sa.ForeignKeyConstraint(columns, names, name=f"fk_{table}_{owner}", ondelete="CASCADE")
