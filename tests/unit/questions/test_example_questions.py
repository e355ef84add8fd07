"""The twelve questions of examples/questions.toml: valid, drawable, and answered exactly."""

import csv
from pathlib import Path

import pytest

from kopitiam.contracts.parameters import Parameters
from kopitiam.questions.catalog import read_toml
from kopitiam.questions.definitions import Question
from kopitiam.questions.layout import LAYOUT
from kopitiam.questions.question_set import QuestionSet
from kopitiam.results.charts.plan import require_drawable
from kopitiam.verification import expected_answers
from question_oracle import Tables, expected_rows

FILE = Path(__file__).parents[3] / "examples" / "questions.toml"
QUESTIONS = QuestionSet.select(
    Parameters(), read_toml(FILE.read_text(encoding="utf-8"), FILE.name, check=require_drawable)
)


@pytest.fixture(scope="module")
def tables(tiny_folder: Path) -> Tables:
    content: Tables = {}
    for table in LAYOUT:
        content[table] = []
        for path in sorted((tiny_folder / table).glob("*.csv")):
            with path.open(encoding="utf-8", newline="") as file:
                content[table] += csv.DictReader(file)
    return content


@pytest.fixture(scope="module")
def by_duckdb(tiny_folder: Path) -> dict[str, list[tuple[str, ...]]]:
    return expected_answers(tiny_folder, QUESTIONS.parameters, QUESTIONS.questions)


def test_there_are_twelve_with_titles_and_charts() -> None:
    assert len(QUESTIONS.questions) == 12
    assert all(question.chart is not None for question in QUESTIONS.questions)
    assert len({question.title for question in QUESTIONS.questions}) == 12


def test_they_use_six_tables_and_three_aggregations() -> None:
    assert set(QUESTIONS.tables) == set(LAYOUT) - {"vouchers"}
    used = {a.aggregation for question in QUESTIONS.questions for a in question.aggregates}
    assert used == {"sum", "count", "count_distinct"}


@pytest.mark.parametrize("question", QUESTIONS.questions, ids=lambda question: question.name)
def test_duckdb_and_the_oracle_give_the_same_answer(
    question: Question, tables: Tables, by_duckdb: dict[str, list[tuple[str, ...]]]
) -> None:
    rows = expected_rows(question, tables, QUESTIONS.parameters)
    assert rows
    assert by_duckdb[question.name] == rows
    places = [place for place, name in enumerate(question.shown) if name in question.named]
    assert all(row[place] != "" for row in rows for place in places)
