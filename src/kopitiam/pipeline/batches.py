"""One micro-batch: its chunks are checked, their partials computed and written, for all runs at once.

Trouble of one run is its own: it fails with the reason, and the batch is computed again without it.
"""

import functools
import logging
import threading
import uuid
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from kopitiam.contracts.batches import Batch, Partial, Processed, StageRows
from kopitiam.contracts.errors import (
    IllegalTransition,
    PartialsDiffer,
    RunFailed,
    RunNotFound,
    RunOver,
    Unavailable,
)
from kopitiam.contracts.layout import KEYS
from kopitiam.contracts.runs import ChunkRecord, LogEntry, Run, RunState
from kopitiam.landing.chunks import Inspection, chunk_key, inspect
from kopitiam.landing.tidying import try_remove_material
from kopitiam.pipeline import partials
from kopitiam.pipeline.attempts import Attempts, Gate
from kopitiam.pipeline.batch_frames import Share, counts_of_chunk, frames
from kopitiam.pipeline.partials import count_rows
from kopitiam.pipeline.reporting import Stopwatch
from kopitiam.pipeline.source import Descriptors
from kopitiam.pipeline.stage_counts import BatchCounts
from kopitiam.questions.question_set import QuestionSet
from kopitiam.registry.records import Fence
from kopitiam.spark.jobs import (
    SPARK_ERRORS,
    described_jobs,
    failure_of,
    is_stopped,
    tagged_jobs,
    written_rows,
)
from kopitiam.storage.port import Key, StoragePort
from kopitiam.system.crash_points import crash_point
from kopitiam.system.health import Health

if TYPE_CHECKING:
    from kopitiam.registry.registry import Registry

_FOOTERS_AT_ONCE = 8
Written = tuple[list[Partial], list[StageRows]]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BatchWork:
    pipeline: str
    spark: SparkSession
    registry: "Registry"
    storage: StoragePort
    fence: Fence
    stopping: threading.Event
    health: Health = field(default_factory=Health)

    @functools.cached_property
    def attempts(self) -> Attempts:
        """Of all that is at work on this engine."""
        is_dead = functools.partial(is_stopped, self.spark)
        return Attempts(self.registry, self.fence, self.stopping, is_dead, Gate(self.stopping))

    @property
    def is_closing(self) -> bool:
        """Then jobs fail because they were cancelled, which says nothing about their runs."""
        return self.stopping.is_set() or is_stopped(self.spark)

    def process(self, query: str, number: int, found: Descriptors, watch: Stopwatch) -> Batch:
        """Everything but the commit."""
        shares: list[Share] = []
        written: list[Partial] = []
        counted: list[StageRows] = []
        parts = self._parts_apart(self._shares(found.chunks))
        for part, is_alone in parts:
            names = [share.run.run for share in part]
            with self.attempts.trying("batch", names, is_alone) as attempt:
                with watch.lap("check"):
                    sound = [share for share in map(self._inspected, part) if share is not None]
                with watch.lap("compute"):
                    for partials_written, rows_counted in self._write(f"{query}-{number}", sound):
                        written += partials_written
                        counted += rows_counted
            if len(parts) > 1:  # what may end the next part is not to count for this one
                self.attempts.give_back(attempt)
            else:
                self.attempts.uncommitted.append(attempt)
            shares += sound
        processed = tuple(each for share in shares for each in _processed(share))
        return Batch(query, number, found.spans, processed, tuple(written), tuple(counted))

    def _parts_apart(self, shares: list[Share]) -> list[tuple[list[Share], bool]]:
        """Runs under which an attempt ended badly go by themselves; those that had enough attempts fail."""
        by_name = {share.run.run: share for share in shares}
        given_up, suspects = self.attempts.verdicts("batch", by_name)
        for run, reason in given_up.items():
            self._blame(run, reason)
        others = [share for share in shares if share.run.run not in {*given_up, *suspects}]
        apart = [([by_name[run]], True) for run in suspects]
        return [*apart, (others, False)] if others else apart

    def fail(self, run: str, reason: str) -> None:
        _log.warning("run %s: %s", run, reason, extra={"run": run})
        try:
            self.registry.move(run, RunState.FAILED, reason, self.fence)
        except (RunOver, RunNotFound, IllegalTransition):
            return
        self.health.got_on()
        try_remove_material(self.storage, run)

    def _shares(self, chunks: Iterable[LogEntry]) -> list[Share]:
        """By run; chunks of a run that is over are passed by."""
        by_run: dict[str, list[LogEntry]] = defaultdict(list)
        for chunk in chunks:
            by_run[chunk.run].append(chunk)
        return [self._share(run, by_run[run.run]) for run in self._alive(by_run)]

    def _share(self, run: Run, chunks: list[LogEntry]) -> Share:
        records = self._records(run.run, {chunk.table for chunk in chunks})
        files, landed = {}, {}
        for chunk in chunks:
            record = records.get((chunk.table, chunk.number))
            told = (record.digest, record.is_beside) if record else ("unknown", False)
            files[chunk] = chunk_key(self.storage, run.run, chunk, *told)
            landed[chunk] = record.landed if record else None
        return Share(run, files, landed)

    def _records(self, run: str, tables: Iterable[str]) -> dict[tuple[str, int], ChunkRecord]:
        """A store may hold several bodies for a number: what was registered says which counts."""
        try:
            return {(table, c.number): c for table in tables for c in self.registry.chunks(run, table)}
        except RunNotFound:  # forgotten meanwhile
            return {}

    def _alive(self, runs: Iterable[str]) -> list[Run]:
        alive = []
        for name in runs:
            try:
                run = self.registry.get_run(name)
            except RunNotFound:
                continue
            if not run.state.is_over and self._is_readable(run):
                alive.append(run)
        return alive

    def _is_readable(self, run: Run) -> bool:
        """A run of another version whose questions this one cannot read fails."""
        try:
            QuestionSet.of_run(run.questions)
        except RunFailed as error:
            self.fail(run.run, str(error))
            return False
        return True

    def _inspected(self, share: Share) -> Share | None:
        """With what its files show; None if one of them cannot be used, which fails the run."""

        def look(chunk: LogEntry) -> Inspection:
            return inspect(self.storage, share.files[chunk], chunk.rows, share.landed[chunk])

        with ThreadPoolExecutor(_FOOTERS_AT_ONCE, thread_name_prefix="footers") as threads:
            inspections = dict(zip(share.chunks, threads.map(look, share.chunks), strict=True))
        for chunk, inspection in inspections.items():
            if inspection.flaw is not None:
                self._blame(share.run.run, f"{chunk.table} chunk {chunk.number} {inspection.flaw}")
                return None
        return replace(share, inspections=inspections)

    def _blame(self, run: str, reason: str) -> None:
        """Unless storage is away, or full: then it is no fault of the run, and the batch comes again."""
        self.storage.check()
        self.fail(run, reason)

    def _write(self, batch: str, shares: list[Share]) -> list[Written]:
        """The partials of these runs, by one Spark job or, after trouble, by several."""
        computed = [share for share in shares if share.has_facts]
        if not computed:
            return [([], self._counts(shares, []))]
        target = KEYS.partials_of(self.pipeline) / f"batch={batch}-{uuid.uuid4().hex[:8]}"
        names = [share.run.run for share in computed]
        try:
            with tagged_jobs(self.spark, names):
                with described_jobs(self.spark, target.name):
                    partials.write(frames(self.spark, self.storage, computed), self.storage.url(target))
                written = self._written_rows(target.name, computed)
        except SPARK_ERRORS as error:
            self.storage.remove(target)
            if self.is_closing:
                raise
            failure = failure_of(error)
            if isinstance(failure, Unavailable):
                raise failure from error
            return self._write_again(batch, shares, failure)
        crash_point("batch.written")
        return [self._kept(target, shares, written)]

    def _write_again(self, batch: str, shares: list[Share], failure: RunFailed) -> list[Written]:
        """Without the runs that ended meanwhile, whose jobs were cancelled; else run by run."""
        alive = {run.run for run in self._alive(share.run.run for share in shares)}
        if len(alive) < len(shares):
            return self._write(batch, [share for share in shares if share.run.run in alive])
        if len(shares) > 1:
            return [written for share in shares for written in self._write(batch, [share])]
        self._blame(shares[0].run.run, str(failure))
        return []

    def _written_rows(self, batch: str, shares: list[Share]) -> int:
        """The rows that Spark wrote. If its metrics are lost, a second job computes and counts them again."""
        written = written_rows(self.spark, batch)
        if written is not None:
            return written
        _log.warning("Spark's metrics of %s are lost; its rows are counted by a second job", batch)
        return partials.count(frames(self.spark, self.storage, shares))

    def _kept(self, target: Key, shares: list[Share], written: int) -> Written:
        """Makes partials durable, before the registry lists them.

        Raises PartialsDiffer unless the files have as many rows as Spark wrote.
        """
        folders = self.storage.find(f"{target}/run=*/kind=*")
        try:
            rows = {folder: count_rows(self.storage, folder) for folder in folders}
            if (there := sum(rows.values())) != written:
                raise PartialsDiffer(f"partials of a batch have {there} rows, and Spark wrote {written}")
            counts = self._counts(shares, folders)
            partial_rows = {folder: count for folder, count in rows.items() if not _is_count(folder)}
            for folder in rows.keys() - partial_rows.keys():
                self.storage.remove(folder)  # it is committed with the batch
            if partial_rows:
                self.storage.settle(target)
            else:
                self.storage.remove(target)  # no row of the batch is asked about
        except (OSError, Unavailable, PartialsDiffer):
            self.storage.remove(target)
            raise
        kept = [
            Partial(_run_of(folder), str(folder.relative_to(KEYS.partials)), rows=count)
            for folder, count in partial_rows.items()
        ]
        return kept, counts

    def _counts(self, shares: list[Share], folders: list[Key]) -> list[StageRows]:
        counts = {share.run.run: BatchCounts(share.asked, share.run.run) for share in shares}
        for share in shares:
            for chunk in share.chunks:
                counts[share.run.run].add_chunk(chunk, counts_of_chunk(share, chunk) or {})
        for folder in folders:
            of_run, kind = counts[_run_of(folder)], partials.kind_of(str(folder))
            files = self.storage.find(f"{folder}/part-*")
            if (fact := partials.counted_fact(kind)) is not None:
                of_run.add_counts(self.storage, fact, files)
            else:
                plan = next(plan for plan in of_run.asked.partials if plan.name == kind)
                of_run.add_partial(self.storage, plan, files)
        return [rows for of_run in counts.values() for rows in of_run.stage_rows()]


def _is_count(folder: Key) -> bool:
    return partials.counted_fact(partials.kind_of(str(folder))) is not None


def _run_of(folder: Key) -> str:
    return folder.parent.name.removeprefix("run=")


def _processed(share: Share) -> list[Processed]:
    counts: dict[tuple[str, int], list[int]] = defaultdict(list)
    for chunk in share.chunks:
        counts[chunk.table, chunk.shard].append(chunk.rows)
    return [
        Processed(share.run.run, table, shard, len(rows), sum(rows))
        for (table, shard), rows in counts.items()
    ]
