"""Chunks: each is registered once, gets a sequence number of its lane in the order in which chunks become
durable, and is read back as a log.

Registering is the registry's hot path: it uses SQL texts, which take a third of the time of statements that
SQLAlchemy builds.
"""

from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, func, select, text

from kopitiam.contracts.batches import lane_of
from kopitiam.contracts.errors import RunOver, TableSealed
from kopitiam.contracts.runs import ChunkRecord, LogEntry, Origin, Run, RunState, Span
from kopitiam.registry.records import Registered, require_counts, require_table
from kopitiam.registry.runs import get_run, lock_run
from kopitiam.registry.schema import chunks, shard_counters
from kopitiam.registry.transactions import RegistryBase

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
ORIGIN_COLUMNS = (chunks.c.origin, chunks.c.origin_shard, chunks.c.origin_number)
LOG_COLUMNS = (
    chunks.c.lane,
    chunks.c.sequence,
    chunks.c.run,
    chunks.c.table_name.label("table"),
    chunks.c.number,
    chunks.c.rows,
    chunks.c.bytes,
)


class ChunkTransactions(RegistryBase):
    def register_chunk(
        self,
        run: str,
        table: str,
        number: int,
        *,
        digest: str,
        rows: int,
        bytes: int,
        rejected: int,
        landed: str | None = None,
        is_beside: bool = False,
    ) -> Registered:
        """Record that a chunk is durable, and renew the run's lease. Idempotent by number and digest.

        Returns `same` or `conflict` for a number that is registered, until the run is over. For a new one,
        raises `TableSealed` after the table's END, and `RunOver` if the run is not open.
        """
        require_table(table)
        require_counts(number=number, rows=rows, bytes=bytes, rejected=rejected)
        chunk = ChunkRecord(table, number, digest, rows, bytes, rejected, -1, -1, landed, is_beside)
        return self._write(lambda c: _register(c, run, chunk, self._clock(c)))

    def chunks(self, run: str, table: str) -> list[ChunkRecord]:
        """Return the durable chunks of a table, by number; of a run over a data set, those that it processes
        itself."""
        require_table(table)

        def list_chunks(connection: Connection) -> list[ChunkRecord]:
            get_run(connection, run)
            return run_chunks(connection, run, table)

        return self._read(list_chunks)

    def log_head(self, lane: int, after: int, max_chunks: int, max_bytes: int) -> int:
        """Return the sequence number up to which a reader that is at `after` may read.

        This is the last entry within the bounds, or, if all entries are, the lane's last sequence number, so
        that the reader also passes the gaps of deleted runs. The first entry always fits.
        """
        query = (
            select(chunks.c.sequence, chunks.c.bytes)
            .where(chunks.c.lane == lane, chunks.c.sequence > after)
            .order_by(chunks.c.sequence)
            .limit(max(max_chunks, 1) + 1)
        )

        def find_head(connection: Connection) -> int:
            head, size = after, 0
            for count, entry in enumerate(connection.execute(query)):
                size += entry.bytes
                if count > 0 and (count >= max_chunks or size > max_bytes):
                    return head
                head = entry.sequence
            return max(after, _last_sequence(connection, lane))

        return self._read(find_head)

    def read_span(self, lane: int, after: int, upto: int) -> list[LogEntry]:
        """Return the chunks of a lane after `after` and up to `upto`, in the order they became durable.

        Once a sequence number is visible, no smaller one appears. Only deleted runs leave gaps.
        """
        is_inside = (chunks.c.lane == lane) & (chunks.c.sequence > after) & (chunks.c.sequence <= upto)
        query = select(*LOG_COLUMNS).where(is_inside).order_by(chunks.c.sequence)
        return self._read(lambda c: [LogEntry(*row) for row in c.execute(query)])

    def last_sequence(self, lane: int) -> int:
        """Return the lane's last sequence number: 0 before the first chunk; it never decreases."""
        return self._read(lambda c: _last_sequence(c, lane))


def _register(connection: Connection, run: str, chunk: ChunkRecord, now: float) -> Registered:
    """`chunk` has no lane and sequence yet; the outcome has them."""
    current = lock_run(connection, run)
    if current.state.is_over:
        raise RunOver(f"run {run} is {current.state}")
    # A statement of its own, after the lock: on PostgreSQL it sees what was committed during the wait.
    key = {"run": run, "table": chunk.table, "number": chunk.number}
    is_sealed, *row = connection.execute(FIND, key).one()
    if row[0] is not None:
        connection.execute(RENEW, {"run": run, "now": now})
        known = replace(ChunkRecord(chunk.table, *row), is_beside=bool(row[-1]))  # SQLite returns 0 or 1
        return Registered("same" if known.digest == chunk.digest else "conflict", known)
    _require_open(current, is_sealed, chunk)
    connection.execute(COUNT, {"run": run, **asdict(chunk)})
    connection.execute(RENEW_AND_TOUCH, {"run": run, "now": now})
    lane = lane_of(chunk.number, current.shards)
    stored = replace(chunk, lane=lane, sequence=take_sequence(connection, lane))
    connection.execute(STORE, {"run": run, **asdict(stored)})
    return Registered("stored", stored)


def _require_open(run: Run, is_sealed: bool, chunk: ChunkRecord) -> None:
    if run.state is not RunState.OPEN:
        raise RunOver(f"run {run.run} is {run.state} and accepts no more chunks")
    if is_sealed:
        raise TableSealed(f"{chunk.table} of run {run.run} is sealed, without a chunk {chunk.number}")


def run_chunks(connection: Connection, run: str, table: str) -> list[ChunkRecord]:
    is_of_table = (chunks.c.run == run) & (chunks.c.table_name == table)
    query: Select[Any] = select(*CHUNK_COLUMNS, *ORIGIN_COLUMNS).where(is_of_table)
    return [_record(row) for row in connection.execute(query.order_by(chunks.c.number))]


def _record(row: Row[Any]) -> ChunkRecord:
    columns = row._asdict()
    origin = [columns.pop(column.name) for column in ORIGIN_COLUMNS]
    return ChunkRecord(**columns, origin=None if origin[0] is None else Origin(*origin))


def take_sequence(connection: Connection, lane: int) -> int:
    """Return the lane's next sequence number, and lock the counter until the commit.

    So numbers are committed in order, and a number that is rolled back is used again. All runs share the
    counter, so it is locked as late as possible.
    """
    sequence: int = connection.execute(TAKE_SEQUENCE, {"lane": lane}).scalar_one()
    return sequence


def durable_spans(connection: Connection, run: str, table: str) -> tuple[Span, ...]:
    """Return the durable chunk numbers as spans, in order."""
    return spans_of(connection, chunks.c.number, (chunks.c.run == run) & (chunks.c.table_name == table))


def spans_of(
    connection: Connection, number: ColumnElement[int], condition: ColumnElement[bool]
) -> tuple[Span, ...]:
    """Return the numbers of the rows that meet the condition as spans, in order.

    Consecutive numbers differ from their row number by the same amount.
    """
    numbered = (
        select(
            number.label("number"),
            (number - func.row_number().over(order_by=number)).label("island"),
        )
        .where(condition)
        .subquery()
    )
    first = func.min(numbered.c.number)
    query = select(first, func.max(numbered.c.number)).group_by(numbered.c.island).order_by(first)
    return tuple((row[0], row[1]) for row in connection.execute(query))


def _last_sequence(connection: Connection, lane: int) -> int:
    query = select(shard_counters.c.last).where(shard_counters.c.lane == lane)
    return connection.scalar(query) or 0
