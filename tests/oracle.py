"""The five answers in plain Python, with dicts and Decimal, from a folder of clean CSV files."""

import csv
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

from kopitiam.contracts.parameters import Parameters

Row = dict[str, str]
Rows = list[tuple[str, ...]]


def plain_answers(folder: Path, questions: Parameters) -> dict[str, Rows]:
    """Return the rows of each answer file; the same result as `expected_answers`, computed differently."""
    sales = [row for row in rows_of(folder, "transactions") if _is_in_years(row, questions)]
    items = [row for row in rows_of(folder, "transaction_items") if _is_in_years(row, questions)]
    in_hours = [row for row in sales if questions.opening <= row["created_at"][11:] <= questions.closing]
    stores = _lookup(folder, "stores", "store_id", "store_name")
    products = _lookup(folder, "menu_items", "item_id", "item_name")
    birthdates = _lookup(folder, "users", "user_id", "birthdate")
    return {
        "1": _large_purchases(in_hours, Decimal(questions.min_amount)),
        "2_1": _best_products(items, products, "quantity", str),
        "2_2": _best_products(items, products, "subtotal", money_text),
        "3": _payment_value(in_hours, stores),
        "4": _top_customers(sales, stores, birthdates, questions.top),
    }


def rows_of(folder: Path, table: str) -> Iterator[Row]:
    for path in sorted((folder / table).glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            yield from csv.DictReader(file)


def id_of(text: str) -> int:
    return int(Decimal(text))


def money_text(amount: Decimal) -> str:
    text = f"{amount:.4f}".rstrip("0")
    return text + "0" if text.endswith(".") else text


def _is_in_years(row: Row, questions: Parameters) -> bool:
    return questions.first_year <= int(row["created_at"][:4]) <= questions.last_year


def _lookup(folder: Path, table: str, key: str, value: str) -> dict[int, str]:
    found: dict[int, str] = {}
    for row in rows_of(folder, table):
        if row[value]:
            found[id_of(row[key])] = min(row[value], found.get(id_of(row[key]), row[value]))
    return found


def _large_purchases(sales: list[Row], least: Decimal) -> Rows:
    large = [(row["transaction_id"], Decimal(row["final_amount"])) for row in sales]
    return [(sale, money_text(amount)) for sale, amount in sorted(large) if amount >= least]


def _best_products(
    items: list[Row], names: dict[int, str], column: str, show: Callable[[Decimal], str]
) -> Rows:
    sums: dict[str, dict[int, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    for row in items:
        sums[row["created_at"][:7]][id_of(row["item_id"])] += Decimal(row[column])
    answer = []
    for month, by_item in sorted(sums.items()):
        best = min(by_item, key=lambda item: (-by_item[item], item))
        answer.append((month, names.get(best, str(best)), show(by_item[best])))
    return answer


def _payment_value(sales: list[Row], stores: dict[int, str]) -> Rows:
    totals: dict[tuple[str, int], Decimal] = defaultdict(Decimal)
    for row in sales:
        half = "H1" if row["created_at"][5:7] <= "06" else "H2"
        totals[f"{row['created_at'][:4]}-{half}", id_of(row["store_id"])] += Decimal(row["final_amount"])
    named = [(half, stores.get(store, str(store)), store, total) for (half, store), total in totals.items()]
    return [(half, name, money_text(total)) for half, name, _, total in sorted(named)]


def _top_customers(sales: list[Row], stores: dict[int, str], birthdates: dict[int, str], top: int) -> Rows:
    answer = []
    for store, purchases in purchases_by_store(sales).items():
        ranked = sorted(purchases, key=lambda user: (-purchases[user], user))
        answer += [(stores.get(store, str(store)), birthdates.get(user, "")) for user in ranked[:top]]
    return sorted(answer)


def purchases_by_store(sales: list[Row]) -> dict[int, Counter[int]]:
    purchases: dict[int, Counter[int]] = defaultdict(Counter)
    for row in sales:
        if row["user_id"]:
            purchases[id_of(row["store_id"])][id_of(row["user_id"])] += 1
    return purchases
