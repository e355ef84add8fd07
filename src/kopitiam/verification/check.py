"""The check of a folder of answers: `verify` computes the answers again and reports every difference.

Answer files are compared cell by cell and in order, inside DuckDB; `summary.json` figure by figure.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from kopitiam.contracts.errors import InputError, UserError
from kopitiam.contracts.parameters import Parameters
from kopitiam.questions.definitions import Question
from kopitiam.questions.question_set import QuestionSet
from kopitiam.verification.answers import CELLS, POSITION, answer_questions, count_unmatched
from kopitiam.verification.csv_files import IS_WHOLE, count_overlong_rows, open_csv, read_as_text
from kopitiam.verification.rows import RowCount, first_line, load_tables


@dataclass(frozen=True)
class AnswerCheck:
    """The comparison of one answer file with the answer computed from the data."""

    name: str
    file: str
    rows_expected: int
    rows_found: int
    differences: tuple[str, ...] = ()
    difference_count: int = 0

    @property
    def is_equal(self) -> bool:
        return self.difference_count == 0


@dataclass(frozen=True)
class SummaryFigure:
    """One figure of `summary.json` as the check counts it, and as found in the file."""

    name: str
    expected: int | str
    found: int | str

    @property
    def is_equal(self) -> bool:
        return self.expected == self.found

    def __str__(self) -> str:
        return f"{self.name}: expected {self.expected}, found {self.found}"


@dataclass(frozen=True)
class CheckReport:
    """The result of a check: one comparison per answer file, and the figures of the summary."""

    answers: tuple[AnswerCheck, ...]
    accounting: tuple[SummaryFigure, ...] = ()

    @property
    def is_equal(self) -> bool:
        answers_are_equal = all(check.is_equal for check in self.answers)
        return answers_are_equal and all(figure.is_equal for figure in self.accounting)

    @property
    def differences(self) -> tuple[str, ...]:
        """One line per difference; of many differences of a kind, the first ones."""
        in_answers = [line for check in self.answers for line in check.differences]
        in_accounting = [str(figure) for figure in self.accounting if not figure.is_equal]
        return (*in_answers, *in_accounting)


SHOWN_PER_KIND = 10  # lines for each kind of difference

MISPLACED = f"""
SELECT count(*) FROM expected FULL JOIN found USING ({POSITION})
WHERE expected.{CELLS} IS DISTINCT FROM found.{CELLS}
"""  # noqa: S608
NOT_THERE = f"SELECT {CELLS} FROM expected EXCEPT ALL SELECT {CELLS} FROM found"  # noqa: S608
UNEXPECTED = f"SELECT {CELLS} FROM found EXCEPT ALL SELECT {CELLS} FROM expected"  # noqa: S608


def compare(
    database: duckdb.DuckDBPyConnection, answer: Question, results: Path, scratch: Path
) -> AnswerCheck:
    """Compare the file of one answer in the folder `results` with the table `answer_<name>`."""
    expected = database.table(f"answer_{answer.name}")
    expected.create_view("expected")
    try:
        misfits = _load_found(database, answer, results / answer.file_name("csv"), scratch)
    except InputError as error:
        return AnswerCheck(answer.name, answer.file_name("csv"), _count(expected), 0, (str(error),), 1)
    differences = list(_differences(database, answer, misfits))
    return AnswerCheck(
        name=answer.name,
        file=answer.file_name("csv"),
        rows_expected=_count(expected),
        rows_found=_count(database.table("found")) + misfits,
        differences=tuple(f"{answer.file_name('csv')}: {line}" for _, lines in differences for line in lines),
        difference_count=sum(count for count, _ in differences),
    )


def _load_found(database: duckdb.DuckDBPyConnection, answer: Question, path: Path, scratch: Path) -> int:
    """Create the view `found` of the file's rows; return how many rows have too few or too many fields."""
    if not path.is_file():
        raise InputError(f"{answer.file_name('csv')}: not there")
    file = open_csv(path, scratch)
    if file.header != answer.shown:
        expected, header = ",".join(answer.shown), ",".join(file.header)
        raise InputError(f"{answer.file_name('csv')}: the header must be {expected} and is {header}")
    texts = ", ".join(f"coalesce(\"{column}\", '')" for column in answer.shown)
    try:
        read_as_text(database, [file], answer.shown).project(
            f"row_number() OVER () AS {POSITION}, [{texts}] AS {CELLS}, {IS_WHOLE}"
        ).create(f"read_answer_{answer.name}")
    except duckdb.Error as error:
        raise InputError(f"{answer.file_name('csv')}: cannot be read: {first_line(error)}") from None
    rows = database.table(f"read_answer_{answer.name}")
    rows.filter(IS_WHOLE).create_view("found")
    return _count(rows.filter(f"NOT {IS_WHOLE}")) + count_overlong_rows(database, [file])


def _differences(
    database: duckdb.DuckDBPyConnection, answer: Question, misfits: int
) -> Iterator[tuple[int, list[str]]]:
    """Yield the count of each kind of difference, with lines that describe the first ones."""
    if misfits:
        yield misfits, [f"{misfits} rows without exactly {len(answer.shown)} fields"]
    if not database.sql(MISPLACED).fetchall()[0][0]:
        return
    is_same_multiset = True
    for query, wording in ((NOT_THERE, "expected {} – not there"), (UNEXPECTED, "unexpected: {}")):
        rows = database.sql(query)
        if count := _count(rows):
            first = rows.order(CELLS).limit(SHOWN_PER_KIND).fetchall()
            yield count, [wording.format(", ".join(cells)) for (cells,) in first]
            is_same_multiset = False
    if is_same_multiset:
        yield 1, ["rows are right but not in the required order"]


def _count(rows: duckdb.DuckDBPyRelation) -> int:
    return int(rows.aggregate("count(*)").fetchall()[0][0])


SUMMARY_FILE = "summary.json"


@dataclass(frozen=True)
class RecordedSummary:
    """The content of `summary.json`, unchecked. `failure` says why an existing file cannot be read."""

    question_set: QuestionSet | None = None
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    unmatched: Mapping[str, Any] = field(default_factory=dict)
    answers: Mapping[str, Any] = field(default_factory=dict)
    failure: str = ""


def read_summary(results: Path) -> RecordedSummary:
    """Read `summary.json` in the folder `results`; empty if there is none."""
    path = results / SUMMARY_FILE
    if not path.exists():
        return RecordedSummary()
    try:
        content = json.loads(path.read_bytes())
        question_set = _question_set(content["questions"]) if "questions" in content else None
        tables = {table: dict(counts) for table, counts in content.get("tables", {}).items()}
        unmatched, answers = dict(content.get("unmatched", {})), dict(content.get("answers", {}))
        return RecordedSummary(question_set, tables, unmatched, answers)
    except (OSError, ValueError, TypeError, LookupError, AttributeError, UserError) as error:
        return RecordedSummary(failure=f"{type(error).__name__}: {error}")


def _question_set(content: Mapping[str, Any]) -> QuestionSet:
    return QuestionSet.from_dict({**content, "min_amount": str(content["min_amount"])})


def compare_summary(
    summary: RecordedSummary,
    counts: Mapping[str, RowCount],
    unmatched: Mapping[str, int],
    answers: Mapping[str, int],
) -> Iterator[SummaryFigure]:
    """Compare the figures that the summary records with those counted by the check."""
    if summary.failure:
        yield SummaryFigure(SUMMARY_FILE, "a summary", summary.failure)
    if summary.tables:
        for table, count in counts.items():
            yield from _compare_table(table, count, summary.tables.get(table, {}))
    if summary.unmatched:
        for table, missing in unmatched.items():
            recorded = summary.unmatched.get(table, "nothing")
            yield SummaryFigure(f"{SUMMARY_FILE}: ids not found in {table}", missing, recorded)
    if summary.answers:
        for name, rows in answers.items():
            yield SummaryFigure(
                f"{SUMMARY_FILE}: rows of answer {name}", rows, summary.answers.get(name, "nothing")
            )


def _compare_table(table: str, count: RowCount, recorded: Mapping[str, Any]) -> Iterator[SummaryFigure]:
    read, used, rejected = (recorded.get(key, "nothing") for key in ("read", "used", "rejected"))
    yield SummaryFigure(f"{SUMMARY_FILE}: rows of {table} used", count.used, used)
    yield SummaryFigure(f"{SUMMARY_FILE}: rows of {table} rejected", count.rejected, rejected)
    yield SummaryFigure(f"{SUMMARY_FILE}: rows of {table} read", count.used + count.rejected, read)


def verify(
    data: Path,
    results: Path,
    parameters: Parameters | None = None,
    questions: Sequence[Question] | None = None,
    default: QuestionSet | None = None,
) -> CheckReport:
    """Compute the answers from the CSV files in `data` and compare them with the files in `results`.

    Parameters or questions that are not given come from the summary in `results`, else from `default`, else
    from the catalog. Raises InputError if the data or the folder `results` cannot be read.
    """
    if not results.is_dir():
        raise InputError(f"{results}: no such folder")
    summary = read_summary(results)
    base = summary.question_set or default or QuestionSet.of_catalog()
    checked = QuestionSet(parameters or base.parameters, tuple(questions or base.questions))
    # A run rejects a row for any column that it reads, so the check reads the same columns.
    questions_read = [*checked.questions, *(summary.question_set.questions if summary.question_set else ())]
    with load_tables(data, questions_read) as tables:
        database, scratch = tables.database, tables.scratch
        answer_questions(database, checked.parameters, checked.questions)
        checks = [compare(database, question, results, scratch) for question in checked.questions]
        unmatched = count_unmatched(database, checked.questions)
    rows = {check.name: check.rows_expected for check in checks}
    return CheckReport(tuple(checks), tuple(compare_summary(summary, tables.counts, unmatched, rows)))
