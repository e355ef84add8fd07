"""The files that a person takes away: each answer as reference CSV, JSON and Parquet, and the summary."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from kopitiam.questions.definitions import Question
from kopitiam.results.answers import AnswerSet
from kopitiam.results.summary import Coverage, Summary
from kopitiam.results.text import csv_lines, json_lines

PARQUET_KEY = b"kopitiam"  # of what a Parquet file says about itself, beside its columns
REJECTED_FILE = "rejected.csv"
SUMMARY_FILE = "summary.json"
_ROWS = b', "rows": ['


def write_forms(out: Path, answers: AnswerSet, summary: Summary) -> None:
    """The summary comes last: where it stands, everything else stands too."""
    writers: dict[str, Callable[[BinaryIO, Question, AnswerSet, Summary], None]] = {
        "csv": _write_csv,
        "json": _write_json,
        "parquet": _write_parquet,
    }
    (out / SUMMARY_FILE).unlink(missing_ok=True)  # an earlier run's
    for question in answers.asked.questions:
        for form, write in writers.items():
            with replacing(out / form_name(question, form)) as file:
                write(file, question, answers, summary)
    with replacing(out / SUMMARY_FILE) as file:
        file.write(json.dumps(summary.to_dict(), indent=2).encode() + b"\n")


def form_name(question: Question, form: str) -> str:
    return f"{question.file_stem}.{form}"


def _write_csv(file: BinaryIO, question: Question, answers: AnswerSet, _: Summary) -> None:
    file.write(",".join(question.shown).encode() + b"\n")
    for batch in answers.batches(question.name):
        _write_lines(file, csv_lines([batch[name] for name in question.shown]), b"\n", b"\n")


def _head(question: Question, answers: AnswerSet, summary: Summary) -> dict[str, Any]:
    """What JSON and Parquet say about an answer beside its rows."""
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


def _write_json(file: BinaryIO, question: Question, answers: AnswerSet, summary: Summary) -> None:
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


def covering(opening: bytes, now: Callable[[Coverage], Coverage]) -> bytes:
    """The first line of an answer as JSON, with what its coverage is by now."""
    head = json.loads(opening.strip().removesuffix(_ROWS) + b"}")
    return _opening(head | {"coverage": asdict(now(Coverage(**head["coverage"])))}) + b"\n"


def _opening(head: dict[str, Any]) -> bytes:
    return json.dumps(head, ensure_ascii=False).encode()[:-1] + _ROWS


def _write_parquet(file: BinaryIO, question: Question, answers: AnswerSet, summary: Summary) -> None:
    head = json.dumps(_head(question, answers, summary), ensure_ascii=False).encode()
    schema = answers.schema(question.name).with_metadata({PARQUET_KEY: head})
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in answers.batches(question.name):
            writer.write_batch(batch)


def _write_lines(file: BinaryIO, lines: pa.Array, between: bytes, last: bytes) -> None:
    if len(lines):
        file.write(between.join(lines.cast(pa.binary()).to_pylist()) + last)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
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
