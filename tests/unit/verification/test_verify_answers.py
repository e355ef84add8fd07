"""The rules of the questions: bounds, ties, names, order."""

import random

import pytest

from kopitiam.contracts.parameters import Parameters
from kopitiam.verification import expected_answers
from oracle import plain_answers


def answer(shop, name, questions=None):
    return expected_answers(shop.write(), questions or Parameters())[name]


@pytest.mark.parametrize(
    ("created_at", "is_in"),
    [
        ("2023-12-31 12:00:00", False),
        ("2024-01-01 06:00:00", True),
        ("2025-12-31 23:00:00", True),
        ("2026-01-01 12:00:00", False),
        ("2024-05-05 05:59:59", False),
        ("2024-05-05 06:00:00", True),
        ("2024-05-05 23:00:00", True),
        ("2024-05-05 23:00:01", False),
        ("2024-05-05T23:00:00", True),
    ],
)
def test_years_and_hours_are_inclusive_to_the_second(shop, created_at, is_in):
    shop.sell(created_at=created_at)
    answers = expected_answers(shop.write(), Parameters())
    assert bool(answers["1"]) is is_in
    assert bool(answers["3"]) is is_in


@pytest.mark.parametrize(
    ("amount", "rows"),
    [("74.9999", []), ("75", [("t", "75.0")]), ("75.0000", [("t", "75.0")]), ("75.075", [("t", "75.075")])],
)
def test_the_least_amount_is_inclusive(shop, amount, rows):
    shop.sell(final_amount=amount)
    assert answer(shop, "1") == rows


def test_duplicate_rows_are_separate_sales(shop):
    shop.sell()
    shop.sell()
    assert answer(shop, "1") == [("t", "80.0"), ("t", "80.0")]
    assert answer(shop, "3") == [("2024-H1", "North", "160.0")]


def test_large_purchases_are_in_bytewise_order_of_id_then_amount(shop):
    for sale, amount in (("é", "80"), ("z", "80"), ("a", "100"), ("a", "99.5"), ("B", "80")):
        shop.sell(transaction_id=sale, final_amount=amount)
    assert answer(shop, "1") == [("B", "80.0"), ("a", "99.5"), ("a", "100.0"), ("z", "80.0"), ("é", "80.0")]


def test_parameters_other_than_the_defaults_are_obeyed(shop):
    shop.sell(transaction_id="early", created_at="2020-06-30 05:00:00", final_amount="10.5", user_id="2")
    shop.sell(transaction_id="late", created_at="2020-06-30 05:00:01", final_amount="10.5", user_id="2")
    shop.sell(transaction_id="small", created_at="2020-06-30 05:00:00", final_amount="10.4999", user_id="1")
    asked = Parameters(2020, 2020, "05:00:00", "05:00:00", "10.50", 1)
    answers = expected_answers(shop.write(), asked)
    assert answers["1"] == [("early", "10.5")]
    assert answers["3"] == [("2020-H1", "North", "20.9999")]
    assert answers["4"] == [("North", "1980-02-02")]


def test_best_products_count_at_any_hour_and_ties_go_to_the_lowest_item_id(shop):
    shop.sell_item(item_id="2", quantity="3", subtotal="7.5", created_at="2024-02-29 03:00:00")
    shop.sell_item(item_id="1", quantity="3", subtotal="7.50", created_at="2024-02-29 23:59:59")
    shop.sell_item(item_id="1", quantity="1", subtotal="9.001", created_at="2024-03-01 00:00:00")
    shop.sell_item(item_id="2", quantity="2", subtotal="9", created_at="2024-03-31 23:59:59")
    assert answer(shop, "2_1") == [("2024-02", "Espresso", "3"), ("2024-03", "Latte", "2")]
    assert answer(shop, "2_2") == [("2024-02", "Espresso", "7.5"), ("2024-03", "Espresso", "9.001")]


def test_item_ids_are_compared_as_numbers(shop):
    shop.add("menu_items", item_id="10", item_name="Mocha")
    for item in ("10", "9"):
        shop.sell_item(item_id=item)
    assert answer(shop, "2_1") == [("2024-03", "9", "1")]


def test_half_years_change_with_july_and_sums_are_exact(shop):
    shop.sell(final_amount="0.1", created_at="2024-06-30 22:00:00")
    shop.sell(final_amount="0.2", created_at="2024-06-30 22:00:00")
    shop.sell(final_amount="90000000000000.0001", created_at="2024-07-01 07:00:00")
    shop.sell(final_amount="90000000000000.0001", created_at="2024-07-01 07:00:00")
    assert answer(shop, "3") == [("2024-H1", "North", "0.3"), ("2024-H2", "North", "180000000000000.0002")]


def test_stores_of_the_same_name_stay_apart_in_order_of_their_ids(shop):
    shop.add("stores", store_id="10", store_name="North")
    shop.add("stores", store_id="9", store_name="North")
    for store, amount in (("10", "3"), ("9", "2"), ("1", "1")):
        shop.sell(store_id=store, final_amount=amount)
    assert [row[2] for row in answer(shop, "3")] == ["1.0", "2.0", "3.0"]


def test_top_customers_count_at_any_hour_without_the_anonymous_and_ties_go_to_the_lowest_user_id(shop):
    for user in ("10", "9", "8"):
        shop.add("users", user_id=user, birthdate=f"20{user:0>2}-01-01")
        shop.sell(user_id=f"{user}.0", created_at="2025-12-31 02:00:00", final_amount="1")
    for _ in range(5):
        shop.sell(user_id="")
    for _ in range(2):
        shop.sell(user_id="1")
    assert answer(shop, "4") == [("North", "1990-01-01"), ("North", "2008-01-01"), ("North", "2009-01-01")]


def test_ids_missing_from_their_table_show_in_place_of_the_name(shop):
    shop.sell(store_id="77", user_id="88")
    shop.sell(store_id="77", user_id="1")
    shop.sell_item(item_id="99")
    answers = expected_answers(shop.write(), Parameters())
    assert answers["2_1"] == [("2024-03", "99", "1")]
    assert answers["2_2"] == [("2024-03", "99", "6.0")]
    assert answers["3"] == [("2024-H1", "77", "160.0")]
    assert answers["4"] == [("77", ""), ("77", "1990-01-01")]


def test_an_id_listed_twice_counts_once_with_the_smallest_name_and_birthdate(shop):
    shop.add("stores", store_id="1", store_name="Annex")
    shop.add("menu_items", item_id="1.0", item_name="Decaf")
    for born in ("", "1985-05-05", "1999-01-01"):
        shop.add("users", user_id="1", birthdate=born)
    shop.sell(user_id="1")
    shop.sell_item()
    answers = expected_answers(shop.write(), Parameters())
    assert answers["2_1"] == [("2024-03", "Decaf", "1")]
    assert answers["3"] == [("2024-H1", "Annex", "80.0")]
    assert answers["4"] == [("Annex", "1985-05-05")]


@pytest.mark.parametrize("seed", range(3))
def test_plain_python_agrees_on_random_data(shop, seed):
    chance = random.Random(seed)

    def instant():
        year, hour = chance.choice(("2023", "2024", "2025", "2026")), chance.choice(("05", "06", "22", "23"))
        month, second = chance.randint(1, 12), chance.choice(("00:00", "00:01", "59:59"))
        return f"{year}-{month:02}-{chance.randint(1, 28):02} {hour}:{second}"

    for number in range(400):
        amount = f"{chance.randint(0, 1_500_000) / 10_000:.{chance.randint(0, 4)}f}"
        user = chance.choice(("", "1", "2.0", "3", "17.0", "20"))
        store = chance.choice("123")
        shop.sell(
            transaction_id=f"t{number % 300}",
            store_id=store,
            user_id=user,
            final_amount=amount,
            created_at=instant(),
        )
        item, quantity = chance.choice("123"), str(chance.randint(-1, 4))
        shop.sell_item(item_id=item, quantity=quantity, subtotal=amount, created_at=instant())
    questions = Parameters(top=seed + 1)
    assert expected_answers(shop.write(), questions) == plain_answers(shop.folder, questions)
