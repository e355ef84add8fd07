"""The estimated number of groups, and the questions that are refused for it."""

from typing import Any

import pytest

from kopitiam.contracts.errors import QuestionError
from kopitiam.contracts.parameters import Parameters
from kopitiam.questions.catalog import builtin, read_json, read_toml
from kopitiam.questions.groups import MAX_GROUPS, count_groups, require_few_groups
from kopitiam.questions.question_set import QuestionSet

DAYS = 366 + 365  # of 2024 and 2025
EVER = 3_652_059  # days from the year 1 to the year 9999


def question(where: list[str], *keys: str, measure: str = "count(*)") -> Any:
    definition = {
        "name": "mine",
        "title": "Mine",
        "from": "transactions",
        "where": where,
        "by": {f"key_{number}": key for number, key in enumerate(keys)},
        "measure": {"measured": measure},
        "columns": ["measured"],
    }
    return read_json([definition])[0]


@pytest.mark.parametrize(
    ("keys", "groups"),
    [
        (["hour(created_at)"], 24),
        (["hour(created_at)", "minute(created_at)"], 24 * 60),
        (["dayofweek(created_at)", "hour(created_at)"], 7 * 24),
        (["year_month(created_at)"], 24),
        (["year_half(created_at)", "quarter(created_at)"], 16),
        (["year(created_at)", "month(created_at)", "day(created_at)"], DAYS),
        (["date(created_at)"], DAYS),
        (["date(created_at)", "year_month(created_at)", "iso_week(created_at)"], DAYS),
        (["date(created_at)", "hour(created_at)", "minute(created_at)"], DAYS * 24 * 60),
        (["hour(created_at) * 60 + minute(created_at)"], 24 * 60),
        (["user_id is null"], 3),
        (["case when final_amount > 50 then 'large' when final_amount < 0 then 'less' end"], 3),
        (["case when final_amount > 50 then 'large' else 'small' end", "user_id is null"], 6),
        (["store_id", "users.gender", "final_amount", "transaction_id"], 1),
        (["store_id", "hour(created_at)"], 24),
        (["year_quarter(users.registered_at)", "month(users.birthdate)"], 1),
        (["created_at"], DAYS * 86_400),
    ],
)
def test_groups_are_counted_by_what_keys_depend_on(keys: list[str], groups: int) -> None:
    assert count_groups(question(["@year"], *keys), Parameters()) == groups


@pytest.mark.parametrize(
    ("where", "days"),
    [
        ([], EVER),
        (["@hour"], EVER),
        (["@year"], DAYS),
        (["created_at >= '2024-01-01' and created_at < '2024-01-31'"], 31),
        (["created_at between '2024-01-01' and '2024-01-02'"], 2),
        (["date(created_at) = '2024-02-29'"], 1),
        (["year(created_at) = 2024"], 366),
        (["year(created_at) in (2023, 2025)"], 365 + 366 + 365),
        (["@year", "year(created_at) >= 2025"], 365),
        (["@year", "created_at < '2023-01-01'"], 1),
        (["created_at <> '2024-01-01'"], EVER),
        (["year(created_at) = 2024 or user_id is null"], EVER),
    ],
)
def test_conditions_on_the_time_bound_the_days(where: list[str], days: int) -> None:
    assert count_groups(question(where, "date(created_at)"), Parameters()) == days


def test_arguments_of_count_distinct_multiply_groups() -> None:
    counted = question(["@year"], "store_id", measure="count(distinct date(created_at))")
    assert count_groups(counted, Parameters()) == DAYS


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        (["@year"], ["created_at"]),
        ([], ["date(created_at)", "hour(created_at)", "minute(created_at)"]),
        ([], ["store_id", "created_at"]),
        (["@year"], ["case when user_id is null then created_at end"]),
        ([], ["case when store_id = 1 then date(created_at) end", "hour(created_at)", "minute(created_at)"]),
    ],
)
def test_too_many_groups_are_refused_with_the_bound_and_how_to_raise_it(
    where: list[str], keys: list[str]
) -> None:
    selected = QuestionSet.select(Parameters(), [question(where, *keys)])
    with pytest.raises(QuestionError) as refused:
        selected.require_answerable()
    words = str(refused.value)
    assert words.startswith("question mine, by: the keys can make ")
    assert f"at most {MAX_GROUPS:,} are kept" in words
    assert "raise the setting questions.max_groups" in words
    assert ('add "@year" to where' in words) == (not where)
    selected.require_answerable(10**12)


def test_too_many_groups_in_a_file_are_reported_with_the_line() -> None:
    text = """[[question]]
name = "mine"
title = "Mine"
from = "transactions"
by = { instant = "created_at" }
measure = { purchases = "count(*)" }
columns = ["purchases"]
"""
    with pytest.raises(QuestionError, match=r"^mine.toml, line 5: question mine, by: the keys can make"):
        read_toml(text, "mine.toml", check=lambda checked: require_few_groups(checked, Parameters()))


def test_the_catalog_makes_few_groups() -> None:
    for builtin_question in builtin().values():
        assert count_groups(builtin_question, Parameters()) <= 24
    QuestionSet.of_catalog(Parameters(1, 9998)).require_answerable()


def test_lists_of_rows_have_no_groups() -> None:
    definition = {"name": "listed", "title": "Rows", "from": "transactions", "columns": ["created_at"]}
    QuestionSet.select(Parameters(), read_json([definition])).require_answerable()
