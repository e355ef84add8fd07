"""The chunk log as a source: how much one batch reads, what it skips, and what Spark sees of it."""

import functools
import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from chunked_sales import Chunk
from pipelines import LOG_ROW
from pyspark import cloudpickle

from kopitiam.contracts.batches import EXPRESS_CHUNKS, Batch, slow_lane
from kopitiam.contracts.errors import ForeignCheckpoint
from kopitiam.contracts.parameters import Parameters
from kopitiam.pipeline.batch_timing import Watch
from kopitiam.pipeline.source import (
    BESIDE_CHUNKS,
    NAME,
    ChunkLogReader,
    Descriptors,
    LogBounds,
    chunk_log,
)
from kopitiam.registry import open_registry
from kopitiam.registry.registry import connect_registry

MANY = 1 << 40
SIZE = 100  # bytes of a chunk
SLOW = str(slow_lane(0))


class Log:
    """A registry with chunks but without files, which are not read here."""

    def __init__(self, path: Path) -> None:
        self.registry = open_registry("sqlite", path)

    def add(self, count: int, shards: int = 1) -> str:
        """A run with this many chunks of transactions."""
        run = self.registry.open_run(
            Parameters().to_dict(), "", "me", idempotency_key=None, lease_seconds=60, shards=shards
        ).run.run
        self.grow(run, range(count))
        return run

    def grow(self, run: str, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.registry.register_chunk(
                run, "transactions", number, digest="d", rows=10, bytes=SIZE, rejected=0
            )

    def delete(self, run: str) -> None:
        self.registry.force_end(run, "not wanted")
        self.registry.delete_run(run)

    def reader(
        self, shards: int = 1, max_chunks: int = MANY, max_bytes: int = MANY, watch: Watch | None = None
    ) -> ChunkLogReader:
        bounds = LogBounds(tuple(range(shards)), max_chunks, max_bytes)
        return ChunkLogReader(lambda: self.registry, bounds, watch)


@pytest.fixture
def log(tmp_path):
    chunk_log = Log(tmp_path)
    yield chunk_log
    chunk_log.registry.close()


def batches(log: Log, reader: ChunkLogReader) -> list[Descriptors]:
    """All batches up to the end of the log, each committed; each is read twice with the same result."""
    committed, start = [], reader.initialOffset()
    while True:
        rows, end = reader.read(start)
        rows = list(rows)
        assert list(reader.readBetweenOffsets(start, end)) == rows
        if json.dumps(start) == json.dumps(end):
            assert rows == []
            return committed
        committed.append(Descriptors.of_rows([LOG_ROW(*row) for row in rows]))
        log.registry.commit_batch(Batch("query", sum(end.values()), committed[-1].spans))
        start = end


def numbers(batch: Descriptors) -> list[int]:
    return [chunk.number for chunk in batch.chunks]


@pytest.mark.parametrize(
    ("bounds", "sizes"),
    [
        ({"max_chunks": 4}, [4, 4, 2]),
        ({"max_bytes": 3 * SIZE}, [3, 3, 3, 1]),
        ({"max_bytes": 3 * SIZE - 1}, [2, 2, 2, 2, 2]),
        ({"max_bytes": 1}, [1] * 10),  # a chunk larger than the bound still passes, alone
        ({"max_chunks": 2, "max_bytes": 5 * SIZE}, [2] * 5),
        ({}, [10]),
    ],
)
def test_a_batch_takes_as_many_chunks_and_bytes_as_allowed_in_their_order(log, bounds, sizes):
    log.add(10)
    batches_read = batches(log, log.reader(**bounds))
    assert [len(batch.chunks) for batch in batches_read] == sizes
    assert [number for batch in batches_read for number in numbers(batch)] == list(range(10))
    ends = [sum(sizes[: at + 1]) for at in range(len(sizes))]
    assert [batch.spans for batch in batches_read] == [
        {0: span} for span in zip([0, *ends], ends, strict=False)
    ]


def test_shards_share_a_batch_and_empty_ones_have_no_span(log):
    log.add(7, shards=2)  # four in shard 0, three in shard 1, none in shard 2
    batches_read = batches(log, log.reader(shards=3, max_chunks=6))
    assert [batch.spans for batch in batches_read] == [{0: (0, 2), 1: (0, 2)}, {0: (2, 4), 1: (2, 3)}]
    assert [numbers(batch) for batch in batches_read] == [[0, 2, 1, 3], [4, 6, 5]]
    assert {(chunk.shard, chunk.number % 2) for batch in batches_read for chunk in batch.chunks} == {
        (0, 0),
        (1, 1),
    }


def test_available_now_leaves_chunks_that_arrive_after_the_start(log):
    run = log.add(3)
    reader = log.reader(max_chunks=2)
    reader.prepareForTriggerAvailableNow()
    log.grow(run, range(3, 9))
    assert [numbers(batch) for batch in batches(log, reader)] == [[0, 1], [2]]
    assert [numbers(batch) for batch in batches(log, log.reader())] == [list(range(3, 9))]


def test_sequence_numbers_of_forgotten_runs_are_skipped(log):
    """Also a batch with only such numbers, which must not stop the stream."""
    first, second = log.add(3), log.add(2)
    log.delete(first)
    (only,) = batches(log, log.reader(max_chunks=2))
    assert (only.spans, {chunk.run for chunk in only.chunks}) == ({0: (0, 5)}, {second})
    log.delete(log.add(2))
    (hollow,) = batches(log, log.reader(max_chunks=1))
    assert hollow == Descriptors({0: (5, 7)}, ())
    last = log.add(1)
    log.delete(log.add(1))
    (final,) = batches(log, log.reader(max_chunks=1))
    assert (final.spans, {chunk.run for chunk in final.chunks}) == ({0: (7, 9)}, {last})


def test_a_checkpoint_ahead_of_the_registry_is_foreign(log):
    """As after the registry was restored from a backup: the reader would wait for ever."""
    log.add(3)
    with pytest.raises(ForeignCheckpoint, match="has not reached"):
        log.reader().read({"0": 3, SLOW: 0})


def test_a_checkpoint_of_other_lanes_is_foreign(log):
    """Such as one of an earlier version, which had only one lane."""
    log.add(3)
    with pytest.raises(ForeignCheckpoint, match="other lanes"):
        log.reader().read({"0": 0})


def test_a_small_run_overtakes_a_large_one_which_continues(log):
    large = log.add(EXPRESS_CHUNKS + 40)
    log.registry.commit_batch(Batch("query", 0, {0: (0, EXPRESS_CHUNKS)}))
    small = log.add(6)
    batches_read = batches(log, log.reader(max_chunks=8))
    runs = [[chunk.run for chunk in batch.chunks] for batch in batches_read]
    assert runs[:2] == [[small] * 4 + [large] * 4, [small] * 2 + [large] * 6]
    assert [len(batch.chunks) for batch in batches_read] == [8] * 5 + [6]
    assert sorted(number for batch in batches_read[2:] for number in numbers(batch)) == list(range(42, 72))


def test_batches_are_small_beside_a_small_run_and_full_for_a_large_run_alone(log):
    large = log.add(2 * EXPRESS_CHUNKS)
    (alone,) = batches(log, log.reader(max_chunks=100))
    assert len(alone.chunks) == 2 * EXPRESS_CHUNKS
    log.grow(large, range(2 * EXPRESS_CHUNKS, 3 * EXPRESS_CHUNKS))
    small = log.add(2)
    first, second = batches(log, log.reader(max_chunks=100))
    assert [chunk.run for chunk in first.chunks] == [small] * 2 + [large] * BESIDE_CHUNKS
    assert [chunk.run for chunk in second.chunks] == [large] * (EXPRESS_CHUNKS - BESIDE_CHUNKS)


@pytest.mark.parametrize("bounds", [{"max_chunks": 1}, {"max_bytes": 1}])
def test_a_batch_with_room_for_one_takes_from_both_lanes_in_turn(log, bounds):
    log.add(EXPRESS_CHUNKS + 3)
    log.registry.commit_batch(Batch("query", 0, {0: (0, EXPRESS_CHUNKS - 3)}))
    batches_read = batches(log, log.reader(**bounds))
    assert sorted(next(iter(batch.spans)) for batch in batches_read) == [0, 0, 0, *[slow_lane(0)] * 3]
    assert [next(iter(batch.spans)) for batch in batches_read[:4]] in (
        [0, slow_lane(0)] * 2,
        [slow_lane(0), 0] * 2,
    )


class BusyMachine(Watch):
    """Without an idle core, and as if no time went by."""

    seconds = 0.0

    def has_idle_core(self) -> bool:
        return False


def test_chunks_wait_until_half_a_batch_of_their_shard_is_there(log):
    run = log.add(3, shards=2)
    reader = log.reader(shards=2, max_chunks=12, watch=BusyMachine())
    assert batches(log, reader) == []
    log.grow(run, [4])
    (batch,) = batches(log, reader)
    assert numbers(batch) == [0, 2, 4, 1]
    log.grow(run, [3])
    assert batches(log, reader) == []
    reader.prepareForTriggerAvailableNow()
    assert [numbers(batch) for batch in batches(log, reader)] == [[3]]


def test_a_run_that_was_sent_completely_does_not_wait_and_takes_the_others_along(log):
    open_run, complete = log.add(2), log.add(1)
    reader = log.reader(max_chunks=100, watch=BusyMachine())
    for table, state in log.registry.table_states(complete).items():
        assert batches(log, reader) == []
        log.registry.end_table(complete, table, state.chunks, state.rows)
    (batch,) = batches(log, reader)
    assert [chunk.run for chunk in batch.chunks] == [open_run, open_run, complete]


def test_sequence_numbers_without_chunks_do_not_wait(log):
    log.delete(log.add(2))
    (hollow,) = batches(log, log.reader(watch=BusyMachine()))
    assert hollow == Descriptors({0: (0, 2)}, ())


def test_the_pickled_reader_is_small(tmp_path):
    connect = functools.partial(
        connect_registry, "postgresql://kopi:a-password@db.example/kopitiam", tmp_path
    )
    source = chunk_log(connect, LogBounds(tuple(range(64)), 32, 1 << 30))
    assert len(cloudpickle.dumps(source)) < 8192
    assert len(cloudpickle.dumps(source({}).simpleStreamReader(None))) < 8192


@pytest.mark.long
def test_spark_never_sees_the_password_of_the_registry(spark, make_pipeline, capfd):
    pipeline, password = make_pipeline(), "a-very-secret-password"
    pipeline.put(pipeline.open(), Chunk("stores", 0, [(1, "North")]))

    def connect(home=pipeline.home.path, address=f"postgresql://kopi:{password}@db.example/kopitiam"):
        assert address
        return connect_registry("sqlite", home)

    pipeline.stream.connect = connect
    pipeline.stream_all()

    assert len(pipeline.committed) == 1
    loaded = spark.readStream.format(NAME).load()
    loaded.explain(extended=True)
    progress = pipeline.stream._query.lastProgress
    texts = [
        capfd.readouterr().out,
        str(loaded._jdf.queryExecution()),
        str(progress),
        str(spark.sparkContext.getConf().getAll()),
    ]
    pipeline.stream._query.explain(extended=True)
    texts.append(capfd.readouterr().out)
    assert all(NAME in text for text in texts[:2])
    texts += [file.read_text(errors="replace") for file in pipeline.checkpoint.rglob("*") if file.is_file()]
    texts.append(Path(spark.conf.get("spark.local.dir"), "spark.log").read_text(errors="replace"))
    assert not any(password in text for text in texts)
