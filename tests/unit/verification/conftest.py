"""Folders of CSV files to check answers on: small ones made by hand."""

import csv
from collections.abc import Sequence
from pathlib import Path

import pytest

HEADERS = {
    "transactions": "transaction_id,store_id,payment_method_id,voucher_id,user_id,"
    "original_amount,discount_applied,final_amount,created_at",
    "transaction_items": "transaction_id,item_id,quantity,unit_price,subtotal,created_at",
    "users": "user_id,gender,birthdate,registered_at",
    "stores": "store_id,store_name,street,postal_code,city,state,latitude,longitude",
    "menu_items": "item_id,item_name,category,price,is_seasonal,available_from,available_to",
}


class Shop:
    """A folder of CSV files with two stores, two products and two customers, and what a test adds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: dict[str, list[dict[str, str]]] = {table: [] for table in HEADERS}
        for number, name in (("1", "North"), ("2", "South")):
            self.add("stores", store_id=number, store_name=name)
        for number, name in (("1", "Espresso"), ("2", "Latte")):
            self.add("menu_items", item_id=number, item_name=name)
        for number, born in (("1", "1990-01-01"), ("2", "1980-02-02")):
            self.add("users", user_id=number, birthdate=born)

    def add(self, table: str, **cells: str) -> None:
        self.rows[table].append(cells)

    def sell(self, **cells: str) -> None:
        sale = {"transaction_id": "t", "store_id": "1", "user_id": "", "final_amount": "80.0"}
        self.add("transactions", **(sale | {"created_at": "2024-03-01 12:00:00"} | cells))

    def sell_item(self, **cells: str) -> None:
        item = {"item_id": "1", "quantity": "1", "subtotal": "6.0", "created_at": "2024-03-01 12:00:00"}
        self.add("transaction_items", **(item | cells))

    def write(self) -> Path:
        for table, names in HEADERS.items():
            header = names.split(",")
            rows = [[cells.get(column, "") for column in header] for cells in self.rows[table]]
            write_csv(self.folder / table / f"{table}.csv", [header, *rows])
        return self.folder


def write_csv(path: Path, rows: Sequence[Sequence[str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "data")
