"""All answers of whole runs: the same bytes however the work is cut, and exact sums beyond 64 bits."""

import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunked_sales import NAMES, NOON, Chunk, cut, plain, sales

from kopitiam.contracts.parameters import Parameters
from kopitiam.pipeline import answering, tables
from kopitiam.questions.catalog import builtin, read_json
from kopitiam.questions.question_set import QuestionSet

PARTITIONS = "spark.sql.shuffle.partitions"
COALESCE = "spark.sql.adaptive.coalescePartitions.enabled"  # would make one of many small ones
LARGEST = "99999999999999.9999"
SALES = sales(seed=3)
OWN = [
    {
        "name": "by_store_name",
        "title": "An attribute is the key",
        "from": "transactions",
        "where": ["@year"],
        "by": {"name": "stores.store_name"},
        "measure": {"revenue": "sum(final_amount)", "first": "min(transaction_id)"},
        "columns": ["name", "revenue", "first"],
        "order": ["name"],
    },
    {
        "name": "largest_sales",
        "title": "A text is ranked",
        "from": "transactions",
        "by": {"store_id": "store_id", "transaction_id": "transaction_id"},
        "measure": {"revenue": "sum(final_amount)"},
        "rank": {"by": "revenue", "within": ["store_id"], "top": 2},
        "columns": ["store_name", "transaction_id", "revenue"],
        "order": ["store_name"],
    },
]


@pytest.fixture
def shuffle_partitions(spark):
    before = spark.conf.get(PARTITIONS)
    spark.conf.set(COALESCE, "false")
    yield lambda count: spark.conf.set(PARTITIONS, str(count))
    spark.conf.set(PARTITIONS, before)
    spark.conf.unset(COALESCE)


def files_of(pipeline, run):
    """Every file of the answers, by name, without its run time and the number of its chunks."""
    files = {file.name: file.read_bytes() for file in pipeline.published(run).iterdir()}
    summary = json.loads(files.pop("summary.json"))
    del summary["seconds"]
    assert summary.pop("fingerprint").startswith("sha256:")
    return files | {"summary.json": json.dumps(summary).encode()}


def test_shards_batches_chunks_and_order_do_not_change_the_answers(
    make_pipeline, shuffle_partitions, tmp_path
):
    files_by_case = []
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
        files_by_case.append(files_of(pipeline, run))
    assert len(files_by_case[0]) == 3 * len(builtin()) + 1
    assert all(
        files_by_case[0][question.file_name("csv")].count(b"\n") > 1 for question in builtin().values()
    )
    assert [files == files_by_case[0] for files in files_by_case] == [True] * 4


@pytest.mark.long
@pytest.mark.parametrize("bound", ["nothing is broadcast", "nothing is collected", "some is collected"])
def test_memory_limits_do_not_change_the_answers(make_pipeline, monkeypatch, tmp_path, bound):
    questions = QuestionSet.select(
        Parameters(), read_json(OWN), [*builtin(), *(definition["name"] for definition in OWN)]
    )

    def answered(name):
        pipeline = make_pipeline(tmp_path / name, max_chunks=3)
        run = pipeline.upload(cut(SALES, 10), questions)
        pipeline.process()
        pipeline.finish(run)
        return files_of(pipeline, run)

    without_bounds = answered("without bounds")
    if bound == "nothing is broadcast":
        monkeypatch.setattr(tables, "BROADCAST_BYTES", 0)
    elif bound == "nothing is collected":
        monkeypatch.setattr(tables, "BROADCAST_BYTES", 0)
        monkeypatch.setattr(tables, "COLLECTED_BYTES", 0)
    else:  # ranked groups are few enough, the rows of their partials are not
        monkeypatch.setattr(answering, "can_be_collected", lambda _, rows, *__: rows <= 12)

    assert answered("with bounds") == without_bounds


def test_sums_beyond_64_bits_are_exact_in_a_batch_and_behind_the_barrier(make_pipeline):
    pipeline = make_pipeline()
    run = pipeline.open()
    for number in range(2):
        payments = [(f"sale {row}", 1, None, LARGEST, NOON) for row in range(20)]
        items = [(1, 10**17 - 1, LARGEST, NOON)] * 60 + [(2, 5, "-3", NOON)]
        pipeline.put(run, Chunk("transactions", number, payments))
        pipeline.put(run, Chunk("transaction_items", number, items))
        pipeline.step()
    for chunk in cut(NAMES, 10):
        pipeline.put(run, chunk)
    pipeline.seal(run)
    pipeline.process()
    pipeline.finish(run)
    answers = pipeline.answers(run)
    assert answers["3"] == [("2024-H1", "North", "3999999999999999.996")]
    assert answers["2_2"] == [("2024-03", "Latte", "11999999999999999.988")]
    assert answers["2_1"] == [("2024-03", "Latte", "11999999999999999880")]
    assert (
        json.loads((pipeline.published(run) / "results_query_3.json").read_text())["rows"][0]["tpv"] > 3.9e15
    )
    amounts = pq.read_table(pipeline.published(run) / "results_query_2_2.parquet")["profit_sum"]
    assert str(amounts[0].as_py()) == "11999999999999999.9880"


def test_sums_that_fit_have_the_usual_types(make_pipeline):
    pipeline = make_pipeline()
    items = Chunk("transaction_items", 0, [(1, 10**17 - 1, LARGEST, NOON)] * 9)
    payments = Chunk("transactions", 0, [(f"sale {row}", 1, None, LARGEST, NOON) for row in range(9)])
    run = pipeline.upload([payments, items, *cut(NAMES, 10)])
    pipeline.process()
    pipeline.finish(run)
    answers = pipeline.answers(run)
    assert answers["3"] == [("2024-H1", "North", "899999999999999.9991")]
    assert answers["2_2"] == [("2024-03", "Latte", "899999999999999.9991")]
    assert answers["2_1"] == [("2024-03", "Latte", "899999999999999991")]
    types = {
        name: pq.read_schema(pipeline.published(run) / f"results_query_{name}.parquet").field(column).type
        for name, column in (("3", "tpv"), ("2_1", "sellings_qty"))
    }
    assert types == {"3": pa.decimal128(19, 4), "2_1": pa.int64()}


@pytest.mark.long
def test_runs_and_tables_without_rows_have_answers_too(make_pipeline):
    pipeline = make_pipeline()
    chunks_by_name = {
        "nothing": [],
        "no rows": [Chunk(table, 0, []) for table in SALES],
        "no names": [chunk for chunk in cut(SALES, 20) if chunk.table not in NAMES],
        "no sales": cut(NAMES, 20),
    }
    runs = {name: pipeline.upload(chunks) for name, chunks in chunks_by_name.items()}
    pipeline.process()
    pipeline.finish(*runs.values())
    for name, run in runs.items():
        assert pipeline.answers(run) == plain(chunks_by_name[name])
        assert any(pipeline.answers(run).values()) is (name == "no names")
