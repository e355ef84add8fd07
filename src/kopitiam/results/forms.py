"""The files that a person takes away: each answer as reference CSV, JSON and Parquet, and the summary."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from kopitiam.contracts.questions import ANSWERS, Answer
from kopitiam.results.answers import AnswerSet
from kopitiam.results.summary import Summary
from kopitiam.results.text import csv_lines, json_lines

REJECTED_FILE = "rejected.csv"
SUMMARY_FILE = "summary.json"


def write_forms(out: Path, answers: AnswerSet, summary: Summary) -> None:
    """The summary comes last: where it stands, everything else stands too."""
    writers: dict[str, Callable[[BinaryIO, Answer, AnswerSet, Summary], None]] = {
        "csv": _write_csv,
        "json": _write_json,
        "parquet": _write_parquet,
    }
    (out / SUMMARY_FILE).unlink(missing_ok=True)  # an earlier run's
    for answer in ANSWERS.values():
        for form, write in writers.items():
            with _replacing(out / form_name(answer, form)) as file:
                write(file, answer, answers, summary)
    with _replacing(out / SUMMARY_FILE) as file:
        file.write(json.dumps(summary.to_dict(), indent=2).encode() + b"\n")


def form_name(answer: Answer, form: str) -> str:
    return f"results_query_{answer.name}.{form}"


def _write_csv(file: BinaryIO, answer: Answer, answers: AnswerSet, _: Summary) -> None:
    file.write(",".join(answer.columns).encode() + b"\n")
    for batch in answers.batches(answer.name):
        _write_lines(file, csv_lines([batch[name] for name in answer.columns]), b"\n", b"\n")


def _write_json(file: BinaryIO, answer: Answer, answers: AnswerSet, summary: Summary) -> None:
    head = {
        "answer": answer.name,
        "title": answer.title,
        "columns": answers.schema(answer.name).names,
        "questions": summary.to_dict()["questions"],
        "rows_rejected": summary.rejected,
        "unmatched": summary.unmatched,
        "count": answers.rows(answer.name),
        "provisional": summary.coverage is not None,
    }
    if summary.coverage is not None:
        head["coverage"] = asdict(summary.coverage)
    file.write(json.dumps(head, ensure_ascii=False).encode()[:-1] + b', "rows": [')
    separator = b"\n"
    for batch in answers.batches(answer.name):
        file.write(separator)
        _write_lines(file, json_lines(batch.schema.names, batch.columns), b",\n", b"")
        separator = b",\n"
    file.write(b"\n]}\n")


def _write_parquet(file: BinaryIO, answer: Answer, answers: AnswerSet, _: Summary) -> None:
    with pq.ParquetWriter(file, answers.schema(answer.name), compression="zstd") as writer:
        for batch in answers.batches(answer.name):
            writer.write_batch(batch)


def _write_lines(file: BinaryIO, lines: pa.Array, between: bytes, last: bytes) -> None:
    if len(lines):
        file.write(between.join(lines.cast(pa.binary()).to_pylist()) + last)


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """The file appears under its name only when it is whole."""
    temporary = path.with_name(f".{path.name}.partial")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
