"""All answers of whole runs: the same bytes however the work is cut, and no figure that overflowed."""

import json
import random

import pytest
from chunked_sales import NAMES, NOON, Chunk, cut, plain, sales

from kopitiam.contracts.questions import ANSWERS
from kopitiam.contracts.runs import RunState

PARTITIONS = "spark.sql.shuffle.partitions"
COALESCE = "spark.sql.adaptive.coalescePartitions.enabled"  # would make one of many small ones
LARGEST = "99999999999999.9999"
FITTING = 9  # of the largest amounts; a tenth would not fit
SALES = sales(seed=3)


@pytest.fixture
def shuffle_partitions(spark):
    before = spark.conf.get(PARTITIONS)
    spark.conf.set(COALESCE, "false")
    yield lambda count: spark.conf.set(PARTITIONS, str(count))
    spark.conf.set(PARTITIONS, before)
    spark.conf.unset(COALESCE)


def files_of(pipeline, run):
    """Every file that a person takes away, by name; without the time that it took and how it was cut."""
    files = {file.name: file.read_bytes() for file in pipeline.published(run).iterdir()}
    summary = json.loads(files.pop("summary.json"))
    del summary["seconds"]
    assert summary.pop("fingerprint").startswith("sha256:")
    return files | {"summary.json": json.dumps(summary).encode()}


def test_shards_batches_chunks_and_order_make_no_difference(make_pipeline, shuffle_partitions, tmp_path):
    made = []
    for name, shards, max_chunks, rows_a_chunk, partitions in (
        ("all at once", 1, 100, 10, 2),
        ("one by one", 1, 1, 20, 2),
        ("two shards", 2, 7, 10, 7),
        ("five shards", 5, 1, 3, 1),
    ):
        shuffle_partitions(partitions)
        pipeline = make_pipeline(tmp_path / name, shards=shards, max_chunks=max_chunks)
        chunks = cut(SALES, rows_a_chunk)
        random.Random(name).shuffle(chunks)  # users before, among or after their transactions
        run = pipeline.upload(chunks)
        pipeline.process()
        pipeline.finish(run)
        assert pipeline.answers(run) == plain(chunks)
        made.append(files_of(pipeline, run))
    assert len(made[0]) == 3 * len(ANSWERS) + 1
    assert all(made[0][answer.csv_name].count(b"\n") > 1 for answer in ANSWERS.values())
    assert [files == made[0] for files in made] == [True] * 4


def largest(number: int = 0, times: int = 1) -> dict[str, Chunk]:
    """Chunks whose sums just fit, once; twice is too much."""
    payments = [(f"sale {row}", 1, None, LARGEST, NOON) for row in range(times * FITTING)]
    return {
        "payments": Chunk("transactions", number, payments),
        "profits": Chunk("transaction_items", number, [(1, 1, LARGEST, NOON)] * times * FITTING),
        "quantities": Chunk("transaction_items", number, [(1, 10**17 - 1, "1", NOON)] * times * 50),
    }


def test_a_sum_too_large_fails_loudly_in_a_batch_or_behind_the_barrier(make_pipeline):
    pipeline = make_pipeline()
    in_a_batch = [pipeline.upload([chunk]) for chunk in largest(times=2).values()]
    behind = {what: pipeline.open() for what in largest()}
    for number in (0, 1):
        for what, run in behind.items():
            pipeline.put(run, largest(number)[what])
        pipeline.step()
    for run in behind.values():
        assert pipeline.state(run) is RunState.OPEN
        pipeline.seal(run)
        pipeline.finish(run)
    for run in (*in_a_batch, *behind.values()):
        assert "overflow" in pipeline.reason(run).lower()
        assert pipeline.registry.results(run) is None


def test_the_largest_sums_that_fit_are_exact(make_pipeline):
    pipeline = make_pipeline()
    items = Chunk("transaction_items", 0, [(1, 10**17 - 1, LARGEST, NOON)] * FITTING)
    run = pipeline.upload([largest()["payments"], items, *cut(NAMES, 10)])
    pipeline.process()
    pipeline.finish(run)
    answers = pipeline.answers(run)
    assert answers["3"] == [("2024-H1", "North", "899999999999999.9991")]
    assert answers["2_2"] == [("2024-03", "Latte", "899999999999999.9991")]
    assert answers["2_1"] == [("2024-03", "Latte", "899999999999999991")]


def test_runs_and_tables_without_rows_have_answers_too(make_pipeline):
    pipeline = make_pipeline()
    given = {
        "nothing": [],
        "no rows": [Chunk(table, 0, []) for table in SALES],
        "no names": [chunk for chunk in cut(SALES, 20) if chunk.table not in NAMES],
        "no sales": cut(NAMES, 20),
    }
    runs = {name: pipeline.upload(chunks) for name, chunks in given.items()}
    pipeline.process()
    pipeline.finish(*runs.values())
    for name, run in runs.items():
        assert pipeline.answers(run) == plain(given[name])
        assert any(pipeline.answers(run).values()) is (name == "no names")
