"""Rows into and out of each stage: counted by Spark, committed with the batch."""

import pytest
from chunked_sales import cut, rows_into_stages, sales
from plans import CATALOG, partial_plan

from kopitiam.contracts.batches import kind_of
from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.progress import RowFlow
from kopitiam.gateway.status import run_status
from kopitiam.questions.catalog import read_json
from kopitiam.questions.question_set import QuestionSet
from sampling import sampled

CHUNKS = cut(sales(seed=11, count=60), rows_a_chunk=7)
NEXT_STAGES = {"filter_hour": "agg_tpv", "filter_4": "agg_purchases"}  # the stages after a filter


def rows_in_of(flows):
    return {
        (stage, shard): flow.rows_in
        for stage, by_shard in flows.items()
        for shard, flow in by_shard.items()
        if flow.rows_in
    }


@pytest.mark.long
@pytest.mark.parametrize(("shards", "max_chunks"), sampled([(1, 100), (2, 3), (5, 100)], 1))
def test_the_rows_of_every_stage_and_shard_are_those_that_passed(make_pipeline, shards, max_chunks):
    """Five shards are more than there are tasks: then the shard is a column of the rows."""
    pipeline = make_pipeline(shards=shards, max_chunks=max_chunks)
    other = Parameters(2024, 2024, "08:00:00", "20:00:00")
    runs = [(pipeline.upload(CHUNKS, asked), asked) for asked in (None, other, None)]
    pipeline.process()
    for run, parameters in runs:
        flows = pipeline.registry.run_account(run).flows
        expected = rows_into_stages(CHUNKS, shards, parameters)
        assert rows_in_of(flows) == {key: count for key, count in expected.items() if count}
        for stage, following in NEXT_STAGES.items():
            for shard, flow in flows[stage].items():
                assert flow.rows_out == flows[following].get(shard, RowFlow()).rows_in
        pipeline.finish(run)
        large = sum(flow.rows_out for flow in flows["filter_amount"].values())
        assert large == len(pipeline.answers(run)["1"])


@pytest.mark.long
def test_the_rows_out_of_an_aggregator_are_those_of_its_partials(make_pipeline):
    pipeline = make_pipeline(max_chunks=3)
    run = pipeline.upload(CHUNKS)
    pipeline.process()
    account = pipeline.registry.run_account(run)
    for name in ("2_1", "3", "4"):
        kept = sum(each.rows for each in account.partials if kind_of(each.path) == name)
        assert sum(f.rows_out for f in account.flows[partial_plan(name).stage].values()) == kept > 0


def test_the_status_shows_rows_in_and_out_of_all_stages(make_pipeline):
    pipeline = make_pipeline()
    run = pipeline.upload(CHUNKS)
    before = run_status(pipeline.registry, run)
    assert all(shard.processed == 0 for stage in before.stages.values() for shard in stage.values())
    pipeline.process()
    pipeline.finish(run)
    status = run_status(pipeline.registry, run)
    assert list(status.stages) == [*CATALOG.stages.before_barrier, *CATALOG.stages.behind_barrier]
    for stage, shards in status.stages.items():
        assert shards["0"].role == CATALOG.stages.roles[stage]
    answers = pipeline.answers(run)
    assert status.stages["top_customers"]["0"].rows_out == len(answers["4"])
    assert status.stages["join_users"]["0"].rows == len(answers["4"])
    assert status.stages["max_products"]["0"].rows_out == len(answers["2_1"]) + len(answers["2_2"])
    assert status.stages["server_results"]["0"].rows_out == sum(map(len, answers.values()))
    assert status.tables["transactions"].processed == status.tables["transactions"].chunks


@pytest.mark.long
def test_own_conditions_are_counted_apart_from_named_filters(make_pipeline):
    own = read_json(
        [
            {
                "name": "evenings",
                "title": "Evenings",
                "from": "transactions",
                "where": ["@year", "final_amount > 60", "user_id is null"],
                "columns": ["transaction_id", "final_amount"],
            }
        ]
    )
    pipeline = make_pipeline()
    chunks = [chunk for chunk in CHUNKS if chunk.table == "transactions"]
    run = pipeline.upload(chunks, QuestionSet.select(Parameters(), own))
    pipeline.process()
    flows = {stage: by_shard[0] for stage, by_shard in pipeline.registry.run_account(run).flows.items()}
    rows = [row for chunk in chunks for row in chunk.rows]
    of_the_years = [row for row in rows if row[-1][:4] in ("2024", "2025")]
    passed = [row for row in of_the_years if float(row[3]) > 60 and row[2] is None]
    assert flows == {
        "filter_year": RowFlow(len(rows), len(of_the_years)),
        "filter_evenings": RowFlow(len(of_the_years), len(passed)),
    }


def test_rows_without_conditions_are_counted_once(make_pipeline):
    own = read_json(
        [
            {
                "name": "all_sales",
                "title": "All sales",
                "from": "transactions",
                "by": {"store_id": "store_id"},
                "measure": {"purchases": "count(*)"},
                "columns": ["store_id", "purchases"],
            }
        ]
    )
    pipeline = make_pipeline()
    chunks = [chunk for chunk in CHUNKS if chunk.table == "transactions"]
    run = pipeline.upload(chunks, QuestionSet.select(Parameters(), own))
    pipeline.process()
    (stage,) = pipeline.registry.run_account(run).flows.values()
    assert stage[0].rows_in == sum(len(chunk.rows) for chunk in chunks)
