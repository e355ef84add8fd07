"""The question that lists the rows behind one row of an answer: the rows it selects, and refused keys."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from any_questions import definitions, tables
from kopitiam.contracts.errors import QuestionError
from kopitiam.contracts.parameters import Parameters
from kopitiam.questions.catalog import builtin, read_json
from kopitiam.questions.definitions import Question
from kopitiam.questions.expressions import columns_in
from kopitiam.questions.layout import LAYOUT
from kopitiam.questions.rows_behind import rows_behind
from question_oracle import expected_rows, rows_by_keys

PARAMETERS = Parameters(top=2)
SALES = list(LAYOUT["transactions"].by_name)


def question(by: dict[str, str], where: list[str] = []) -> Question:  # noqa: B006 - never changed
    definition = {
        "name": "mine",
        "title": "Mine",
        "from": "transactions",
        "where": where,
        "by": by,
        "measure": {"purchases": "count(*)"},
        "columns": [*by, "purchases"],
    }
    return read_json([definition])[0]


def listing(answer: Question, keys: tuple[str, ...]) -> Question:
    return read_json([rows_behind(answer, keys, list(LAYOUT[answer.fact].by_name))])[0]


@settings(
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=25,
    suppress_health_check=list(HealthCheck),
)
@given(own=definitions(), content=tables)
def test_the_rows_behind_all_rows_of_an_answer_are_those_of_their_groups(own: Any, content: Any) -> None:
    for answer in (*builtin().values(), *read_json([own])):
        if any(column.is_attribute for key in answer.keys for column in columns_in(key.expression)):
            continue
        columns = list(LAYOUT[answer.fact].by_name)
        everything = read_json([{"name": "all", "title": "All", "from": answer.fact, "columns": columns}])[0]
        for keys, rows in rows_by_keys(answer, content, PARAMETERS).items():
            selected = expected_rows(listing(answer, keys), content, PARAMETERS)
            group = expected_rows(everything, {**content, answer.fact: rows}, PARAMETERS)
            assert Counter(selected) == Counter(group), (answer.definition, keys)


def test_conditions_and_keys_are_written_as_the_definition_has_them() -> None:
    assert rows_behind(builtin()["3"], ["2024-H1", "7"], ["store_id", "final_amount", "created_at"]) == {
        "name": "rows_behind",
        "title": "Rows behind 2024-H1, 7: Total payment value per half-year and store",
        "from": "transactions",
        "where": ["@year", "@hour", "year_half(created_at) = '2024-H1'", "store_id = 7"],
        "columns": ["store_id", "final_amount", "created_at"],
        "order": ["created_at"],
    }


def test_a_condition_that_is_also_a_key_is_written_once() -> None:
    answer = question({"store_id": "store_id"}, ["store_id = 7"])
    assert rows_behind(answer, ["7"], SALES)["where"] == ["store_id = 7"]


@given(text=st.text(min_size=1, max_size=20).filter(lambda text: "\x00" not in text))
def test_any_text_of_a_key_stays_one_constant(text: str) -> None:
    selection = listing(question({"id": "transaction_id"}), (text,))
    assert selection.filters[0].right.value == text  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("user_id", "7 or 1=1"),
        ("final_amount", "1e9"),
        ("date(created_at)", "2024-02-30"),
        ("created_at", "yesterday"),
        ("user_id is null", "maybe"),
    ],
)
def test_a_text_that_is_no_such_key_is_refused(key: str, text: str) -> None:
    with pytest.raises(QuestionError, match="key mine"):
        rows_behind(question({"mine": key}), [text], SALES)


def test_another_number_of_keys_is_refused() -> None:
    with pytest.raises(QuestionError, match="year_half_created_at, store_id"):
        rows_behind(builtin()["3"], ["2024-H1"], SALES)


def test_a_key_that_is_looked_up_is_refused_with_its_table() -> None:
    with pytest.raises(QuestionError, match="key city is looked up in stores"):
        rows_behind(question({"city": "stores.city"}), ["Ipoh"], SALES)
