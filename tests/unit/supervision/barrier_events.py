"""Short constructors of messages and snapshots about runs."""

from collections.abc import Mapping

from kopitiam.contracts.messages import TableEnd, WorkerEnd, WorkerStats
from kopitiam.contracts.progress import ByTable, Snapshot, Volume, total_by_shard
from kopitiam.contracts.runs import RunState
from kopitiam.questions.question_set import QuestionSet

RUN = "0123456789abcdef"
STAGES = QuestionSet.of_catalog().stages
TABLES = tuple(STAGES.of_table)


def small_run(**other: Mapping[int, Volume]) -> dict[str, Mapping[int, Volume]]:
    """One chunk with ten rows in each table, except in the tables given."""
    return {table: {0: Volume(1, 10)} for table in TABLES} | other


def end(table: str, *shards: tuple[int, int]) -> TableEnd:
    return TableEnd(run=RUN, table=table, shards=dict(enumerate(shards)))


def stats(stage: str, processed: int, rows: int, shard: int = 0, expected: int | None = None) -> WorkerStats:
    return WorkerStats(run=RUN, stage=stage, shard=shard, expected=expected, processed=processed, rows=rows)


def worker_end(stage: str, processed: int, rows: int, shard: int = 0) -> WorkerEnd:
    return WorkerEnd(run=RUN, stage=stage, shard=shard, processed=processed, rows=rows)


def snapshot(
    expected: ByTable, processed: ByTable, pending: int = 0, state: RunState = RunState.SEALED
) -> Snapshot:
    return Snapshot(RUN, state, STAGES.of_table, expected, processed, pending)


def ends_of(expected: ByTable, run: str = RUN) -> list[TableEnd]:
    return [
        TableEnd(run=run, table=table, shards={shard: (v.chunks, v.rows) for shard, v in shards.items()})
        for table, shards in expected.items()
    ]


def reports_of(expected: ByTable, processed: ByTable, run: str = RUN) -> list[WorkerStats | WorkerEnd]:
    """The reports of the workers after this much is processed."""
    reports: list[WorkerStats | WorkerEnd] = []
    for stage in STAGES.before_barrier:
        tables = STAGES.tables_of(stage)
        due = total_by_shard(expected, tables) if all(table in expected for table in tables) else {}
        for shard, done in total_by_shard(processed, tables).items():
            want = due.get(shard)
            common = {"run": run, "stage": stage, "shard": shard, "processed": done.chunks, "rows": done.rows}
            reports.append(WorkerStats(expected=want.chunks if want else None, **common))
            if want and want.chunks == done.chunks:
                reports.append(WorkerEnd(**common))
    return reports
