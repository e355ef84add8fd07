"""Batches of the stream and the partials they write. A batch is committed once; repeating it changes nothing.

Locks are taken in one order: the batch, its lanes' positions, its runs. The runs come last, since their
clients wait for them.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict

from sqlalchemy import ColumnElement, Connection, and_, bindparam, delete, func, insert, select, update

from kopitiam.contracts.batches import Batch, Committed, FileRows, Partial, Processed, StageRows
from kopitiam.contracts.errors import ForeignCheckpoint
from kopitiam.contracts.runs import RunState
from kopitiam.registry.attempts import delete_attempts
from kopitiam.registry.data_schema import file_progress, kept_partials, used_partials
from kopitiam.registry.records import Fence, require_counts, require_table
from kopitiam.registry.runs import get_run, lock_states, touch_all
from kopitiam.registry.schema import (
    batches,
    partials,
    shard_counters,
    shard_positions,
    shard_progress,
    stage_progress,
    upsert,
)
from kopitiam.registry.transactions import RegistryBase

KEPT = 100  # batches of a query; Spark repeats the last one, a restored checkpoint a few more

Spans = Mapping[int, tuple[int, int]]


class BatchTransactions(RegistryBase):
    def positions(self, lanes: Iterable[int]) -> dict[int, int]:
        """Return the sequence number up to which each lane is processed and committed; 0 if never."""
        numbers = sorted(set(lanes))
        query = select(shard_positions).where(shard_positions.c.lane.in_(numbers))
        return self._read(
            lambda c: dict.fromkeys(numbers, 0) | {row.lane: row.position for row in c.execute(query)}
        )

    def commit_batch(self, batch: Batch, fence: Fence | None = None) -> Committed:
        """Move the positions, add to the counters and store the partials of a batch: all of it, once.

        A batch that was committed before changes nothing and gets the same outcome as then. Runs that are
        over or deleted are ignored; the version of the others grows. Raises `ForeignCheckpoint` if the batch
        was committed with other spans, does not begin at the positions of its lanes, or ends beyond the log.
        """
        _require_batch(batch)
        return self._write_fenced(fence, lambda c: _commit(c, batch, fence.name if fence else None))

    def partials(self, run: str) -> list[Partial]:
        """Return the partials of a run, by path; those that earlier runs computed are `kept_as` one of its
        plans."""

        def list_partials(connection: Connection) -> list[Partial]:
            get_run(connection, run)
            return partials_of(connection, run)

        return self._read(list_partials)

    def replace_partials(
        self, run: str, old: Iterable[str], new: Partial, fence: Fence | None = None
    ) -> bool:
        """Replace the partials with the paths `old` by `new`, into which they were merged.

        True also if that was done before. False, and no effect, if one of them is missing, or if the run is
        past its barrier, over or deleted. The run's version stays: its partials add up to the same.
        """
        paths = frozenset(old)
        if not paths or new.run != run:
            raise ValueError(f"expected partials of run {run} to replace, and a new one of the same run")
        return self._write_fenced(fence, lambda c: _replace_partials(c, run, paths, new))

    def partial_paths(self, prefix: str) -> set[str]:
        """Return the paths of all partials under this prefix, of all runs and data sets. Unlisted files are
        orphans."""
        queries = [
            select(table.c.path).where(func.substr(table.c.path, 1, len(prefix)) == prefix)
            for table in (partials, kept_partials)
        ]
        return self._read(lambda c: {path for query in queries for path in c.scalars(query)})


def partials_of(connection: Connection, run: str) -> list[Partial]:
    query = select(used_partials).where(used_partials.c.run == run)
    used = [
        Partial(run, row.path, rows=row.rows, origin=row.origin, kept_as=row.kind)
        for row in connection.execute(query)
    ]
    return sorted([*own_partials_of(connection, run), *used], key=lambda partial: partial.path)


def own_partials_of(connection: Connection, run: str) -> list[Partial]:
    """Return the partials that the run itself has computed."""
    columns = partials.c
    query = select(columns.run, columns.path, columns.level, columns.rows, columns.origin)
    return [Partial(*row) for row in connection.execute(query.where(columns.run == run))]


def _replace_partials(connection: Connection, run: str, old: Collection[str], new: Partial) -> bool:
    state = lock_states(connection, [run]).get(run)
    if state not in (RunState.OPEN, RunState.SEALED):  # past the barrier, the final step reads them
        return False
    known = own_partials_of(connection, run)
    paths = {partial.path for partial in known}
    if new in known and paths.isdisjoint(old):
        return True
    if not paths.issuperset(old):
        return False
    connection.execute(delete(partials).where(partials.c.path.in_(old)))
    connection.execute(insert(partials).values(_row_of(new)))
    return True


def _row_of(partial: Partial) -> dict[str, object]:
    row = asdict(partial)
    del row["kept_as"]  # a partial that the run has computed
    return row


def _require_batch(batch: Batch) -> None:
    require_counts(batch=batch.batch)
    for lane, (after, upto) in batch.spans.items():
        require_counts(lane=lane, after=after, upto=upto)
        if upto < after:
            raise ValueError(f"lane {lane}: expected a span that goes forward, not from {after} to {upto}")
    for processed in batch.processed:
        require_table(processed.table)
        require_counts(chunks=processed.chunks, rows=processed.rows)
        if processed.shard not in batch.shards:
            raise ValueError(f"shard {processed.shard}: expected a span for the chunks that were processed")
    for counted in batch.stage_rows:
        require_counts(rows_in=counted.rows_in, rows_out=counted.rows_out)
        if counted.shard not in batch.shards:
            raise ValueError(f"shard {counted.shard}: expected a span for the rows that were counted")
    for partial in batch.partials:
        require_counts(level=partial.level, rows=partial.rows)
    for counted_rows in batch.file_rows:
        require_counts(step=counted_rows.step, shard=counted_rows.shard, rows=counted_rows.rows)


def _commit(connection: Connection, batch: Batch, node: str | None = None) -> Committed:
    if not _begin(connection, batch):
        return _repeated(connection, batch)
    _move_positions(connection, batch)
    if batch.batch == 0:
        _delete_superseded(connection, batch)
    states = lock_states(connection, batch.runs)
    current = {run for run, state in states.items() if not state.is_over}
    count_processed(connection, [counts for counts in batch.processed if counts.run in current])
    count_stages(connection, [counts for counts in batch.stage_rows if counts.run in current])
    _count_files(connection, [counts for counts in batch.file_rows if counts.run in current])
    stored = [_row_of(partial) for partial in batch.partials if partial.run in current]
    if stored:
        connection.execute(insert(partials), stored)
    if current:
        touch_all(connection, current)
        delete_attempts(connection, current, "batch", node)
    ignored = batch.runs - current
    if ignored:
        _store_ignored(connection, batch, ignored)
    return Committed("committed", ignored)


def _begin(connection: Connection, batch: Batch) -> bool:
    """False if the batch was committed before; waits for a transaction that commits the same batch now."""
    values = {"query": batch.query, "batch": batch.batch, "spans": _spans_json(batch.spans), "ignored": "[]"}
    adding = upsert(connection, batches).values(values).on_conflict_do_nothing()
    if connection.scalar(adding.returning(batches.c.batch)) is None:
        return False
    is_old = batches.c.batch <= batch.batch - KEPT
    connection.execute(delete(batches).where(batches.c.query == batch.query, is_old))
    return True


def _repeated(connection: Connection, batch: Batch) -> Committed:
    before = connection.execute(select(batches.c.spans, batches.c.ignored).where(_is(batch))).one()
    if before.spans != (spans := _spans_json(batch.spans)):
        raise ForeignCheckpoint(
            f"batch {batch.batch} of {batch.query} has the spans {spans}, was committed with {before.spans}"
        )
    return Committed("repeated", frozenset(json.loads(before.ignored)))


def _move_positions(connection: Connection, batch: Batch) -> None:
    if not batch.spans:
        return
    positions = _lock_positions(connection, batch.spans)
    counters = select(shard_counters).where(shard_counters.c.lane.in_(batch.spans))
    log_ends = {row.lane: row.last for row in connection.execute(counters)}
    for lane, (after, upto) in sorted(batch.spans.items()):
        span = f"batch {batch.batch} of {batch.query} goes from {after} to {upto} in lane {lane}"
        if positions[lane] != after:
            raise ForeignCheckpoint(f"{span}, which stands at {positions[lane]}")
        if upto > log_ends.get(lane, 0):
            raise ForeignCheckpoint(f"{span}, whose log ends at {log_ends.get(lane, 0)}")
    moving = update(shard_positions).where(shard_positions.c.lane == bindparam("of_lane"))
    connection.execute(
        moving.values(position=bindparam("upto")),
        [{"of_lane": lane, "upto": upto} for lane, (_, upto) in batch.spans.items()],
    )


def _delete_superseded(connection: Connection, batch: Batch) -> None:
    """Delete the batches of earlier queries on the same lanes: a new query replaces them. If an earlier query
    resumes from its checkpoint, its batches do not match the positions and are refused."""
    others = select(batches.c.query, batches.c.spans).where(batches.c.query != batch.query)
    lanes = {str(lane) for lane in batch.spans}
    superseded = {row.query for row in connection.execute(others) if lanes & json.loads(row.spans).keys()}
    if superseded:
        connection.execute(delete(batches).where(batches.c.query.in_(superseded)))


def _lock_positions(connection: Connection, lanes: Collection[int]) -> dict[int, int]:
    numbers = sorted(lanes)
    query = select(shard_positions).where(shard_positions.c.lane.in_(numbers))
    locking = query.order_by(shard_positions.c.lane).with_for_update()
    positions = {row.lane: row.position for row in connection.execute(locking)}
    if missing := [lane for lane in numbers if lane not in positions]:
        adding = upsert(connection, shard_positions).on_conflict_do_nothing()
        connection.execute(adding, [{"lane": lane, "position": 0} for lane in missing])
        positions = {row.lane: row.position for row in connection.execute(locking)}
    return positions


def count_processed(connection: Connection, processed: list[Processed]) -> None:
    if not processed:
        return
    adding = upsert(connection, shard_progress)
    connection.execute(
        adding.on_conflict_do_update(
            index_elements=[shard_progress.c.run, shard_progress.c.table_name, shard_progress.c.shard],
            set_={
                "chunks": shard_progress.c.chunks + adding.excluded.chunks,
                "rows": shard_progress.c.rows + adding.excluded.rows,
            },
        ),
        [
            {"run": p.run, "table_name": p.table, "shard": p.shard, "chunks": p.chunks, "rows": p.rows}
            for p in processed
        ],
    )


def count_stages(connection: Connection, stage_rows: list[StageRows]) -> None:
    if not stage_rows:
        return
    adding = upsert(connection, stage_progress)
    connection.execute(
        adding.on_conflict_do_update(
            index_elements=[stage_progress.c.run, stage_progress.c.stage, stage_progress.c.shard],
            set_={
                "rows_in": stage_progress.c.rows_in + adding.excluded.rows_in,
                "rows_out": stage_progress.c.rows_out + adding.excluded.rows_out,
            },
        ),
        [asdict(rows) for rows in stage_rows],
    )


def _count_files(connection: Connection, file_rows: list[FileRows]) -> None:
    if not file_rows:
        return
    adding = upsert(connection, file_progress)
    columns = file_progress.c
    connection.execute(
        adding.on_conflict_do_update(
            index_elements=[columns.run, columns.file, columns.plan, columns.step, columns.shard],
            set_={"rows": columns.rows + adding.excluded.rows},
        ),
        [asdict(rows) for rows in file_rows],
    )


def _store_ignored(connection: Connection, batch: Batch, ignored: frozenset[str]) -> None:
    """A repeated commit, whose first reply may have been lost, returns the same runs."""
    connection.execute(update(batches).where(_is(batch)).values(ignored=json.dumps(sorted(ignored))))


def _is(batch: Batch) -> ColumnElement[bool]:
    return and_(batches.c.query == batch.query, batches.c.batch == batch.batch)


def _spans_json(spans: Spans) -> str:
    return json.dumps({str(lane): list(spans[lane]) for lane in sorted(spans)})
