"""The chart of a question: that of its definition, or one that suits the kinds of its columns."""

import pytest

from kopitiam.questions.catalog import builtin
from kopitiam.results.charts.plan import NotDrawable, plan_chart
from made_answers import question

SALES = 'name = "q"\ntitle = "t"\nfrom = "transactions"\n'
BY_STORE = 'by = { store_id = "store_id" }\n'
BY_MONTH = 'by = { month = "year_month(created_at)" }\n'
BOTH = 'by = { store_id = "store_id", month = "year_month(created_at)" }\n'
THREE = 'by = { store_id = "store_id", month = "year_month(created_at)", hour = "hour(created_at)" }\n'
SUM = 'measure = { revenue = "sum(final_amount)" }\n'
RANK = 'rank = { by = "revenue", within = ["month"], top = 3 }\n'


def axes(definition):
    plan = plan_chart(question(SALES + definition))
    return (
        None if plan is None else (plan.mark, plan.x.name, plan.y.name, plan.color.name if plan.color else "")
    )


@pytest.mark.parametrize(
    ("definition", "chosen"),
    [
        ('columns = ["transaction_id", "final_amount"]', ("histogram", "final_amount", "final_amount", "")),
        ('columns = ["transaction_id", "created_at"]', None),
        (SUM + 'columns = ["revenue"]', None),
        (BY_STORE + SUM + 'columns = ["store_name", "revenue"]', ("bar", "store_name", "revenue", "")),
        (BY_STORE + SUM + 'columns = ["store_id", "revenue"]', ("bar", "store_id", "revenue", "")),
        (BY_MONTH + SUM + 'columns = ["month", "revenue"]', ("line", "month", "revenue", "")),
        (
            BOTH + SUM + 'columns = ["store_name", "month", "revenue"]',
            ("line", "month", "revenue", "store_name"),
        ),
        (
            BOTH + SUM + RANK + 'columns = ["month", "store_name", "revenue"]',
            ("bar", "month", "revenue", "store_name"),
        ),
        (
            THREE + SUM + 'columns = ["month", "store_name", "hour", "revenue"]',
            ("bar", "month", "revenue", ""),
        ),
        (
            BY_STORE + 'measure = { last = "max(created_at)" }\ncolumns = ["store_name", "last"]',
            None,
        ),
    ],
)
def test_a_chart_is_chosen_by_the_kinds_of_the_columns(definition, chosen):
    assert axes(definition) == chosen


def test_the_chart_of_the_definition_has_priority():
    chart = 'chart = { mark = "area", x = "month", y = "revenue" }\n'
    assert axes(BY_MONTH + SUM + 'columns = ["month", "revenue"]\n' + chart) == (
        "area",
        "month",
        "revenue",
        "",
    )


@pytest.mark.parametrize("name", builtin())
def test_every_question_of_the_catalog_has_a_chart(name):
    assert plan_chart(builtin()[name]) is not None


@pytest.mark.parametrize(
    ("chart", "reason"),
    [
        ('{ mark = "bar", x = "month", y = "store_name" }', "store_name has no figures"),
        ('{ mark = "histogram", x = "month", y = "count" }', "month has no figures"),
        ('{ mark = "rect", x = "month", y = "store_name" }', "needs a column of figures"),
        (
            '{ mark = "rect", x = "month", y = "revenue", color = "store_name" }',
            "store_name has no figures",
        ),
    ],
)
def test_a_chart_that_cannot_be_drawn_says_why(chart, reason):
    text = BOTH + SUM + f'columns = ["month", "store_name", "revenue"]\nchart = {chart}'
    with pytest.raises(NotDrawable, match=reason):
        plan_chart(question(SALES + text))


@pytest.mark.parametrize(
    ("measure", "is_whole"),
    [
        ("sum(final_amount)", True),
        ("count(*)", True),
        ("sum(final_amount) + sum(discount_applied)", True),
        ("avg(final_amount)", False),
        ("max(final_amount)", False),
        ("count(distinct user_id)", False),
        ("ratio(sum(final_amount), count(*))", False),
        ("sum(final_amount) * 2", False),
    ],
)
def test_only_sums_and_counts_add_up_to_a_whole(measure, is_whole):
    plan = plan_chart(
        question(SALES + BY_STORE + f'measure = {{ m = "{measure}" }}\ncolumns = ["store_name", "m"]')
    )
    assert plan is not None
    assert plan.is_whole is is_whole
