"""One micro-batch: checks its chunks, computes and writes their partials, for all runs at once.

A run with a bad chunk fails alone, and the batch is computed again without it.
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

from kopitiam.contracts.batches import Batch, Partial, Processed, kind_of
from kopitiam.contracts.errors import (
    IllegalTransition,
    JobFailed,
    PartialsDiffer,
    RunFailed,
    RunNotFound,
    RunOver,
    Unavailable,
)
from kopitiam.contracts.layout import KEYS, owner_of
from kopitiam.contracts.runs import ChunkRecord, LogEntry, Run, RunState
from kopitiam.landing.chunks import Inspection, chunk_key, inspect
from kopitiam.landing.tidying import try_remove_material
from kopitiam.pipeline import partials
from kopitiam.pipeline.attempts import Attempts, Gate
from kopitiam.pipeline.batch_frames import Share, counts_of_chunk, frames, without_shared_files
from kopitiam.pipeline.partials import count_rows
from kopitiam.pipeline.reporting import Stopwatch
from kopitiam.pipeline.source import Descriptors
from kopitiam.pipeline.stage_counts import BatchCounts, Written
from kopitiam.questions.question_set import QuestionSet
from kopitiam.registry.records import Fence
from kopitiam.spark.executor_storage import ExecutorStorage
from kopitiam.spark.jobs import (
    SPARK_ERRORS,
    described_jobs,
    failure_of,
    is_stopped,
    size_shuffles,
    tagged_jobs,
    written_rows,
)
from kopitiam.storage.port import Key, StoragePort
from kopitiam.system.crash_points import crash_point
from kopitiam.system.health import Health

if TYPE_CHECKING:
    from kopitiam.registry.registry import Registry

_FOOTERS_AT_ONCE = 8
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BatchWork:
    """The context that batches, merges and final steps share, and the work of a batch up to its commit."""

    pipeline: str
    spark: SparkSession
    registry: "Registry"
    storage: StoragePort
    fence: Fence
    stopping: threading.Event
    health: Health = field(default_factory=Health)
    executors: ExecutorStorage | None = None  # of a cluster

    @functools.cached_property
    def attempts(self) -> Attempts:
        """The attempts at all steps on this engine."""
        is_dead = functools.partial(is_stopped, self.spark)
        return Attempts(self.registry, self.fence, self.stopping, is_dead, Gate(self.stopping))

    @property
    def is_closing(self) -> bool:
        """Whether the pipeline stops or its engine died: then failures of jobs say nothing about their
        runs."""
        return self.stopping.is_set() or is_stopped(self.spark)

    def process(self, query: str, number: int, descriptors: Descriptors, watch: Stopwatch) -> Batch:
        """Computes a batch and writes its partials; the caller commits it."""
        shares: list[Share] = []
        written = Written()
        parts = self._split_suspects(self._shares(descriptors.chunks))
        for part, is_alone in parts:
            names = [share.run.run for share in part]
            with self.attempts.trying("batch", names, is_alone) as attempt:
                with watch.lap("check"):
                    sound = [share for share in map(self._inspected, part) if share is not None]
                with watch.lap("compute"):
                    for group in without_shared_files(sound):
                        written += self._write(f"{query}-{number}", group)
            if len(parts) > 1:  # a failure of the next part must not count for this one
                self.attempts.withdraw(attempt)
            else:
                self.attempts.uncommitted.append(attempt)
            shares += sound
        processed = tuple(counts for share in shares for counts in _processed(share))
        outcome = (processed, tuple(written.partials), written.stage_rows, written.file_rows)
        return Batch(query, number, descriptors.spans, *outcome)

    def _split_suspects(self, shares: list[Share]) -> list[tuple[list[Share], bool]]:
        """Runs with failed attempts are processed alone; those without attempts left fail."""
        by_name = {share.run.run: share for share in shares}
        given_up, suspects = self.attempts.verdicts("batch", by_name)
        for run, reason in given_up.items():
            self._fail_if_storage_works(run, reason)
        others = [share for share in shares if share.run.run not in {*given_up, *suspects}]
        alone = [([by_name[run]], True) for run in suspects]
        return [*alone, (others, False)] if others else alone

    def fail(self, run: str, reason: str) -> None:
        """Fails the run and removes its files, unless it is over."""
        _log.warning("run %s: %s", run, reason, extra={"run": run})
        try:
            self.registry.move(run, RunState.FAILED, reason, self.fence)
        except (RunOver, RunNotFound, IllegalTransition):
            return
        self.health.record_progress()
        try_remove_material(self.storage, run)

    def _shares(self, chunks: Iterable[LogEntry]) -> list[Share]:
        """The chunks by run, without those of runs that are over."""
        by_run: dict[str, list[LogEntry]] = defaultdict(list)
        for chunk in chunks:
            by_run[chunk.run].append(chunk)
        return [self._share(run, by_run[run.run]) for run in self._unfinished_runs(by_run)]

    def _share(self, run: Run, chunks: list[LogEntry]) -> Share:
        records = self._records(run.run, {chunk.table for chunk in chunks})
        files, landed = {}, {}
        for chunk in chunks:
            record = records.get((chunk.table, chunk.number)) or _unregistered(chunk)
            files[chunk] = chunk_key(self.storage, run.run, record)
            landed[chunk] = record.landed
        return Share(run, files, landed)

    def _records(self, run: str, tables: Iterable[str]) -> dict[tuple[str, int], ChunkRecord]:
        """Registered chunks by table and number: of several stored bodies, the registered one counts."""
        try:
            return {(table, c.number): c for table in tables for c in self.registry.chunks(run, table)}
        except RunNotFound:  # it was deleted meanwhile
            return {}

    def _unfinished_runs(self, runs: Iterable[str]) -> list[Run]:
        unfinished = []
        for name in runs:
            try:
                run = self.registry.get_run(name)
            except RunNotFound:
                continue
            if not run.state.is_over and self._is_readable(run):
                unfinished.append(run)
        return unfinished

    def _is_readable(self, run: Run) -> bool:
        """Fails a run of another version if this one cannot read its questions."""
        try:
            QuestionSet.of_run(run.questions)
        except RunFailed as error:
            self.fail(run.run, str(error))
            return False
        return True

    def _inspected(self, share: Share) -> Share | None:
        """The share with the bounds that its files show; None if a file is unusable, which fails the run."""

        def inspect_chunk(chunk: LogEntry) -> Inspection:
            return inspect(self.storage, share.files[chunk], chunk.rows, share.landed[chunk])

        with ThreadPoolExecutor(_FOOTERS_AT_ONCE, thread_name_prefix="footers") as threads:
            inspections = dict(zip(share.chunks, threads.map(inspect_chunk, share.chunks), strict=True))
        for chunk, inspection in inspections.items():
            if inspection.flaw is not None:
                flaw = f"{chunk.table} chunk {chunk.number} {inspection.flaw}"
                self._fail_if_storage_works(share.run.run, flaw)
                return None
        return replace(share, inspections=inspections)

    def _fail_if_storage_works(self, run: str, reason: str) -> None:
        self.check_storage()
        self.fail(run, reason)

    def check_storage(self) -> None:
        """Called when a step has failed. Raises Unavailable if the storage is down or full, or an executor
        does not see it: the run is not the cause, and the step is retried."""
        self.storage.check()
        if self.executors is not None:
            self.executors.require_all()

    def _write(self, batch: str, shares: list[Share]) -> Written:
        """Writes the partials of these runs: by one Spark job, or by several after a failure."""
        computed = [share for share in shares if share.has_facts]
        if not computed:
            return Written(counts=self._counts(shares, []))
        target = KEYS.partials_of(self.pipeline) / f"batch={batch}-{uuid.uuid4().hex[:8]}"
        names = [share.run.run for share in computed]
        try:
            size_shuffles(self.spark)
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
        return self._settle(target, shares, written)

    def _write_again(self, batch: str, shares: list[Share], failure: RunFailed) -> Written:
        """Tries again without the runs that ended meanwhile, whose jobs were cancelled; else run by run."""
        unfinished = {run.run for run in self._unfinished_runs(share.run.run for share in shares)}
        if len(unfinished) < len(shares):
            return self._write(batch, [share for share in shares if share.run.run in unfinished])
        written = Written()
        if len(shares) > 1:
            for share in shares:
                written += self._write(batch, [share])
            return written
        self.check_storage()
        if self.executors is not None:
            raise JobFailed(str(failure))
        self.fail(shares[0].run.run, str(failure))
        return written

    def _written_rows(self, batch: str, shares: list[Share]) -> int:
        """The rows that Spark wrote. If its metrics are lost, a second job computes and counts them again."""
        written = written_rows(self.spark, batch)
        if written is not None:
            return written
        _log.warning("Spark's metrics of %s are lost; a second job counts its rows", batch)
        return partials.count(frames(self.spark, self.storage, shares))

    def _settle(self, target: Key, shares: list[Share], written: int) -> Written:
        """Makes partials durable, before the registry lists them.

        Raises PartialsDiffer unless the files have as many rows as Spark wrote.
        """
        folders = self.storage.find(f"{target}/run=*/kind=*")
        try:
            rows = {folder: count_rows(self.storage, folder) for folder in folders}
            if (stored := sum(rows.values())) != written:
                self.check_storage()
                raise PartialsDiffer(f"partials of a batch have {stored} rows, and Spark wrote {written}")
            counts = self._counts(shares, folders)
            partial_rows = {folder: count for folder, count in rows.items() if not _is_count(folder)}
            for folder in rows.keys() - partial_rows.keys():
                self.storage.remove(folder)  # counts are committed with the batch, not as files
            if partial_rows:
                self.storage.settle(target)
            else:
                self.storage.remove(target)  # no question uses a row of the batch
        except (OSError, Unavailable, PartialsDiffer):
            self.storage.remove(target)
            raise
        runs = {owner: share.run.run for share in shares for owner in share.owners}
        settled = [
            Partial(
                run=runs[owner],
                path=str(folder.relative_to(KEYS.partials)),
                rows=count,
                origin=None if runs[owner] == owner else owner,
            )
            for folder, count in partial_rows.items()
            for owner in [owner_of(folder)]
        ]
        return Written(settled, counts)

    def _counts(self, shares: list[Share], folders: list[Key]) -> list[BatchCounts]:
        counts: dict[str, BatchCounts] = {}
        for share in shares:
            for owner in share.owners:
                counts[owner] = BatchCounts(share.question_set, share.run.run, owner)
            for chunk in share.chunks:
                counts[share.owner(chunk)].add_chunk(chunk, counts_of_chunk(share, chunk) or {})
        for folder in folders:
            of_owner, kind = counts[owner_of(folder)], kind_of(str(folder))
            files = self.storage.find(f"{folder}/part-*")
            if (fact := partials.counted_fact(kind)) is not None:
                of_owner.add_counts(self.storage, fact, files)
            else:
                plan = next(plan for plan in of_owner.question_set.partials if plan.name == kind)
                of_owner.add_partial(self.storage, plan, files)
        return list(counts.values())


def _unregistered(chunk: LogEntry) -> ChunkRecord:
    """A chunk whose record was deleted meanwhile: its run is over."""
    figures = (chunk.rows, chunk.bytes, 0, chunk.lane, chunk.sequence)
    return ChunkRecord(chunk.table, chunk.number, "unknown", *figures)


def _is_count(folder: Key) -> bool:
    return partials.counted_fact(kind_of(str(folder))) is not None


def _processed(share: Share) -> list[Processed]:
    counts: dict[tuple[str, int], list[int]] = defaultdict(list)
    for chunk in share.chunks:
        counts[chunk.table, chunk.shard].append(chunk.rows)
    return [
        Processed(share.run.run, table, shard, len(rows), sum(rows))
        for (table, shard), rows in counts.items()
    ]
