"""Which rows are accepted and which are rejected, the same as in the intake."""

from datetime import UTC
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.tables import Column, Kind
from kopitiam.intake.cells import bad_cells, convert
from kopitiam.verification import expected_answers
from kopitiam.verification.rows import CONVERSIONS, RowCount, load_tables


def counts(folder, table):
    with load_tables(folder) as tables:
        return tables.counts[table]


GOOD_IDS = ["1", "1.0", "1.", "1." + "0" * 15, " 1\t", "0", "007", "99999999999999999"]
BAD_IDS = [
    "", " ", "-1", "+1", "1.5", "1e2", "1.0e1", "0x1", "one", "1 2", "١", ".0", "1." + "0" * 16, "0" * 18,
    "100000000000000000",
]  # fmt: skip
GOOD_MONEY = [
    "0", "-5", "+5", ".5", "5.", "-.0001", " 75.0\t", "75.00000", "75.1234" + "0" * 12, "." + "0" * 16,
    "00000000000075", "99999999999999.9999",
]  # fmt: skip
BAD_MONEY = [
    "", "nan", "inf", "1,5", "75.00001", "1e2", "7.5E+1", "1e-5", "5e-40", "1e14", "100000000000000",
    "000000000000075", "75.1234" + "0" * 13, "." + "0" * 17, "0." + "0" * 40, "1_0", "--5", "- 5", ".", "-",
]  # fmt: skip
GOOD_INSTANTS = ["2024-02-29 00:00:00", "2024-01-01T23:59:59", "0001-01-01 00:00:00", "9999-12-31 23:59:59"]
BAD_INSTANTS = [
    "",
    "2024-01-01",
    "2024-01-01 10:00",
    "2023-02-29 10:00:00",
    "2024-02-30 10:00:00",
    "2024-13-01 10:00:00",
    "2024-01-01 24:00:00",
    "2024-01-01 23:59:60",
    " 2024-01-01 10:00:00",
    "2024-01-01 10:00:00.5",
    "2024-01-01 10:00:00Z",
    "2024/01/01 10:00:00",
    "0000-01-01 10:00:00",
]
GOOD_COUNTS = ["0", "-3", "+3", "3.0", "-3.", " 3\t", "99999999999999999", "3." + "0" * 15]
BAD_COUNTS = ["", "1.5", "1e2", "100000000000000000", "3." + "0" * 16, "--3", "two"]
GOOD_DATES = ["", "2000-02-29", "0001-01-01"]
BAD_DATES = ["0000-01-01", "1900-02-29", "1990-1-1", "1990-01-01 00:00:00", " 1990-01-01", "01/01/1990"]

GOOD_CELLS = {
    ("transactions", "store_id"): GOOD_IDS,
    ("transactions", "user_id"): ["", *GOOD_IDS],
    ("transactions", "final_amount"): GOOD_MONEY,
    ("transactions", "created_at"): GOOD_INSTANTS,
    ("transaction_items", "item_id"): GOOD_IDS,
    ("transaction_items", "quantity"): GOOD_COUNTS,
    ("transaction_items", "subtotal"): GOOD_MONEY,
    ("transaction_items", "created_at"): GOOD_INSTANTS,
    ("users", "user_id"): GOOD_IDS,
    ("users", "birthdate"): GOOD_DATES,
    ("stores", "store_id"): GOOD_IDS,
    ("menu_items", "item_id"): GOOD_IDS,
}
BAD_CELLS = {
    ("transactions", "transaction_id"): [""],
    ("transactions", "store_id"): BAD_IDS,
    ("transactions", "user_id"): BAD_IDS[1:],
    ("transactions", "final_amount"): BAD_MONEY,
    ("transactions", "created_at"): BAD_INSTANTS,
    ("transaction_items", "item_id"): BAD_IDS,
    ("transaction_items", "quantity"): BAD_COUNTS,
    ("transaction_items", "subtotal"): BAD_MONEY,
    ("transaction_items", "created_at"): BAD_INSTANTS,
    ("users", "user_id"): BAD_IDS,
    ("users", "birthdate"): BAD_DATES,
    ("stores", "store_id"): BAD_IDS,
    ("stores", "store_name"): [""],
    ("menu_items", "item_id"): BAD_IDS,
    ("menu_items", "item_name"): [""],
}
WHOLE_ROWS = {
    "users": {"user_id": "5"},
    "stores": {"store_id": "5", "store_name": "East"},
    "menu_items": {"item_id": "5", "item_name": "Mocha"},
}


def add_row(shop, table, **cells):
    if table == "transactions":
        shop.sell(**cells)
    elif table == "transaction_items":
        shop.sell_item(**cells)
    else:
        shop.add(table, **(WHOLE_ROWS[table] | cells))


@pytest.mark.parametrize(("table", "column"), GOOD_CELLS)
def test_good_cells_count(shop, table, column):
    before = len(shop.rows[table])
    for cell in GOOD_CELLS[table, column]:
        add_row(shop, table, **{column: cell})
    assert counts(shop.write(), table) == RowCount(before + len(GOOD_CELLS[table, column]), 0)


@pytest.mark.parametrize(("table", "column"), BAD_CELLS)
def test_bad_cells_reject_their_row_and_no_other(shop, table, column):
    before = len(shop.rows[table])
    for cell in BAD_CELLS[table, column]:
        add_row(shop, table, **{column: cell})
    assert counts(shop.write(), table) == RowCount(before, len(BAD_CELLS[table, column]))


def test_columns_that_no_question_needs_may_hold_anything(shop):
    shop.sell(payment_method_id="?", original_amount="nan", voucher_id="x,y", discount_applied='"')
    assert counts(shop.write(), "transactions") == RowCount(1, 0)


def test_rows_with_too_few_or_too_many_fields_are_rejected_once_each(shop):
    shop.write()
    rows = [
        "1,Espresso,",
        "2,Latte",
        "",
        "3,Mocha,,",
        "4,Mocha,,,",
        "5,Mocha,hot,1,2,3",
        "6",
        " ",
        ",,,",
        "7,Tea,hot",
    ]
    for name, line_end in (("a", "\n"), ("b", "\r\n")):
        content = line_end.join(["item_id,item_name,category", *rows])
        shop.folder.joinpath("menu_items", f"menu_items_{name}.csv").write_bytes(content.encode())
    assert counts(shop.folder, "menu_items") == RowCount(2 + 2 * 2, 2 * 7)


def test_amounts_in_every_spelling_keep_their_value(shop):
    for sale, amount in (("a", "00100."), ("b", "+76.50"), ("c", "75.0001000"), ("d", " +120\t")):
        shop.sell(transaction_id=sale, final_amount=amount)
    rows = expected_answers(shop.write(), Parameters())["1"]
    assert rows == [("a", "100.0"), ("b", "76.5"), ("c", "75.0001"), ("d", "120.0")]


def test_quantities_in_every_spelling_keep_their_value(shop):
    for quantity in ("+10", "-3.0", " 2.\t"):
        shop.sell_item(quantity=quantity)
    assert expected_answers(shop.write(), Parameters())["2_1"] == [("2024-03", "Espresso", "9")]


SIGNS_AND_BLANKS = st.sampled_from(["", "", "", " ", "\t", "+", "-", "- ", "--"])
NUMBERS = st.builds(
    "{}{}{}{}".format,
    SIGNS_AND_BLANKS,
    st.sampled_from(["", "0", "7", "075", "9" * 14, "9" * 15, "9" * 17, "9" * 18]),
    st.builds(
        "{}{}{}".format,
        st.sampled_from(["", "."]),
        st.text("0059", max_size=5),
        st.integers(0, 17).map("0".__mul__),
    ),
    st.sampled_from(["", "", "", " ", "\t", "e2", "e-40", "\n"]),
)
DATES = st.builds("{:04}-{:02}-{:02}".format, st.integers(0, 9999), st.integers(0, 13), st.integers(0, 32))
CLOCKS = st.builds("{:02}:{:02}:{:02}".format, st.integers(0, 24), st.integers(0, 60), st.integers(0, 60))
INSTANTS = st.builds("{}{}{}".format, DATES, st.sampled_from([" ", "T", ""]), CLOCKS)
ANYTHING = st.text("0123456789.+-eE \t:T_é٣", min_size=1, max_size=20)
CELLS = st.lists(NUMBERS.filter(bool) | DATES | INSTANTS | ANYTHING, max_size=30)
KINDS = {
    Kind.ID: ("as_id", lambda value: value),
    Kind.COUNT: ("as_count", lambda value: value),
    Kind.MONEY: ("as_money", lambda value: int(value * Decimal(10_000))),
    Kind.INSTANT: ("as_instant", lambda value: value.replace(tzinfo=UTC)),
    Kind.DATE: ("as_date", lambda value: value),
}


@pytest.fixture(scope="module")
def database():
    with duckdb.connect() as connection:
        connection.execute(CONVERSIONS)
        yield connection


@pytest.mark.parametrize("kind", KINDS)
@given(texts=CELLS)
def test_the_check_and_the_intake_accept_the_same_cells(database, kind, texts):
    macro, at_rest = KINDS[kind]
    column = Column("cell", kind)
    cells = pa.array(texts, pa.string())
    bad = bad_cells(column, cells)
    kept = iter(convert(column, cells.filter(pa.array(~bad))).to_pylist())
    expected = [None if is_bad else next(kept) for is_bad in bad]
    query = f"SELECT {macro}(cell) FROM (SELECT unnest($cells::VARCHAR[]) AS cell)"
    found = [value for (value,) in database.execute(query, {"cells": texts}).fetchall()]
    if kind is Kind.DATE:
        expected = [value and value.isoformat() for value in expected]
    assert [None if value is None else at_rest(value) for value in found] == expected
