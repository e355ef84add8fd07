"""Partials of one chunk: by month, by half-year, by customer, in 64 bits or in 38 digits."""

from collections import Counter

import pytest
from plans import KINDS, partial_plan

from kopitiam.contracts.parameters import Parameters
from kopitiam.pipeline.compiler.partials import counts_of, partial_of

UNIT = 10_000
PRODUCTS, TPV, PURCHASES = (partial_plan(name) for name in ("2_1", "3", "4"))


def month(year, number):
    return year * 12 + number - 1


def half(year, number):
    return year * 2 + number - 1


@pytest.mark.parametrize("parameters", [Parameters(), Parameters(2024, 2030), Parameters(1, 9998)])
def test_a_chunk_is_summed_for_any_range_of_years(table, collected, parameters):
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
            ("a", 1, 7, "80.5", "2024-01-01 06:00:00"),
            ("b", 1, 7, "0.0001", "2024-06-30 23:00:00"),
            ("c", 1, 7, "10", "2024-07-01 06:00:00"),
            ("c", 1, 7, "10", "2024-07-01 06:00:00"),  # the same row again
            ("d", 1, None, "5", "2024-12-31 23:00:00"),  # nobody's, but paid
            ("e", 1, 8, "5", "2025-01-01 06:00:00"),
            ("f", 2, 8, "-3.25", "2024-02-29 12:00:00"),
            ("g", 2, None, "0", "2024-02-29 12:00:00"),
        ],
    )
    sums = collected(
        {
            "products": items.transform(partial_of(PRODUCTS, parameters)).select(
                "l0", "l1", "l2", "l3", "l4"
            ),
            "tpv": sales.transform(partial_of(TPV, parameters)).select("l0", "l1", "l2", "l3"),
            "purchases": sales.transform(partial_of(PURCHASES, parameters)).select("l0", "l1", "l2"),
        }
    )
    assert sums["products"] == Counter(  # month, item, rows, quantity, subtotal
        [
            (month(2024, 1), 1, 3, 4, 24 * UNIT + 1500),
            (month(2024, 2), 1, 1, 5, 1),
            (month(2024, 2), 2, 1, 3, -75_000),
            (month(2024, 3), 2, 1, -3, 30 * UNIT),
            (month(2024, 12), 2, 1, 1, UNIT),
            (month(2025, 1), 2, 1, 1, UNIT),
        ]
    )
    assert sums["tpv"] == Counter(  # half-year, store, rows, amount
        [
            (half(2024, 1), 1, 2, 805_001),
            (half(2024, 2), 1, 3, 25 * UNIT),
            (half(2025, 1), 1, 1, 5 * UNIT),
            (half(2024, 1), 2, 2, -32_500),
        ]
    )
    assert sums["purchases"] == Counter([(1, 7, 4), (1, 8, 1), (2, 8, 1)])


def test_wide_sums_are_exact_where_64_bits_are_not_enough(table, collected):
    largest, noon = "99999999999999.9999", "2024-03-01 12:00:00"
    sales = table("transactions", [(f"sale {row}", 1, None, largest, noon) for row in range(20)])
    wide = sales.transform(partial_of(TPV, Parameters(), is_wide=True)).selectExpr("l2", "CAST(w0 AS STRING)")
    assert collected({"wide": wide})["wide"] == Counter([(20, str(20 * (10**18 - 1)))])


def test_rows_of_several_runs_and_shards_are_summed_apart(table, collected):
    sales = table("transactions", [("a", 1, 7, "80.5", "2024-01-01 12:00:00")], run="one").union(
        table("transactions", [("a", 1, 7, "80.5", "2024-01-01 12:00:00")] * 2, run="two")
    )
    sums = collected(
        {
            "runs": sales.drop("table", "shard").transform(partial_of(TPV, Parameters())).select("run", "l3"),
            "both": sales.drop("table")
            .transform(partial_of(PURCHASES, Parameters()))
            .select("run", "shard", "l2"),
            "neither": sales.drop("table", "run", "shard")
            .transform(partial_of(TPV, Parameters()))
            .select("l3"),
        }
    )
    assert sums == {
        "runs": Counter([("one", 805_000), ("two", 1_610_000)]),
        "both": Counter([("one", 0, 1), ("two", 0, 2)]),
        "neither": Counter([(2_415_000,)]),
    }


def test_rows_are_counted_by_the_conditions_that_they_meet(table, collected):
    sales = table(
        "transactions",
        [
            ("a", 1, 7, "80", "2023-12-31 12:00:00"),
            ("b", 1, 7, "80", "2024-01-01 12:00:00"),
            ("c", 1, None, "80", "2024-01-01 23:00:01"),
        ],
    ).drop("table", "run", "shard")
    counted = counts_of(
        [frozenset({"@year"}), frozenset({"@year", "@hour"}), frozenset({"@hour"})], Parameters()
    )
    assert collected({"counts": sales.transform(counted)})["counts"] == Counter([(2, 1, 2)])


def test_a_chunk_without_rows_has_empty_partials(table, collected):
    empty = {"transactions": table("transactions", []), "transaction_items": table("transaction_items", [])}
    partials = {
        name: empty[partial_plan(name).fact].transform(partial_of(partial_plan(name), Parameters()))
        for name in KINDS
    }
    assert not any(collected(partials).values())
