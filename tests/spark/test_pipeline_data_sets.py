"""Runs over data sets on Spark: exact whatever was sent, replaced and asked before; no work is done twice."""

import random
import shutil

import pytest
from data_pipelines import NAME_FILES, DataPipeline, month, some_months
from pipelines import dying_at

from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.runs import RunState
from kopitiam.pipeline import compaction
from sampling import sampled

OTHERS = Parameters(2023, 2024, "08:00:00", "20:00:00", "60.5", 2)
JANUARY, FEBRUARY = month(1, seed=1), month(2, seed=2)


@pytest.mark.parametrize("seed", sampled(range(12), 1))
@pytest.mark.long
def test_after_any_months_in_any_order_the_answers_are_those_of_the_files(make_pipeline, seed):
    """Months are added, replaced and sent again; older versions and other parameters are asked in between."""
    draw = random.Random(seed)
    data = DataPipeline(make_pipeline(max_chunks=draw.choice([3, 7, 100]), shards=draw.choice([1, 2, 3])))
    data.pipeline.on_committed = lambda batch: [data.pipeline.compaction.compact(run) for run in batch.runs]
    assert data.answered(data.submit(NAME_FILES | some_months(draw))) == data.expected()
    for _ in range(2):
        parameters = draw.choice([Parameters(), OTHERS])
        assert data.answered(data.submit(some_months(draw), parameters)) == data.expected(parameters)
        version, other = draw.randint(1, len(data.versions)), draw.choice([Parameters(), OTHERS])
        assert data.answered(data.ask(other, version)) == data.expected(other, version)


def test_a_month_costs_a_month_and_a_replaced_file_takes_back_what_it_gave(make_pipeline):
    data = DataPipeline(make_pipeline())
    data.answered(data.submit(NAME_FILES | JANUARY))
    run = data.submit(FEBRUARY)
    assert data.computed(run) == 6  # three chunks of nine rows for each fact
    assert data.answered(run) == data.expected()
    again = data.ask(Parameters(top=1))
    assert data.computed(again) == 0
    assert data.answered(again) == data.expected(Parameters(top=1))
    users = {("users", "users.csv"): [(1, "2001-01-01"), (2, "2002-02-02")]}
    replaced = data.submit(month(1, seed=9, count=3) | users)
    assert data.computed(replaced) == 3
    assert data.answered(replaced) == data.expected()
    old = data.ask(version=1)
    assert data.computed(old) == 0
    assert data.answered(old) == data.expected(version=1)


@pytest.mark.long
def test_runs_that_read_the_same_files_in_one_batch_are_computed_apart(make_pipeline):
    data = DataPipeline(make_pipeline())
    parameters = [Parameters(), OTHERS, Parameters()]
    first = data.submit(NAME_FILES | JANUARY | FEBRUARY, parameters[0])
    runs = [first, *(data.ask(other) for other in parameters[1:])]
    plain_run = data.pipeline.upload([])
    data.pipeline.process()
    data.pipeline.finish(*runs, plain_run)
    for run, own in zip(runs, parameters, strict=True):
        assert data.pipeline.answers(run) == data.expected(own)
    listed = data.pipeline.registry.partial_paths("")
    assert data.partials_on_disk() == listed  # of two runs with the same plans, one is kept
    assert all(data.computed(data.ask(own)) == 0 for own in parameters)


@pytest.mark.long
def test_stages_count_the_rows_of_used_partials_too(make_pipeline):
    data = DataPipeline(make_pipeline(shards=3))
    data.answered(data.submit(NAME_FILES | JANUARY))
    grown = data.submit(FEBRUARY)
    fresh = DataPipeline(make_pipeline(data.pipeline.home.path.parent / "fresh"))
    anew = fresh.submit(NAME_FILES | JANUARY | FEBRUARY)
    for each in (data, fresh):
        each.pipeline.process()
    assert totals(data, grown) == totals(fresh, anew)


def totals(data: DataPipeline, run: str) -> dict[str, tuple[int, int | None]]:
    """Rows into and out of each stage; groups are left out, since their number depends on the batches."""
    flows = data.pipeline.registry.run_account(run).flows
    return {
        stage: (
            sum(flow.rows_in for flow in shards.values()),
            None if stage.startswith("agg_") else sum(flow.rows_out for flow in shards.values()),
        )
        for stage, shards in flows.items()
    }


@pytest.mark.long
def test_files_that_were_stored_with_more_shards_are_read_with_fewer(make_pipeline):
    data = DataPipeline(make_pipeline(shards=5))
    data.answered(data.submit(NAME_FILES | JANUARY | FEBRUARY))
    fewer = DataPipeline(make_pipeline(shards=4), data.versions)
    for parameters in (Parameters(), OTHERS):
        assert fewer.answered(fewer.ask(parameters)) == fewer.expected(parameters)


POINTS = ("batch.written", "batch.unreported", "merge.written", "merge.committed")
LATER_POINTS = ("final.claimed", "results.written", "results.published", "cleanup.files")


@pytest.mark.long
@pytest.mark.parametrize("point", [*sampled(POINTS, 2), *sampled(LATER_POINTS, 1)])
def test_a_crash_leaves_the_data_set_as_it_was(make_pipeline, monkeypatch, point):
    monkeypatch.setattr(compaction, "FAN_IN", 2)

    def merging(pipeline):
        pipeline.on_committed = lambda batch: [pipeline.compaction.compact(run) for run in batch.runs]
        return pipeline

    data = DataPipeline(merging(make_pipeline(max_chunks=2)))
    data.answered(data.submit(NAME_FILES | JANUARY))
    run = data.submit(FEBRUARY)
    with dying_at(point):
        data.pipeline.process()
        data.pipeline.finish(run)
    data = DataPipeline(merging(make_pipeline(max_chunks=2)), data.versions)  # the next process
    data.pipeline.stream.sweep()
    data.pipeline.process()
    if data.pipeline.state(run) is not RunState.DONE:
        data.pipeline.finish(run)
    assert data.pipeline.answers(run) == data.expected()
    data.pipeline.finalizer.clean_up(run, data.pipeline.finalizer.work.storage.find("results/*/attempt=*")[0])
    assert data.partials_on_disk() == data.pipeline.registry.partial_paths("")
    assert data.computed(data.ask()) == 0


@pytest.mark.long
def test_damaged_partials_are_not_used_twice(make_pipeline):
    data = DataPipeline(make_pipeline())
    data.answered(data.submit(NAME_FILES | JANUARY))
    run = data.ask()
    victim = next(p for p in data.pipeline.registry.partials(run) if p.kind == "3")
    shutil.rmtree(data.pipeline.home.partials / victim.path)
    data.pipeline.registry.open_barrier(run)
    data.pipeline.finalizer.finish(run)
    assert "is discarded: ask again" in data.pipeline.reason(run)
    again = data.ask()
    assert data.computed(again) > 0
    assert data.answered(again) == data.expected()


@pytest.mark.long
def test_a_failed_run_takes_no_file_of_the_data_set_with_it(make_pipeline):
    data = DataPipeline(make_pipeline())
    run = data.submit(NAME_FILES | JANUARY)
    (damaged,) = data.pipeline.home.landing.glob("table=transactions/*/*/chunk-00000.parquet")
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-8])
    data.pipeline.process()
    assert "transactions chunk 0" in data.pipeline.reason(run)
    assert damaged.exists()
    damaged.write_bytes(content)
    assert data.answered(data.ask()) == data.expected()
