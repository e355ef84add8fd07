"""What Spark really executes for a batch and for a final step, read from its own account of the queries."""

import re

import pytest
from chunked_sales import cut, sales
from pipelines import Pipeline

from kopitiam.contracts.tables import TABLES

NEEDED = {  # no query reads more than this of a table
    name: {column.name for column in table.columns} for name, table in TABLES.items()
}


@pytest.fixture(scope="module")
def plans(spark, tmp_path_factory) -> dict[str, list[str]]:
    """The physical plan of every query that a batch of two runs, and then their final steps, took."""

    def executed():
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        queries = spark._jsparkSession.sharedState().statusStore().executionsList()
        return {
            q.executionId(): q.physicalPlanDescription() for q in map(queries.apply, range(queries.size()))
        }

    pipeline = Pipeline(spark, tmp_path_factory.mktemp("plans"))
    runs = [pipeline.upload(cut(sales(seed=seed), rows_a_chunk=10)) for seed in (1, 2)]
    before = executed()
    assert pipeline.step()
    after_batch = executed()
    pipeline.finish(*runs)
    after_all = executed()
    pipeline.registry.close()
    return {
        "batch": [plan for number, plan in after_batch.items() if number not in before],
        "final": [plan for number, plan in after_all.items() if number not in after_batch],
    }


@pytest.fixture(scope="module")
def scans(plans) -> dict[str, list[str]]:
    """The descriptions of the scans of each table, wherever they are."""
    found: dict[str, list[str]] = {name: [] for name in TABLES}
    for plan in (*plans["batch"], *plans["final"]):
        for scan in re.findall(r"^\(\d+\) Scan parquet.*?(?=\n\n)", plan, re.MULTILINE | re.DOTALL):
            for name in set(re.findall(r"/table=(\w+)", scan)):
                found[name].append(scan)
    return found


def pushed_filters(scan: str) -> str:
    match = re.search(r"^PushedFilters: \[(.*)\]$", scan, re.MULTILINE)
    return match[1] if match else ""


def columns_read(scan: str) -> list[str]:
    (fields,) = re.findall(r"^ReadSchema: struct<(.*)>$", scan, re.MULTILINE)
    return re.findall(r"(\w+):\w+", fields)


def test_every_table_is_scanned(scans):
    assert all(scans.values())


def test_a_batch_of_several_runs_is_one_write(plans):
    assert len(plans["batch"]) == 1
    assert "InsertIntoHadoopFsRelationCommand" in plans["batch"][0]


def test_a_batch_shuffles_nothing(plans):
    assert "Exchange" not in plans["batch"][0]


@pytest.mark.parametrize("table", ["transactions", "transaction_items"])
def test_the_years_reach_down_into_the_parquet_files(scans, table):
    for scan in scans[table]:
        assert "GreaterThanOrEqual(created_at,2024-01-01" in pushed_filters(scan)
        assert "LessThan(created_at,2026-01-01" in pushed_filters(scan)


def test_the_least_amount_and_the_known_customers_reach_down_too(scans):
    filters = [pushed_filters(scan) for scan in scans["transactions"]]
    assert any("GreaterThanOrEqual(final_amount,750000)" in pushed for pushed in filters)
    assert any("IsNotNull(user_id)" in pushed for pushed in filters)


def test_only_the_wanted_customers_are_looked_up(scans):
    for scan in scans["users"]:
        assert re.search(r"\bIn\(user_id, \[\d+(,\d+)*\]\)|EqualTo\(user_id,", pushed_filters(scan))


def test_only_the_columns_that_a_question_needs_are_read(scans):
    assert {frozenset(columns_read(scan)) for scan in scans["transactions"]} == {
        frozenset({"transaction_id", "final_amount", "created_at"}),
        frozenset({"store_id", "final_amount", "created_at"}),
        frozenset({"store_id", "user_id", "created_at"}),
    }
    for name, descriptions in scans.items():
        for scan in descriptions:
            assert set(columns_read(scan)) <= NEEDED[name]


def test_the_final_step_reads_no_sales_again(plans):
    for plan in plans["final"]:
        assert "/table=transactions" not in plan
        assert "/table=transaction_items" not in plan


def test_no_row_passes_through_python_and_no_csv_is_parsed_by_spark(plans):
    for plan in (*plans["batch"], *plans["final"]):
        assert not re.search(r"python|pandas|mapinarrow|scan csv", plan, re.IGNORECASE)
