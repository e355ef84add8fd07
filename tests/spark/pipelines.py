"""A pipeline in the process of the test, which drives its stream and final steps."""

import csv
import functools
import hashlib
import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from chunked_sales import Chunk, in_normal_form
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import Row, SparkSession

from kopitiam.contracts.batches import Batch
from kopitiam.contracts.layout import KEYS, Home
from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.runs import RunState
from kopitiam.contracts.tables import Table
from kopitiam.landing.chunks import encode
from kopitiam.pipeline import batches, compaction, finalize, stream
from kopitiam.pipeline.batches import BatchWork
from kopitiam.pipeline.compaction import Compaction
from kopitiam.pipeline.finalize import Finalizer
from kopitiam.pipeline.reporting import Stopwatch
from kopitiam.pipeline.source import SCHEMA, ChunkLogReader, Descriptors, LogBounds
from kopitiam.pipeline.stream import Stream
from kopitiam.questions.catalog import builtin
from kopitiam.questions.question_set import QuestionSet
from kopitiam.registry import Fence, open_registry
from kopitiam.registry.registry import connect_registry
from kopitiam.storage.local import LocalStorage
from kopitiam.storage.port import Key, StoragePort

NAME = "pipeline-1"
FOR_LONG = 1e9
WHOLE = 1 << 30  # bytes: more than any test has
LOG_ROW = Row(*(column.split()[0] for column in SCHEMA.split(", ")))
Answers = dict[str, list[tuple[str, ...]]]


class Killed(Exception):
    """Ends a part of this process as a crash would."""


@contextmanager
def dying_at(point: str, nth: int = 1) -> Iterator[None]:
    """Raises Killed where this crash point is passed for the n-th time in the block, and expects it."""
    passed = 0

    def crash_point(name: str) -> None:
        nonlocal passed
        passed += name == point
        if name == point and passed == nth:
            raise Killed(point)

    with ExitStack() as patches:
        for module in (batches, compaction, finalize, stream):
            patches.enter_context(patch.object(module, "crash_point", crash_point))
        with pytest.raises((Killed, StreamingQueryException), match=point):
            yield


class Pipeline:
    """Another one with the same path takes over from this one, as the next process of a pipeline does."""

    def __init__(
        self,
        spark: SparkSession,
        path: Path,
        *,
        shards: int = 1,
        max_chunks: int = 100,
        max_bytes: int = WHOLE,
        storage: StoragePort | None = None,
    ) -> None:
        self.home, self.registry, self.shards = Home(path), open_registry("sqlite", path), shards
        self.storage = storage or LocalStorage(path)
        self.fence = Fence(NAME, self.registry.take_over(NAME, "holder", FOR_LONG), "holder")
        self.stopping = threading.Event()
        self.work = BatchWork(NAME, spark, self.registry, self.storage, self.fence, self.stopping)
        self.checkpoint = self.home.checkpoint(NAME, range(shards))
        self.committed: list[Batch] = []
        self._query, self._numbers = f"by hand {uuid.uuid4().hex}", itertools.count()
        self.on_committed: Callable[[Batch], None] = lambda _: None
        (path / "scratch").mkdir(exist_ok=True)
        self.finalizer = Finalizer(self.work, path / "scratch")
        self.compaction = Compaction(self.work)
        self.stream = Stream(
            self.work,
            functools.partial(connect_registry, "sqlite", path),
            LogBounds(tuple(range(shards)), max_chunks, max_bytes),
            self.checkpoint,
            self._committed,
        )

    def _committed(self, batch: Batch) -> None:
        self.committed.append(batch)
        self.on_committed(batch)

    def open(self, questions: Parameters | QuestionSet | None = None) -> str:
        opened = self.registry.open_run(
            (questions or Parameters()).to_dict(),
            "",
            "me",
            idempotency_key=None,
            lease_seconds=FOR_LONG,
            shards=self.shards,
        )
        return opened.run.run

    def put(self, run: str, chunk: Chunk, registered_rows: int | None = None) -> Key:
        return self.put_table(
            run, chunk.table, chunk.number, in_normal_form(chunk.table, chunk.rows), registered_rows
        )

    def form(self, run: str, table: str) -> Table:
        return QuestionSet.from_dict(self.registry.get_run(run).questions).tables[table]

    def put_table(
        self,
        run: str,
        table: str,
        number: int,
        rows: pa.Table,
        registered_rows: int | None = None,
        *,
        encode: Callable[[Table, pa.Table], bytes] = encode,
    ) -> Key:
        """Stores and registers a chunk, and returns its key."""
        digest, content = f"{table}-{number}", encode(self.form(run, table), rows)
        key = self.storage.name_of(KEYS.chunk(run, table, number % self.shards, number), digest)
        self.storage.replace(key, content)
        self.registry.register_chunk(
            run,
            table,
            number,
            digest=digest,
            rows=rows.num_rows if registered_rows is None else registered_rows,
            bytes=len(content),
            rejected=0,
            landed=hashlib.sha256(content).hexdigest(),
        )
        return key

    def seal(self, run: str) -> None:
        """Ends every table with the chunks that are durable now."""
        for table, state in self.registry.table_states(run).items():
            assert self.registry.end_table(run, table, state.chunks, state.rows).sealed

    def upload(self, chunks: Iterable[Chunk], questions: Parameters | QuestionSet | None = None) -> str:
        """Uploads a run, from its first chunk to its last END."""
        run = self.open(questions)
        for chunk in chunks:
            self.put(run, chunk)
        self.seal(run)
        return run

    def stream_all(self) -> None:
        """Processes the whole log by a streaming query.

        Spark waits ten seconds for a new Python process, however busy the machine is. A pipeline tries
        again then, and so does this.
        """
        attempts = 5
        while attempts:
            try:
                self.stream.run_available()
                return
            except PySparkException as error:
                attempts -= 1
                if not attempts or "Python worker failed to connect back" not in str(error):
                    raise

    def stream_until_the_end(self, seconds: float = 120) -> None:
        """Runs the stream with its retries until the log is processed."""
        running = threading.Thread(target=self.stream.run)
        running.start()
        deadline = time.monotonic() + seconds
        try:
            while self.positions() != self.log_ends():
                assert time.monotonic() < deadline, (self.positions(), self.log_ends())
                time.sleep(0.05)
        finally:
            self.stopping.set()
            running.join()
            self.stopping.clear()

    def positions(self) -> dict[int, int]:
        return self.registry.positions(range(self.shards))

    def log_ends(self) -> dict[int, int]:
        return {shard: self.registry.last_sequence(shard) for shard in range(self.shards)}

    def step(self) -> bool:
        """Processes the next batch as the stream does, without a query; False if there is none."""
        reader = ChunkLogReader(lambda: self.registry, self.stream.bounds)
        start = reader.initialOffset()
        rows, end = reader.read(start)
        descriptors = Descriptors.of_rows([LOG_ROW(*row) for row in rows])
        if start != end:
            watch = Stopwatch()
            self.stream._commit(
                self.work.process(self._query, next(self._numbers), descriptors, watch), watch
            )
        return start != end

    def process(self) -> None:
        """Processes the whole log, batch by batch, without a query."""
        while self.step():
            pass

    def finish(self, *runs: str) -> None:
        """Finishes these runs as if their barriers had opened."""
        for run in runs:
            self.registry.open_barrier(run)
            self.finalizer.finish(run)

    def state(self, run: str) -> RunState:
        return self.registry.get_run(run).state

    def reason(self, run: str) -> str:
        """Why the run failed."""
        assert self.state(run) is RunState.FAILED
        return self.registry.get_run(run).error or ""

    def published(self, run: str) -> Path:
        results = self.registry.results(run)
        assert results is not None, self.registry.get_run(run)
        return self.home.attempt(run, results.attempt)

    def answers(self, run: str) -> Answers:
        questions = QuestionSet.from_dict(self.registry.get_run(run).questions)
        return answers_in(self.published(run), questions)

    def files(self) -> set[str]:
        """Everything below the home that belongs to runs, by path."""
        places = ("landing", "partials", "rejected", "results")
        files = (file for place in places for file in (self.home.path / place).rglob("*"))
        return {str(file.relative_to(self.home.path)) for file in files if file.is_file()}


def answers_in(folder: Path, questions: QuestionSet | None = None) -> Answers:
    """The rows of each answer file, without their header."""
    answers = {}
    for name, question in (questions.by_name if questions else builtin()).items():
        with (folder / question.file_name("csv")).open(encoding="utf-8", newline="") as lines:
            header, *rows = (tuple(row) for row in csv.reader(lines))
        assert header == question.shown
        answers[name] = rows
    return answers
