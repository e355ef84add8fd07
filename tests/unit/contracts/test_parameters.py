"""The parameters of the questions: defaults, bounds, refusals."""

from datetime import UTC, datetime

import pytest

from kopitiam.contracts.errors import ConfigError
from kopitiam.contracts.parameters import MAX_TOP, Parameters


def test_the_defaults_are_those_of_the_design():
    assert Parameters().to_dict() == {
        "years": [2024, 2025],
        "hours": ["06:00:00", "23:00:00"],
        "min_amount": "75",
        "top": 3,
    }


def test_years_and_hours_become_instants_and_seconds():
    questions = Parameters(2020, 2021, "05:00:01", "23:59:59", "10.5")
    assert questions.begin == datetime(2020, 1, 1, tzinfo=UTC)
    assert questions.end == datetime(2022, 1, 1, tzinfo=UTC)
    assert (questions.opening_second, questions.closing_second) == (5 * 3600 + 1, 86_399)
    assert questions.min_units == 105_000


@pytest.mark.parametrize(
    "parameters",
    [
        {"first_year": 2025, "last_year": 2025},
        {"first_year": 1, "last_year": 9998},
        {"opening": "12:00:00", "closing": "12:00:00"},
        {"opening": "00:00:00", "closing": "23:59:59"},
        {"min_amount": "0"},
        {"min_amount": "-1.5"},
        {"top": 1},
        {"top": MAX_TOP},
    ],
)
def test_the_bounds_themselves_are_allowed(parameters):
    questions = Parameters(**parameters)
    assert {name: getattr(questions, name) for name in parameters} == parameters


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"first_year": 2026}, "years 2026-2025: expected first-last"),
        ({"first_year": 0}, "years 0-2025: expected first-last"),
        ({"last_year": 9999}, "years 2024-9999: expected first-last"),
        ({"opening": "6:00:00"}, "hour '6:00:00': expected HH:MM:SS"),
        ({"opening": "06:00"}, "hour '06:00': expected HH:MM:SS"),
        ({"closing": "24:00:00"}, "hour '24:00:00': expected HH:MM:SS"),
        ({"closing": "23:60:00"}, "hour '23:60:00': expected HH:MM:SS"),
        ({"closing": "05:59:59"}, "hours 06:00:00-05:59:59: the first must not be after the last"),
        ({"min_amount": "much"}, "minimum amount: 'much' is not a number"),
        ({"min_amount": "75.00001"}, "minimum amount: '75.00001' has more than 4 decimals"),
        ({"min_amount": "1e999999999"}, "minimum amount: '1e999999999' is too large"),
        ({"top": 0}, "top 0: expected 1 to"),
        ({"top": MAX_TOP + 1}, f"top {MAX_TOP + 1}: expected 1 to {MAX_TOP}"),
    ],
)
def test_an_invalid_parameter_is_refused_by_name(parameters, complaint):
    with pytest.raises(ConfigError) as refusal:
        Parameters(**parameters)
    assert str(refusal.value).startswith(complaint)
    assert refusal.value.exit_code == 2
