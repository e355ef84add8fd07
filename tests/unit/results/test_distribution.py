"""Q1 in figures: exact, whatever the batches, in few bins."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopitiam.contracts.money import to_text, to_units
from kopitiam.results.charts.distribution import LARGEST, MOST_BINS, Bin, distribution
from made_answers import MadeAnswers, sales

UNITS = st.integers(-(10**18) + 1, 10**18 - 1) | st.integers(750_000, 2_000_000)


def of(*amounts):
    return distribution(MadeAnswers({"1": sales(*amounts)}))


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


def test_the_largest_rows_come_first_and_ties_by_id():
    found = of("80", "90", *["85"] * 20)
    assert len(found.largest_rows) == LARGEST
    assert found.largest_rows[:3] == (
        ("sale-0001", "90.0000"),
        ("sale-0002", "85.0000"),
        ("sale-0003", "85.0000"),
    )


@pytest.mark.parametrize("answers", [MadeAnswers(), MadeAnswers({"1": []})])
def test_no_rows_have_no_shape(answers):
    found = distribution(answers)
    assert (found.count, Decimal(found.total), found.bins, found.largest_rows) == (0, 0, (), ())
    assert found.least is found.median is found.largest is None
