"""Answer files: each answer as CSV, JSON and Parquet, and the summary, written and read back.

The workbook and the report are modules of their own.
"""

import contextlib
import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from kopitiam.contracts.data_sets import DataUse
from kopitiam.contracts.errors import ServiceError, UserError
from kopitiam.contracts.tables import Rejected
from kopitiam.questions.definitions import Question
from kopitiam.questions.question_set import QuestionSet
from kopitiam.results.answers import ComputedAnswers, rows_per_batch
from kopitiam.results.cells import csv_lines, json_lines, shorten
from kopitiam.results.summary import Coverage, RowCount, RunSummary
from kopitiam.storage.port import Key, StoragePort
from kopitiam.system.files import atomic_file

PARQUET_KEY = b"kopitiam"  # metadata of a Parquet file: what JSON has beside the rows
REJECTED_FILE = "rejected.csv"
REPORT_FILE = "report.html"
SUMMARY_FILE = "summary.json"
WORKBOOK_FILE = "results.xlsx"
MAX_REJECTED_FIELD = 1 << 20  # far more than our clients send
_MAX_LINE_DIGITS = 19
_BATCH_ROWS = 4_096
_ROWS = b', "rows": ['


def write_answers(out: Path, answers: ComputedAnswers, summary: RunSummary) -> None:
    """Writes all answers in all forms, then the summary: a folder with a summary is complete.

    The caller makes the files durable, where they have to be.
    """
    writers: dict[str, Callable[[BinaryIO, Question, ComputedAnswers, RunSummary], None]] = {
        "csv": _write_csv,
        "json": _write_json,
        "parquet": _write_parquet,
    }
    (out / SUMMARY_FILE).unlink(missing_ok=True)  # of an earlier run
    for question in answers.question_set.questions:
        for form, write in writers.items():
            with atomic_file(out / question.file_name(form), is_synced=False) as file:
                write(file, question, answers, summary)
    with atomic_file(out / SUMMARY_FILE, is_synced=False) as file:
        file.write(json.dumps(summary.to_dict(), indent=2).encode() + b"\n")


def _write_csv(file: BinaryIO, question: Question, answers: ComputedAnswers, _: RunSummary) -> None:
    file.write(",".join(question.shown).encode() + b"\n")
    for batch in answers.batches(question.name):
        _write_lines(file, csv_lines([batch[name] for name in question.shown]), b"\n", b"\n")


def _head(question: Question, answers: ComputedAnswers, summary: RunSummary) -> dict[str, Any]:
    """Facts about an answer that JSON and Parquet have beside its rows."""
    return {
        "answer": question.name,
        "title": question.title,
        "columns": answers.schema(question.name).names,
        "questions": summary.to_dict()["questions"],
        "rows_rejected": summary.rejected,
        "unmatched": summary.unmatched,
        "count": answers.rows(question.name),
        "provisional": summary.coverage is not None,
    }


def _write_json(file: BinaryIO, question: Question, answers: ComputedAnswers, summary: RunSummary) -> None:
    head = _head(question, answers, summary)
    if summary.coverage is not None:
        head["coverage"] = asdict(summary.coverage)
    file.write(_opening(head))
    separator = b"\n"
    for batch in answers.batches(question.name):
        file.write(separator)
        _write_lines(file, json_lines(batch.schema.names, batch.columns), b",\n", b"")
        separator = b",\n"
    file.write(b"\n]}\n")


def with_current_coverage(opening: bytes, now: Callable[[Coverage], Coverage]) -> bytes:
    """The first line of an answer as JSON, with its coverage replaced by `now(coverage)`."""
    head = json.loads(opening.strip().removesuffix(_ROWS) + b"}")
    return _opening(head | {"coverage": asdict(now(Coverage(**head["coverage"])))}) + b"\n"


def _opening(head: dict[str, Any]) -> bytes:
    return json.dumps(head, ensure_ascii=False).encode()[:-1] + _ROWS


def _write_parquet(file: BinaryIO, question: Question, answers: ComputedAnswers, summary: RunSummary) -> None:
    head = json.dumps(_head(question, answers, summary), ensure_ascii=False).encode()
    schema = answers.schema(question.name).with_metadata({PARQUET_KEY: head})
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in answers.batches(question.name):
            writer.write_batch(batch)


def _write_lines(file: BinaryIO, lines: pa.Array, between: bytes, last: bytes) -> None:
    if len(lines):
        file.write(between.join(lines.cast(pa.binary()).to_pylist()) + last)


@dataclass(frozen=True)
class AnswerFiles:
    """Answers in Parquet files that `open` opens by name; one batch in memory."""

    question_set: QuestionSet
    open: Callable[[str], Any]

    @classmethod
    def of(cls, folder: Path, question_set: QuestionSet) -> "AnswerFiles":
        return cls(question_set, lambda name: (folder / name).open("rb"))

    def schema(self, name: str) -> pa.Schema:
        with self._file(name) as file:
            return pq.read_schema(file)

    def rows(self, name: str) -> int:
        with self._file(name) as file:
            return int(pq.read_metadata(file).num_rows)

    def batches(self, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        with self._file(name) as file, pq.ParquetFile(file) as content:
            schema = content.schema_arrow
            rows = rows_per_batch(schema, schema.names if columns is None else columns)
            for batch in content.iter_batches(min(_BATCH_ROWS, rows), columns=columns):
                yield batch if columns is None else batch.select(list(columns))

    def _file(self, name: str) -> Any:
        return self.open(self.question_set.by_name[name].file_name("parquet"))


def read_summary(text: bytes) -> RunSummary:
    """Parses `summary.json`. Raises ServiceError if this version cannot read it."""
    try:
        return _summary(json.loads(text))
    except (AttributeError, ValueError, KeyError, TypeError, UserError):
        raise ServiceError(f"{SUMMARY_FILE}: not a summary that this version can read") from None


def rejected_csv(storage: StoragePort, files: Iterable[Key]) -> Iterator[bytes]:
    """Yield the CSV lines of all rejected rows in the files, with one header; nothing if there is no file."""
    for position, file in enumerate(files):
        with io.BufferedReader(storage.open(file)) as content:
            yield from islice(content, 1 if position else 0, None)


def rejected_lines(storage: StoragePort, files: Iterable[Key]) -> Iterator[str]:
    """As `rejected_csv`, as text, each line cut off at the longest that a rejected row can be."""
    for position, file in enumerate(files):
        content = io.BufferedReader(storage.open(file))
        with io.TextIOWrapper(content, "utf-8", errors="replace", newline="") as text:
            yield from islice(_bounded_lines(text), 1 if position else 0, None)


def _bounded_lines(text: io.TextIOWrapper) -> Iterator[str]:
    while line := text.readline(MAX_REJECTED_FIELD):
        yield line
        while len(line) == MAX_REJECTED_FIELD and not line.endswith("\n"):
            line = text.readline(MAX_REJECTED_FIELD)


def read_rejected(lines: Iterable[str], most: int) -> list[Rejected]:
    """The first `most` rejected rows of a CSV with header. Malformed rows, sent by a client, are skipped."""
    return list(islice(_rejected(lines), most))


def _rejected(lines: Iterable[str]) -> Iterator[Rejected]:
    for row in rejected_cells(lines):
        _table, file, line, reason, content = [*row, *[""] * 5][:5]
        if len(row) > 3 and line.isdecimal() and len(line) < _MAX_LINE_DIGITS:
            yield Rejected(file, int(line), reason, content)


def rejected_cells(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield the rows of a CSV with header, their cells shortened. Ends where a client sent malformed CSV."""
    csv.field_size_limit(MAX_REJECTED_FIELD)
    with contextlib.suppress(csv.Error):
        for row in islice(csv.reader(lines), 1, None):
            yield [shorten(cell) for cell in row]


def _summary(content: dict[str, Any]) -> RunSummary:
    return RunSummary(
        QuestionSet.from_dict(content["questions"]),
        {name: RowCount(count["used"], count["rejected"]) for name, count in content["tables"].items()},
        dict(content["unmatched"]),
        dict(content["answers"]),
        float(content["seconds"]),
        Coverage(**content["coverage"]) if "coverage" in content else None,
        content.get("fingerprint"),
        DataUse.from_dict(content["data"]) if "data" in content else None,
    )
