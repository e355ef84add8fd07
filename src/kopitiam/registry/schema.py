"""The SQL tables of the registry. They must equal the outcome of the migrations; a test compares them.

The chunks are their own log: `(lane, sequence)` is unique, and ordered as the chunks became durable.
`shard_positions` says how far that log has been processed, `batches` by which batches. The tables of data
sets are in `data_schema`.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    false,
)
from sqlalchemy.dialects import postgresql, sqlite

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)


def upsert(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """An INSERT that takes ON CONFLICT clauses, which SQLite and PostgreSQL spell alike."""
    is_sqlite = connection.dialect.name == "sqlite"
    return sqlite.insert(table) if is_sqlite else postgresql.insert(table)


def _of_run() -> Column[str]:
    return Column("run", Text, ForeignKey("runs.run", ondelete="CASCADE"), primary_key=True)


def _volumes_by_shard(name: str) -> Table:
    return Table(
        name,
        metadata,
        _of_run(),
        Column("table_name", Text, primary_key=True),
        Column("shard", Integer, primary_key=True),
        Column("chunks", BigInteger, nullable=False),
        Column("rows", BigInteger, nullable=False),
    )


owners = Table(
    "owners",
    metadata,
    Column("owner", Text, primary_key=True),
    Column("runs_opened", BigInteger, nullable=False),
)

runs = Table(
    "runs",
    metadata,
    Column("run", Text, primary_key=True),
    Column("label", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("questions", Text, nullable=False),  # JSON
    Column("owner", Text, nullable=False),
    Column("idempotency_key", Text),
    Column("shards", Integer, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("lease_seconds", Double, nullable=False),
    Column("lease_expires_at", Double, nullable=False),
    Column("finished_at", Double),
    Column("error", Text),
    Column("claimed_by", Text),  # the fence of the pipeline that makes the answers: name, epoch, holder
    Column("claimed_epoch", BigInteger),
    Column("claimed_holder", Text),
    Column("version", BigInteger, nullable=False),
    Column("data_set", Text),  # id
    Column("data", Text),  # JSON: DataUse
    Column("is_purged", Boolean, nullable=False, server_default=false()),  # hidden; the janitor deletes it
    UniqueConstraint("owner", "idempotency_key"),
    Index(None, "created_at", "run"),
    Index(None, "state"),
    Index(None, "data_set"),
)

run_tables = Table(
    "run_tables",
    metadata,
    _of_run(),
    Column("table_name", Text, primary_key=True),
    Column("chunks", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("rejected", BigInteger, nullable=False),
    Column("expected_chunks", BigInteger),
    Column("expected_rows", BigInteger),
    Column("sealed", Boolean, nullable=False, server_default=false()),
)

chunks = Table(
    "chunks",
    metadata,
    _of_run(),
    Column("table_name", Text, primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("digest", Text, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("rejected", BigInteger, nullable=False),
    Column("lane", Integer, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("landed", Text),  # digest of the file, which differs from the body's if that was CSV
    Column("is_beside", Boolean, nullable=False, server_default=false()),
    Column("origin", Text),  # the data file that it belongs to, with its shard and number there
    Column("origin_shard", Integer),
    Column("origin_number", BigInteger),
    UniqueConstraint("lane", "sequence", name="uq_chunks_shard_sequence"),
)

shard_counters = Table(
    "shard_counters",
    metadata,
    Column("lane", Integer, primary_key=True, autoincrement=False),
    Column("last", BigInteger, nullable=False),
)

shard_positions = Table(
    "shard_positions",
    metadata,
    Column("lane", Integer, primary_key=True, autoincrement=False),
    Column("position", BigInteger, nullable=False),
)

shard_expectations = _volumes_by_shard("shard_expectations")
shard_progress = _volumes_by_shard("shard_progress")

stage_progress = Table(
    "stage_progress",
    metadata,
    _of_run(),
    Column("stage", Text, primary_key=True),
    Column("shard", Integer, primary_key=True),
    Column("rows_in", BigInteger, nullable=False),
    Column("rows_out", BigInteger, nullable=False),
)

batches = Table(
    "batches",
    metadata,
    Column("query", Text, primary_key=True),
    Column("batch", BigInteger, primary_key=True),
    Column("spans", Text, nullable=False),  # JSON
    Column("ignored", Text, nullable=False),  # JSON
)

partials = Table(
    "partials",
    metadata,
    Column("path", Text, primary_key=True),
    Column("run", Text, ForeignKey("runs.run", ondelete="CASCADE"), nullable=False),
    Column("level", Integer, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("origin", Text),  # the data file that it was computed from
    Index(None, "run"),
)

# Attempts that have begun and did not succeed: those that succeed, or are withdrawn, are deleted.
attempts = Table(
    "attempts",
    metadata,
    Column("attempt", Text, primary_key=True),
    _of_run(),
    Column("step", Text, nullable=False),
    Column("node", Text, nullable=False),  # the pipeline that makes it
    Column("begun_at", Double, nullable=False),
    Column("reason", Text),  # NULL while it runs, and if its process died before it recorded one
    Index(None, "run"),
)

results = Table(
    "results",
    metadata,
    _of_run(),
    Column("attempt", Text, nullable=False),
    Column("figures", Text, nullable=False),  # JSON
    Column("published_at", Double, nullable=False),
    Column("digests", Text),  # JSON: of each file
)

provisional = Table(
    "provisional",
    metadata,
    _of_run(),
    Column("attempt", Text, nullable=False),
    Column("figures", Text, nullable=False),  # JSON
    Column("published_at", Double, nullable=False),
)

leases = Table(
    "leases",
    metadata,
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("expires_at", Double, nullable=False),
)

registry_clock = Table(
    "registry_clock",
    metadata,
    Column("name", Text, primary_key=True),
    Column("boot", Text, nullable=False),  # the boot of the machine during which it was set
    Column("offset_seconds", Double, nullable=False),  # what to add to the time since that boot
)

nodes = Table(
    "nodes",
    metadata,
    Column("name", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("pid", BigInteger),
    Column("url", Text),
    Column("state", Text, nullable=False),
    Column("since", Double, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("alarm", Text),
    Column("leader", Boolean, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("host", Text),
)

identity = Table(
    "identity",
    metadata,
    Column("name", Text, primary_key=True),  # one row
    Column("id", Text, nullable=False),
    Column("mark", BigInteger, nullable=False),
)

orphans = Table(
    "orphans",
    metadata,
    Column("name", Text, primary_key=True),
    Column("waited", Double, nullable=False),
    Column("seen_at", Double, nullable=False),
)

readiness = Table(
    "readiness",
    metadata,
    Column("name", Text, primary_key=True),
    Column("checks", BigInteger, nullable=False),
)
