"""The check and the intake judge every cell alike, each with its own means."""

from datetime import UTC
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopitiam.contracts.tables import Column, Kind
from kopitiam.intake.cells import bad_cells, convert
from kopitiam.verification.conversions import CONVERSIONS

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
def test_the_check_and_the_intake_judge_cells_alike(database, kind, texts):
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
