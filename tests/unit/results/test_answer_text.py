"""Answers as text: amounts, CSV cells and JSON lines, for any content."""

import csv
import io
import json
from datetime import date
from decimal import Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kopitiam.contracts.money import to_text
from kopitiam.results.answers import money_of_units
from kopitiam.results.text import csv_lines, json_lines, plain_text

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.text('a",\n ', max_size=6)
UNITS = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(UNITS | st.none(), max_size=20))
def test_amounts_are_written_as_the_contract_says(units):
    texts = plain_text(money_of_units(pa.array(units, pa.int64()))).to_pylist()
    assert texts == ["" if unit is None else to_text(unit) for unit in units]


@given(st.lists(st.tuples(TEXTS, TEXTS | st.none(), UNITS), max_size=8))
def test_csv_is_quoted_as_by_the_csv_module(rows):
    # Python 3.11 leaves a lone carriage return bare, which the next test looks at.
    rows = [tuple(cell.replace("\r", "") if isinstance(cell, str) else cell for cell in row) for row in rows]
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator="\n").writerows(rows)
    names, cities, numbers = zip(*rows, strict=True) if rows else ((), (), ())
    columns = [pa.array(names, pa.string()), pa.array(cities, pa.string()), pa.array(numbers, pa.int64())]
    assert "".join(f"{line}\n" for line in csv_lines(columns).to_pylist()) == file.getvalue()


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=8))
def test_csv_reads_back_whatever_the_cells_hold(rows):
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
