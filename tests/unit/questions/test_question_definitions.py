"""Definitions: the catalog, what follows from a definition, and errors with file, line and key."""

import pytest

from kopitiam.contracts.errors import QuestionError
from kopitiam.contracts.tables import Kind
from kopitiam.questions.catalog import builtin, read_json, read_toml
from kopitiam.questions.question_set import QuestionSet

SALES_BY_HOUR = """
[[question]]
name    = "sales_by_hour"
title   = "Sales by hour of day and store"
from    = "transactions"
where   = ["@year", "@hour", "final_amount >= 10"]
by      = { hour = "hour(created_at)", store_id = "store_id" }
measure = { revenue = "sum(final_amount)", purchases = "count(*)" }
rank    = { by = "revenue", within = ["hour"], top = 3 }
columns = ["hour", "store_name", "revenue", "purchases"]
order   = ["hour", "store_name"]
chart   = { mark = "bar", x = "hour", y = "revenue", color = "store_name" }
"""


def test_the_four_questions_are_the_catalog() -> None:
    assert {name: (question.file_name("csv"), question.shown) for name, question in builtin().items()} == {
        "1": ("results_query_1.csv", ("transaction_id", "final_amount")),
        "2_1": ("results_query_2_1.csv", ("year_month_created_at", "item_name", "sellings_qty")),
        "2_2": ("results_query_2_2.csv", ("year_month_created_at", "item_name", "profit_sum")),
        "3": ("results_query_3.csv", ("year_half_created_at", "store_name", "tpv")),
        "4": ("results_query_4.csv", ("store_name", "birthdate")),
    }


def test_the_catalog_reads_only_the_columns_that_it_needs() -> None:
    tables = QuestionSet.of_catalog().tables
    assert {name: [column.name for column in table.columns] for name, table in tables.items()} == {
        "stores": ["store_id", "store_name"],
        "menu_items": ["item_id", "item_name"],
        "users": ["user_id", "birthdate"],
        "transactions": ["transaction_id", "store_id", "user_id", "final_amount", "created_at"],
        "transaction_items": ["item_id", "quantity", "subtotal", "created_at"],
    }


def test_questions_with_the_same_rows_and_keys_share_a_partial() -> None:
    four = builtin()
    assert four["2_1"].partial == four["2_2"].partial
    assert four["3"].partial != four["4"].partial


def test_an_answer_has_keys_attributes_rank_measures_and_matches() -> None:
    [question] = read_toml(SALES_BY_HOUR, "mine.toml")
    assert question.file_name("csv") == "results_sales_by_hour.csv"
    assert [(column.name, column.kind) for column in question.answer_columns] == [
        ("hour", Kind.COUNT),
        ("rank", Kind.COUNT),
        ("store_id", Kind.ID),
        ("store_name", Kind.TEXT),
        ("revenue", Kind.MONEY),
        ("purchases", Kind.COUNT),
        ("store_is_matched", Kind.BOOLEAN),
    ]
    assert question.reads == {
        "transactions": ("store_id", "final_amount", "created_at"),
        "stores": ("store_id", "store_name"),
    }


@pytest.mark.parametrize(
    ("line", "number", "reason"),
    [
        ('name    = "Sales"', 3, "name: 'Sales': expected a lowercase letter"),
        ('name    = "1"', 3, "name: '1': expected a lowercase letter"),
        ('name    = "x; drop table runs"', 3, "expected a lowercase letter"),
        ('title   = ""', 4, "title: expected one line"),
        ('from    = "users"', 5, "from: 'users': expected transactions or transaction_items"),
        ('where   = ["@month"]', 6, "'@month' is not a filter; expected one of @year, @hour, @amount"),
        ('where   = ["final_amount"]', 6, "is money; expected a condition"),
        ('where   = ["final_amount > 1.5e3"]', 6, "is a float"),
        ('by      = { hour = "hours(created_at)", store_id = "store_id" }', 7, "there is no function hours"),
        (
            'by      = { rank = "hour(created_at)", store_id = "store_id" }',
            7,
            "rank is a reserved name",
        ),
        ('by      = { hour = "hour(created_at)" }', 10, "'store_name' is not a key.*make store_id a key"),
        ('measure = { revenue = "sum(final_amount) / 2", purchases = "count(*)" }', 8, "division is not"),
        (
            'measure = { hour = "sum(final_amount)", revenue = "count(*)", purchases = "count(*)" }',
            10,
            "two columns are named hour",
        ),
        (
            'rank    = { by = "profit", within = ["hour"], top = 3 }',
            9,
            "by = 'profit': expected one of revenue",
        ),
        (
            'rank    = { by = "revenue", within = ["day"], top = 3 }',
            9,
            "within: expected some of hour, store_id",
        ),
        ('rank    = { by = "revenue", within = ["hour"], top = 0 }', 9, "top = 0: expected 1 to 100,000"),
        ('columns = ["hour", "hour"]', 10, "'hour' is listed twice"),
        ('columns = ["hour", "category"]', 10, "'category' is not a key, a measure or an attribute of a key"),
        ('order   = ["month"]', 11, "'month' is not a column of the answer; expected some of hour"),
        ('chart   = { mark = "pie", x = "hour", y = "revenue" }', 12, "mark = 'pie': expected one of bar"),
        ('colour  = "red"', 2, "colour: is not a known key; expected some of name"),
    ],
)
def test_an_error_names_file_line_and_key(line: str, number: int, reason: str) -> None:
    key = line.partition("=")[0].strip()
    lines = [line if old.partition("=")[0].strip() == key else old for old in SALES_BY_HOUR.splitlines()]
    if line not in lines:
        lines.append(line)
        number = len(lines)
    with pytest.raises(QuestionError, match=reason) as refused:
        read_toml("\n".join(lines), "mine.toml")
    assert str(refused.value).startswith(f"mine.toml, line {number}: ")
    assert "\n" not in str(refused.value)


def test_a_missing_key_is_reported_at_the_header_of_its_question() -> None:
    text = "\n".join(line for line in SALES_BY_HOUR.splitlines() if not line.startswith("measure"))
    with pytest.raises(
        QuestionError, match=r"mine\.toml, line 2: question sales_by_hour, measure: is missing"
    ):
        read_toml(text, "mine.toml")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("not toml", "not TOML"),
        ("", r"no question is defined; begin one with \[\[question\]\]"),
        ("answer = 1", "nothing else"),
        (SALES_BY_HOUR * 2, "two questions are named sales_by_hour"),
    ],
)
def test_a_file_without_a_valid_set_of_questions_is_refused(text: str, reason: str) -> None:
    with pytest.raises(QuestionError, match=reason):
        read_toml(text, "mine.toml")


def test_errors_in_json_name_the_position_of_the_definition() -> None:
    with pytest.raises(QuestionError, match="definition 2: question b, columns: is missing"):
        read_json(
            [
                {"name": "a", "title": "A", "from": "transactions", "columns": ["transaction_id"]},
                {"name": "b", "title": "B", "from": "transactions"},
            ]
        )


def test_a_column_of_two_tables_must_name_its_table() -> None:
    definition = {
        "name": "ways_to_pay",
        "title": "Ways to pay",
        "from": "transactions",
        "by": {"payment_method_id": "payment_method_id"},
        "measure": {"purchases": "count(*)"},
        "columns": ["method_name", "payment_methods.category", "purchases"],
    }
    [question] = read_json([definition])
    assert question.shown == ("method_name", "category", "purchases")
    assert [(a.table, a.name) for a in question.attributes] == [
        ("payment_methods", "method_name"),
        ("payment_methods", "category"),
    ]
