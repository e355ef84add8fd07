"""Partials are added before they are ranked; of equals the lowest id wins."""

from collections import Counter

import pytest

from kopitiam.contracts.questions import Questions
from kopitiam.pipeline.stages.maximizers import max_products, sum_tpv, top_customers


@pytest.fixture
def product_partials(spark):
    rows = [
        # month 1: the largest partial is item 1's, the largest sum item 2's
        (1, 1, 10, 10),
        (2, 1, 6, 6),
        (2, 1, 6, 6),
        # month 2: equals in both figures
        (30, 2, 5, 50),
        (4, 2, 5, 50),
        (200, 2, 5, 50),
        # month 3: one sells most, another earns most
        (7, 3, 9, 10),
        (8, 3, 1, 90),
        # month 4: nothing but losses
        (5, 4, -3, -30),
        (6, 4, -2, -40),
        # month 5: an id of 0 against its equal
        (0, 5, 1, 1),
        (1, 5, 1, 1),
    ]
    return spark.createDataFrame(rows, "item_id long, month int, quantity long, subtotal long")


@pytest.fixture
def customer_partials(spark):
    rows = [
        # store 1: user 9 wins by adding; 20, 3 and 100 are equal behind
        (1, 9, 2),
        (1, 9, 2),
        (1, 20, 3),
        (1, 3, 3),
        (1, 100, 1),
        (1, 100, 2),
        (1, 5, 1),
        # store 2: fewer customers than asked for
        (2, 9, 1),
        # store 3: exactly three, all equal
        (3, 33, 1),
        (3, 11, 1),
        (3, 22, 1),
    ]
    return spark.createDataFrame(rows, "store_id long, user_id long, purchases long")


def test_products_are_ranked_by_their_sums(product_partials, collected):
    best = product_partials.transform(max_products).select(
        "month", "best_item_id", "sellings_qty", "richest_item_id", "profit_sum"
    )
    assert collected({"best": best})["best"] == Counter(
        [(1, 2, 12, 2, 12), (2, 4, 5, 4, 50), (3, 7, 9, 8, 90), (4, 6, -2, 5, -30), (5, 0, 1, 0, 1)]
    )


def test_payment_value_is_added_up_by_store_and_half(spark, collected):
    rows = [(1, 4048, 100), (1, 4048, -30), (1, 4049, 5), (2, 4048, 0), (2, 4048, 999_999_999_999_999_999)]
    partials = spark.createDataFrame(rows, "store_id long, half long, amount long")
    total = partials.transform(sum_tpv).select("store_id", "half", "tpv")
    assert collected({"total": total})["total"] == Counter(
        [(1, 4048, 70), (1, 4049, 5), (2, 4048, 999_999_999_999_999_999)]
    )


def test_of_customers_with_equal_purchases_the_lowest_ids_win(customer_partials, collected):
    columns = ("store_id", "rank", "user_id", "purchases")
    top = collected(
        {
            str(n): customer_partials.transform(top_customers(Questions(top=n))).select(*columns)
            for n in (1, 3, 5)
        }
    )
    first = [(1, 1, 9, 4), (2, 1, 9, 1), (3, 1, 11, 1)]
    three = [*first, (1, 2, 3, 3), (1, 3, 20, 3), (3, 2, 22, 1), (3, 3, 33, 1)]
    five = [*three, (1, 4, 100, 3), (1, 5, 5, 1)]
    assert top == {"1": Counter(first), "3": Counter(three), "5": Counter(five)}
