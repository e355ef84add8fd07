"""Flags above settings: how years and hours are written, and what is refused."""

import pytest

from kopitiam.cli.options import asked, has_flags
from kopitiam.contracts.config import QuestionsSection
from kopitiam.contracts.errors import ConfigError
from kopitiam.contracts.questions import Questions


def ask(years=None, hours=None, min_amount=None, top=None, base=None):
    return asked(base or QuestionsSection(), years, hours, min_amount, top)


def test_without_flags_the_settings_hold():
    base = QuestionsSection(years=(2020, 2021), min_amount="10", top=5)
    assert ask(base=base) == Questions(2020, 2021, min_amount="10", top=5)


def test_flags_stand_above_the_settings_one_by_one():
    base = QuestionsSection(years=(2020, 2021), min_amount="10", top=5)
    assert ask(top=1, base=base) == Questions(2020, 2021, min_amount="10", top=1)
    assert ask(min_amount="0", base=base).min_units == 0


@pytest.mark.parametrize(
    ("years", "span"), [("2024", (2024, 2024)), ("2024-2025", (2024, 2025)), ("0001-9998", (1, 9998))]
)
def test_years_are_one_year_or_first_and_last(years, span):
    questions = ask(years=years)
    assert (questions.first_year, questions.last_year) == span


@pytest.mark.parametrize(
    ("hours", "span"),
    [
        ("06:00-23:00", ("06:00:00", "23:00:00")),
        ("06:30:15-23:59:59", ("06:30:15", "23:59:59")),
        ("00:00-23:59:59", ("00:00:00", "23:59:59")),
        ("12:00:00-12:00", ("12:00:00", "12:00:00")),
    ],
)
def test_hours_are_with_or_without_seconds(hours, span):
    questions = ask(hours=hours)
    assert (questions.opening, questions.closing) == span


@pytest.mark.parametrize(
    "years",
    ["", "24", "2024-", "-2025", "2024-25", "2024,2025", "2024 - 2025", "2025-2024", "0000", "9999", "x"],
)
def test_bad_years_are_refused(years):
    with pytest.raises(ConfigError, match=r"years .*want .*first-last, such as 2024-2025"):
        ask(years=years)


@pytest.mark.parametrize(
    ("hours", "complaint"),
    [
        ("", "--hours : want first-last, such as 06:00:00-23:00:00"),
        ("06:00", "--hours 06:00: want first-last"),
        ("6:00-23:00", "--hours 6:00-23:00: want first-last"),
        ("06-23", "--hours 06-23: want first-last"),
        ("06:00-24:00", "hour '24:00:00': want HH:MM:SS"),
        ("06:60-23:00", "hour '06:60:00': want HH:MM:SS"),
        ("23:00-06:00", "hours 23:00:00-06:00:00: the first must not be after the last"),
    ],
)
def test_bad_hours_are_refused(hours, complaint):
    with pytest.raises(ConfigError) as refusal:
        ask(hours=hours)
    assert str(refusal.value).startswith(complaint)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"min_amount": ""}, "minimum amount"),
        ({"min_amount": "75.00001"}, "minimum amount"),
        ({"top": 0}, "top 0"),
    ],
)
def test_a_bad_amount_or_number_of_customers_is_refused(flags, complaint):
    with pytest.raises(ConfigError, match=complaint):
        ask(**flags)


def test_a_flag_counts_even_if_it_is_empty_or_zero():
    assert not has_flags(None, None, None, None)
    assert has_flags("", None, None, None)
    assert has_flags(None, None, None, 0)
