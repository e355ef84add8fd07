"""Each chunk counts once: with replayed and crashed batches, and lost, old or foreign checkpoints."""

import itertools
import shutil
from pathlib import Path

import pytest
from chunked_sales import cut, plain, sales
from pipelines import Pipeline, dying_at

from kopitiam.contracts.errors import StaleEpoch, StreamStuck, Unavailable
from kopitiam.contracts.progress import Volume
from kopitiam.pipeline import stream
from sampling import sampled, seed

CHUNKS = cut(sales(seed=11), rows_a_chunk=10)  # eleven of them, one each of the three small tables


def volumes(pipeline: Pipeline, run: str) -> dict[str, Volume]:
    return {
        table: sum(by_shard.values(), Volume()) for table, by_shard in pipeline.registry.progress(run).items()
    }


def assert_exact(pipeline: Pipeline, run: str) -> None:
    expected = {chunk.table: Volume() for chunk in CHUNKS}
    for chunk in CHUNKS:
        expected[chunk.table] += Volume(1, len(chunk.rows))
    assert volumes(pipeline, run) == expected
    pipeline.finish(run)
    assert pipeline.answers(run) == plain(CHUNKS)


POINTS = (
    ("batch.begun", 1),
    ("batch.read", 1),
    ("batch.written", 1),
    ("batch.committed", 2),  # the second batch is replayed, and recognized
    ("batch.checkpointed", 2),
)


def partial_folders(pipeline: Pipeline) -> set[str]:
    return {
        str(folder.relative_to(pipeline.home.partials)) for folder in pipeline.home.partials.glob("*/*/*/*")
    }


def test_crashes_at_every_point_of_a_batch_lose_and_repeat_no_chunk(make_pipeline):
    bounds = {"shards": 2, "max_chunks": 4}  # four batches
    pipeline = make_pipeline(**bounds)
    run = pipeline.upload(CHUNKS)
    batches = []
    for point, nth in sampled(POINTS, 2, seed()):
        with dying_at(point, nth):
            pipeline.stream_all()
        batches += pipeline.committed
        pipeline = make_pipeline(**bounds)  # the next process
        orphans = partial_folders(pipeline) - pipeline.registry.partial_paths("")
        assert bool(orphans) is (point == "batch.written")
        pipeline.stream.sweep()
        assert partial_folders(pipeline) == pipeline.registry.partial_paths("")
    pipeline.stream_all()
    batches += pipeline.committed
    assert [batch.batch for batch in batches] == [0, 1, 2, 3]
    assert len({batch.query for batch in batches}) == 1  # always from the same checkpoint
    assert_exact(pipeline, run)


@pytest.mark.long
def test_a_batch_that_was_committed_but_not_reported_counts_once(make_pipeline):
    pipeline = make_pipeline(max_chunks=6)
    run = pipeline.upload(CHUNKS)
    with dying_at("batch.unreported", 2):  # a first batch is not replayed: a new query reads it
        pipeline.stream_all()
    assert [batch.batch for batch in pipeline.committed] == [0]
    assert pipeline.positions() == {0: len(CHUNKS)}

    pipeline = make_pipeline(max_chunks=6)
    pipeline.stream_all()

    assert 1 not in [batch.batch for batch in pipeline.committed]
    assert_exact(pipeline, run)


@pytest.mark.long
def test_chunks_that_arrive_during_a_batch_are_left_for_the_next_start(make_pipeline):
    pipeline = make_pipeline()
    run = pipeline.open()
    first, *others = CHUNKS
    pipeline.put(run, first)
    pipeline.on_committed = lambda _: [pipeline.put(run, chunk) for chunk in others] and None
    pipeline.stream_all()
    assert [batch.spans for batch in pipeline.committed] == [{0: (0, 1)}]

    pipeline.on_committed = lambda _: None
    pipeline.seal(run)
    shutil.rmtree(pipeline.checkpoint)  # lost: a new query continues from the registry
    pipeline.stream_all()

    one, other = pipeline.committed
    assert (other.spans, other.query != one.query) == ({0: (1, len(CHUNKS))}, True)
    assert_exact(pipeline, run)


@pytest.mark.long
def test_a_checkpoint_that_contradicts_the_registry_is_deleted(make_pipeline, tmp_path):
    stranger = make_pipeline(tmp_path / "stranger")
    stranger.upload(CHUNKS)
    stranger.stream_all()
    pipeline = make_pipeline()
    run = pipeline.open()
    chunks = iter(CHUNKS)

    def go_on(count: int) -> None:
        for chunk in itertools.islice(chunks, count):
            pipeline.put(run, chunk)
        pipeline.stream_until_the_end()

    def checkpoint_becomes(other: Path) -> None:
        shutil.rmtree(pipeline.checkpoint)
        shutil.copytree(other, pipeline.checkpoint)

    pipeline.put(run, next(chunks))
    with dying_at("batch.committed"):  # Spark does not know where the first batch of a query began
        pipeline.stream_all()
    go_on(2)
    old = shutil.copytree(pipeline.checkpoint, tmp_path / "old")
    checkpoint_becomes(stranger.checkpoint)  # ahead of our log
    go_on(2)
    checkpoint_becomes(old)
    go_on(len(CHUNKS))
    pipeline.seal(run)

    assert len({batch.query for batch in pipeline.committed}) == 4
    assert_exact(pipeline, run)


@pytest.mark.long
def test_a_registry_behind_its_checkpoint_counts(make_pipeline):
    """As after it was restored from a backup."""
    pipeline = make_pipeline(max_chunks=6)
    run = pipeline.upload(CHUNKS)
    with dying_at("batch.checkpointed"):
        pipeline.stream_all()
    backup = {file: file.read_bytes() for file in pipeline.home.path.glob("registry.sqlite*")}
    pipeline.stream_all()
    pipeline.registry.close()
    for file in pipeline.home.path.glob("registry.sqlite*"):
        file.unlink()
    for file, content in backup.items():
        file.write_bytes(content)
    restored = make_pipeline(max_chunks=6)
    assert restored.positions() == {0: 6}

    restored.stream_until_the_end()

    assert_exact(restored, run)


@pytest.mark.long
def test_a_fenced_pipeline_commits_nothing(make_pipeline):
    old = make_pipeline()
    run = old.upload(CHUNKS)
    new = make_pipeline()
    with pytest.raises(StaleEpoch):
        old.stream.run()
    assert old.positions() == {0: 0}
    new.stream.sweep()
    assert partial_folders(new) == set()
    new.stream_all()
    assert_exact(new, run)


def test_a_stream_that_fails_without_progress_raises_instead_of_retrying_for_ever(make_pipeline, monkeypatch):
    monkeypatch.setattr(stream, "_MOST_PAUSE_SECONDS", 0.01)
    pipeline = make_pipeline()
    pipeline.upload(CHUNKS)
    in_the_way = pipeline.home.path / "no-folder"
    in_the_way.write_text("a file")
    pipeline.stream.checkpoint = in_the_way / "checkpoint"
    with pytest.raises(StreamStuck, match=r"^the stream failed 5 times in a row; the last time: .*exists"):
        pipeline.stream.run()
    assert "the pipeline waits to try again" in (pipeline.work.health.failure or "")
    assert str(pipeline.home.path) not in (pipeline.work.health.failure or "")


@pytest.mark.long
def test_the_stream_retries_while_the_registry_is_unavailable_and_reports_it(make_pipeline, monkeypatch):
    monkeypatch.setattr(stream, "_MOST_PAUSE_SECONDS", 0.01)
    pipeline = make_pipeline()
    run = pipeline.upload(CHUNKS)
    process, failures = pipeline.work.process, []

    def away_for_long(*batch):
        failures.append(pipeline.work.health.failure)
        if len(failures) < stream._MOST_FRUITLESS + 3:
            raise Unavailable("storage is away")
        return process(*batch)

    monkeypatch.setattr(type(pipeline.work), "process", lambda _, *batch: away_for_long(*batch))
    pipeline.stream_until_the_end()
    assert failures[1] == "the pipeline waits to try again: storage is away"
    assert pipeline.work.health.failure is None
    assert_exact(pipeline, run)
