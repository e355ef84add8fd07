"""Runs that another version opened or processed: each fails with the reason, and delays no other run."""

import json

from chunked_sales import cut, plain, sales
from sqlalchemy import update

from kopitiam.contracts.runs import RunState
from kopitiam.questions.question_set import QuestionSet
from kopitiam.registry.schema import partials, runs

CHUNKS = cut(sales(seed=5), rows_a_chunk=20)


def change(pipeline, table, **values):
    with pipeline.registry._engine.begin() as connection:
        run = values.pop("run")
        connection.execute(update(table).where(table.c.run == run).values(**values))


def test_a_run_with_unreadable_questions_fails_and_others_are_answered(make_pipeline):
    pipeline = make_pipeline()
    unreadable, other = pipeline.upload(CHUNKS), pipeline.upload(CHUNKS)
    kept = json.dumps({**QuestionSet.of_catalog().to_dict(), "ask": ["of_tomorrow"]})
    change(pipeline, runs, run=unreadable, questions=kept)

    pipeline.process()
    pipeline.finish(other)

    assert pipeline.state(unreadable) is RunState.FAILED
    assert "this version cannot read the questions" in pipeline.registry.get_run(unreadable).error
    assert pipeline.answers(other) == plain(CHUNKS)


def test_partials_that_no_question_reads_fail_the_run(make_pipeline):
    pipeline = make_pipeline()
    run = pipeline.upload(CHUNKS)
    pipeline.process()
    kept = pipeline.registry.partials(run)[0]
    foreign = kept.path.rpartition("kind=")[0] + "kind=tpv"
    (pipeline.home.path / "partials" / kept.path).rename(pipeline.home.path / "partials" / foreign)
    with pipeline.registry._engine.begin() as connection:
        connection.execute(update(partials).where(partials.c.path == kept.path).values(path=foreign))

    pipeline.registry.open_barrier(run)
    pipeline.finalizer.finish(run)

    assert pipeline.state(run) is RunState.FAILED
    assert "its partial results (tpv) are of another version" in pipeline.registry.get_run(run).error
