"""Counts the rows that entered and left each stage, from the files that Spark wrote.

A partial counts the rows that it was computed from. Rows that meet conditions of no partial are counted by
another frame of the same Spark job, unless the bounds of the chunk determine the number. Both counts are read
from the files right after they were written.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from kopitiam.contracts.batches import StageRows
from kopitiam.contracts.progress import RowFlow
from kopitiam.contracts.runs import LogEntry
from kopitiam.pipeline.compiler.partials import SHARD, PartialLayout
from kopitiam.questions.plans import ALL_ROWS, Conditions, PartialPlan
from kopitiam.questions.question_set import QuestionSet
from kopitiam.storage.port import Key, StoragePort

ByShard = dict[int, int]


def _no_counts() -> "defaultdict[tuple[str, Conditions], ByShard]":
    return defaultdict(lambda: defaultdict(int))


@dataclass
class BatchCounts:
    """Row counts of one run in one batch."""

    question_set: QuestionSet
    run: str
    meeting: defaultdict[tuple[str, Conditions], ByShard] = field(default_factory=_no_counts)  # by fact
    kept: dict[str, ByShard] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))  # by plan

    def add_chunk(self, chunk: LogEntry, known: Mapping[Conditions, int]) -> None:
        """`known` are counts that follow from the bounds of its columns."""
        for conditions, rows in {**known, ALL_ROWS: chunk.rows}.items():
            self.meeting[chunk.table, conditions][chunk.shard] += rows

    def add_partial(self, storage: StoragePort, plan: PartialPlan, files: Iterable[Key]) -> None:
        counted = PartialLayout(plan).row_count
        for file in files:
            columns = _read(storage, file, [SHARD, *([counted] if counted else [])])
            rows_in = columns[counted] if counted else None
            for shard, kept, summed in _by_shard(columns[SHARD], rows_in):
                self.kept[plan.name][shard] += kept
                self.meeting[plan.fact, plan.conditions][shard] += summed

    def add_counts(self, storage: StoragePort, fact: str, files: Iterable[Key]) -> None:
        counted = self.question_set.stages.counted_apart[fact]
        for file in files:
            columns = _read(storage, file, [SHARD, *(f"l{i}" for i in range(len(counted)))])
            for row in columns.to_pylist():
                for position, conditions in enumerate(counted):
                    self.meeting[fact, conditions][row[SHARD]] += row[f"l{position}"]

    def stage_rows(self) -> list[StageRows]:
        flows: dict[tuple[str, int], RowFlow] = defaultdict(RowFlow)
        for table, stages in self.question_set.stages.of_table.items():
            if stages == (f"check_{table}",):
                for shard, rows in self.meeting[table, ALL_ROWS].items():
                    flows[stages[0], shard] += RowFlow(rows, rows)
        for count in self.question_set.stages.filters:
            self._add(flows, count.stage, self.meeting[count.fact, count.rows_in],
                      self.meeting[count.fact, count.rows_out])  # fmt: skip
        for plan in self.question_set.partials:
            if plan.stage is not None:
                self._add(flows, plan.stage, self.meeting[plan.fact, plan.conditions], self.kept[plan.name])
        return [
            StageRows(self.run, stage, shard, flow.rows_in, flow.rows_out)
            for (stage, shard), flow in flows.items()
        ]

    @staticmethod
    def _add(
        flows: dict[tuple[str, int], RowFlow],
        stage: str,
        rows_in: Mapping[int, int],
        rows_out: Mapping[int, int],
    ) -> None:
        for shard in rows_in.keys() | rows_out.keys():
            flows[stage, shard] += RowFlow(rows_in.get(shard, 0), rows_out.get(shard, 0))


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
