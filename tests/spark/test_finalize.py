"""The final step: provisional answers before it, one claim, one published attempt, no files left behind."""

import errno
import json
import os
from pathlib import Path

import pytest
from chunked_sales import cut, plain, sales
from pipelines import answers_in, dying_at

from kopitiam.contracts.errors import RegistryUnavailable, RunFailed, StaleEpoch, Unavailable
from kopitiam.contracts.runs import RunState
from kopitiam.pipeline import finalize
from kopitiam.questions.catalog import builtin
from kopitiam.registry import Fence
from kopitiam.storage.port import Key

CHUNKS = cut(sales(seed=2), rows_a_chunk=20)  # in the log: names first, then sales
PROCESSED = 5  # chunks: the names, and half of the transactions and of the items
ORDER = [*CHUNKS[:4], CHUNKS[5], CHUNKS[4], CHUNKS[6]]


def rows(chunks):
    return sum(len(chunk.rows) for chunk in chunks)


@pytest.mark.long
def test_provisional_answers_cover_the_processed_chunks_until_the_final_answers(make_pipeline):
    pipeline = make_pipeline(max_chunks=PROCESSED)
    run = pipeline.open()
    for chunk in ORDER:
        pipeline.put(run, chunk)
    pipeline.step()
    covered = {"processed": rows(ORDER[:PROCESSED]), "durable": rows(ORDER), "expected": None}

    pipeline.finalizer.provide(run)

    published = pipeline.registry.provisional(run)
    folder = pipeline.home.provisional(run, published.attempt)
    assert published.figures == covered
    assert answers_in(folder) == plain(ORDER[:PROCESSED])
    assert pipeline.state(run) is RunState.OPEN
    assert json.loads((folder / "summary.json").read_text())["coverage"] == covered
    for question in builtin().values():
        content = json.loads((folder / question.file_name("csv")).with_suffix(".json").read_text())
        assert (content["provisional"], content["coverage"]) == (True, covered)

    pipeline.seal(run)
    pipeline.process()
    pipeline.finalizer.provide(run)

    latest = pipeline.registry.provisional(run)
    assert latest.figures == dict.fromkeys(covered, rows(ORDER))
    assert folder.is_dir()  # a client may be reading it
    assert answers_in(pipeline.home.provisional(run, latest.attempt)) == plain(ORDER)

    pipeline.finish(run)
    pipeline.finalizer.provide(run)  # a late request

    assert pipeline.answers(run) == plain(ORDER)
    content = json.loads((pipeline.published(run) / "results_query_1.json").read_text())
    assert (content["provisional"], "coverage" in content) == (False, False)
    assert [each.name.split("=")[0] for each in pipeline.home.results(run).iterdir()] == ["attempt"]


@pytest.fixture
def ready(make_pipeline):
    """A run behind its barrier, in chunks of two shards, with rejected rows."""
    pipeline = make_pipeline(shards=2)
    run = pipeline.upload(CHUNKS)
    pipeline.process()
    pipeline.registry.open_barrier(run)
    rejected = pipeline.home.rejected(run) / "users-client.csv"
    rejected.parent.mkdir(parents=True)
    rejected.write_text("a bad row\n")
    return pipeline, run


def test_only_one_pipeline_publishes_the_answers(ready):
    pipeline, run = ready
    other = Fence("pipeline-2", pipeline.registry.take_over("pipeline-2", "another", 60), "another")
    assert pipeline.registry.claim_final(run, other)

    assert pipeline.finalizer.finish(run) is None

    assert (pipeline.state(run), pipeline.registry.results(run)) == (RunState.FINAL, None)
    assert not pipeline.home.results(run).exists()
    pipeline.registry.take_over("pipeline-2", "its next process", 60)  # which has claimed nothing
    assert pipeline.finalizer.finish(run) == sum(len(answer) for answer in plain(CHUNKS).values())
    assert pipeline.answers(run) == plain(CHUNKS)


def test_a_final_step_that_crashes_at_any_point_is_repeated_and_leaves_no_files_behind(ready, make_pipeline):
    pipeline, run = ready
    for point in ("final.claimed", "results.written", "results.published"):
        with dying_at(point):
            pipeline.finalizer.finish(run)
        pipeline = make_pipeline(shards=2)  # the next process
    assert pipeline.state(run) is RunState.DONE
    assert pipeline.answers(run) == plain(CHUNKS)

    assert pipeline.finalizer.finish(run) is None
    attempt = pipeline.published(run)
    for point in ("cleanup.files", "cleanup.done"):
        with dying_at(point):
            pipeline.finalizer.clean_up(run, Key(attempt.relative_to(pipeline.home.path)))

    files = {str(file.relative_to(pipeline.home.path)) for file in attempt.iterdir()}
    assert pipeline.files() == files | {f"rejected/run={run}/users-client.csv"}
    assert len(files) == 3 * len(builtin()) + 1
    assert list((pipeline.home.path / "scratch").iterdir()) == []
    for place in (pipeline.home.landing, pipeline.home.partials):
        assert not any("run=" in str(folder) for folder in place.rglob("*"))
    assert pipeline.registry.partials(run) == pipeline.registry.chunks(run, "transactions") == []


def test_answers_of_a_run_that_ended_meanwhile_are_not_published(ready, monkeypatch):
    pipeline, run = ready
    publish = pipeline.registry.publish_results

    def end_and_publish(*answers):
        pipeline.registry.force_end(run, "cancelled")
        publish(*answers)

    monkeypatch.setattr(pipeline.registry, "publish_results", end_and_publish)

    assert pipeline.finalizer.finish(run) is None

    assert (pipeline.state(run), pipeline.registry.results(run)) == (RunState.ENDED, None)
    assert not any(pipeline.home.results(run).iterdir())


def flip_a_bit(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(("harm", "flaw"), [(Path.unlink, "cannot be read"), (flip_a_bit, "is damaged")])
def test_a_chunk_damaged_after_its_batch_fails_its_run(ready, harm, flaw):
    pipeline, run = ready
    harm(pipeline.home.chunk(run, "users", 0, 0))

    assert pipeline.finalizer.finish(run) is None

    assert pipeline.reason(run).startswith(f"users chunk 0 {flaw}: ")
    assert not any(f"run={run}" in file for file in pipeline.files() if not file.startswith("rejected/"))


def lose_the_connection(*_):
    raise RegistryUnavailable("registry: the connection was lost")


@pytest.fixture
def publish_and_lose_the_connection(ready, monkeypatch):
    pipeline, _ = ready
    publish = pipeline.registry.publish_results

    def published_but_not_told(*answers):
        publish(*answers)
        lose_the_connection()

    monkeypatch.setattr(pipeline.registry, "publish_results", published_but_not_told)


@pytest.mark.usefixtures("publish_and_lose_the_connection")
def test_a_commit_whose_reply_was_lost_publishes_the_answers(ready):
    pipeline, run = ready

    assert pipeline.finalizer.finish(run) == sum(map(len, plain(CHUNKS).values()))

    assert (pipeline.state(run), pipeline.answers(run)) == (RunState.DONE, plain(CHUNKS))
    assert {file.split("/")[0] for file in pipeline.files()} == {"rejected", "results"}


@pytest.mark.usefixtures("publish_and_lose_the_connection")
def test_answers_are_kept_while_it_is_unknown_whether_they_were_committed(ready, monkeypatch):
    pipeline, run = ready

    with monkeypatch.context() as patches, pytest.raises(RegistryUnavailable):
        patches.setattr(pipeline.registry, "results", lose_the_connection)
        pipeline.finalizer.finish(run)

    assert (pipeline.state(run), pipeline.answers(run)) == (RunState.DONE, plain(CHUNKS))


@pytest.mark.long
def test_answers_whose_commit_failed_are_removed_and_computed_again(ready, monkeypatch):
    pipeline, run = ready

    with monkeypatch.context() as patches, pytest.raises(RegistryUnavailable):
        patches.setattr(pipeline.registry, "publish_results", lose_the_connection)
        pipeline.finalizer.finish(run)

    assert pipeline.state(run) is RunState.FINAL
    assert not any(pipeline.home.results(run).iterdir())
    pipeline.finalizer.finish(run)
    assert pipeline.answers(run) == plain(CHUNKS)


@pytest.mark.long
def test_answers_that_fill_the_disk_are_removed_and_computed_again(ready, monkeypatch):
    pipeline, run = ready
    write_answers = finalize.write_answers

    def write_and_run_out_of_room(*answers):
        write_answers(*answers)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patches:
        patches.setattr(finalize, "write_answers", write_and_run_out_of_room)
        for make in (pipeline.finalizer.finish, pipeline.finalizer.provide):
            with pytest.raises(Unavailable, match=r"^answers cannot be written: No space left on device$"):
                make(run)

    assert pipeline.state(run) is RunState.FINAL
    assert not any(pipeline.home.results(run).iterdir())
    pipeline.finalizer.finish(run)
    assert pipeline.answers(run) == plain(CHUNKS)


def test_a_pipeline_that_is_fenced_during_a_final_step_fails_no_run(ready, make_pipeline, monkeypatch):
    pipeline, run = ready

    def fail(*_):
        make_pipeline(shards=2)  # the next process
        raise RunFailed("Spark failed: jobs were cancelled")

    monkeypatch.setattr(finalize, "answer", fail)

    with pytest.raises(StaleEpoch):
        pipeline.finalizer.finish(run)

    assert pipeline.state(run) is RunState.FINAL
