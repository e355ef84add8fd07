"""Barriers: how far the runs before them are, and their opening. Each function is a part of a transaction."""

from sqlalchemy import Connection, func, select

from kopitiam.contracts.batches import BarrierView
from kopitiam.contracts.errors import RunOver
from kopitiam.contracts.runs import RunState
from kopitiam.registry.runs import locked, move, runs_in
from kopitiam.registry.schema import chunks, runs, shard_expectations, shard_positions, shard_progress
from kopitiam.registry.volumes import by_run

WATCHED = (RunState.SEALED, RunState.FINAL)
WATCHED_RUNS = select(runs.c.run).where(runs.c.state.in_(WATCHED))


def views(connection: Connection) -> list[BarrierView]:
    expected = by_run(connection, shard_expectations, shard_expectations.c.run.in_(WATCHED_RUNS))
    processed = by_run(connection, shard_progress, shard_progress.c.run.in_(WATCHED_RUNS))
    pending = _pending(connection)
    return [
        BarrierView(run, expected.get(run.run, {}), processed.get(run.run, {}), pending.get(run.run, 0))
        for run in runs_in(connection, WATCHED)
    ]


def _pending(connection: Connection) -> dict[str, int]:
    """How many chunks of each run the position of their lane has not reached."""
    position = func.coalesce(shard_positions.c.position, 0)
    query = (
        select(chunks.c.run, func.count().label("ahead"))
        .outerjoin_from(chunks, shard_positions, shard_positions.c.lane == chunks.c.lane)
        .where(chunks.c.run.in_(WATCHED_RUNS), chunks.c.sequence > position)
        .group_by(chunks.c.run)
    )
    return {row.run: row.ahead for row in connection.execute(query)}


def open_barrier(connection: Connection, run: str, now: float) -> bool:
    state = locked(connection, run).state
    if state in (RunState.FINAL, RunState.DONE):
        return False
    if state.is_over:
        raise RunOver(f"run {run} is {state}")
    move(connection, run, RunState.FINAL, now)
    return True
