"""The expression language: supported expressions with their kinds, and refusals with their reasons."""

import pytest

from kopitiam.contracts.errors import QuestionError
from kopitiam.contracts.tables import Kind
from kopitiam.questions.expressions import Aggregate, Call, ColumnRef, Comparison, Constant, Ratio
from kopitiam.questions.grammar import MOST_CHARACTERS
from kopitiam.questions.parsing import Scope, parse

ROW, KEY = Scope("transactions"), Scope("transactions", may_use_attributes=True)
MEASURE = Scope("transactions", is_measure=True)
AMOUNT = ColumnRef("transactions", "final_amount", Kind.MONEY)


@pytest.mark.parametrize(
    ("text", "scope", "kind"),
    [
        ("user_id is not null", ROW, Kind.BOOLEAN),
        ("final_amount >= 10 and final_amount < 12.5", ROW, Kind.BOOLEAN),
        ("created_at >= '2024-01-01' or created_at = timestamp '2023-12-31 23:59:59'", ROW, Kind.BOOLEAN),
        ("store_id in (1, 2) and not user_id between 5 and 9", ROW, Kind.BOOLEAN),
        ("original_amount - final_amount", KEY, Kind.MONEY),
        ("hour(created_at) * 60 + minute(created_at)", KEY, Kind.COUNT),
        ("case when final_amount > 50 then 'large' else 'small' end", KEY, Kind.TEXT),
        ("year_quarter(users.registered_at)", KEY, Kind.TEXT),
        ("month(users.birthdate)", KEY, Kind.COUNT),
        ("date(created_at)", KEY, Kind.DATE),
        ("iso_week(created_at)", KEY, Kind.TEXT),
        ("stores.city", KEY, Kind.TEXT),
        ("sum(final_amount)", MEASURE, Kind.MONEY),
        ("count(distinct user_id) + count(*)", MEASURE, Kind.COUNT),
        ("max(created_at)", MEASURE, Kind.INSTANT),
        ("avg(final_amount)", MEASURE, Kind.MONEY),
        ("ratio(sum(case when user_id is null then 1 else 0 end), count(*))", MEASURE, Kind.NUMBER),
        ("2 * sum(final_amount) - sum(discount_applied)", MEASURE, Kind.MONEY),
    ],
)
def test_every_supported_expression_has_a_kind(text: str, scope: Scope, kind: Kind) -> None:
    assert parse(text, scope).kind is kind


def test_a_whole_number_beside_money_is_money() -> None:
    assert parse("final_amount >= 10", ROW) == Comparison(">=", AMOUNT, Constant(100_000, Kind.MONEY))


def test_an_average_is_kept_as_a_sum_and_a_count() -> None:
    assert parse("avg(final_amount)", MEASURE) == Ratio(
        Aggregate("sum", AMOUNT, Kind.MONEY), Aggregate("count", AMOUNT, Kind.COUNT), Kind.MONEY
    )


def test_an_attribute_has_the_column_that_refers_to_its_table() -> None:
    registered = ColumnRef("users", "registered_at", Kind.INSTANT, reference="user_id")
    assert parse("year_half(users.registered_at)", KEY) == Call("year_half", registered, Kind.TEXT)


@pytest.mark.parametrize(
    ("text", "scope", "reason"),
    [
        ("", ROW, "is empty"),
        ("amount > 1", ROW, "transactions has no column amount; did you mean final_amount?"),
        ("payments.x = 1", ROW, "there is no table payments; there are stores"),
        (
            "transaction_items.quantity > 1",
            ROW,
            "both facts, which cannot be joined; keep both in a data set, and query it with SQL",
        ),
        ("stores.city = 'Ipoh'", ROW, "stores.city can only be a key"),
        ("final_amount / 2 > 1", ROW, r"division is not supported, except the measure ratio\(a, b\)"),
        ("final_amount > 1e5", ROW, "1e5 is a float; write a decimal"),
        ("final_amount > 1.23456", ROW, "more than 4 decimals"),
        ("user_id = 123456789012345678", ROW, "more than 17 digits"),
        ("sum(final_amount) > 1", ROW, "is allowed only in measures"),
        ("user_id in (select 1)", ROW, "subqueries are not supported"),
        ("(select 1) = 1", ROW, "subqueries are not supported"),
        ("final_amount::int > 3", ROW, "casts are not supported"),
        ("coalesce(user_id, 1) = 1", ROW, "there is no function coalesce; there are year"),
        ("user_id = 'x'", ROW, "id and text cannot be compared or combined"),
        ("created_at > 'soon'", ROW, "'soon' is not a time like"),
        ("birthday(created_at) = 1", ROW, "there is no function birthday; there are year"),
        ("hour(users.birthdate)", KEY, "hour takes an instant, not a date"),
        ("store_id + 1", KEY, r"\+ takes counts and money, not an id"),
        ('"user_id" = 1', ROW, "expected column or table.column, without quotes"),
        ("user_id = 1; drop table runs", ROW, "expected one expression, without ;"),
        ("'; drop table runs", ROW, "is not an expression"),
        ("user_id = null", ROW, "NULL is allowed only after IS"),
        (f"transaction_id = '{'x' * 1025}'", ROW, "1,025 characters; at most 1,024"),
        ("(" * 100 + "user_id is null" + ")" * 100, ROW, "nested 100 levels deep; at most 20"),
        ("not " * 100 + "user_id is null", ROW, "nested 100 levels deep; at most 20"),
        ("user_id is null" + " and user_id is null" * 200, ROW, f"at most {MOST_CHARACTERS:,} are allowed"),
        ("sum(final_amount) over ()", MEASURE, "window functions are not supported; use rank"),
        ("sum(final_amount * final_amount)", MEASURE, "money times money"),
        ("sum(sum(final_amount))", MEASURE, "not inside another aggregate"),
        ("avg(final_amount) + 1", MEASURE, "nothing can be computed from it"),
        ("ratio(avg(final_amount), 2)", MEASURE, "cannot be part of another ratio"),
        ("final_amount", MEASURE, "must be inside sum"),
        ("sum(distinct final_amount)", MEASURE, r"expected count\(distinct x\)"),
        ("sum(created_at)", MEASURE, "sum takes counts and money, not an instant"),
        ("case when count(*) > 1 then 1 end", MEASURE, "a measure is made of sum"),
    ],
)
def test_unsupported_expressions_are_refused_with_the_reason(text: str, scope: Scope, reason: str) -> None:
    with pytest.raises(QuestionError, match=reason):
        parse(text, scope)
