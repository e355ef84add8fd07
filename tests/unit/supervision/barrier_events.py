"""Messages and snapshots about runs, spelled briefly."""

from collections.abc import Mapping

from kopitiam.contracts.messages import TableEnd, WorkerEnd, WorkerStats
from kopitiam.contracts.runs import RunState
from kopitiam.contracts.stages import (
    STAGES_OF_TABLE,
    ByTable,
    Volume,
    expected_by_stage,
    processed_by_stage,
)
from kopitiam.supervision.barrier import Snapshot

RUN = "0123456789abcdef"
TABLES = tuple(STAGES_OF_TABLE)


def small_run(**other: Mapping[int, Volume]) -> dict[str, Mapping[int, Volume]]:
    """One chunk with ten rows in each table, but for those that are given."""
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
    return Snapshot(RUN, state, expected, processed, pending)


def ends_of(expected: ByTable, run: str = RUN) -> list[TableEnd]:
    return [
        TableEnd(run=run, table=table, shards={shard: (v.chunks, v.rows) for shard, v in shards.items()})
        for table, shards in expected.items()
    ]


def reports_of(expected: ByTable, processed: ByTable, run: str = RUN) -> list[WorkerStats | WorkerEnd]:
    """What the workers tell when this much is processed."""
    due = expected_by_stage(expected)
    reports: list[WorkerStats | WorkerEnd] = []
    for stage, shards in processed_by_stage(processed).items():
        for shard, told in shards.items():
            want = due.get(stage, {}).get(shard)
            common = {"run": run, "stage": stage, "shard": shard, "processed": told.chunks, "rows": told.rows}
            reports.append(WorkerStats(expected=want.chunks if want else None, **common))
            if want and want.chunks == told.chunks:
                reports.append(WorkerEnd(**common))
    return reports
