"""The whole check of a folder of answers."""

from pathlib import Path

from kopitiam.contracts.errors import InputError
from kopitiam.contracts.questions import Questions
from kopitiam.questions.catalog import builtin
from kopitiam.verification.answers import answer_questions, count_unmatched
from kopitiam.verification.comparison import compare
from kopitiam.verification.report import Report
from kopitiam.verification.rows import load_tables
from kopitiam.verification.summary import compare_summary, read_summary


def verify(
    data: Path, results: Path, questions: Questions | None = None, default: Questions | None = None
) -> Report:
    """Computes the answers to the CSV files in `data` and compares those in `results` with them.

    Where `questions` is not given, the summary beside the answers says what was asked, or else `default`.
    """
    if not results.is_dir():
        raise InputError(f"{results}: no such folder")
    summary = read_summary(results)
    asked = list(builtin().values())
    with load_tables(data, asked) as tables:
        answer_questions(tables.database, questions or summary.questions or default or Questions(), asked)
        checks = [compare(tables.database, question, results, tables.scratch) for question in asked]
        unmatched = count_unmatched(tables.database, asked)
    return Report(tuple(checks), tuple(compare_summary(summary, tables.counts, unmatched)))
