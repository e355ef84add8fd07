"""Barriers: how far the runs before them are, and their opening. Each function is a part of a transaction."""

from sqlalchemy import ColumnElement, Connection, func, select

from kopitiam.contracts.barriers import Snapshot, contradiction, is_processed, missing_text
from kopitiam.contracts.errors import BarrierNotReady, IllegalTransition, RunFailed, RunOver
from kopitiam.contracts.runs import Run, RunState
from kopitiam.contracts.stages import ByTable
from kopitiam.questions.question_set import QuestionSet
from kopitiam.registry.runs import locked, move, runs_in
from kopitiam.registry.schema import chunks, runs, shard_expectations, shard_positions, shard_progress
from kopitiam.registry.volumes import by_run, expected, processed

WATCHED = (RunState.SEALED, RunState.FINAL)
WATCHED_RUNS = select(runs.c.run).where(runs.c.state.in_(WATCHED))


def snapshots(connection: Connection) -> list[Snapshot]:
    due = by_run(connection, shard_expectations, shard_expectations.c.run.in_(WATCHED_RUNS))
    done = by_run(connection, shard_progress, shard_progress.c.run.in_(WATCHED_RUNS))
    pending = _pending(connection, chunks.c.run.in_(WATCHED_RUNS))
    return [
        _snapshot(run, due.get(run.run, {}), done.get(run.run, {}), pending.get(run.run, 0))
        for run in runs_in(connection, WATCHED)
    ]


def snapshot(connection: Connection, run: Run) -> Snapshot:
    pending = _pending(connection, chunks.c.run == run.run).get(run.run, 0)
    return _snapshot(run, expected(connection, run.run), processed(connection, run.run), pending)


def _snapshot(run: Run, due: ByTable, done: ByTable, pending: int) -> Snapshot:
    try:
        stages = QuestionSet.of_run(run.questions).stages.of_table
    except RunFailed as error:
        return Snapshot(run.run, run.state, {}, due, done, pending, str(error))
    return Snapshot(run.run, run.state, stages, due, done, pending)


def _pending(connection: Connection, is_asked: ColumnElement[bool]) -> dict[str, int]:
    """How many chunks of each run the position of their lane has not reached."""
    position = func.coalesce(shard_positions.c.position, 0)
    query = (
        select(chunks.c.run, func.count().label("ahead"))
        .outerjoin_from(chunks, shard_positions, shard_positions.c.lane == chunks.c.lane)
        .where(is_asked, chunks.c.sequence > position)
        .group_by(chunks.c.run)
    )
    return {row.run: row.ahead for row in connection.execute(query)}


def open_barrier(connection: Connection, run: str, now: float) -> bool:
    """Decides by what is here now, whatever a message made the caller believe. The lock on the run keeps
    batches that count chunks of it, and END, out of this transaction."""
    found = locked(connection, run)
    if found.state in (RunState.FINAL, RunState.DONE):
        return False
    if found.state.is_over:
        raise RunOver(f"run {run} is {found.state}")
    if found.state is not RunState.SEALED:
        raise IllegalTransition(f"run {run} is {found.state}, and its barrier cannot open")
    seen = snapshot(connection, found)
    if contradiction(seen) or not is_processed(seen):
        raise BarrierNotReady(f"run {run}: {missing_text(seen)}")
    move(connection, run, RunState.FINAL, now)
    return True


def fail_if_wrong(connection: Connection, run: str, now: float) -> str | None:
    found = locked(connection, run)
    if found.state not in (RunState.OPEN, RunState.SEALED):
        return None
    reason = contradiction(snapshot(connection, found))
    if reason is not None:
        move(connection, run, RunState.FAILED, now, reason)
    return reason
