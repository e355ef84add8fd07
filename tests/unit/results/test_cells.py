"""Values as text: exact for people, and quoted and escaped for CSV and JSON, whatever they contain."""

import csv
import io
import json
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopitiam.contracts.money import to_text
from kopitiam.contracts.tables import Kind
from kopitiam.questions.definitions import AnswerColumn
from kopitiam.results.answers import money_of_units
from kopitiam.results.cells import cell_text, csv_lines, json_lines, plain_text, ringgit


@pytest.mark.parametrize(
    ("kind", "role", "value", "text"),
    [
        (Kind.MONEY, "measure", Decimal("6415.4412"), "RM 6,415.4412"),
        (Kind.MONEY, "key", Decimal("75"), "RM 75.00"),
        (Kind.MONEY, "measure", Decimal("-0.5000"), "-RM 0.50"),
        (
            Kind.MONEY,
            "measure",
            Decimal("9999999999999999999999999999999999.9999"),
            "RM 9,999,999,999,999,999,999,999,999,999,999,999.9999",
        ),
        (Kind.NUMBER, "measure", Decimal("2.0000"), "2.0"),
        (Kind.NUMBER, "measure", Decimal("1234.3333"), "1,234.3333"),
        (Kind.COUNT, "measure", 1009, "1,009"),
        (Kind.COUNT, "key", 2024, "2024"),
        (Kind.COUNT, "rank", 1, "1"),
        (Kind.ID, "key", 1234567, "1234567"),
        (Kind.DATE, "attribute", date(1990, 1, 1), "1990-01-01"),
        (Kind.INSTANT, "key", datetime(2024, 1, 31, 22, 59, 59), "2024-01-31 22:59:59"),
        (Kind.BOOLEAN, "key", True, "yes"),
        (Kind.BOOLEAN, "key", False, "no"),
        (Kind.TEXT, "attribute", "North", "North"),
        (Kind.DATE, "attribute", None, "empty"),
        (Kind.MONEY, "measure", None, "empty"),
    ],
)
def test_every_kind_has_its_text(kind, role, value, text):
    assert cell_text(AnswerColumn("c", kind, role), value) == text


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        ("12055387.76", "RM 12,055,387.76"),
        ("75.0", "RM 75.00"),
        ("115922.885", "RM 115,922.885"),
        ("0.0001", "RM 0.0001"),
        ("99999999999999.9999", "RM 99,999,999,999,999.9999"),
        ("-5.5", "-RM 5.50"),
        (Decimal("1E+3"), "RM 1,000.00"),
        (Decimal("75.0000"), "RM 75.00"),
    ],
)
def test_ringgit_have_separators_and_at_least_two_decimals(amount, shown):
    assert ringgit(amount) == shown


@given(st.integers(-(10**18), 10**18))
def test_ringgit_keep_every_digit(units):
    shown = ringgit(to_text(units))
    assert Decimal(shown.replace("RM ", "").replace(",", "")) == Decimal(to_text(units))


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.text('a",\n ', max_size=6)
UNITS = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(UNITS | st.none(), max_size=20))
def test_amounts_are_written_as_the_contract_says(units):
    texts = plain_text(money_of_units(pa.array(units, pa.int64()))).to_pylist()
    assert texts == ["" if unit is None else to_text(unit) for unit in units]


@given(st.lists(st.tuples(TEXTS, TEXTS | st.none(), UNITS), max_size=8))
def test_csv_is_quoted_like_the_csv_module_does(rows):
    # Python 3.11 leaves a lone carriage return bare, which the next test looks at.
    rows = [tuple(cell.replace("\r", "") if isinstance(cell, str) else cell for cell in row) for row in rows]
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator="\n").writerows(rows)
    names, cities, numbers = zip(*rows, strict=True) if rows else ((), (), ())
    columns = [pa.array(names, pa.string()), pa.array(cities, pa.string()), pa.array(numbers, pa.int64())]
    assert "".join(f"{line}\n" for line in csv_lines(columns).to_pylist()) == file.getvalue()


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=8))
def test_csv_of_any_cells_is_read_back_unchanged(rows):
    columns = [pa.array([row[i] for row in rows], pa.string()) for i in range(2)]
    text = "".join(f"{line}\n" for line in csv_lines(columns).to_pylist())
    assert [tuple(row) for row in csv.reader(io.StringIO(text, newline=""))] == rows


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                'name "of" it': TEXTS | st.none(),
                "amount": UNITS | st.none(),
                "count": UNITS | st.none(),
                "born": st.dates() | st.none(),
                "is_known": st.booleans() | st.none(),
            }
        ),
        max_size=8,
    )
)
def test_json_lines_parse_back_to_the_same_values(rows):
    def column(name, kind):
        return pa.array([row[name] for row in rows], kind)

    names = ['name "of" it', "amount", "count", "born", "is_known"]
    amounts = money_of_units(column("amount", pa.int64()))
    others = {"count": pa.int64(), "born": pa.date32(), "is_known": pa.bool_()}
    columns = [column(names[0], pa.string()), amounts, *(column(name, kind) for name, kind in others.items())]
    lines = json_lines(names, columns).to_pylist()
    assert [json.loads(line, parse_float=Decimal) for line in lines] == [
        row
        | {
            "amount": None if row["amount"] is None else Decimal(to_text(row["amount"])),
            "born": None if row["born"] is None else str(row["born"]),
        }
        for row in rows
    ]


@given(st.lists(TEXTS | st.none(), max_size=8))
def test_csv_of_one_column_has_a_row_for_each_empty_cell(cells):
    lines = csv_lines([pa.array(cells, pa.string())]).to_pylist()
    text = "".join(f"{line}\n" for line in lines)
    assert list(csv.reader(io.StringIO(text, newline=""))) == [[cell or ""] for cell in cells]


def test_nulls_are_empty_in_csv_and_null_in_json():
    columns = [pa.array(["a", None]), pa.array([None, date(1990, 1, 1)], pa.date32())]
    assert csv_lines(columns).to_pylist() == ["a,", ",1990-01-01"]
    assert json_lines(["x", "y"], columns).to_pylist() == [
        '{"x":"a","y":null}',
        '{"x":null,"y":"1990-01-01"}',
    ]
