"""The answers of a run as an Excel workbook: a sheet about the run, and a sheet for each answer.

Every figure is written with all its digits. Excel keeps 15 of them, so a column in which some value has more
is followed by a column of texts. Rows are streamed: memory does not grow with them. The same answers give the
same bytes. Sheets are bounded, since XlsxWriter writes some 80,000 cells a second (docs/decisions/0004).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xlsxwriter
from xlsxwriter.format import Format
from xlsxwriter.workbook import Workbook
from xlsxwriter.worksheet import Worksheet

from kopitiam.contracts.parameters import SECONDS_PER_DAY
from kopitiam.contracts.sql_queries import QueryOutcome
from kopitiam.contracts.tables import Kind
from kopitiam.questions.definitions import AnswerColumn, Question, Role
from kopitiam.results.answers import Answers
from kopitiam.results.cells import FIGURES, plain_text
from kopitiam.results.descriptions import describe, parameters_used
from kopitiam.results.summary import RunSummary
from kopitiam.system.files import atomic_file

MOST_CELLS = 2_000_000  # of all sheets; takes about 25 seconds
LEAST_CELLS = 20_000  # at least, for one of many sheets
MOST_TEXT_BYTES = 256 << 20  # of all sheets; escaped, they still fit into a zip file
EXCEL_ROWS = 1_048_576
EXCEL_DIGITS = 15
_HEADER_ROWS = 2
_FIRST_YEAR = 1901  # Excel counts days from 1900, and wrongly treats it as a leap year
_DAYS_TO_1970 = 25_569
_WIDEST, _NARROWEST = 60, 8
_NOT_IN_XML = re.compile("[\ufffe\uffff]")
_FORMATS = {
    Kind.MONEY: "#,##0.00##",
    Kind.NUMBER: "#,##0.0###",
    Kind.COUNT: "#,##0",
    Kind.DATE: "yyyy-mm-dd",
    Kind.INSTANT: "yyyy-mm-dd hh:mm:ss",
}
ABOUT = "About"
_LONGEST_NAME = 31
_CREATED = datetime(2000, 1, 1)
_OPTIONS = {
    "constant_memory": True,
    "strings_to_formulas": False,
    "strings_to_numbers": False,
    "strings_to_urls": False,
}
_RESULT_BATCH_ROWS = 1_024
_KINDS_OF_RESULTS = {
    "text": Kind.TEXT,
    "integer": Kind.COUNT,
    "decimal": Kind.NUMBER,
    "float": Kind.NUMBER,
    "date": Kind.DATE,
    "instant": Kind.INSTANT,
    "boolean": Kind.BOOLEAN,
}
_Write = Callable[[int, int, Any, Format | None], Any]


class _Exact(float):
    """A float that is written with the digits of the decimal that it approximates."""

    digits = ""

    def __format__(self, _: str) -> str:
        return self.digits


@dataclass(frozen=True)
class _SheetColumn:
    column: AnswerColumn
    has_texts: bool  # some value has more digits than Excel keeps
    width: int


@dataclass(frozen=True)
class AnswerSheet:
    """One answer on a sheet of its own: all columns, those of the CSV first."""

    name: str
    question: Question
    answers: Answers
    columns: tuple[_SheetColumn, ...]
    rows: int  # on the sheet

    @classmethod
    def of(cls, answers: Answers, question: Question, name: str) -> "AnswerSheet":
        shown = [question.columns_by_name[column] for column in question.shown]
        columns = [*shown, *(column for column in question.answer_columns if column not in shown)]
        cells = max(LEAST_CELLS, MOST_CELLS // len(answers.question_set.questions))
        most = min(EXCEL_ROWS - _HEADER_ROWS, cells // len(columns))
        share = MOST_TEXT_BYTES // len(answers.question_set.questions)
        rows = _rows_with_short_texts(_first(answers.batches(question.name), most), share)
        measured = _measure_columns(columns, _first(answers.batches(question.name), rows))
        return cls(name, question, answers, measured, rows)

    @property
    def title(self) -> str:
        return f"{self.question.title} ({self.name})"

    @property
    def left_out(self) -> int:
        return self.answers.rows(self.question.name) - self.rows

    @property
    def bound(self) -> str:
        whole = self.rows + self.left_out
        return (
            f"the first {self.rows:,} of {whole:,} rows; all of them are in {self.question.file_name('csv')}"
        )

    def write(self, workbook: Workbook) -> None:
        title = self.title + (f": {self.bound}" if self.left_out else "")
        batches = _first(self.answers.batches(self.question.name), self.rows)
        _write_sheet(workbook, self.name, title, self.columns, batches)


def _write_sheet(
    workbook: Workbook,
    name: str,
    title: str,
    columns: Sequence[_SheetColumn],
    batches: Iterable[pa.RecordBatch],
) -> None:
    sheet = workbook.add_worksheet(name)
    bold = workbook.add_format({"bold": True})
    formats = {kind: workbook.add_format({"num_format": text}) for kind, text in _FORMATS.items()}
    sheet.freeze_panes(_HEADER_ROWS, 0)
    places = _places(columns)
    for place, (column, is_text) in enumerate(places):
        sheet.set_column(place, place, column.width + (len(" (exact)") if is_text else 0))
    sheet.write_string(0, 0, title, bold)
    for place, (column, is_text) in enumerate(places):
        sheet.write_string(1, place, _clean(column.column.name) + (" (exact)" if is_text else ""), bold)
    styles = [_style(column.column, formats) for column, _ in places]
    number = _HEADER_ROWS
    for batch in batches:
        written = [
            _cells(sheet, column.column, batch[column.column.name], is_text) for column, is_text in places
        ]
        for row in range(len(batch)):
            for place, (write, values) in enumerate(written):
                if (value := values[row]) is not None:
                    write(number, place, value, styles[place])
            number += 1
    if number > _HEADER_ROWS:
        sheet.autofilter(1, 0, number - 1, len(places) - 1)


def _places(columns: Sequence[_SheetColumn]) -> list[tuple[_SheetColumn, bool]]:
    """Columns of the sheet, and whether each is the exact text of the one before."""
    return [
        (column, is_text)
        for column in columns
        for is_text in ((False, True) if column.has_texts else (False,))
    ]


def _measure_columns(
    columns: Sequence[AnswerColumn], batches: Iterable[pa.RecordBatch]
) -> tuple[_SheetColumn, ...]:
    """The columns with their widths, and whether any value has too many digits for Excel."""
    long: set[str] = set()
    first: dict[str, list[Any]] = {}
    for batch in batches:
        long |= {column.name for column in columns if _has_long_values(batch[column.name])}
        first = first or batch.slice(0, 1_000).to_pydict()
    return tuple(
        _SheetColumn(column, column.name in long, _width(column, first.get(column.name, [])))
        for column in columns
    )


def _rows_with_short_texts(batches: Iterable[pa.RecordBatch], most_bytes: int) -> int:
    """How many of the first rows have texts of at most this size together."""
    left, rows = most_bytes, 0
    for batch in batches:
        sizes = np.zeros(len(batch), np.int64)
        for column in batch.columns:
            if pa.types.is_string(column.type):
                sizes += pc.binary_length(column).fill_null(0).to_numpy()
        fitting = int(np.searchsorted(np.cumsum(sizes), left, side="right"))
        rows += fitting
        if fitting < len(batch):
            break
        left -= int(sizes.sum())
    return rows


def _first(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yields the first rows; one batch in memory."""
    left = rows
    for batch in batches:
        if left <= 0:
            return
        yield batch.slice(0, left)
        left -= len(batch)


def _has_long_values(values: pa.Array) -> bool:
    """Whether any value has more significant digits than Excel keeps."""
    if pa.types.is_decimal(values.type):
        scale = values.type.scale
        limit = pa.scalar(Decimal(10) ** (EXCEL_DIGITS - scale), pa.decimal128(38, scale))
    elif pa.types.is_integer(values.type):
        limit = pa.scalar(10**EXCEL_DIGITS, pa.int64())
    else:
        return False
    large = values.filter(pc.fill_null(pc.greater_equal(pc.abs(values), limit), False))
    digits = (f"{value:f}".replace(".", "").strip("-0") for value in map(Decimal, large.to_pylist()))
    return any(len(text) > EXCEL_DIGITS for text in digits)


def _width(column: AnswerColumn, values: Sequence[Any]) -> int:
    widest = max((len(str(value)) for value in values if value is not None), default=0)
    separators = widest // 3 if column.kind in (Kind.COUNT, Kind.MONEY) else 0
    return max(_NARROWEST, min(_WIDEST, max(len(column.name), widest + separators) + 2))


def _cells(
    sheet: Worksheet, column: AnswerColumn, values: pa.Array, is_text: bool
) -> tuple[_Write, list[Any]]:
    """The method that writes the cells of a column, and their values.

    Figures, dates and booleans keep their type; ids and others are text, which Excel never runs as a formula.
    """
    if column.kind is Kind.BOOLEAN:
        return sheet.write_boolean, values.to_pylist()
    texts = [
        _clean(text) if is_there else None
        for text, is_there in zip(plain_text(values).to_pylist(), values.is_valid().to_pylist(), strict=True)
    ]
    if column.kind in FIGURES and not is_text:
        floats = values.cast(pa.float64(), safe=False).to_pylist()
        return sheet.write_number, list(map(_exact, floats, texts))
    if column.kind in (Kind.DATE, Kind.INSTANT):
        is_early = pc.less(pc.year(values), _FIRST_YEAR).to_pylist()
        days = zip(_days(values), texts, is_early, strict=True)
        return _day_writer(sheet), [text if early else day for day, text, early in days]
    return sheet.write_string, texts


def _exact(number: float | None, text: str | None) -> _Exact | None:
    if number is None or text is None:
        return None
    exact = _Exact(number)
    exact.digits = text.removesuffix(".0")
    return exact


def _days(times: pa.Array) -> list[float | None]:
    """Days since Excel's first day, with the time of day as a fraction."""
    seconds = times.cast(pa.timestamp("s"), safe=False).cast(pa.int64()).cast(pa.float64())
    days: list[float | None] = pc.add(
        pc.divide(seconds, float(SECONDS_PER_DAY)), float(_DAYS_TO_1970)
    ).to_pylist()
    return days


def _day_writer(sheet: Worksheet) -> _Write:
    """A method that writes days as numbers, and days before Excel's calendar as text."""

    def write(row: int, place: int, value: float | str, style: Format | None) -> None:
        if isinstance(value, str):
            sheet.write_string(row, place, value)
        else:
            sheet.write_number(row, place, value, style)

    return write


def _style(column: AnswerColumn, formats: dict[Kind, Format]) -> Format | None:
    is_key = column.kind is Kind.COUNT and column.role == "key"  # a year has no separators
    return None if is_key else formats.get(column.kind)


def _clean(text: str) -> str:
    """The text without characters that XML forbids."""
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def write_workbook(path: Path, answers: Answers, summary: RunSummary) -> None:
    """Writes the file completely or not at all. Sheets of long answers have the first rows, and say so."""
    with atomic_file(path) as file:
        workbook = xlsxwriter.Workbook(file, _OPTIONS)
        workbook.set_properties({"title": "Answers of Kopitiam", "created": _CREATED})
        sheets = [
            AnswerSheet.of(answers, question, name)
            for question, name in _sheet_names(answers.question_set.questions)
        ]
        _write_about(workbook, sheets, summary)
        for sheet in sheets:
            sheet.write(workbook)
        workbook.close()


def write_result_workbook(path: Path, source: Any, outcome: QueryOutcome) -> None:
    """Writes the result of an SQL query, in Parquet, as a workbook with one sheet; a long one has the first
    rows, and says so."""
    columns = [
        AnswerColumn(column.name, _KINDS_OF_RESULTS[column.kind], _key_if_whole(column.kind))
        for column in outcome.columns
    ]
    with pq.ParquetFile(source) as file, atomic_file(path) as target:
        most = min(EXCEL_ROWS - _HEADER_ROWS, MOST_CELLS // len(columns))

        def batches(rows: int) -> Iterator[pa.RecordBatch]:
            return _first(file.iter_batches(_RESULT_BATCH_ROWS), rows)

        rows = _rows_with_short_texts(batches(most), MOST_TEXT_BYTES)
        bound = "" if rows == outcome.rows else f"the first {rows:,} of "
        cut = "; the query has more" if outcome.is_cut else ""
        workbook = xlsxwriter.Workbook(target, _OPTIONS)
        workbook.set_properties({"title": "Result of Kopitiam", "created": _CREATED})
        measured = _measure_columns(columns, batches(rows))
        _write_sheet(workbook, "Result", f"{bound}{outcome.rows:,} rows{cut}", measured, batches(rows))
        workbook.close()


def _key_if_whole(kind: str) -> Role:
    """Whole numbers may be ids or years, which have no separators."""
    return "key" if kind == "integer" else "measure"


def _sheet_names(questions: Sequence[Question]) -> Iterator[tuple[Question, str]]:
    """Questions with names of sheets that Excel accepts: at most 31 characters, distinct in any case."""
    taken = {ABOUT.lower(), "history"}
    for question in questions:
        name, number = question.short_name[:_LONGEST_NAME], 1
        while name.lower() in taken:
            number += 1
            name = f"{question.short_name[: _LONGEST_NAME - len(str(number)) - 1]}_{number}"
        taken.add(name.lower())
        yield question, name


def _write_about(workbook: Workbook, sheets: Sequence[AnswerSheet], summary: RunSummary) -> None:
    sheet = workbook.add_worksheet(ABOUT)
    bold = workbook.add_format({"bold": True})
    sheet.set_column(0, 0, 28)
    sheet.set_column(1, 1, 40)
    sheet.set_column(2, 5, 16)
    for number, (style, cells) in enumerate(_about_rows(sheets, summary)):
        for place, cell in enumerate(cells):
            form = bold if style else None
            if isinstance(cell, int):
                sheet.write_number(number, place, cell, form)
            else:
                sheet.write_string(number, place, _clean(cell), form)


def _about_rows(
    sheets: Sequence[AnswerSheet], summary: RunSummary
) -> Iterator[tuple[bool, tuple[str | int, ...]]]:
    """Yields rows of cells, and whether each is a heading."""
    question_set = summary.question_set
    yield True, ("Sheet", "Answer", "Rows", "On the sheet", "File")
    for sheet in sheets:
        rows = sheet.rows + sheet.left_out
        yield False, (sheet.name, sheet.question.title, rows, sheet.rows, sheet.question.file_name("csv"))
    yield False, ()
    yield True, ("What was asked",)
    for name, value in parameters_used(question_set.questions, question_set.parameters):
        yield False, (name, value)
    for sheet in sheets:
        yield False, (sheet.name, describe(sheet.question, question_set.parameters))
    yield False, ()
    yield True, ("Table", "", "Read", "Used", "Rejected")
    for table, count in summary.tables.items():
        yield False, (table, "", count.read, count.used, count.rejected)
    yield False, ("all", "", summary.read, summary.used, summary.rejected)
    yield False, ()
    yield True, ("Ids that a table lacks", "", "Ids")
    for table, ids in summary.unmatched.items():
        yield False, (table, "", ids)
    yield False, ()
    yield True, ("What to know",)
    for note in _notes(sheets, summary):
        yield False, (note,)


def _notes(sheets: Sequence[AnswerSheet], summary: RunSummary) -> Iterator[str]:
    if summary.coverage is not None:
        done = summary.coverage
        whole = done.durable if done.expected is None else done.expected
        yield f"These answers are provisional: {done.processed:,} of {whole:,} rows are processed."
    cut = [sheet for sheet in sheets if sheet.left_out]
    yield from (f"{sheet.name} has {sheet.bound}." for sheet in cut)
    if not cut:
        yield "No row is left out."
    if any(column.has_texts for sheet in sheets for column in sheet.columns):
        yield f"Excel keeps {EXCEL_DIGITS} digits of a number; columns named (exact) have all of them."
    if summary.rejected:
        yield "Rejected rows did not parse; they are in rejected.csv, each with the reason."
    if summary.fingerprint is not None:
        yield f"Fingerprint of the input: {summary.fingerprint}"
