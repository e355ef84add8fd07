"""Partial sums of one chunk: by month, by half-year, by customer."""

from collections import Counter

import pytest

from kopitiam.contracts.questions import Questions
from kopitiam.pipeline.stages.aggregators import agg_products, agg_purchases, agg_tpv

UNIT = 10_000
QUESTIONS = Questions()


def month(year, number):
    return year * 12 + number - 1


def half(year, number):
    return year * 2 + number - 1


@pytest.mark.parametrize("questions", [Questions(), Questions(2024, 2030), Questions(1, 9998)])
def test_sums_of_one_chunk_however_many_years_are_asked_about(table, collected, questions):
    items = table(
        "transaction_items",
        [
            (1, 2, "12.0", "2024-01-01 00:00:00"),
            (1, 1, "6.075", "2024-01-31 23:59:59"),
            (1, 1, "6.075", "2024-01-31 23:59:59"),  # sold twice, not a mistake
            (1, 5, "0.0001", "2024-02-01 00:00:00"),
            (2, 3, "-7.5", "2024-02-29 23:59:59"),  # a refund
            (2, -3, "30", "2024-03-01 00:00:00"),
            (2, 1, "1", "2024-12-31 23:59:59"),
            (2, 1, "1", "2025-01-01 00:00:00"),
        ],
    )
    sales = table(
        "transactions",
        [
            ("a", 1, 7, "80.5", "2024-01-01 00:00:00"),
            ("b", 1, 7, "0.0001", "2024-06-30 23:59:59"),
            ("c", 1, 7, "10", "2024-07-01 00:00:00"),
            ("c", 1, 7, "10", "2024-07-01 00:00:00"),  # the same row again
            ("d", 1, None, "5", "2024-12-31 23:59:59"),  # nobody's, but paid
            ("e", 1, 8, "5", "2025-01-01 00:00:00"),
            ("f", 2, 8, "-3.25", "2024-02-29 12:00:00"),
            ("g", 2, None, "0", "2024-02-29 12:00:00"),
        ],
    )
    sums = collected(
        {
            "products": items.transform(agg_products(questions)).select(
                "item_id", "month", "quantity", "subtotal"
            ),
            "tpv": sales.transform(agg_tpv(questions)).select("store_id", "half", "amount"),
            "purchases": sales.transform(agg_purchases).select("store_id", "user_id", "purchases"),
        }
    )
    assert sums["products"] == Counter(
        [
            (1, month(2024, 1), 4, 24 * UNIT + 1500),
            (1, month(2024, 2), 5, 1),
            (2, month(2024, 2), 3, -75_000),
            (2, month(2024, 3), -3, 30 * UNIT),
            (2, month(2024, 12), 1, UNIT),
            (2, month(2025, 1), 1, UNIT),
        ]
    )
    assert sums["tpv"] == Counter(
        [
            (1, half(2024, 1), 805_001),
            (1, half(2024, 2), 25 * UNIT),
            (1, half(2025, 1), 5 * UNIT),
            (2, half(2024, 1), -32_500),
        ]
    )
    assert sums["purchases"] == Counter([(1, 7, 4), (1, 8, 1), (2, 8, 1)])


def test_sums_of_several_runs_are_kept_apart(table, collected):
    items, sales = (
        table(name, [row], run="one").union(table(name, [row, row], run="two"))
        for name, row in (
            ("transaction_items", (1, 2, "12.5", "2024-01-01 00:00:00")),
            ("transactions", ("a", 1, 7, "80.5", "2024-01-01 00:00:00")),
        )
    )
    sums = collected(
        {
            "products": items.transform(agg_products(QUESTIONS)).select("run", "quantity", "subtotal"),
            "tpv": sales.transform(agg_tpv(QUESTIONS)).select("run", "amount"),
            "purchases": sales.transform(agg_purchases).select("run", "purchases"),
        }
    )
    assert sums == {
        "products": Counter([("one", 2, 125_000), ("two", 4, 250_000)]),
        "tpv": Counter([("one", 805_000), ("two", 1_610_000)]),
        "purchases": Counter([("one", 1), ("two", 2)]),
    }


def test_a_chunk_without_rows_leaves_nothing_behind(table, collected):
    items, sales = table("transaction_items", []), table("transactions", [])
    sums = collected(
        {
            "products": items.transform(agg_products(QUESTIONS)),
            "tpv": sales.transform(agg_tpv(QUESTIONS)),
            "purchases": sales.transform(agg_purchases),
        }
    )
    assert not any(sums.values())
