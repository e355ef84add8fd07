"""Names and birthdates: no ranked row is lost or doubled, whatever its table says."""

from collections import Counter

import pyarrow as pa
import pytest
from chunked_sales import NAMES, NOON, cut, plain

from kopitiam.pipeline.answering import users_with
from kopitiam.pipeline.stages.joiners import join_items, join_stores_top, join_stores_tpv, join_users


@pytest.fixture
def stores(table):
    return table("stores", [(1, "North"), (2, "South"), (2, "Harbour"), (4, "Without sales"), (2, "South")])


def test_an_unknown_item_keeps_its_id_as_its_name(spark, table, collected):
    menu = table("menu_items", [(1, "Latte"), (2, "Mocha"), (2, "Flat White"), (5, "Never sold")])
    rows = [("2024-01", 1, 10), ("2024-02", 2, 20), ("2024-03", 3, 30), ("2024-03", 3, 30)]
    ranked = spark.createDataFrame(rows, "month string, item_id long, figure long")
    named = ranked.transform(join_items(menu)).select(
        "month", "item_id", "item_name", "figure", "item_is_matched"
    )
    assert collected({"named": named})["named"] == Counter(
        [
            ("2024-01", 1, "Latte", 10, True),
            ("2024-02", 2, "Flat White", 20, True),  # listed twice: the smallest name, and one row
            ("2024-03", 3, "3", 30, False),
            ("2024-03", 3, "3", 30, False),
        ]
    )


def test_stores_are_named_and_one_without_sales_does_not_show(spark, stores, collected):
    totals = spark.createDataFrame(
        [(1, 4048, 10), (2, 4048, 20), (3, 4049, 30)], "store_id long, half long, tpv long"
    )
    ranked = spark.createDataFrame([(1, 1, 9), (2, 1, 9), (3, 1, 8)], "store_id long, rank int, user_id long")
    named = collected(
        {
            "tpv": totals.transform(join_stores_tpv(stores)).select(
                "half", "store_id", "store_name", "tpv", "store_is_matched"
            ),
            "top": ranked.transform(join_stores_top(stores)).select(
                "store_id", "store_name", "rank", "user_id", "store_is_matched"
            ),
        }
    )
    assert named["tpv"] == Counter(
        [(4048, 1, "North", 10, True), (4048, 2, "Harbour", 20, True), (4049, 3, "3", 30, False)]
    )
    assert named["top"] == Counter(
        [(1, "North", 1, 9, True), (2, "Harbour", 1, 9, True), (3, "3", 1, 8, False)]
    )


def test_an_unknown_customer_has_no_birthdate_but_stays(spark, table, collected):
    users = table(
        "users", [(1, "1990-01-01"), (2, None), (3, None), (3, "2000-02-29"), (3, "1999-12-31"), (9, None)]
    )
    rows = [(1, 1, 1), (1, 2, 2), (1, 3, 3), (2, 1, 1), (2, 2, 7)]
    ranked = spark.createDataFrame(rows, "store_id long, rank int, user_id long")
    born = ranked.transform(join_users(users)).select(
        "store_id", "rank", "user_id", "birthdate", "user_is_matched"
    )
    assert collected({"born": born})["born"] == Counter(
        [
            (1, 1, 1, "1990-01-01", True),
            (1, 2, 2, None, True),  # known, but of unknown age
            (1, 3, 3, "1999-12-31", True),  # listed three times: the smallest date, and one row
            (2, 1, 1, "1990-01-01", True),
            (2, 2, 7, None, False),
        ]
    )


def test_with_empty_tables_every_id_stands_for_itself(spark, table, collected):
    ranked = spark.createDataFrame([(1, 1, 2, 3)], "store_id long, rank int, user_id long, item_id long")
    named = (
        ranked.transform(join_items(table("menu_items", [])))
        .transform(join_stores_top(table("stores", [])))
        .transform(join_users(table("users", [])))
        .select(
            "item_name", "store_name", "birthdate", "item_is_matched", "store_is_matched", "user_is_matched"
        )
    )
    assert collected({"named": named})["named"] == Counter([("3", "1", None, False, False, False)])


@pytest.mark.parametrize("count", [3, 5_000])
def test_users_are_looked_up_by_a_few_ids_or_by_thousands(spark, table, count):
    users = table("users", [(0, "1990-01-01"), (count - 1, None), (count, "1980-02-02"), (10**17 - 1, None)])
    ids = pa.array(range(count))

    found = users.transform(users_with(spark, ids))

    assert sorted(row.user_id for row in found.collect()) == [0, count - 1]
    plan = found._jdf.queryExecution().optimizedPlan().toString()
    assert ("LeftSemi" in plan) is (count > 1_000)  # thousands of literals are not sent


def test_more_customers_than_a_filter_names_have_their_birthdates(make_pipeline):
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
