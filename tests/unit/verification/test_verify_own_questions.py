"""Any question: DuckDB gives the same answer as plain Python, row by row."""

import csv
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from any_questions import definitions, tables, write_tables
from kopitiam.contracts.errors import InputError
from kopitiam.contracts.parameters import Parameters
from kopitiam.questions.catalog import builtin, read_json
from kopitiam.questions.definitions import Question
from kopitiam.questions.question_set import QuestionSet
from kopitiam.verification import expected_answers, verify
from question_oracle import Tables, expected_rows
from sampling import IS_FULL
from unit.verification.conftest import Shop

pytestmark = pytest.mark.slow

ASKED = Parameters(top=2)
EXAMPLES = 500 if IS_FULL else 30
quickly = settings(
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to shrink tables of texts takes minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def by_duckdb(question: Question, content: Tables) -> list[tuple[str, ...]]:
    with TemporaryDirectory() as folder:
        write_tables(Path(folder), content)
        return expected_answers(Path(folder), ASKED, [question])[question.name]


@settings(quickly, max_examples=EXAMPLES)
@given(definitions(), tables)
def test_any_question_about_any_rows_is_answered_as_row_by_row(
    definition: dict[str, Any], content: Tables
) -> None:
    [question] = read_json([definition])
    assert by_duckdb(question, content) == expected_rows(question, content, ASKED)


@pytest.mark.parametrize("name", list(builtin()))
@settings(quickly, max_examples=EXAMPLES // 6)
@given(content=tables)
def test_the_four_are_answered_as_row_by_row(name: str, content: Tables) -> None:
    question = builtin()[name]
    assert by_duckdb(question, content) == expected_rows(question, content, ASKED)


def grouped(**changes: Any) -> Question:
    definition = {
        "name": "mine",
        "title": "Mine",
        "from": "transactions",
        "by": {"store_id": "store_id"},
        "measure": {"revenue": "sum(final_amount)"},
        "columns": ["store_name", "revenue"],
    }
    return read_json([definition | changes])[0]


def answers(shop: Shop, question: Question) -> list[tuple[str, ...]]:
    return expected_answers(shop.write(), Parameters(), [question])[question.name]


@pytest.mark.parametrize(
    "names", [("order", "select", "group"), ("position", "cells", "counts"), ("final_amount", "x", "groups")]
)
def test_names_may_be_words_of_sql(shop: Shop, names: tuple[str, str, str]) -> None:
    key, other, measure = names
    shop.sell(final_amount="1.5")
    shop.sell(final_amount="2.5", store_id="2")
    question = grouped(
        by={key: "store_id", other: "hour(created_at)"},
        measure={measure: "sum(final_amount)"},
        rank={"by": measure, "within": [key], "top": 1},
        columns=[measure, other, key, "store_name"],
        order=[measure],
    )
    assert answers(shop, question) == [("1.5", "12", "1", "North"), ("2.5", "12", "2", "South")]


def test_sums_beyond_64_bits_are_exact(shop: Shop) -> None:
    for _ in range(20_000):
        shop.sell(final_amount="99999999999999.9999")
    assert answers(shop, grouped()) == [("North", "1999999999999999998.0")]
    shop.sell(final_amount="0.0001")
    assert answers(shop, grouped()) == [("North", "1999999999999999998.0001")]


@pytest.mark.parametrize(
    ("amounts", "average"),
    [
        (
            ["99999999999999.9999", "99999999999999.9999"],
            "99999999999999.9999",
        ),  # no float has them
        (["90071992547409.9993", "90071992547409.9994"], "90071992547409.9994"),  # half up
        (["-0.0001", "0", "0"], "0.0"),
        (["-0.0001", "0"], "-0.0001"),
        (["0.0001", "0"], "0.0001"),
    ],
)
def test_averages_are_rounded_half_up_from_exact_sums(shop: Shop, amounts: list[str], average: str) -> None:
    for amount in amounts:
        shop.sell(final_amount=amount)
    assert answers(shop, grouped(measure={"revenue": "avg(final_amount)"})) == [("North", average)]


def test_products_and_counts_beyond_64_bits_are_exact(shop: Shop) -> None:
    for _ in range(2):
        shop.sell_item(quantity="99999999999999999", subtotal="99999999999999.9999")
    question = grouped(
        **{"from": "transaction_items"},
        by={"item_id": "item_id"},
        measure={"a": "sum(quantity * subtotal)", "b": "sum(quantity * 1000)", "c": "sum(quantity) * 1000"},
        columns=["item_name", "a", "b", "c"],
    )
    product = 2 * 99999999999999999 * 999999999999999999
    exact = f"{product // 10_000}.{product % 10_000:04}"
    assert answers(shop, question) == [("Espresso", exact, *["199999999999999998000"] * 2)]


def test_a_figure_beyond_all_digits_is_refused_in_one_line(shop: Shop) -> None:
    for _ in range(20):
        shop.sell_item(quantity="99999999999999999", subtotal="99999999999999.9999")
    question = grouped(
        **{"from": "transaction_items"},
        by={"item_id": "item_id"},
        measure={"a": "ratio(sum(quantity * subtotal), 1)"},
        columns=["item_name", "a"],
    )
    with pytest.raises(InputError, match="question mine: cannot be checked: ") as refused:
        answers(shop, question)
    assert "\n" not in str(refused.value)


SOLD = ["1", "2", "9"]


@pytest.fixture
def results(shop: Shop, tmp_path: Path) -> tuple[Path, Path]:
    """Answers to an own question and a built-in one, with the summary that a run leaves beside them."""
    for store in SOLD:
        shop.sell(store_id=store, user_id="88")
    shop.sell(created_at="never")
    data = shop.write()
    own = grouped(by={"store_id": "store_id", "gender": "users.gender"}, rank={"by": "revenue", "top": 2})
    asked = QuestionSet.select(Parameters(), [own], ["mine", "3"])
    folder = tmp_path / "results"
    folder.mkdir()
    expected = expected_answers(data, asked.parameters, asked.questions)
    for question in asked.questions:
        with (folder / question.file_name("csv")).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([question.shown, *expected[question.name]])
    summary = {
        "questions": asked.to_dict(),
        "tables": {
            "stores": {"read": 2, "used": 2, "rejected": 0},
            "users": {"read": 2, "used": 2, "rejected": 0},
            "transactions": {"read": 4, "used": 3, "rejected": 1},
        },
        "unmatched": {"stores": 1, "users": 1},
        "answers": {"mine": 2, "3": 3},
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    return data, folder


def test_the_questions_come_from_the_summary(results: tuple[Path, Path]) -> None:
    report = verify(*results)
    assert report.is_equal, report.differences
    assert [check.file for check in report.answers] == ["results_mine.csv", "results_query_3.csv"]
    assert len(report.accounting) == 3 * 3 + 2 + 2


@pytest.mark.parametrize(
    ("path", "value", "difference"),
    [
        (("unmatched", "users"), 0, "ids not found in users: expected 1, found 0"),
        (("answers", "mine"), 3, "rows of answer mine: expected 2, found 3"),
        (("tables", "transactions", "rejected"), 0, "rows of transactions rejected: expected 1, found 0"),
    ],
)
def test_a_wrong_figure_of_the_summary_is_a_difference(
    results: tuple[Path, Path], path: tuple[str, ...], value: int, difference: str
) -> None:
    file = results[1] / "summary.json"
    summary = json.loads(file.read_text())
    place = summary
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    file.write_text(json.dumps(summary))
    assert verify(*results).differences == (f"summary.json: {difference}",)


def test_a_wrong_cell_of_an_own_answer_is_a_difference(results: tuple[Path, Path]) -> None:
    file = results[1] / "results_mine.csv"
    file.write_text(file.read_text().replace("80.0", "80.5", 1))
    [wrong, right] = verify(*results).answers
    assert (wrong.name, wrong.is_equal, right.is_equal) == ("mine", False, True)


def test_given_questions_override_the_summary(results: tuple[Path, Path]) -> None:
    report = verify(*results, questions=[builtin()["3"]])
    assert [check.name for check in report.answers] == ["3"]
    assert not verify(*results, questions=[grouped()]).is_equal


def test_rows_that_the_run_rejected_count_for_no_question(shop: Shop, results: tuple[Path, Path]) -> None:
    """A bad cell of a column that one question reads rejects the row for all of them."""
    shop.sell(user_id="bad")
    shop.write()
    file = results[1] / "summary.json"
    summary = json.loads(file.read_text())
    summary["tables"]["transactions"] = {"read": 5, "used": 3, "rejected": 2}
    file.write_text(json.dumps(summary))
    report = verify(*results, questions=[builtin()["3"]])
    assert report.is_equal, report.differences


@pytest.mark.parametrize("definition", [{}, {"name": "mine"}, 3])
def test_a_summary_with_a_flawed_definition_is_a_difference(
    results: tuple[Path, Path], definition: Any
) -> None:
    file = results[1] / "summary.json"
    summary = json.loads(file.read_text())
    summary["questions"]["definitions"] = [definition]
    file.write_text(json.dumps(summary))
    report = verify(*results)
    assert not report.is_equal
    assert [figure.name for figure in report.accounting] == ["summary.json"]
