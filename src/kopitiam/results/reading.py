"""Answers read back, wherever they lie: Parquet files that something can open by name, and their summary."""

import contextlib
import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kopitiam.contracts.errors import ServiceError, UserError
from kopitiam.contracts.tables import Rejected
from kopitiam.questions.question_set import QuestionSet
from kopitiam.results.answers import rows_of_any_texts
from kopitiam.results.forms import SUMMARY_FILE, form_name
from kopitiam.results.summary import Coverage, RowCount, Summary
from kopitiam.results.text import shorten

REPORT_FILE = "report.html"
MAX_REJECTED_FIELD = 1 << 20  # a client that keeps to the protocol sends far less
_LONGEST_LINE = 19  # digits of a line number
_BATCH_ROWS = 4_096


@dataclass(frozen=True)
class AnswerFiles:
    """Answers in Parquet files, which `open` opens by name; never more than one batch in memory."""

    asked: QuestionSet
    open: Callable[[str], Any]

    @classmethod
    def of(cls, folder: Path, asked: QuestionSet) -> "AnswerFiles":
        return cls(asked, lambda name: (folder / name).open("rb"))

    def schema(self, name: str) -> pa.Schema:
        with self._file(name) as file:
            return pq.read_schema(file)

    def rows(self, name: str) -> int:
        with self._file(name) as file:
            return int(pq.read_metadata(file).num_rows)

    def batches(self, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        with self._file(name) as file, pq.ParquetFile(file) as content:
            schema = content.schema_arrow
            rows = rows_of_any_texts(schema, schema.names if columns is None else columns)
            for batch in content.iter_batches(min(_BATCH_ROWS, rows), columns=columns):
                yield batch if columns is None else batch.select(list(columns))

    def _file(self, name: str) -> Any:
        return self.open(form_name(self.asked.by_name[name], "parquet"))


def read_summary(text: bytes) -> Summary:
    try:
        return _summary(json.loads(text))
    except (AttributeError, ValueError, KeyError, TypeError, UserError):
        raise ServiceError(f"{SUMMARY_FILE}: not a summary as this version knows it") from None


def read_rejected(lines: Iterable[str], most: int) -> list[Rejected]:
    """The first of the rows that were set aside, as far as they are such; the first line is the header."""
    csv.field_size_limit(MAX_REJECTED_FIELD)
    return list(islice(_rejected(lines), most))


def _rejected(lines: Iterable[str]) -> Iterator[Rejected]:
    """A client may have sent whatever it liked in their place."""
    with contextlib.suppress(csv.Error):
        for row in csv.DictReader(lines):
            file, line, reason, content = (row.get(name) for name in ("file", "line", "reason", "row"))
            if (
                file is not None
                and line is not None
                and reason is not None
                and line.isdecimal()
                and len(line) < _LONGEST_LINE
            ):
                yield Rejected(shorten(file), int(line), shorten(reason), shorten(content or ""))


def _summary(read: dict[str, Any]) -> Summary:
    return Summary(
        QuestionSet.from_dict(read["questions"]),
        {name: RowCount(count["used"], count["rejected"]) for name, count in read["tables"].items()},
        dict(read["unmatched"]),
        dict(read["answers"]),
        float(read["seconds"]),
        Coverage(**read["coverage"]) if "coverage" in read else None,
        read.get("fingerprint"),
    )
