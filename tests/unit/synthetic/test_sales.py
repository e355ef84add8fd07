"""The content of generated rows, read back with the standard library only."""

import csv
import re
from collections import Counter, defaultdict
from datetime import date, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pytest

from kopitiam.questions.layout import LAYOUT
from kopitiam.synthetic import Profile, generate

Rows = list[dict[str, str]]

UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
AMOUNT = re.compile(r"(0|[1-9]\d*)\.(\d|\d{1,2}[1-9])")
FLOAT_ID = re.compile(r"([1-9]\d*\.0)?")


class Dataset:
    """A generated folder, read back by month."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.transactions = self._monthly("transactions")
        self.items = self._monthly("transaction_items")
        self.users = self._monthly("users")

    def _monthly(self, table: str) -> dict[str, Rows]:
        files = sorted((self.folder / table).iterdir())
        return {path.stem.rpartition("_")[2]: read(path) for path in files}


def read(path: Path) -> Rows:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def header(path: Path) -> str:
    return path.read_text().partition("\n")[0]


def every(months: dict[str, Rows]) -> Rows:
    return [row for rows in months.values() for row in rows]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    out = tmp_path_factory.mktemp("synthetic") / "rows"
    generate(out, 0.002, seed=7)
    return Dataset(out)


def test_columns_are_those_of_the_exports(dataset: Dataset) -> None:
    assert header(dataset.folder / "transactions/transactions_202307.csv") == (
        "transaction_id,store_id,payment_method_id,voucher_id,user_id,"
        "original_amount,discount_applied,final_amount,created_at"
    )
    assert header(dataset.folder / "transaction_items/transaction_items_202307.csv") == (
        "transaction_id,item_id,quantity,unit_price,subtotal,created_at"
    )
    assert header(dataset.folder / "users/users_202307.csv") == "user_id,gender,birthdate,registered_at"
    assert header(dataset.folder / "stores/stores.csv") == (
        "store_id,store_name,street,postal_code,city,state,latitude,longitude"
    )
    assert header(dataset.folder / "menu_items/menu_items.csv") == (
        "item_id,item_name,category,price,is_seasonal,available_from,available_to"
    )


def test_amounts_are_the_exact_sums_of_their_items(dataset: Dataset) -> None:
    subtotals: defaultdict[str, Decimal] = defaultdict(Decimal)
    for item in every(dataset.items):
        assert Decimal(item["subtotal"]) == int(item["quantity"]) * Decimal(item["unit_price"])
        subtotals[item["transaction_id"]] += Decimal(item["subtotal"])

    for sale in every(dataset.transactions):
        original, discount = Decimal(sale["original_amount"]), Decimal(sale["discount_applied"])
        assert original == subtotals.pop(sale["transaction_id"])
        assert 0 <= discount <= original
        assert Decimal(sale["final_amount"]) == original - discount
    assert not subtotals


def test_only_vouchers_give_discounts_and_some_have_three_decimals(dataset: Dataset) -> None:
    sales = every(dataset.transactions)

    assert all((sale["voucher_id"] != "") == (sale["discount_applied"] != "0.0") for sale in sales)
    assert any(re.search(r"\.\d{3}$", sale["final_amount"]) for sale in sales)


def test_cells_are_spelled_like_the_exports(dataset: Dataset) -> None:
    for sale in every(dataset.transactions):
        assert UUID4.fullmatch(sale["transaction_id"])
        assert FLOAT_ID.fullmatch(sale["user_id"])
        assert FLOAT_ID.fullmatch(sale["voucher_id"])
        for column in ("original_amount", "discount_applied", "final_amount"):
            assert AMOUNT.fullmatch(sale[column])


def test_items_belong_to_the_menu_and_share_the_time_of_their_transaction(dataset: Dataset) -> None:
    prices = {item["item_id"]: item["price"] for item in read(dataset.folder / "menu_items/menu_items.csv")}
    for label, items in dataset.items.items():
        sold_at = {sale["transaction_id"]: sale["created_at"] for sale in dataset.transactions[label]}
        assert all(item["unit_price"] == prices[item["item_id"]] for item in items)
        assert all(item["created_at"] == sold_at[item["transaction_id"]] for item in items)
        assert all(item["quantity"] in ("1", "2", "3") for item in items)


def test_transaction_ids_are_unique_but_pairs_with_an_item_are_not(dataset: Dataset) -> None:
    sizes = Counter(item["transaction_id"] for item in every(dataset.items))
    pairs = Counter((item["transaction_id"], item["item_id"]) for item in every(dataset.items))

    assert len(sizes) == len(every(dataset.transactions))
    assert set(sizes.values()) == {1, 2, 3, 4}
    assert max(pairs.values()) > 1


def test_about_one_sale_in_a_hundred_reaches_75(dataset: Dataset) -> None:
    finals = [Decimal(sale["final_amount"]) for sale in every(dataset.transactions)]

    assert 0.007 < sum(final >= 75 for final in finals) / len(finals) < 0.017
    assert Decimal(75) in finals
    assert any(Decimal("74.5") <= final < 75 for final in finals)


def test_sales_stay_in_their_month_and_follow_the_clock(dataset: Dataset) -> None:
    for label, sales in dataset.transactions.items():
        instants = [sale["created_at"] for sale in sales]
        assert all(datetime.fromisoformat(instant).strftime("%Y%m") == label for instant in instants)
        assert instants == sorted(instants)


def test_every_month_has_sales_right_on_the_bounds_of_the_day(dataset: Dataset) -> None:
    for sales in dataset.transactions.values():
        clocks = {sale["created_at"][11:] for sale in sales}
        assert {"05:59:59", "06:00:00", "23:00:00", "23:00:01"} <= clocks


def test_years_and_half_years_have_sales_right_on_their_bounds(dataset: Dataset) -> None:
    instants = {sale["created_at"] for sale in every(dataset.transactions)}
    for last_day, first_day in (
        ("2023-12-31", "2024-01-01"),
        ("2024-06-30", "2024-07-01"),
        ("2024-12-31", "2025-01-01"),
    ):
        assert {f"{last_day} {clock}" for clock in ("22:30:00", "22:59:59", "23:59:59")} <= instants
        assert {f"{first_day} {clock}" for clock in ("00:00:00", "06:00:00")} <= instants


def test_anonymous_sales_fall_from_most_to_few(dataset: Dataset) -> None:
    shares = [
        sum(sale["user_id"] == "" for sale in sales) / len(sales) for sales in dataset.transactions.values()
    ]

    assert 0.85 < shares[0] < 0.95
    assert 0.04 < shares[-1] < 0.11
    assert all(later < earlier + 0.04 for earlier, later in pairwise(shares))


def test_customers_have_registered_by_the_month_of_their_purchase(dataset: Dataset) -> None:
    registered = 0
    for label, sales in dataset.transactions.items():
        registered += len(dataset.users[label])
        customers = {int(sale["user_id"].removesuffix(".0")) for sale in sales if sale["user_id"]}
        assert customers <= set(range(1, registered + 1))


def test_users_are_numbered_without_gaps_but_not_in_order(dataset: Dataset) -> None:
    ids = [int(user["user_id"]) for user in every(dataset.users)]
    last_month = [int(user["user_id"]) for user in dataset.users["202506"]]

    assert sorted(ids) == list(range(1, len(ids) + 1))
    assert last_month != sorted(last_month)


def test_users_are_born_from_1950_to_2012_and_register_in_their_month(dataset: Dataset) -> None:
    for label, users in dataset.users.items():
        for user in users:
            assert date(1950, 1, 1) <= date.fromisoformat(user["birthdate"]) <= date(2012, 12, 31)
            assert datetime.fromisoformat(user["registered_at"]).strftime("%Y%m") == label


def test_each_store_has_favourite_customers_and_ties(dataset: Dataset) -> None:
    purchases: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for sale in every(dataset.transactions):
        if sale["user_id"]:
            purchases[sale["store_id"]][sale["user_id"]] += 1

    assert len(purchases) == 10
    assert len({customers.most_common(1)[0][0] for customers in purchases.values()}) > 1
    for customers in purchases.values():
        counts = sorted(customers.values(), reverse=True)
        assert counts[0] > counts[9]
        assert len(set(counts)) < len(counts)


@pytest.mark.parametrize("profile", list(Profile))
def test_every_table_has_the_columns_of_the_layout(tmp_path: Path, profile: Profile) -> None:
    generate(tmp_path, 0.0001, seed=3, profile=profile)
    for table in LAYOUT.values():
        for path in (tmp_path / table.name).iterdir():
            assert header(path) == ",".join(table.by_name)
