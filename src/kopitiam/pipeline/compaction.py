"""Merges partials of a run while it is uploaded, so that the cost of the final step does not grow with the
number of batches.

Eight partials of one level become one of the next. Each row is thus rewritten once for each level, and the
number of levels is the logarithm of the number of batches.
"""

import logging
import math
import uuid
from collections import defaultdict
from dataclasses import dataclass, replace

from kopitiam.contracts.batches import Partial
from kopitiam.contracts.errors import PartialsDiffer
from kopitiam.contracts.layout import KEYS
from kopitiam.landing.tidying import remove_partial
from kopitiam.pipeline import partials
from kopitiam.pipeline.batches import BatchWork
from kopitiam.pipeline.compiler.partials import merged
from kopitiam.pipeline.partials import Footers, count_rows, stored_footers
from kopitiam.questions.plans import PartialPlan
from kopitiam.questions.question_set import QuestionSet
from kopitiam.spark.jobs import SPARK_ERRORS, described_jobs, size_shuffles, tagged_jobs, written_rows
from kopitiam.system.crash_points import crash_point

FAN_IN = 8
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Compaction:
    work: BatchWork

    def compact(self, run: str) -> None:
        """Merges the levels of the run that are full. Partials that cannot be merged stay as they are."""
        question_set = QuestionSet.of_run(self.work.registry.get_run(run).questions)
        plans = {plan.name: plan for plan in question_set.partials}
        own = [partial for partial in self.work.registry.partials(run) if partial.kept_as is None]
        levels = _levels(own)
        full = [group for group in levels if len(group) >= FAN_IN and _kind(group) in plans]
        for group in full:
            try:
                with self.work.attempts.gate.passing():
                    self._merge(run, plans[_kind(group)], group)
            except PartialsDiffer as error:  # the final step fails if this persists
                _log.warning("run %s is not merged: %s", run, error, extra={"run": run})
            except SPARK_ERRORS:
                if self.work.is_closing:
                    raise

    def _merge(self, run: str, plan: PartialPlan, group: list[Partial]) -> None:
        storage = self.work.storage
        batch = KEYS.partials_of(self.work.pipeline) / f"batch=merge-{uuid.uuid4().hex}"
        target = batch / f"run={group[0].origin or run}" / f"kind={plan.name}"
        paths = [old.path for old in group]
        by_path = stored_footers(storage, group)
        files = [storage.url(file) for footers in by_path.values() for file in footers.files]
        try:
            size_shuffles(self.work.spark)
            with tagged_jobs(self.work.spark, [run]), described_jobs(self.work.spark, batch.name):
                frame = partials.read(self.work.spark, storage.url(KEYS.partials), plan, files)
                frame.transform(merged(plan)).write.parquet(storage.url(target))
            is_grouped = group[0].level > 0  # a batch may keep rows as they are, a merge never
            least = max(map(_rows_of_a_file, by_path.values())) if is_grouped else 1
            rows = self._merged_rows(plan, group, batch.name, least, count_rows(storage, target))
            storage.settle(batch)
        except BaseException:
            storage.remove(batch)
            raise
        crash_point("merge.written")
        path, level = str(target.relative_to(KEYS.partials)), group[0].level + 1
        new = replace(group[0], path=path, level=level, rows=rows)
        is_replaced = self.work.registry.replace_partials(run, paths, new, self.work.fence)
        crash_point("merge.committed")
        for obsolete in [KEYS.partials / path for path in paths] if is_replaced else [target]:
            remove_partial(storage, obsolete)

    def _merged_rows(self, plan: PartialPlan, group: list[Partial], batch: str, least: int, rows: int) -> int:
        """Returns `rows`, the rows of the merged files, if Spark wrote as many. Raises PartialsDiffer if not,
        or if its metrics are lost: then the partials stay as they are.

        A merge keeps all listed rows. It makes at most as many groups as it reads, and of merged partials at
        least as many as the largest file has: files of one partial, written by several tasks, may have the
        same groups.
        """
        written = written_rows(self.work.spark, batch)
        most = sum(old.rows for old in group)
        if plan.lists_rows:
            least = most
        is_counted = all(old.rows for old in group)
        if written != rows or (is_counted and not least <= rows <= most):
            wrote = "an unknown number" if written is None else str(written)
            raise PartialsDiffer(
                f"merged partials of {plan.name} have {rows} rows of {most}, Spark wrote {wrote}"
            )
        return rows


def _rows_of_a_file(footers: Footers) -> int:
    """The rows of the largest file, or fewer."""
    return math.ceil(footers.total / max(1, len(footers.files)))


def _kind(group: list[Partial]) -> str:
    return group[0].kind


def _levels(of_run: list[Partial]) -> list[list[Partial]]:
    """Partials of one data file stay together: a later run may use them again."""
    groups: dict[tuple[str | None, str, int], list[Partial]] = defaultdict(list)
    for partial in of_run:
        groups[partial.origin, partial.kind, partial.level].append(partial)
    return list(groups.values())
