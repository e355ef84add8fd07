"""What Spark really executes for a whole set of answers, read from its own account of the queries."""

import re

import pytest

from kopitiam.contracts.questions import Questions
from kopitiam.contracts.tables import TABLES
from kopitiam.pipeline.batch import answer

NEEDED = {  # no query reads more than this of a table
    name: {column.name for column in table.columns} for name, table in TABLES.items()
}


@pytest.fixture(scope="module")
def plans(spark, tiny_landed, tmp_path_factory) -> list[str]:
    """The physical plan of every query that the answers took."""

    def executed():
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        queries = spark._jsparkSession.sharedState().statusStore().executionsList()
        return {
            q.executionId(): q.physicalPlanDescription() for q in map(queries.apply, range(queries.size()))
        }

    before = executed()
    answer(spark, tiny_landed, Questions(), tmp_path_factory.mktemp("plans"))
    return [plan for number, plan in executed().items() if number not in before]


@pytest.fixture(scope="module")
def scans(plans) -> dict[str, list[str]]:
    """The descriptions of the scans of each table."""
    found: dict[str, list[str]] = {name: [] for name in TABLES}
    for plan in plans:
        for scan in re.findall(r"^\(\d+\) Scan parquet.*?(?=\n\n)", plan, re.MULTILINE | re.DOTALL):
            (name,) = set(re.findall(r"/table=(\w+)", scan))
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


@pytest.mark.parametrize("table", ["transactions", "transaction_items"])
def test_the_years_reach_down_into_the_parquet_files(scans, table):
    for scan in scans[table]:
        assert "GreaterThanOrEqual(created_at,2024-01-01" in pushed_filters(scan)
        assert "LessThan(created_at,2026-01-01" in pushed_filters(scan)


def test_only_the_wanted_customers_are_looked_up(scans):
    for scan in scans["users"]:
        assert re.search(r"\bIn\(user_id, \[\d+(,\d+)*\]\)|EqualTo\(user_id,", pushed_filters(scan))


def test_only_the_columns_that_a_question_needs_are_read(scans):
    assert {frozenset(columns_read(scan)) for scan in scans["transactions"]} >= {
        frozenset({"transaction_id", "final_amount", "created_at"}),
        frozenset({"store_id", "final_amount", "created_at"}),
        frozenset({"store_id", "user_id", "created_at"}),
    }
    for name, descriptions in scans.items():
        for scan in descriptions:
            assert set(columns_read(scan)) <= NEEDED[name]


def test_no_row_passes_through_python_and_no_csv_is_parsed_by_spark(plans):
    assert plans
    for plan in plans:
        assert not re.search(r"python|pandas|mapinarrow|scan csv", plan, re.IGNORECASE)
