"""Distributions of figures: exact for any batches and kinds, in few bins."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopitiam.contracts.money import to_text, to_units
from kopitiam.contracts.tables import Kind
from kopitiam.results.charts.distribution import LARGEST, MOST_BINS, Bin, distribution
from made_answers import MadeAnswers, answers_to, sales

UNITS = st.integers(-(10**18) + 1, 10**18 - 1) | st.integers(750_000, 2_000_000)
COUNTS = (
    'name = "c"\ntitle = "t"\nfrom = "transaction_items"\nby = { item_id = "item_id" }\n'
    'measure = { sold = "sum(quantity)" }\ncolumns = ["item_id", "sold"]'
)


def of(*amounts):
    return distribution(MadeAnswers({"1": sales(*amounts)}), "1", "final_amount")


def of_counts(*counts):
    return distribution(answers_to(COUNTS, list(enumerate(counts))), "c", "sold")


@given(st.lists(UNITS, min_size=1, max_size=60))
def test_every_row_is_in_one_bin_and_every_figure_is_exact(units):
    spread = of(*map(to_text, units))
    ordered = sorted(units)
    assert spread.count == len(units) == sum(bin.count for bin in spread.bins)
    assert spread.total == to_text(sum(units))
    assert (spread.least, spread.largest) == (to_text(ordered[0]), to_text(ordered[-1]))
    assert spread.median == to_text(ordered[(len(ordered) - 1) // 2])
    assert 1 <= len(spread.bins) <= MOST_BINS
    for bin in spread.bins:
        assert bin.count == sum(bin.first <= unit and (bin.is_open or unit < bin.beyond) for unit in units)
    assert all(one.beyond == next.first for one, next in zip(spread.bins, spread.bins[1:], strict=False))
    assert not any(bin.is_open for bin in spread.bins[:-1])


@given(st.lists(st.none() | st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(0, 50), max_size=40))
def test_counts_are_not_scaled_and_empty_ones_are_counted(counts):
    spread = of_counts(*counts)
    known = sorted(count for count in counts if count is not None)
    assert (spread.kind, spread.count, spread.missing) == (Kind.COUNT, len(known), counts.count(None))
    assert int(spread.total) == sum(known)
    assert sum(bin.count for bin in spread.bins) == len(known)
    if known:
        assert int(spread.median) == known[(len(known) - 1) // 2]


def test_bins_have_a_round_width():
    spread = of("75", "79.99", "80", "93.5", "99.9")
    assert {bin.beyond - bin.first for bin in spread.bins} == {to_units("2")}
    assert (spread.bins[0].first, spread.bins[-1].beyond) == (to_units("74"), to_units("100"))


def test_an_outlier_goes_into_an_open_last_bin():
    spread = of(*(str(75 + number % 20) for number in range(300)), "99999999")
    assert len(spread.bins) > 5
    assert spread.bins[-1].is_open
    assert spread.largest == "99999999.0"


def test_equal_amounts_are_one_bin():
    assert of("75", "75", "75").bins == (Bin(750_000, 760_000, 3),)
    assert of_counts(3, 3).bins == (Bin(3, 4, 2),)


def test_the_largest_rows_are_sorted_by_figure_then_key():
    spread = of("80", "90", *["85"] * 20)
    assert len(spread.largest_rows) == LARGEST
    assert [(row["transaction_id"], row["final_amount"]) for row in spread.largest_rows[:3]] == [
        ("sale-0001", Decimal("90.0000")),
        ("sale-0002", Decimal("85.0000")),
        ("sale-0003", Decimal("85.0000")),
    ]


@pytest.mark.parametrize("answers", [MadeAnswers(), MadeAnswers({"1": []})])
def test_no_rows_have_no_bins(answers):
    spread = distribution(answers, "1", "final_amount")
    assert (spread.count, Decimal(spread.total), spread.bins, spread.largest_rows) == (0, 0, (), ())
    assert spread.least is spread.median is spread.largest is None
