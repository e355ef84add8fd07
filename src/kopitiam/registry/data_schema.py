"""The SQL tables of data sets: their versions and files, and what is kept of files for later runs.

`data_chunks` are the chunks of a file for as long as it exists; `chunks` has a row for each that a run
processes. The files that a run sends or answers over are in `run_files`.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    false,
)

from kopitiam.registry.schema import metadata


def _of_run() -> Column[str]:
    return Column("run", Text, ForeignKey("runs.run", ondelete="CASCADE"), primary_key=True)


def _of_file() -> Column[str]:
    return Column("file", Text, ForeignKey("data_files.file", ondelete="CASCADE"), primary_key=True)


data_sets = Table(
    "data_sets",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("newest", BigInteger, nullable=False),  # number of the newest version; 0: there is none
    Column("is_dropped", Boolean, nullable=False, server_default=false()),  # its name is free again
    UniqueConstraint("owner", "name"),
)

data_versions = Table(
    "data_versions",
    metadata,
    Column("data_set", Text, ForeignKey("data_sets.id", ondelete="CASCADE"), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("run", Text, nullable=False),  # that made it; it may be deleted
    Column("created_at", Double, nullable=False),
    Column("changes", Text, nullable=False),  # JSON
)

data_files = Table(
    "data_files",
    metadata,
    Column("file", Text, primary_key=True),
    Column("data_set", Text, ForeignKey("data_sets.id"), nullable=False),
    Column("table_name", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("columns", Text, nullable=False),  # JSON
    Column("run", Text, nullable=False),  # that sends or sent it; it may be deleted
    Column("chunks", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("rejected", BigInteger, nullable=False),
    Column("is_ended", Boolean, nullable=False, server_default=false()),
    Column("is_removed", Boolean, nullable=False, server_default=false()),  # its files are being removed
    Index(None, "data_set", "table_name", "name"),
    Index(None, "run"),
)

version_files = Table(
    "version_files",
    metadata,
    Column("data_set", Text, primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("file", Text, ForeignKey("data_files.file"), primary_key=True),
    ForeignKeyConstraint(
        ["data_set", "number"], ["data_versions.data_set", "data_versions.number"], ondelete="CASCADE"
    ),
    Index(None, "file"),
)

data_chunks = Table(
    "data_chunks",
    metadata,
    _of_file(),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("digest", Text, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("rejected", BigInteger, nullable=False),
    Column("shard", Integer, nullable=False),
    Column("landed", Text),
    Column("is_beside", Boolean, nullable=False, server_default=false()),
)

run_files = Table("run_files", metadata, _of_run(), _of_file(), Index(None, "file"))

# Rows of data files that a run has counted, by plan; they become part of `kept_plans`.
file_progress = Table(
    "file_progress",
    metadata,
    _of_run(),
    Column("file", Text, primary_key=True),
    Column("plan", Text, primary_key=True),  # its name in the run
    Column("step", Integer, primary_key=True, autoincrement=False),
    Column("shard", Integer, primary_key=True, autoincrement=False),
    Column("rows", BigInteger, nullable=False),
)

kept_plans = Table(
    "kept_plans",
    metadata,
    _of_file(),
    Column("plan", Text, primary_key=True),  # the key of the plan
    Column("counts", Text, nullable=False),  # JSON: rows by step and shard
    Column("used_at", Double, nullable=False),
    Column("is_removed", Boolean, nullable=False, server_default=false()),
)

kept_partials = Table(
    "kept_partials",
    metadata,
    Column("path", Text, primary_key=True),
    Column("file", Text, nullable=False),
    Column("plan", Text, nullable=False),
    Column("rows", BigInteger, nullable=False),
    ForeignKeyConstraint(["file", "plan"], ["kept_plans.file", "kept_plans.plan"], ondelete="CASCADE"),
    Index(None, "file", "plan"),
)

# Kept partials that a run reads. A copy: the run notices if they are discarded before it has read them.
used_partials = Table(
    "used_partials",
    metadata,
    _of_run(),
    Column("path", Text, primary_key=True),
    Column("kind", Text, nullable=False),  # the name of its plan in the run
    Column("rows", BigInteger, nullable=False),
    Column("origin", Text, nullable=False),
    Index(None, "path"),
)
