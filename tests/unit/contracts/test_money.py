"""Amounts as text and as whole units, both ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopitiam.contracts.money import DIGITS, to_text, to_units

UNITS = st.integers(-(10**DIGITS) + 1, 10**DIGITS - 1)


@given(UNITS)
def test_units_round_trip_through_text(units):
    assert to_units(to_text(units)) == units


@given(UNITS)
def test_text_has_a_decimal_and_no_zero_past_the_first(units):
    decimals = to_text(units).partition(".")[2]
    assert decimals == "0" or (decimals and decimals[-1] != "0")
    assert 1 <= len(decimals) <= 4


@pytest.mark.parametrize(
    ("units", "text"),
    [
        (750_000, "75.0"),
        (750_750, "75.075"),
        (765_000, "76.5"),
        (122_013_489_350, "12201348.935"),
        (1, "0.0001"),
        (0, "0.0"),
        (-5_000, "-0.5"),
        (10**DIGITS - 1, "99999999999999.9999"),
    ],
)
def test_units_print_as_the_answers_do(units, text):
    assert to_text(units) == text


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("75", 750_000),
        ("75.", 750_000),
        ("75.00000000", 750_000),
        ("+.5", 5_000),
        ("7.5e1", 750_000),
        ("-0", 0),
    ],
)
def test_numbers_are_taken_in_every_spelling(text, units):
    assert to_units(text) == units


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("seventy-five", "is not a number"),
        ("", "is not a number"),
        ("1,5", "is not a number"),
        ("nan", "is not a finite number"),
        ("sNaN", "is not a finite number"),
        ("-Infinity", "is not a finite number"),
        ("75.00001", "has more than 4 decimals"),
        ("75." + "0" * 40 + "1", "has more than 4 decimals"),
        ("1e-999999", "has more than 4 decimals"),
        ("100000000000000", "is too large"),
        ("-100000000000000", "is too large"),
        ("1e999999", "is too large"),
        ("1e999999999999999999", "is too large"),
    ],
)
def test_an_inexact_amount_is_refused_with_its_text(text, complaint):
    with pytest.raises(ValueError, match=complaint) as refusal:
        to_units(text)
    assert repr(text) in str(refusal.value)
