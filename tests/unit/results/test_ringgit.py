"""Amounts as people read them."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopitiam.contracts.money import to_text
from kopitiam.results.ringgit import ringgit


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
def test_no_digit_is_lost(units):
    shown = ringgit(to_text(units))
    assert Decimal(shown.replace("RM ", "").replace(",", "")) == Decimal(to_text(units))
