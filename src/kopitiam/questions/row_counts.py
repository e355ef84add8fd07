"""Rows into and out of the stages before the barrier, from counts of rows that meet conditions. Pure values.

The pipeline counts the rows of a batch; the registry adds the counts of data files whose partials are used
again.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from kopitiam.contracts.progress import RowFlow
from kopitiam.questions.plans import ALL_ROWS, Conditions, PartialPlan
from kopitiam.questions.question_set import QuestionSet

ByShard = Mapping[int, int]
PlanCounts = tuple[ByShard, ...]  # rows that the partial keeps, then rows behind each of its filters


def _no_rows() -> "defaultdict[tuple[str, Conditions], defaultdict[int, int]]":
    return defaultdict(lambda: defaultdict(int))


@dataclass(frozen=True)
class RowCounts:
    """Rows by shard: those of a table that meet conditions, and those that the partial of a plan keeps."""

    meeting: defaultdict[tuple[str, Conditions], defaultdict[int, int]] = field(default_factory=_no_rows)
    kept: defaultdict[str, defaultdict[int, int]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(int))
    )

    def add_rows(self, table: str, conditions: Conditions, shard: int, rows: int) -> None:
        self.meeting[table, conditions][shard] += rows

    def add_kept(self, plan: str, shard: int, rows: int) -> None:
        self.kept[plan][shard] += rows

    def of_plan(self, plan: PartialPlan) -> PlanCounts:
        behind = (self.meeting[plan.fact, conditions] for conditions in plan.conditions_after)
        return self.kept[plan.name], *behind

    def flows(self, question_set: QuestionSet) -> dict[tuple[str, int], RowFlow]:
        """Rows into and out of each stage, by stage and shard."""
        stages = question_set.stages
        flows: dict[tuple[str, int], RowFlow] = defaultdict(RowFlow)
        for table, names in stages.of_table.items():
            if names == (f"check_{table}",):
                rows = self.meeting[table, ALL_ROWS]
                _add(flows, names[0], rows, rows)
        for count in stages.filters:
            _add(
                flows,
                count.stage,
                self.meeting[count.fact, count.rows_in],
                self.meeting[count.fact, count.rows_out],
            )
        for plan in question_set.partials:
            if plan.stage is not None:
                _add(flows, plan.stage, self.meeting[plan.fact, plan.conditions], self.kept[plan.name])
        return dict(flows)


def _add(flows: dict[tuple[str, int], RowFlow], stage: str, rows_in: ByShard, rows_out: ByShard) -> None:
    for shard in rows_in.keys() | rows_out.keys():
        flows[stage, shard] += RowFlow(rows_in.get(shard, 0), rows_out.get(shard, 0))
