"""One micro-batch: its chunks are checked, their partials computed and written, for all runs at once.

Trouble of one run is its own: it fails with the reason, and the batch is computed again without it.
"""

import functools
import logging
import threading
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kopitiam.contracts.batches import Batch, Partial, Processed
from kopitiam.contracts.crash_points import crash_point
from kopitiam.contracts.errors import (
    IllegalTransition,
    PartialsDiffer,
    RunFailed,
    RunNotFound,
    RunOver,
    Unavailable,
)
from kopitiam.contracts.health import Health
from kopitiam.contracts.questions import Questions
from kopitiam.contracts.runs import ChunkRecord, LogEntry, Run, RunState
from kopitiam.landing.chunks import chunk_key, flaw_of
from kopitiam.landing.layout import KEYS
from kopitiam.landing.tidying import let_go
from kopitiam.pipeline import partials
from kopitiam.pipeline.attempts import Attempts, Gate
from kopitiam.pipeline.counting import count_rows, described, written_rows
from kopitiam.pipeline.failures import SPARK_FAILED, failure_of, is_stopped, jobs_of
from kopitiam.pipeline.parallelism import tasks_at_once
from kopitiam.pipeline.questions import partials_of_items, partials_of_transactions
from kopitiam.pipeline.source import Descriptors
from kopitiam.pipeline.stopwatch import Stopwatch
from kopitiam.pipeline.tables import read_table
from kopitiam.registry.port import Fence, RegistryPort
from kopitiam.storage.port import Key, StoragePort

_COMPUTED = {  # the other tables wait for the final step
    "transactions": partials_of_transactions,
    "transaction_items": partials_of_items,
}
_FOOTERS_AT_ONCE = 8
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Share:
    """What a batch holds of one run, and where it lies."""

    run: Run
    files: Mapping[LogEntry, Key]
    landed: Mapping[LogEntry, str | None]  # the digests that these files were registered with

    @property
    def chunks(self) -> tuple[LogEntry, ...]:
        return tuple(self.files)

    @property
    def questions(self) -> Questions:
        return Questions.from_dict(self.run.questions)


@dataclass(frozen=True)
class BatchWork:
    pipeline: str
    spark: SparkSession
    registry: RegistryPort
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
        shares, written = [], []
        parts = self._parts_apart(self._shares(found.chunks))
        for part, is_alone in parts:
            names = [share.run.run for share in part]
            with self.attempts.trying("batch", names, is_alone) as attempt:
                with watch.lap("check"):
                    sound = [share for share in part if self._is_sound(share)]
                with watch.lap("compute"):
                    written += self._write(f"{query}-{number}", sound)
            if len(parts) > 1:  # what may end the next part is not to count for this one
                self.attempts.give_back(attempt)
            else:
                self.attempts.uncommitted.append(attempt)
            shares += sound
        processed = tuple(each for share in shares for each in _processed(share))
        return Batch(query, number, found.spans, processed, tuple(written))

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
        let_go(self.storage, run)

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
            if not run.state.is_over:
                alive.append(run)
        return alive

    def _is_sound(self, share: Share) -> bool:
        """The rows that are there are those that were registered; what is counted is what was seen."""
        with ThreadPoolExecutor(_FOOTERS_AT_ONCE, thread_name_prefix="footers") as threads:
            flaws = list(threads.map(partial(self._flaw, share), share.chunks))
        for chunk, flaw in zip(share.chunks, flaws, strict=True):
            if flaw is not None:
                self._blame(share.run.run, f"{chunk.table} chunk {chunk.number} {flaw}")
                return False
        return True

    def _flaw(self, share: Share, chunk: LogEntry) -> str | None:
        return flaw_of(self.storage, share.files[chunk], chunk.rows, share.landed[chunk])

    def _blame(self, run: str, reason: str) -> None:
        """Unless storage is away, or full: then it is no fault of the run, and the batch comes again."""
        self.storage.check()
        self.fail(run, reason)

    def _write(self, batch: str, shares: list[Share]) -> list[Partial]:
        computed = [share for share in shares if any(chunk.table in _COMPUTED for chunk in share.chunks)]
        if not computed:
            return []
        target = KEYS.partials_of(self.pipeline) / f"batch={batch}-{uuid.uuid4().hex[:8]}"
        names = [share.run.run for share in computed]
        try:
            with jobs_of(self.spark, names), described(self.spark, target.name):
                partials.write(self._partials(computed), self.storage.url(target))
        except SPARK_FAILED as error:
            self.storage.remove(target)
            if self.is_closing:
                raise
            failure = failure_of(error)
            if isinstance(failure, Unavailable):
                raise failure from error
            return self._write_again(batch, computed, failure)
        crash_point("batch.written")
        return self._kept(target)

    def _write_again(self, batch: str, shares: list[Share], failure: RunFailed) -> list[Partial]:
        """Without the runs that ended meanwhile, whose jobs were cancelled; else run by run."""
        alive = {run.run for run in self._alive(share.run.run for share in shares)}
        if len(alive) < len(shares):
            return self._write(batch, [share for share in shares if share.run.run in alive])
        if len(shares) > 1:
            return [partial for share in shares for partial in self._write(batch, [share])]
        self._blame(shares[0].run.run, str(failure))
        return []

    def _partials(self, shares: list[Share]) -> list[tuple[str, DataFrame]]:
        """By kind; of runs that ask the same at once, for each task that may work beside others.

        A task aggregates its own files, and nothing is shuffled: partials add up however they are cut.
        """
        return [
            (kind, _named(group, partial))
            for group in _by_questions(shares)
            for table, partials_of in _COMPUTED.items()
            for part in self._parts(group, table)
            for kind, partial in partials_of(part, group[0].questions).items()
        ]

    def _parts(self, shares: list[Share], table: str) -> list[DataFrame]:
        """None of a table that the batch has nothing of: even an empty task takes its time."""
        keys = [key for share in shares for chunk, key in share.files.items() if chunk.table == table]
        files, landing = [self.storage.url(key) for key in keys], self.storage.url(KEYS.landing)
        tasks = min(tasks_at_once(self.spark), len(files))
        parts = [read_table(self.spark, landing, table, files[task::tasks]) for task in range(tasks)]
        return [(part if len(shares) > 1 else part.drop("run")).coalesce(1) for part in parts]

    def _kept(self, target: Key) -> list[Partial]:
        """Durable before the registry hears of them."""
        folders = self.storage.find(f"{target}/run=*/kind=*")
        try:
            rows = {folder: count_rows(self.storage, folder) for folder in folders}
            self._want_all(target.name, sum(rows.values()))
            if folders:
                self.storage.settle(target)
            else:
                self.storage.remove(target)  # no row of the batch is asked about
        except (OSError, Unavailable, PartialsDiffer):
            self.storage.remove(target)
            raise
        return [
            Partial(
                folder.parent.name.removeprefix("run="), str(folder.relative_to(KEYS.partials)), rows=count
            )
            for folder, count in rows.items()
        ]

    def _want_all(self, batch: str, rows: int) -> None:
        """What lies there is what Spark says it wrote; nothing at all too."""
        written = written_rows(self.spark, batch)
        if written is not None and written != rows:
            raise PartialsDiffer(f"partials of a batch have {rows} rows, and Spark wrote {written}")


def _named(shares: list[Share], partial: DataFrame) -> DataFrame:
    """A single run is named at last: as a key of every row it would take a sixth more time."""
    return partial if len(shares) > 1 else partial.withColumn("run", f.lit(shares[0].run.run))


def _by_questions(shares: list[Share]) -> list[list[Share]]:
    groups: dict[Questions, list[Share]] = defaultdict(list)
    for share in shares:
        groups[share.questions].append(share)
    return list(groups.values())


def _processed(share: Share) -> list[Processed]:
    counts: dict[tuple[str, int], list[int]] = defaultdict(list)
    for chunk in share.chunks:
        counts[chunk.table, chunk.shard].append(chunk.rows)
    return [
        Processed(share.run.run, table, shard, len(rows), sum(rows))
        for (table, shard), rows in counts.items()
    ]
