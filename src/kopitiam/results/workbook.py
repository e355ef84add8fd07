"""The answers of a run as an Excel workbook: a sheet about the run, and a sheet for each answer.

Every figure is written with all its digits. Excel keeps 15 of them, so a column in which some value has more
is followed by a column of texts. Rows are streamed: memory does not grow with them. The same answers give the
same bytes. Sheets are bounded, since XlsxWriter writes some 80,000 cells a second (docs/decisions/0004).
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import xlsxwriter
from xlsxwriter.workbook import Workbook

from kopitiam.questions.definitions import Question
from kopitiam.results.about import about, parameters_asked
from kopitiam.results.answers import Answers
from kopitiam.results.forms import replacing
from kopitiam.results.summary import Summary
from kopitiam.results.workbook_sheets import EXCEL_DIGITS, AnswerSheet, clean

WORKBOOK_FILE = "results.xlsx"
ABOUT = "About"
_LONGEST_NAME = 31
_CREATED = datetime(2000, 1, 1)
_OPTIONS = {
    "constant_memory": True,
    "strings_to_formulas": False,
    "strings_to_numbers": False,
    "strings_to_urls": False,
}


def write_workbook(path: Path, answers: Answers, summary: Summary) -> None:
    """Writes the file whole or not at all. Sheets have the first rows of long answers, and say so."""
    with replacing(path) as file:
        workbook = xlsxwriter.Workbook(file, _OPTIONS)
        workbook.set_properties({"title": "Answers of Kopitiam", "created": _CREATED})
        sheets = [
            AnswerSheet.of(answers, question, name) for question, name in _named(answers.asked.questions)
        ]
        _write_about(workbook, sheets, summary)
        for sheet in sheets:
            sheet.write(workbook)
        workbook.close()


def _named(questions: Sequence[Question]) -> Iterator[tuple[Question, str]]:
    """Names that Excel accepts: at most 31 characters, different whatever the case, none of its own."""
    taken = {ABOUT.lower(), "history"}
    for question in questions:
        whole = f"Q{question.name.replace('_', '.')}" if question.is_builtin else question.name
        name, number = whole[:_LONGEST_NAME], 1
        while name.lower() in taken:
            number += 1
            name = f"{whole[: _LONGEST_NAME - len(str(number)) - 1]}_{number}"
        taken.add(name.lower())
        yield question, name


def _write_about(workbook: Workbook, sheets: Sequence[AnswerSheet], summary: Summary) -> None:
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
                sheet.write_string(number, place, clean(cell), form)


def _about_rows(
    sheets: Sequence[AnswerSheet], summary: Summary
) -> Iterator[tuple[bool, tuple[str | int, ...]]]:
    """Lines of cells, with whether they are headings."""
    asked = summary.asked
    yield True, ("Sheet", "Answer", "Rows", "On the sheet", "File")
    for sheet in sheets:
        rows = sheet.rows + sheet.left_out
        yield False, (sheet.name, sheet.question.title, rows, sheet.rows, sheet.question.csv_name)
    yield False, ()
    yield True, ("What was asked",)
    for name, value in parameters_asked(asked.questions, asked.parameters):
        yield False, (name, value)
    for sheet in sheets:
        yield False, (sheet.name, about(sheet.question, asked.parameters))
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


def _notes(sheets: Sequence[AnswerSheet], summary: Summary) -> Iterator[str]:
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
