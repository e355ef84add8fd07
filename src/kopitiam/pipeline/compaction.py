"""Partials of a run that grow many are merged on the way, so that the final step depends on how much there
is to know, not on the number of batches.

Eight of one level make one of the next: each row is written again as often as the levels grow, which is
the logarithm of the number of batches.
"""

import shutil
import uuid
from collections import defaultdict
from dataclasses import dataclass, replace

from kopitiam.contracts.batches import Partial
from kopitiam.contracts.crash_points import crash_point
from kopitiam.landing.tidying import remove_partial
from kopitiam.landing.writer import sync_tree
from kopitiam.pipeline import partials
from kopitiam.pipeline.batches import BatchWork
from kopitiam.pipeline.failures import SPARK_FAILED, jobs_of
from kopitiam.registry.port import Fence

FAN_IN = 8


@dataclass(frozen=True)
class Compaction:
    work: BatchWork
    fence: Fence

    def compact(self, run: str) -> None:
        """Trouble here is no trouble of the run: what could not be merged is left as it is."""
        crowded = [group for group in _levels(self.work.registry.partials(run)) if len(group) >= FAN_IN]
        for group in crowded:
            try:
                self._merge(run, group)
            except SPARK_FAILED:
                if self.work.is_closing:
                    raise

    def _merge(self, run: str, group: list[Partial]) -> None:
        home, kind = self.work.home, partials.kind_of(group[0].path)
        batch = home.partials_of(self.work.pipeline) / f"batch=merge-{uuid.uuid4().hex}"
        target = batch / f"run={run}" / f"kind={kind}"
        try:
            with jobs_of(self.work.spark, [run]):
                frame = partials.read(self.work.spark, home.partials, kind, [each.path for each in group])
                partials.merged(kind, frame).write.parquet(str(target))
            sync_tree(batch)
        except BaseException:
            shutil.rmtree(batch, ignore_errors=True)
            raise
        crash_point("merge.written")
        new = replace(group[0], path=str(target.relative_to(home.partials)), level=group[0].level + 1)
        is_replaced = self.work.registry.replace_partials(run, [old.path for old in group], new, self.fence)
        crash_point("merge.committed")
        for gone in [home.partials / old.path for old in group] if is_replaced else [target]:
            remove_partial(gone)


def _levels(found: list[Partial]) -> list[list[Partial]]:
    groups: dict[tuple[str, int], list[Partial]] = defaultdict(list)
    for partial in found:
        groups[partials.kind_of(partial.path), partial.level].append(partial)
    return list(groups.values())
