"""Names and birthdates: joins neither lose nor repeat a ranked row, whatever the joined table has."""

from collections import Counter

import pyarrow as pa
import pytest
from chunked_sales import NAMES, NOON, cut, plain
from plans import answer_plan

from kopitiam.pipeline.answering import rows_with
from kopitiam.pipeline.compiler.answers import finished


@pytest.fixture
def stores(table):
    return table("stores", [(1, "North"), (2, "South"), (2, "Harbour"), (4, "Without sales"), (2, "South")])


def test_an_unknown_item_keeps_its_id_as_its_name(spark, table, collected):
    menu = table("menu_items", [(1, "Latte"), (2, "Mocha"), (2, "Flat White"), (5, "Never sold")])
    rows = [(24288, 1, 10), (24289, 2, 20), (24290, 3, 30), (24290, 3, 30)]
    ranked = spark.createDataFrame(rows, "k0 long, k1 long, m0 long")
    named = ranked.transform(finished(answer_plan("2_1"), {"menu_items": menu}))
    assert collected({"named": named})["named"] == Counter(
        [
            ("2024-01", 1, "Latte", 10, True),
            ("2024-02", 2, "Flat White", 20, True),  # listed twice: the smallest name, and one row
            ("2024-03", 3, "3", 30, False),
            ("2024-03", 3, "3", 30, False),
        ]
    )


def test_stores_are_named_and_one_without_sales_is_left_out(spark, stores, collected):
    rows = [(4048, 1, 10), (4048, 2, 20), (4049, 3, 30)]
    totals = spark.createDataFrame(rows, "k0 long, k1 long, m0 long")
    named = totals.transform(finished(answer_plan("3"), {"stores": stores}))
    assert collected({"tpv": named})["tpv"] == Counter(
        [
            ("2024-H1", 1, "North", 10, True),
            ("2024-H1", 2, "Harbour", 20, True),
            ("2024-H2", 3, "3", 30, False),
        ]
    )


def test_an_unknown_customer_stays_without_a_birthdate(spark, table, stores, collected):
    users = table(
        "users", [(1, "1990-01-01"), (2, None), (3, None), (3, "2000-02-29"), (3, "1999-12-31"), (9, None)]
    )
    rows = [(1, 1, 5, 1), (1, 2, 4, 2), (1, 3, 3, 3), (3, 1, 9, 1), (3, 7, 8, 2)]
    ranked = spark.createDataFrame(rows, "k0 long, k1 long, m0 long, rank long")
    born = ranked.transform(finished(answer_plan("4"), {"users": users, "stores": stores}))
    assert collected({"born": born})["born"] == Counter(
        [
            (1, "North", 1, 1, "1990-01-01", 5, True, True),
            (1, "North", 2, 2, None, 4, True, True),  # known, but of unknown age
            (1, "North", 3, 3, "1999-12-31", 3, True, True),  # listed three times: the smallest date, one row
            (3, "3", 1, 1, "1990-01-01", 9, False, True),
            (3, "3", 2, 7, None, 8, False, False),
        ]
    )


def test_with_empty_tables_ids_take_the_place_of_names(spark, table, collected):
    ranked = spark.createDataFrame([(1, 2, 3, 1)], "k0 long, k1 long, m0 long, rank long")
    empty = {"users": table("users", []), "stores": table("stores", [])}
    named = ranked.transform(finished(answer_plan("4"), empty))
    assert collected({"named": named})["named"] == Counter([(1, "1", 1, 2, None, 3, False, False)])


@pytest.mark.parametrize("count", [3, 5_000])
def test_rows_are_looked_up_by_a_few_ids_or_by_thousands(spark, table, count):
    users = table("users", [(0, "1990-01-01"), (count - 1, None), (count, "1980-02-02"), (10**17 - 1, None)])
    ids = pa.array(range(count))

    matching = users.transform(rows_with(spark, "user_id", ids))

    assert sorted(row.user_id for row in matching.collect()) == [0, count - 1]
    plan = matching._jdf.queryExecution().optimizedPlan().toString()
    assert ("LeftSemi" in plan) is (count > 1_000)  # thousands of literals are not sent


def test_more_customers_than_a_filter_names_have_their_birthdates(make_pipeline, monkeypatch):
    monkeypatch.setattr("kopitiam.pipeline.tables.BROADCAST_ROWS", 500)  # users are not sent to every task
    stores, top = 400, 3
    sales = [
        (f"sale {number}", number % stores, number * 7_919, "80", NOON) for number in range(stores * top)
    ]
    users = [(number * 7_919, f"1990-01-{number % 28 + 1:02d}") for number in range(0, stores * top, 2)]
    chunks = cut(NAMES | {"users": users, "transactions": sales}, rows_a_chunk=500)
    pipeline = make_pipeline()
    run = pipeline.upload(chunks)
    pipeline.process()
    pipeline.finish(run)
    assert len(pipeline.answers(run)["4"]) == stores * top
    assert pipeline.answers(run) == plain(chunks)
