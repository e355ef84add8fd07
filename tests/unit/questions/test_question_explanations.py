"""Questions explained in sentences, and expressions written as text."""

from typing import Any

import pytest

from kopitiam.questions.catalog import builtin, read_json
from kopitiam.questions.explanations import BYTES_PER_ROW, bytes_per_row, explain, text_of
from kopitiam.questions.layout import LAYOUT
from kopitiam.questions.parsing import Scope, parse

OWN: dict[str, Any] = {
    "name": "mine",
    "title": "Mine",
    "from": "transactions",
    "where": ["@year", "final_amount > 10"],
    "by": {"city": "stores.city", "store_id": "store_id", "quarter": "year_quarter(users.registered_at)"},
    "measure": {
        "revenue": "sum(final_amount)",
        "first": "min(created_at)",
        "customers": "count(distinct user_id)",
        "average": "avg(final_amount)",
        "net": "sum(original_amount) - 2 * sum(discount_applied)",
    },
    "rank": {"by": "revenue", "within": ["city"], "top": 3, "order": "asc"},
    "columns": ["city", "store_name", "revenue"],
    "chart": {"mark": "line", "x": "city", "y": "revenue"},
}


def test_every_step_is_explained() -> None:
    [question] = read_json([OWN])
    assert explain(question) == [
        "Reads store_id, store_name and city of stores; user_id and registered_at of users (about 9.2 bytes "
        "a row); store_id, user_id, original_amount, discount_applied, final_amount and created_at of "
        "transactions (about 8 bytes a row).",
        "Counts the rows of the run's years where final_amount > 10.0.",
        "Groups them by city (stores.city), store_id and quarter (year_quarter(users.registered_at)).",
        "Keeps store_id in place of stores.city, which is looked up at the end.",
        "Keeps user_id in place of users.registered_at, which is looked up at the end.",
        "Keeps every value of user_id in each group, to count it once.",
        "Measures revenue as sum(final_amount), merged by adding.",
        "Measures first as min(created_at), merged by taking the least.",
        "Measures customers as count(distinct user_id), merged by keeping every value once.",
        "Measures average = ratio(sum(final_amount), count(final_amount)) from sum(final_amount), merged by "
        "adding; count(final_amount), merged by adding; divided and rounded at the very end.",
        "Measures net = sum(original_amount) - (2 * sum(discount_applied)) from sum(original_amount), merged "
        "by adding; sum(discount_applied), merged by adding.",
        "Ranks within each city by revenue, the smallest first, and keeps the first 3. Ties go to the lowest "
        "store_id and quarter.",
        "Shows city, store_name and revenue in results_mine.csv, sorted by city, then store_id, then quarter."
        " JSON, Parquet and xlsx also have rank, store_id, quarter, first, customers, average, net and "
        "store_is_matched.",
        "Draws a line chart of revenue by city.",
    ]


def test_lists_and_totals_have_their_own_sentences() -> None:
    rows = explain(builtin()["1"])
    assert "Counts the rows of the run's years, in the run's hours, of at least the run's amount." in rows
    assert "Keeps transaction_id and final_amount of every such row." in rows
    total = {
        "name": "t",
        "title": "T",
        "from": "transactions",
        "measure": {"n": "count(*)"},
        "columns": ["n"],
    }
    sentences = explain(read_json([total])[0])
    assert "Counts every row of transactions." in sentences
    assert "Makes one group of them." in sentences
    assert "Shows n in results_t.csv." in sentences


def test_every_column_of_a_large_table_has_a_cost() -> None:
    for table, costs in BYTES_PER_ROW.items():
        assert list(costs) == list(LAYOUT[table].by_name)
    assert bytes_per_row(builtin()["4"]) == {"users": 5.5, "transactions": 5.9}


@pytest.mark.parametrize(
    ("text", "is_measure"),
    [
        ("user_id is not null and not (store_id = 1 or store_id in (2, 3))", False),
        ("final_amount * (2 + hour(created_at)) - 1.5 >= original_amount - discount_applied - 3", False),
        ("transaction_id <> 'it''s' and created_at < '2024-01-31'", False),
        ("date(created_at) between '2024-01-01' and '2024-12-31'", False),
        ("case when final_amount > 50 then 'large' when user_id is null then '' end", False),
        ("case when (user_id is null) = true then 1 else -2 end", False),
        ("hour(created_at) * 60 + minute(created_at)", False),
        ("final_amount + (1 + hour(created_at))", False),
        ("ratio(sum(case when user_id is null then 1 else 0 end), count(*))", True),
        ("count(distinct date(created_at)) + 2 * count(voucher_id) - max(hour(created_at))", True),
        ("avg(final_amount)", True),
        ("-sum(final_amount)", True),
    ],
)
def test_the_text_of_an_expression_parses_to_the_same_expression(text: str, is_measure: bool) -> None:
    scope = Scope("transactions", may_use_attributes=not is_measure, is_measure=is_measure)
    expression = parse(text, scope)
    assert parse(text_of(expression), scope) == expression
