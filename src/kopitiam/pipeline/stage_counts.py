"""Counts the rows that entered and left each stage, from the files that Spark wrote.

A partial counts the rows that it was computed from. Rows that meet conditions of no partial are counted by
another frame of the same Spark job, unless the bounds of the chunk determine the number. Both counts are read
from the files right after they were written.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from kopitiam.contracts.batches import FileRows, Partial, StageRows
from kopitiam.contracts.progress import RowFlow
from kopitiam.contracts.runs import LogEntry
from kopitiam.pipeline.compiler.partials import SHARD, PartialLayout
from kopitiam.questions.plans import ALL_ROWS, Conditions, PartialPlan
from kopitiam.questions.question_set import QuestionSet
from kopitiam.questions.row_counts import RowCounts
from kopitiam.storage.port import Key, StoragePort


@dataclass(frozen=True)
class BatchCounts:
    """Row counts of one run in one batch, or of one data file that the run reads."""

    question_set: QuestionSet
    run: str
    owner: str  # of the chunks: the run, or the data file
    counts: RowCounts = field(default_factory=RowCounts)

    def add_chunk(self, chunk: LogEntry, known: Mapping[Conditions, int]) -> None:
        """`known` are counts that follow from the bounds of its columns."""
        for conditions, rows in {**known, ALL_ROWS: chunk.rows}.items():
            self.counts.add_rows(chunk.table, conditions, chunk.shard, rows)

    def add_partial(self, storage: StoragePort, plan: PartialPlan, files: Iterable[Key]) -> None:
        counted = PartialLayout(plan).row_count
        for file in files:
            columns = _read(storage, file, [SHARD, *([counted] if counted else [])])
            rows_in = columns[counted] if counted else None
            for shard, kept, summed in _by_shard(columns[SHARD], rows_in):
                self.counts.add_kept(plan.name, shard, kept)
                if plan.conditions != ALL_ROWS:  # those are counted by their chunks
                    self.counts.add_rows(plan.fact, plan.conditions, shard, summed)

    def add_counts(self, storage: StoragePort, fact: str, files: Iterable[Key]) -> None:
        counted = self.question_set.stages.counted_apart[fact]
        for file in files:
            columns = _read(storage, file, [SHARD, *(f"l{i}" for i in range(len(counted)))])
            for row in columns.to_pylist():
                for position, conditions in enumerate(counted):
                    self.counts.add_rows(fact, conditions, row[SHARD], row[f"l{position}"])

    def stage_rows(self) -> list[StageRows]:
        return [
            StageRows(self.run, stage, shard, flow.rows_in, flow.rows_out)
            for (stage, shard), flow in self.counts.flows(self.question_set).items()
        ]

    def file_rows(self) -> Iterator[FileRows]:
        """The counts of a data file for each plan, zeros included, so that its partials can be used again."""
        if self.owner == self.run:
            return
        for plan in self.question_set.partials:
            for shard in self.counts.meeting[plan.fact, ALL_ROWS]:
                for step, rows in enumerate(self.counts.of_plan(plan)):
                    yield FileRows(self.run, self.owner, plan.name, step, shard, rows.get(shard, 0))


@dataclass
class Written:
    """The partials that a batch has written, and the rows that it has counted."""

    partials: list[Partial] = field(default_factory=list)
    counts: list[BatchCounts] = field(default_factory=list)

    def __iadd__(self, other: "Written") -> "Written":
        self.partials += other.partials
        self.counts += other.counts
        return self

    @property
    def stage_rows(self) -> tuple[StageRows, ...]:
        """Rows by run, stage and shard: a run may read several data files."""
        sums: dict[tuple[str, str, int], RowFlow] = defaultdict(RowFlow)
        for rows in (rows for counts in self.counts for rows in counts.stage_rows()):
            sums[rows.run, rows.stage, rows.shard] += RowFlow(rows.rows_in, rows.rows_out)
        return tuple(StageRows(*key, flow.rows_in, flow.rows_out) for key, flow in sums.items())

    @property
    def file_rows(self) -> tuple[FileRows, ...]:
        return tuple(rows for counts in self.counts for rows in counts.file_rows())


def _read(storage: StoragePort, file: Key, columns: list[str]) -> pa.Table:
    with storage.open(file) as opened:
        return pq.read_table(opened, columns=columns)


def _by_shard(shards: pa.ChunkedArray, counts: pa.ChunkedArray | None) -> list[tuple[int, int, int]]:
    """For each shard its number, its rows, and the sum of its counts, or its rows again without counts."""
    table = pa.table({"shard": shards, "count": shards if counts is None else counts})
    grouped = table.group_by("shard").aggregate([("count", "count"), ("count", "sum")]).to_pylist()
    return [
        (row["shard"], row["count_count"], row["count_count"] if counts is None else row["count_sum"])
        for row in grouped
    ]
