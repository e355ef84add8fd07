"""Rows of partials are counted: missing, truncated and duplicate files are noticed, with the figures."""

import itertools
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from chunked_sales import cut, plain, sales
from pipelines import Pipeline
from plans import KINDS

from kopitiam.contracts.batches import kind_of
from kopitiam.contracts.errors import PartialsDiffer
from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.runs import RunState
from kopitiam.pipeline import batches, compaction
from kopitiam.spark import jobs
from kopitiam.spark.jobs import described_jobs, written_rows
from sampling import sampled

CHUNKS = cut(sales(seed=3), rows_a_chunk=20)
LISTED = "1"


def vanish(file: Path) -> None:
    file.unlink()


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def duplicate(file: Path) -> None:
    shutil.copy(file, file.with_name(f"part-copy-{file.name}"))


def rows_in(folder: Path) -> int:
    return sum(pq.read_metadata(file).num_rows for file in folder.glob("*.parquet"))


@pytest.fixture
def processed(make_pipeline) -> tuple[Pipeline, str]:
    pipeline = make_pipeline()
    run = pipeline.upload(CHUNKS)
    pipeline.process()
    return pipeline, run


def test_each_partial_is_committed_with_its_rows(processed):
    pipeline, run = processed
    partials = {kind_of(partial.path): partial for partial in pipeline.registry.partials(run)}
    assert partials.keys() == set(KINDS)
    for partial in partials.values():
        assert partial.rows == rows_in(pipeline.home.partials / partial.path) > 0


@pytest.mark.parametrize("harm", [vanish, truncate, duplicate])
@pytest.mark.long
def test_partials_that_changed_after_their_batch_fail_the_attempts_and_then_the_run(processed, harm):
    pipeline, run = processed
    partial = next(each for each in pipeline.registry.partials(run) if kind_of(each.path) == "4")
    folder = pipeline.home.partials / partial.path
    whole = shutil.copytree(folder, pipeline.home.path / "whole")
    harm(next(folder.glob("part-*.parquet")))
    pipeline.registry.open_barrier(run)

    with pytest.raises(PartialsDiffer, match=rf"partials of 4 have \d+ rows, {partial.rows} were"):
        pipeline.finalizer.finish(run)
    assert pipeline.state(run) is RunState.FINAL
    if harm is vanish:  # the file was only moved away
        shutil.copytree(whole, folder, dirs_exist_ok=True)
        pipeline.finalizer.finish(run)
        assert pipeline.answers(run) == plain(CHUNKS)
        return
    for _ in range(2):
        with pytest.raises(PartialsDiffer):
            pipeline.finalizer.finish(run)
    reason = pipeline.reason(run)
    assert f"rows, {partial.rows} were committed" in reason
    assert str(pipeline.home.path) not in reason


@pytest.mark.long
@pytest.mark.parametrize(
    ("lost", "has_metrics"), sampled(itertools.product(["all of it", "one kind of it"], [True, False]), 2)
)
def test_output_of_a_batch_that_vanishes_before_its_commit_is_noticed(
    make_pipeline, monkeypatch, lost, has_metrics
):
    pipeline = make_pipeline()
    run = pipeline.upload(CHUNKS)

    def lose(point: str) -> None:
        if point == "batch.written":
            folders = pipeline.home.partials.glob("*/batch=*")
            for folder in folders if lost == "all of it" else pipeline.home.partials.glob("*/*/*/kind=3"):
                shutil.rmtree(folder)

    with monkeypatch.context() as patches:
        patches.setattr(batches, "crash_point", lose)
        if not has_metrics:
            patches.setattr(batches, "written_rows", lambda *_: None)
        with pytest.raises(PartialsDiffer, match=r"have \d+ rows, and Spark wrote \d+$"):
            (pipeline.step if lost == "all of it" else pipeline.stream_all)()
    assert pipeline.registry.partials(run) == []
    assert list(pipeline.home.partials.glob("*/*")) == []
    pipeline.process()
    pipeline.finish(run)
    assert pipeline.answers(run) == plain(CHUNKS)


@pytest.mark.long
def test_a_batch_without_metrics_is_counted_by_a_second_job(make_pipeline, monkeypatch):
    monkeypatch.setattr(batches, "written_rows", lambda *_: None)
    pipeline = make_pipeline()
    run, unasked = pipeline.upload(CHUNKS), pipeline.upload(CHUNKS, Parameters(2000, 2001))
    pipeline.process()
    assert {each.run for each in pipeline.committed[0].partials} == {run}
    pipeline.finish(run, unasked)
    assert pipeline.answers(run) == plain(CHUNKS)
    assert not any(pipeline.answers(unasked).values())


def test_the_metrics_of_a_write_are_found_behind_many_later_queries(spark, tmp_path):
    with described_jobs(spark, "a long write"):
        spark.range(7).write.parquet(str(tmp_path / "written"))
    for _ in range(jobs._PAGE + 1):
        spark.range(1).write.format("noop").mode("overwrite").save()
    assert written_rows(spark, "a long write") == 7
    assert written_rows(spark, "a write that never was") is None


@pytest.mark.long
def test_partials_are_not_merged_without_metrics(make_pipeline, monkeypatch):
    monkeypatch.setattr(compaction, "FAN_IN", 2)
    monkeypatch.setattr(compaction, "written_rows", lambda *_: None)
    pipeline = make_pipeline(max_chunks=len(CHUNKS) // 2)
    run = pipeline.upload(CHUNKS)
    pipeline.process()
    before = pipeline.registry.partials(run)
    pipeline.compaction.compact(run)
    assert pipeline.registry.partials(run) == before
    pipeline.finish(run)
    assert pipeline.answers(run) == plain(CHUNKS)


@pytest.mark.long
def test_merged_partials_are_counted_and_those_that_changed_are_not_merged(make_pipeline, monkeypatch):
    monkeypatch.setattr(compaction, "FAN_IN", 2)
    pipeline = make_pipeline()
    run = pipeline.open()
    for part in (0, 1):
        for chunk in CHUNKS:
            if chunk.number == part:
                pipeline.put(run, chunk)
        pipeline.step()
    pipeline.seal(run)
    before = pipeline.registry.partials(run)
    sales_before = sum(each.rows for each in before if kind_of(each.path) == LISTED)
    tpv = next(each for each in before if kind_of(each.path) == "3")
    file = next((pipeline.home.partials / tpv.path).glob("part-*.parquet"))
    duplicate(file)

    pipeline.compaction.compact(run)

    after = {kind_of(each.path): each for each in pipeline.registry.partials(run) if each.level}
    assert after.keys() == set(KINDS) - {"3"}
    assert after[LISTED].rows == sales_before
    for each in after.values():
        assert each.rows == rows_in(pipeline.home.partials / each.path)
    next(file.parent.glob("part-copy-*")).unlink()
    pipeline.finish(run)
    assert pipeline.answers(run) == plain(CHUNKS)
