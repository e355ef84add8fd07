"""One batch for many runs: each gets its own answers, and a failing run does not disturb the others."""

import contextlib
import sqlite3
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from chunked_sales import Chunk, cut, plain, sales
from pipelines import Pipeline, answers_in

from full_disk import fill, mounted
from kopitiam.contracts.errors import StaleEpoch, Unavailable
from kopitiam.contracts.layout import KEYS
from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.runs import RunState
from kopitiam.storage.local import LocalStorage

CHUNKS = cut(sales(seed=5), rows_a_chunk=20)
ASKED = (
    Parameters(),
    Parameters(2024, 2024, "08:00:00", "20:00:00", "60.5", top=1),
    Parameters(2000, 2001),  # when nothing was sold
)


def vanish(file: Path) -> None:
    file.unlink()


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def flip_a_bit(file: Path) -> None:
    """The last one of the times: the footer, and with it the number of rows, stays as it was."""
    columns = pq.read_metadata(file).row_group(0)
    times = columns.column(columns.num_columns - 1)
    content = bytearray(file.read_bytes())
    content[times.data_page_offset + times.total_compressed_size - 1] ^= 0x10
    file.write_bytes(content)


@pytest.mark.long
def test_runs_with_different_questions_share_a_batch(make_pipeline):
    pipeline = make_pipeline(shards=2)
    runs = {asked: pipeline.upload(CHUNKS, asked) for asked in ASKED}
    twin = pipeline.upload(CHUNKS)

    pipeline.process()

    assert len(pipeline.committed) == 1
    pipeline.finish(*runs.values(), twin)
    for asked, run in runs.items():
        assert pipeline.answers(run) == plain(CHUNKS, asked)
    assert pipeline.answers(twin) == plain(CHUNKS)
    assert not any(pipeline.answers(runs[ASKED[2]]).values())


@pytest.fixture
def poisoned(make_pipeline) -> tuple[Pipeline, dict[str, str]]:
    """A batch in which most runs have a damaged chunk."""
    pipeline = make_pipeline()
    runs = {}
    for table, harm in (
        ("transactions", vanish),
        ("users", truncate),
        ("transaction_items", flip_a_bit),
        ("transactions", flip_a_bit),
    ):
        run = runs[f"{table} {harm.__name__}"] = pipeline.upload(CHUNKS)
        harm(pipeline.home.chunk(run, table, 0, 0))
    runs["earlier"] = run = pipeline.upload(CHUNKS)
    flip_a_bit(pipeline.home.chunk(run, "transactions", 0, 0))
    with contextlib.closing(sqlite3.connect(pipeline.home.path / "registry.sqlite")) as registry, registry:
        registry.execute("UPDATE chunks SET landed = NULL WHERE run = ?", (run,))
    runs["miscounted"] = run = pipeline.open()
    pipeline.put(run, Chunk("stores", 0, [(1, "North")]), registered_rows=2)
    return pipeline, runs


@pytest.mark.long
def test_a_poisoned_chunk_fails_its_own_run_only_and_is_named(poisoned):
    pipeline, runs = poisoned
    sound = pipeline.upload(CHUNKS)

    pipeline.process()

    reasons = {name: pipeline.reason(run) for name, run in runs.items()}
    assert reasons["transactions vanish"].startswith("transactions chunk 0 cannot be read: ")
    for table, harm in (("users", truncate), ("transaction_items", flip_a_bit), ("transactions", flip_a_bit)):
        assert reasons[f"{table} {harm.__name__}"].startswith(f"{table} chunk 0 is damaged: ")
    assert reasons["miscounted"] == "stores chunk 0 has 1 rows, 2 were registered"
    earlier = reasons[
        "earlier"
    ]  # registered by a version without digests of files: a page's checksum shows the damage
    assert earlier.startswith("Spark failed: ")
    assert "table=transactions/" in earlier
    assert "chunk-00000.parquet" in earlier
    assert not any("\n" in reason for reason in reasons.values())
    assert pipeline.registry.runs_in(RunState.SEALED) == [pipeline.registry.get_run(sound)]
    assert {file.split("run=")[1].split("/")[0] for file in pipeline.files()} == {sound}
    pipeline.finish(sound)
    assert pipeline.answers(sound) == plain(CHUNKS)


@pytest.mark.long
def test_chunks_of_a_run_that_is_over_are_skipped(make_pipeline):
    pipeline = make_pipeline(max_chunks=len(CHUNKS))
    ended, failed, forgotten, sound = (pipeline.upload(CHUNKS) for _ in range(4))
    pipeline.step()  # all of `ended`
    for run in (ended, forgotten):
        pipeline.registry.force_end(run, "cancelled")
    pipeline.registry.delete_run(forgotten)
    pipeline.registry.move(failed, RunState.FAILED, "wrong")

    pipeline.process()

    assert {each.run for batch in pipeline.committed[1:] for each in batch.processed} == {sound}
    assert pipeline.positions() == pipeline.log_ends()
    assert pipeline.registry.progress(failed) == {}
    pipeline.finish(sound)
    assert pipeline.answers(sound) == plain(CHUNKS)


@pytest.mark.long
def test_a_run_that_ends_while_its_batch_is_computed_leaves_nothing(make_pipeline, monkeypatch):
    pipeline = make_pipeline()
    ended, sound = pipeline.upload(CHUNKS), pipeline.upload(CHUNKS)
    commit = pipeline.registry.commit_batch

    def end_and_commit(*batch):
        pipeline.registry.force_end(ended, "cancelled")
        return commit(*batch)

    monkeypatch.setattr(pipeline.registry, "commit_batch", end_and_commit)

    pipeline.process()

    assert {each.run for each in pipeline.committed[0].partials} == {ended, sound}
    assert pipeline.registry.partials(ended) == []
    assert not any(f"run={ended}" in file for file in pipeline.files())
    pipeline.finish(sound)
    assert pipeline.answers(sound) == plain(CHUNKS)


def test_a_fenced_pipeline_fails_no_run(make_pipeline):
    old = make_pipeline()
    run = old.upload(CHUNKS)
    old.home.chunk(run, "users", 0, 0).unlink()
    make_pipeline()  # takes over from the first one

    with pytest.raises(StaleEpoch):
        old.step()

    assert old.state(run) is RunState.SEALED
    assert old.home.chunk(run, "transactions", 0, 0).exists()


@pytest.mark.long
def test_a_full_disk_fails_no_run(make_pipeline, tmp_path, monkeypatch):
    with mounted(tmp_path / "disk") as disk:
        storage = LocalStorage(disk)
        monkeypatch.setattr(storage, "check", lambda: None)  # by then there is room again
        pipeline = make_pipeline(storage=storage)
        runs = [pipeline.upload(CHUNKS) for _ in range(2)]
        for work in (pipeline.step, lambda: pipeline.finish(*runs)):
            before = pipeline.registry.partial_paths("")
            fill(disk / "ballast")

            with pytest.raises(Unavailable, match="No space left on device"):
                work()

            (disk / "ballast").unlink()
            assert not any(pipeline.state(run).is_over for run in runs)
            assert {
                str(each.relative_to(KEYS.partials)) for each in storage.find("partials/*/*/*/*")
            } == before
            assert storage.find("results/*/*") == []
            work()

        for run in runs:
            published = pipeline.registry.results(run)
            assert answers_in(disk / KEYS.attempt(run, published.attempt)) == plain(CHUNKS)
