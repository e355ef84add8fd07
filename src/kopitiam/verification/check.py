"""The whole check of a folder of answers."""

from collections.abc import Sequence
from pathlib import Path

from kopitiam.contracts.errors import InputError
from kopitiam.contracts.parameters import Parameters
from kopitiam.questions.definitions import Question
from kopitiam.questions.question_set import QuestionSet
from kopitiam.verification.answers import answer_questions, count_unmatched
from kopitiam.verification.comparison import compare
from kopitiam.verification.report import Report
from kopitiam.verification.rows import load_tables
from kopitiam.verification.summary import compare_summary, read_summary


def verify(
    data: Path,
    results: Path,
    parameters: Parameters | None = None,
    questions: Sequence[Question] | None = None,
    default: QuestionSet | None = None,
) -> Report:
    """Computes the answers to the CSV files in `data` and compares those in `results` with them.

    Where parameters or questions are not given, the summary beside the answers says what was asked, or else
    `default`, or else it is the catalog with its own parameters.
    """
    if not results.is_dir():
        raise InputError(f"{results}: no such folder")
    summary = read_summary(results)
    run = summary.asked or default or QuestionSet.of_catalog()
    asked = QuestionSet(parameters or run.parameters, tuple(questions or run.questions))
    # A run rejects rows by all columns that it reads, so the same columns are read here.
    read = [*asked.questions, *(summary.asked.questions if summary.asked else ())]
    with load_tables(data, read) as tables:
        answer_questions(tables.database, asked.parameters, asked.questions)
        checks = [compare(tables.database, question, results, tables.scratch) for question in asked.questions]
        unmatched = count_unmatched(tables.database, asked.questions)
    rows = {check.name: check.rows_expected for check in checks}
    return Report(tuple(checks), tuple(compare_summary(summary, tables.counts, unmatched, rows)))
