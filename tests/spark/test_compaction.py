"""Partials are merged during an upload: few remain, with the same sums."""

from collections import Counter

import pytest
from chunked_sales import NOON, Chunk, cut, plain, sales
from pipelines import Pipeline, dying_at
from plans import KINDS

from kopitiam.contracts.batches import kind_of
from kopitiam.contracts.runs import RunState
from kopitiam.pipeline import compaction

BATCHES = 8
ITEMS = [
    Chunk("transaction_items", number, [(1, 1, "7.5", NOON), (2, number, "1", NOON)])
    for number in range(BATCHES)
]
SALES = cut(sales(seed=7), rows_a_chunk=20)  # each table in two chunks, so that a batch has all kinds


@pytest.fixture(autouse=True)
def in_twos(monkeypatch):
    """Merged as soon as there are two of a level, so that few batches have many levels."""
    monkeypatch.setattr(compaction, "FAN_IN", 2)


def levels(pipeline: Pipeline, run: str) -> Counter[tuple[str, int]]:
    return Counter((kind_of(partial.path), partial.level) for partial in pipeline.registry.partials(run))


def on_disk(pipeline: Pipeline) -> set[str]:
    return {
        str(folder.relative_to(pipeline.home.partials)) for folder in pipeline.home.partials.glob("*/*/*/*")
    }


def known(pipeline: Pipeline, run: str) -> set[str]:
    return {partial.path for partial in pipeline.registry.partials(run)}


@pytest.mark.long
def test_partials_of_many_batches_stay_few_and_keep_their_sums(make_pipeline):
    pipeline = make_pipeline(max_chunks=1)
    run = pipeline.open()
    counts = []

    def compact(_):
        pipeline.compaction.compact(run)
        counts.append(len(known(pipeline, run)))
        assert on_disk(pipeline) == known(pipeline, run)

    pipeline.on_committed = compact
    for chunk in ITEMS:
        pipeline.put(run, chunk)
    pipeline.seal(run)

    pipeline.process()

    assert len(counts) == BATCHES
    assert max(counts) <= 4  # one more than the logarithm of eight
    assert max(level for _, level in levels(pipeline, run)) >= 2
    pipeline.finish(run)
    assert pipeline.answers(run) == plain(ITEMS)


@pytest.mark.long
def test_after_a_crash_in_a_merge_either_the_old_partials_or_the_new_one_count(make_pipeline):
    pipeline = make_pipeline()
    run = pipeline.open()
    for part in (0, 1):
        for chunk in SALES:
            if chunk.number == part:
                pipeline.put(run, chunk)
        pipeline.step()
    pipeline.seal(run)
    assert set(levels(pipeline, run).values()) == {2}
    for point, merged in (("merge.written", 0), ("merge.committed", 1)):
        before = known(pipeline, run)
        with dying_at(point):
            pipeline.compaction.compact(run)
        (new,) = on_disk(pipeline) - before
        assert (new in known(pipeline, run)) is bool(merged)
        assert on_disk(pipeline) >= before  # both are there, and one of them counts
        pipeline = make_pipeline()  # the next process
        pipeline.stream.sweep()
        assert (new in on_disk(pipeline)) is bool(merged)
        assert on_disk(pipeline) >= known(pipeline, run)
        assert len(known(pipeline, run)) == 2 * len(KINDS) - merged

    pipeline.compaction.compact(run)

    assert levels(pipeline, run) == dict.fromkeys(((kind, 1) for kind in KINDS), 1)
    pipeline.finish(run)
    assert pipeline.answers(run) == plain(SALES)
    assert on_disk(pipeline) == set()


def test_no_partial_is_replaced_behind_the_barrier(make_pipeline):
    pipeline = make_pipeline(max_chunks=1)
    run = pipeline.upload(ITEMS[:2])
    pipeline.process()
    pipeline.registry.move(run, RunState.FINAL)
    before = known(pipeline, run)

    pipeline.compaction.compact(run)

    assert known(pipeline, run) == on_disk(pipeline) == before
    assert len(before) == 2
