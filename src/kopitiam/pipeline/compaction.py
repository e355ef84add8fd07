"""Partials of a run that grow many are merged on the way, so that the final step depends on how much there
is to know, not on the number of batches.

Eight of one level make one of the next: each row is written again as often as the levels grow, which is
the logarithm of the number of batches.
"""

import uuid
from collections import defaultdict
from dataclasses import dataclass, replace

from kopitiam.contracts.batches import Partial
from kopitiam.contracts.crash_points import crash_point
from kopitiam.landing.layout import KEYS
from kopitiam.landing.tidying import remove_partial
from kopitiam.pipeline import partials
from kopitiam.pipeline.batches import BatchWork
from kopitiam.pipeline.failures import SPARK_FAILED, jobs_of

FAN_IN = 8


@dataclass(frozen=True)
class Compaction:
    work: BatchWork

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
        storage, kind = self.work.storage, partials.kind_of(group[0].path)
        batch = KEYS.partials_of(self.work.pipeline) / f"batch=merge-{uuid.uuid4().hex}"
        target = batch / f"run={run}" / f"kind={kind}"
        paths = [old.path for old in group]
        try:
            with jobs_of(self.work.spark, [run]):
                home = storage.url(KEYS.partials)
                frame = partials.read(self.work.spark, home, kind, paths)
                partials.merged(kind, frame).write.parquet(storage.url(target))
            storage.settle(batch)
        except BaseException:
            storage.remove(batch)
            raise
        crash_point("merge.written")
        new = replace(group[0], path=str(target.relative_to(KEYS.partials)), level=group[0].level + 1)
        is_replaced = self.work.registry.replace_partials(run, paths, new, self.work.fence)
        crash_point("merge.committed")
        for gone in [KEYS.partials / path for path in paths] if is_replaced else [target]:
            remove_partial(storage, gone)


def _levels(found: list[Partial]) -> list[list[Partial]]:
    groups: dict[tuple[str, int], list[Partial]] = defaultdict(list)
    for partial in found:
        groups[partials.kind_of(partial.path), partial.level].append(partial)
    return list(groups.values())
