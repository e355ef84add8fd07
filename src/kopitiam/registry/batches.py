"""Batches of the stream: committed once, whatever is repeated. Each function is a part of a transaction.

Locks are taken in one order: the batch, its lanes' positions, its runs. The runs come last, since their
clients wait for them.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict

from sqlalchemy import ColumnElement, Connection, and_, bindparam, delete, insert, select, update

from kopitiam.contracts.batches import Batch, Committed, Processed, StageRows
from kopitiam.contracts.errors import ForeignCheckpoint
from kopitiam.registry import attempts
from kopitiam.registry.runs import locked_states, touch_all
from kopitiam.registry.schema import (
    batches,
    partials,
    shard_counters,
    shard_positions,
    shard_progress,
    stage_progress,
)
from kopitiam.registry.transactions import upsert

KEPT = 100  # batches of a query; Spark repeats the last one, a restored checkpoint some more

Spans = Mapping[int, tuple[int, int]]


def positions(connection: Connection, lanes: Collection[int]) -> dict[int, int]:
    query = select(shard_positions).where(shard_positions.c.lane.in_(lanes))
    return dict.fromkeys(lanes, 0) | {row.lane: row.position for row in connection.execute(query)}


def commit(connection: Connection, batch: Batch, node: str | None = None) -> Committed:
    if not _begin(connection, batch):
        return _repeated(connection, batch)
    _move_positions(connection, batch)
    if batch.batch == 0:
        _forget_superseded(connection, batch)
    states = locked_states(connection, batch.runs)
    alive = {run for run, state in states.items() if not state.is_over}
    _count(connection, [each for each in batch.processed if each.run in alive])
    _count_stages(connection, [each for each in batch.stage_rows if each.run in alive])
    kept = [asdict(partial) for partial in batch.partials if partial.run in alive]
    if kept:
        connection.execute(insert(partials), kept)
    if alive:
        touch_all(connection, alive)
        attempts.end_well(connection, alive, "batch", node)
    ignored = batch.runs - alive
    if ignored:
        _note_ignored(connection, batch, ignored)
    return Committed("committed", ignored)


def _begin(connection: Connection, batch: Batch) -> bool:
    """False if it was committed before; whoever commits the same batch right now is waited for."""
    values = {"query": batch.query, "batch": batch.batch, "spans": _told(batch.spans), "ignored": "[]"}
    adding = upsert(connection, batches).values(values).on_conflict_do_nothing()
    if connection.scalar(adding.returning(batches.c.batch)) is None:
        return False
    is_old = batches.c.batch <= batch.batch - KEPT
    connection.execute(delete(batches).where(batches.c.query == batch.query, is_old))
    return True


def _repeated(connection: Connection, batch: Batch) -> Committed:
    before = connection.execute(select(batches.c.spans, batches.c.ignored).where(_is(batch))).one()
    if before.spans != (spans := _told(batch.spans)):
        raise ForeignCheckpoint(
            f"batch {batch.batch} of {batch.query} has the spans {spans}, was committed with {before.spans}"
        )
    return Committed("repeated", frozenset(json.loads(before.ignored)))


def _move_positions(connection: Connection, batch: Batch) -> None:
    if not batch.spans:
        return
    stands = _locked_positions(connection, batch.spans)
    ends = select(shard_counters).where(shard_counters.c.lane.in_(batch.spans))
    ends_at = {row.lane: row.last for row in connection.execute(ends)}
    for lane, (after, upto) in sorted(batch.spans.items()):
        goes = f"batch {batch.batch} of {batch.query} goes from {after} to {upto} in lane {lane}"
        if stands[lane] != after:
            raise ForeignCheckpoint(f"{goes}, which stands at {stands[lane]}")
        if upto > ends_at.get(lane, 0):
            raise ForeignCheckpoint(f"{goes}, whose log ends at {ends_at.get(lane, 0)}")
    moving = update(shard_positions).where(shard_positions.c.lane == bindparam("of_lane"))
    connection.execute(
        moving.values(position=bindparam("upto")),
        [{"of_lane": lane, "upto": upto} for lane, (_, upto) in batch.spans.items()],
    )


def _forget_superseded(connection: Connection, batch: Batch) -> None:
    """A query that begins takes the place of those that were here before it. Should one of them come back
    with its checkpoint, the positions refuse it."""
    others = select(batches.c.query, batches.c.spans).where(batches.c.query != batch.query)
    lanes = {str(lane) for lane in batch.spans}
    superseded = {row.query for row in connection.execute(others) if lanes & json.loads(row.spans).keys()}
    if superseded:
        connection.execute(delete(batches).where(batches.c.query.in_(superseded)))


def _locked_positions(connection: Connection, lanes: Collection[int]) -> dict[int, int]:
    wanted = sorted(lanes)
    query = select(shard_positions).where(shard_positions.c.lane.in_(wanted))
    locking = query.order_by(shard_positions.c.lane).with_for_update()
    found = {row.lane: row.position for row in connection.execute(locking)}
    if missing := [lane for lane in wanted if lane not in found]:
        adding = upsert(connection, shard_positions).on_conflict_do_nothing()
        connection.execute(adding, [{"lane": lane, "position": 0} for lane in missing])
        found = {row.lane: row.position for row in connection.execute(locking)}
    return found


def _count(connection: Connection, processed: list[Processed]) -> None:
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


def _count_stages(connection: Connection, counted: list[StageRows]) -> None:
    if not counted:
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
        [asdict(each) for each in counted],
    )


def _note_ignored(connection: Connection, batch: Batch, ignored: frozenset[str]) -> None:
    """So that a repeated commit, whose first answer may have been lost, gets the same one."""
    connection.execute(update(batches).where(_is(batch)).values(ignored=json.dumps(sorted(ignored))))


def _is(batch: Batch) -> ColumnElement[bool]:
    return and_(batches.c.query == batch.query, batches.c.batch == batch.batch)


def _told(spans: Spans) -> str:
    return json.dumps({str(lane): list(spans[lane]) for lane in sorted(spans)})
