"""Barriers: the progress of the runs in front of them, and the transactions that open a barrier or fail a
run. `contracts.progress` has the rules.
"""

from sqlalchemy import ColumnElement, Connection, func, select

from kopitiam.contracts.errors import BarrierNotReady, IllegalTransition, RunFailed, RunOver
from kopitiam.contracts.progress import ByTable, Snapshot, contradiction, is_processed, missing_text
from kopitiam.contracts.runs import Run, RunState
from kopitiam.questions.question_set import QuestionSet
from kopitiam.registry.records import Fence
from kopitiam.registry.runs import get_run, lock_run, move_run, runs_in
from kopitiam.registry.schema import chunks, runs, shard_expectations, shard_positions, shard_progress
from kopitiam.registry.tables import expected, processed, volumes_by_run
from kopitiam.registry.transactions import RegistryBase

WATCHED = (RunState.SEALED, RunState.FINAL)
WATCHED_RUNS = select(runs.c.run).where(runs.c.state.in_(WATCHED))


class BarrierTransactions(RegistryBase):
    def snapshots(self) -> list[Snapshot]:
        """Return the progress of all runs that are sealed or final, oldest first, in one snapshot."""
        return self._read(_snapshots)

    def snapshot(self, run: str) -> Snapshot:
        """Return the progress of one run, in any state."""
        return self._read(lambda c: _snapshot_of(c, get_run(c, run)))

    def open_barrier(self, run: str, fence: Fence | None = None) -> bool:
        """Move a sealed run to final; False if it is final or done.

        Raises `BarrierNotReady`, with figures, unless in this transaction all tables are sealed, no chunk is
        pending, and every shard has processed exactly the chunks and rows expected. Raises `RunOver` if the
        run failed or was ended, `IllegalTransition` if it is still open.
        """

        def open_it(connection: Connection) -> bool:
            now = self._clock(connection)
            # The lock keeps END and batches with chunks of this run out of this transaction.
            current = lock_run(connection, run)
            if current.state in (RunState.FINAL, RunState.DONE):
                return False
            if current.state.is_over:
                raise RunOver(f"run {run} is {current.state}")
            if current.state is not RunState.SEALED:
                raise IllegalTransition(f"run {run} is {current.state}, and its barrier cannot open")
            snapshot = _snapshot_of(connection, current)
            if contradiction(snapshot) or not is_processed(snapshot):
                raise BarrierNotReady(f"run {run}: {missing_text(snapshot)}")
            move_run(connection, run, RunState.FINAL, now)
            return True

        return self._write_fenced(fence, open_it)

    def fail_if_contradictory(self, run: str, fence: Fence | None = None) -> str | None:
        """Fail a run whose figures in this transaction can never become right, and return the reason.

        Such figures are more chunks or rows processed than expected, other rows, or a chunk that no batch
        will bring. Returns None, without effect, if there are none or the run is past its barrier.
        """

        def fail(connection: Connection) -> str | None:
            now = self._clock(connection)
            current = lock_run(connection, run)
            if current.state not in (RunState.OPEN, RunState.SEALED):
                return None
            reason = contradiction(_snapshot_of(connection, current))
            if reason is not None:
                move_run(connection, run, RunState.FAILED, now, reason)
            return reason

        return self._write_fenced(fence, fail)


def _snapshots(connection: Connection) -> list[Snapshot]:
    due = volumes_by_run(connection, shard_expectations, shard_expectations.c.run.in_(WATCHED_RUNS))
    done = volumes_by_run(connection, shard_progress, shard_progress.c.run.in_(WATCHED_RUNS))
    pending = _pending(connection, chunks.c.run.in_(WATCHED_RUNS))
    return [
        _snapshot(run, due.get(run.run, {}), done.get(run.run, {}), pending.get(run.run, 0))
        for run in runs_in(connection, WATCHED)
    ]


def _snapshot_of(connection: Connection, run: Run) -> Snapshot:
    pending = _pending(connection, chunks.c.run == run.run).get(run.run, 0)
    return _snapshot(run, expected(connection, run.run), processed(connection, run.run), pending)


def _snapshot(run: Run, due: ByTable, done: ByTable, pending: int) -> Snapshot:
    try:
        stages = QuestionSet.of_run(run.questions).stages.of_table
    except RunFailed as error:
        return Snapshot(run.run, run.state, {}, due, done, pending, str(error))
    return Snapshot(run.run, run.state, stages, due, done, pending)


def _pending(connection: Connection, condition: ColumnElement[bool]) -> dict[str, int]:
    """Count the chunks of each run that the position of their lane has not reached."""
    position = func.coalesce(shard_positions.c.position, 0)
    query = (
        select(chunks.c.run, func.count().label("ahead"))
        .outerjoin_from(chunks, shard_positions, shard_positions.c.lane == chunks.c.lane)
        .where(condition, chunks.c.sequence > position)
        .group_by(chunks.c.run)
    )
    return {row.run: row.ahead for row in connection.execute(query)}
