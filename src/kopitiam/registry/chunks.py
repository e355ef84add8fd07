"""Chunks: registered once, numbered per lane in the order in which they become durable, and read back
as a log. Each function is a part of a transaction.

Registering is the registry's hot path: its statements are texts, which cost a third of built ones.
"""

from dataclasses import asdict, replace

from sqlalchemy import Connection, func, select, text

from kopitiam.contracts.batches import lane_of
from kopitiam.contracts.errors import RunOver, TableSealed
from kopitiam.contracts.runs import ChunkRecord, LogEntry, Run, RunState, Span
from kopitiam.registry.records import Registered
from kopitiam.registry.runs import get_run, locked
from kopitiam.registry.schema import chunks, shard_counters

FIND = text("""
    SELECT run_tables.sealed, chunks.number, chunks.digest, chunks.rows, chunks.bytes, chunks.rejected,
           chunks.lane, chunks.sequence, chunks.landed, chunks.is_beside
    FROM run_tables
    LEFT JOIN chunks ON chunks.run = run_tables.run
                    AND chunks.table_name = run_tables.table_name
                    AND chunks.number = :number
    WHERE run_tables.run = :run AND run_tables.table_name = :table
""")
COUNT = text("""
    UPDATE run_tables
    SET chunks = chunks + 1, rows = rows + :rows, rejected = rejected + :rejected
    WHERE run = :run AND table_name = :table
""")
RENEW = text("UPDATE runs SET lease_expires_at = :now + lease_seconds WHERE run = :run")
RENEW_AND_TOUCH = text("""
    UPDATE runs SET lease_expires_at = :now + lease_seconds, version = version + 1 WHERE run = :run
""")
TAKE_SEQUENCE = text("""
    INSERT INTO shard_counters (lane, last) VALUES (:lane, 1)
    ON CONFLICT (lane) DO UPDATE SET last = shard_counters.last + 1
    RETURNING last
""")
STORE = text("""
    INSERT INTO chunks (
        run, table_name, number, digest, rows, bytes, rejected, lane, sequence, landed, is_beside
    )
    VALUES (:run, :table, :number, :digest, :rows, :bytes, :rejected, :lane, :sequence, :landed, :is_beside)
""")
CHUNK_COLUMNS = (
    chunks.c.table_name.label("table"),
    chunks.c.number,
    chunks.c.digest,
    chunks.c.rows,
    chunks.c.bytes,
    chunks.c.rejected,
    chunks.c.lane,
    chunks.c.sequence,
    chunks.c.landed,
    chunks.c.is_beside,
)
LOG_COLUMNS = (
    chunks.c.lane,
    chunks.c.sequence,
    chunks.c.run,
    chunks.c.table_name.label("table"),
    chunks.c.number,
    chunks.c.rows,
    chunks.c.bytes,
)


def register(connection: Connection, run: str, wanted: ChunkRecord, now: float) -> Registered:
    """`wanted` comes without lane and sequence; the outcome has them."""
    found = locked(connection, run)
    if found.state.is_over:
        raise RunOver(f"run {run} is {found.state}")
    # Another statement than the lock's: on PostgreSQL it sees what was committed while we waited.
    key = {"run": run, "table": wanted.table, "number": wanted.number}
    is_sealed, *before = connection.execute(FIND, key).one()
    if before[0] is not None:
        connection.execute(RENEW, {"run": run, "now": now})
        chunk = replace(ChunkRecord(wanted.table, *before), is_beside=bool(before[-1]))  # SQLite has numbers
        return Registered("same" if chunk.digest == wanted.digest else "conflict", chunk)
    _want_room(found, is_sealed, wanted)
    connection.execute(COUNT, {"run": run, **asdict(wanted)})
    connection.execute(RENEW_AND_TOUCH, {"run": run, "now": now})
    lane = lane_of(wanted.number, found.shards)
    chunk = replace(wanted, lane=lane, sequence=take_sequence(connection, lane))
    connection.execute(STORE, {"run": run, **asdict(chunk)})
    return Registered("stored", chunk)


def _want_room(run: Run, is_sealed: bool, wanted: ChunkRecord) -> None:
    if run.state is not RunState.OPEN:
        raise RunOver(f"run {run.run} is {run.state} and takes no more chunks")
    if is_sealed:
        raise TableSealed(f"{wanted.table} of run {run.run} is sealed, without a chunk {wanted.number}")


def take_sequence(connection: Connection, lane: int) -> int:
    """The counter's row stays locked until the commit: numbers are committed in order, and one that is
    rolled back is given again. All runs share it, so it is taken as late as can be."""
    sequence: int = connection.execute(TAKE_SEQUENCE, {"lane": lane}).scalar_one()
    return sequence


def list_chunks(connection: Connection, run: str, table: str) -> list[ChunkRecord]:
    get_run(connection, run)
    query = select(*CHUNK_COLUMNS).where(chunks.c.run == run, chunks.c.table_name == table)
    return [ChunkRecord(**row._mapping) for row in connection.execute(query.order_by(chunks.c.number))]


def durable_spans(connection: Connection, run: str, table: str) -> tuple[Span, ...]:
    """Numbers that follow each other differ from their row number by the same amount."""
    numbered = (
        select(
            chunks.c.number,
            (chunks.c.number - func.row_number().over(order_by=chunks.c.number)).label("island"),
        )
        .where(chunks.c.run == run, chunks.c.table_name == table)
        .subquery()
    )
    first = func.min(numbered.c.number)
    query = select(first, func.max(numbered.c.number)).group_by(numbered.c.island).order_by(first)
    return tuple((row[0], row[1]) for row in connection.execute(query))


def log_head(connection: Connection, lane: int, after: int, max_chunks: int, max_bytes: int) -> int:
    query = (
        select(chunks.c.sequence, chunks.c.bytes)
        .where(chunks.c.lane == lane, chunks.c.sequence > after)
        .order_by(chunks.c.sequence)
        .limit(max(max_chunks, 1) + 1)
    )
    head, size = after, 0
    for count, entry in enumerate(connection.execute(query)):
        size += entry.bytes
        if count > 0 and (count >= max_chunks or size > max_bytes):
            return head
        head = entry.sequence
    return max(after, last_sequence(connection, lane))


def read_span(connection: Connection, lane: int, after: int, upto: int) -> list[LogEntry]:
    query = select(*LOG_COLUMNS).where(
        chunks.c.lane == lane, chunks.c.sequence > after, chunks.c.sequence <= upto
    )
    return [LogEntry(*row) for row in connection.execute(query.order_by(chunks.c.sequence))]


def last_sequence(connection: Connection, lane: int) -> int:
    query = select(shard_counters.c.last).where(shard_counters.c.lane == lane)
    return connection.scalar(query) or 0
