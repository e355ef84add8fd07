"""How figures are spread: exact, whatever the batches and the column, in few bins."""

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
    found = of(*map(to_text, units))
    ordered = sorted(units)
    assert found.count == len(units) == sum(bin.count for bin in found.bins)
    assert found.total == to_text(sum(units))
    assert (found.least, found.largest) == (to_text(ordered[0]), to_text(ordered[-1]))
    assert found.median == to_text(ordered[(len(ordered) - 1) // 2])
    assert 1 <= len(found.bins) <= MOST_BINS
    for bin in found.bins:
        assert bin.count == sum(bin.first <= unit and (bin.is_open or unit < bin.beyond) for unit in units)
    assert all(one.beyond == next.first for one, next in zip(found.bins, found.bins[1:], strict=False))
    assert not any(bin.is_open for bin in found.bins[:-1])


@given(st.lists(st.none() | st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(0, 50), max_size=40))
def test_counts_are_spread_as_they_are_and_empty_ones_are_told(counts):
    found = of_counts(*counts)
    known = sorted(count for count in counts if count is not None)
    assert (found.kind, found.count, found.missing) == (Kind.COUNT, len(known), counts.count(None))
    assert int(found.total) == sum(known)
    assert sum(bin.count for bin in found.bins) == len(known)
    if known:
        assert int(found.median) == known[(len(known) - 1) // 2]


def test_bins_have_a_round_width():
    found = of("75", "79.99", "80", "93.5", "99.9")
    assert {bin.beyond - bin.first for bin in found.bins} == {to_units("2")}
    assert (found.bins[0].first, found.bins[-1].beyond) == (to_units("74"), to_units("100"))


def test_one_amount_that_is_far_off_does_not_flatten_the_rest():
    found = of(*(str(75 + number % 20) for number in range(300)), "99999999")
    assert len(found.bins) > 5
    assert found.bins[-1].is_open
    assert found.largest == "99999999.0"


def test_equal_amounts_are_one_bin():
    assert of("75", "75", "75").bins == (Bin(750_000, 760_000, 3),)
    assert of_counts(3, 3).bins == (Bin(3, 4, 2),)


def test_the_largest_rows_come_first_and_ties_by_key():
    found = of("80", "90", *["85"] * 20)
    assert len(found.largest_rows) == LARGEST
    assert [(row["transaction_id"], row["final_amount"]) for row in found.largest_rows[:3]] == [
        ("sale-0001", Decimal("90.0000")),
        ("sale-0002", Decimal("85.0000")),
        ("sale-0003", Decimal("85.0000")),
    ]


@pytest.mark.parametrize("answers", [MadeAnswers(), MadeAnswers({"1": []})])
def test_no_rows_have_no_shape(answers):
    found = distribution(answers, "1", "final_amount")
    assert (found.count, Decimal(found.total), found.bins, found.largest_rows) == (0, 0, (), ())
    assert found.least is found.median is found.largest is None
