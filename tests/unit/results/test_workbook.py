"""results.xlsx: exact numbers, safe texts, bounded sheets, the same bytes for the same answers."""

import zipfile
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import openpyxl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kopitiam.contracts.parameters import Parameters
from kopitiam.questions.question_set import QuestionSet
from kopitiam.results import workbook
from kopitiam.results.summary import Coverage, RowCount, RunSummary
from kopitiam.results.workbook import write_workbook
from made_answers import MadeAnswers, answers_to, question, sales, small_answers

COUNTS = {"stores": RowCount(10, 0), "transactions": RowCount(33_973, 3)}


def summary_of(answers: MadeAnswers, **changes: Any) -> RunSummary:
    rows = {name: answers.rows(name) for name in answers.question_set.by_name}
    return replace(RunSummary(answers.question_set, COUNTS, {"stores": 0, "users": 2}, rows, 1.5), **changes)


def written(folder: Path, answers: MadeAnswers, **changes: Any) -> Path:
    path = folder / "results.xlsx"
    write_workbook(path, answers, summary_of(answers, **changes))
    return path


def cells(path: Path, sheet: str) -> list[list[Any]]:
    return [list(row) for row in openpyxl.load_workbook(path)[sheet].iter_rows(values_only=True)]


def xml_of(path: Path) -> str:
    with zipfile.ZipFile(path) as files:
        return "".join(files.read(name).decode() for name in files.namelist() if "sheet" in name)


def test_every_answer_has_a_sheet_with_the_columns_of_its_file_first(tmp_path: Path) -> None:
    path = written(tmp_path, small_answers())
    assert openpyxl.load_workbook(path).sheetnames == ["About", "Q1", "Q2.1", "Q2.2", "Q3", "Q4"]
    assert cells(path, "Q4") == [
        ["Customers with most purchases per store (Q4)", *[None] * 7],
        ["store_name", "birthdate", "store_id", "rank", "user_id", "purchases", *_matched("store", "user")],
        ["North", None, "1", 2, "7", 8, True, False],
        ["North", datetime(1990, 1, 1), "1", 1, "8", 1009, True, True],
        ["South", datetime(1980, 2, 2), "2", 1, "5", 2, True, True],
    ]
    assert cells(path, "Q3")[2] == ["2024-H1", "North", 115922.885, "1", True]


def _matched(*names: str) -> list[str]:
    return [f"{name}_is_matched" for name in names]


def test_the_header_is_frozen_and_columns_are_wide_enough(tmp_path: Path) -> None:
    sheet = openpyxl.load_workbook(written(tmp_path, small_answers("G Coffee @ Alam Tun Hussein Onn")))["Q3"]
    assert sheet.freeze_panes == "A3"
    assert sheet.column_dimensions["B"].width > len("G Coffee @ Alam Tun Hussein Onn")
    assert sheet.auto_filter.ref == "A2:E5"


def test_the_about_sheet_has_parameters_and_row_counts(tmp_path: Path) -> None:
    rows = cells(written(tmp_path, small_answers(), fingerprint="abc"), "About")
    said = [tuple(cell for cell in row if cell is not None) for row in rows]
    assert ("Q4", "Customers with most purchases per store", 3, 3, "results_query_4.csv") in said
    assert ("Years", "2024 to 2025") in said
    assert ("transactions", "", 33_976, 33_973, 3) in said
    assert ("all", "", 33_986, 33_983, 3) in said
    assert ("users", "", 2) in said
    assert ("No row is left out.",) in said
    assert ("Fingerprint of the input: abc",) in said
    coverage = Coverage(500, 800, 1_000)
    rows = cells(written(tmp_path, small_answers(), coverage=coverage), "About")
    assert ["These answers are provisional: 500 of 1,000 rows are processed."] in [row[:1] for row in rows]


def test_the_same_answers_give_the_same_bytes(tmp_path: Path) -> None:
    one = written(tmp_path, small_answers()).read_bytes()
    assert written(tmp_path, small_answers(), seconds=99.0).read_bytes() == one
    assert [path.name for path in tmp_path.iterdir()] == ["results.xlsx"]


HOSTILE = [
    "=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "=HYPERLINK(\"http://x\",\"y\")", "http://example.com",
    "mailto:a@b", "{=1}", "007", "1e5", "TRUE", "", " ", "a\nb", "\x07bell", "\ufffe\uffff", "_x0041_",
    "<f>1</f>",    "]]>", "&amp;", "\u202eמהפך", "𝄞", "'quoted", "S" * 1024,
]  # fmt: skip


def test_texts_are_never_formulas_links_or_numbers(tmp_path: Path) -> None:
    path = written(tmp_path, MadeAnswers({"1": [(text, Decimal(75)) for text in HOSTILE]}))
    xml = xml_of(path)
    assert "<f>" not in xml
    assert "<f " not in xml
    assert "hyperlink" not in xml
    found = [row[0] for row in cells(path, "Q1")[2:]]
    assert all(isinstance(text, str) or text is None for text in found)
    plain = [text for text in HOSTILE if text.isprintable() and "_x0041_" not in text]
    assert set(plain) <= {text or "" for text in found}


@settings(max_examples=30)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), max_size=8))
def test_any_names_make_a_workbook_of_valid_xml(
    tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    path = written(
        tmp_path_factory.mktemp("xlsx"), MadeAnswers({"1": [(name, Decimal(75)) for name in names]})
    )
    with zipfile.ZipFile(path) as files:
        for name in files.namelist():
            if name.endswith((".xml", ".rels")):
                ElementTree.fromstring(files.read(name))
    assert "<f>" not in xml_of(path)
    assert len(cells(path, "Q1")) == 2 + len(names)


def numbers(path: Path) -> list[str]:
    """The texts of the numbers of Q1 in the file."""
    with zipfile.ZipFile(path) as files:
        root = ElementTree.fromstring(files.read("xl/worksheets/sheet2.xml"))
    space = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
    return [
        str(cell.find(f"{space}v").text)
        for cell in root.iter(f"{space}c")
        if cell.get("r", "").startswith("B") and cell.find(f"{space}v") is not None
    ]


def test_figures_are_written_with_their_own_digits(tmp_path: Path) -> None:
    amounts = ["9.95", "75.075", "0.1", "12201348.935", "-0.0001", "75", "99999999999.9999"]
    path = written(tmp_path, MadeAnswers({"1": sales(*amounts)}))
    assert numbers(path) == amounts
    assert cells(path, "Q1")[1] == ["transaction_id", "final_amount"]
    assert [row[1] for row in cells(path, "Q1")[2:]] == [float(amount) for amount in amounts]


def test_a_figure_of_more_than_15_digits_has_a_column_of_exact_text(tmp_path: Path) -> None:
    path = written(tmp_path, MadeAnswers({"1": sales("99999999999999.9999", "75", "123456789012345")}))
    assert [row[1:] for row in cells(path, "Q1")[1:]] == [
        ["final_amount", "final_amount (exact)"],
        [99999999999999.9999, "99999999999999.9999"],
        [75, "75.0"],
        [123456789012345, "123456789012345.0"],
    ]
    said = [row[0] for row in cells(path, "About")]
    assert "Excel keeps 15 digits of a number; columns named (exact) have all of them." in said
    wide = written(tmp_path, MadeAnswers({"1": sales("12345678901234.5", "123456789012345")}))
    assert cells(wide, "Q1")[1] == ["transaction_id", "final_amount"]


MEASURES = """
name    = "mine"
title   = "Mine"
from    = "transactions"
by      = { year = "year(created_at)", known = "user_id is null", day = "date(created_at)" }
measure = { n = "count(*)", share = "ratio(count(user_id), 3)", last = "max(created_at)", many = "count(*)" }
columns = ["year", "known", "day", "n", "share", "last", "many"]
"""


def test_every_kind_of_value_has_its_cell_type(tmp_path: Path) -> None:
    early = datetime(1, 1, 1, 6, 30)
    rows = [
        (
            2024,
            True,
            date(2024, 2, 29),
            10**15,
            Decimal("0.3333"),
            datetime(2024, 1, 31, 22, 59, 59),
            10**16 + 1,
        ),
        (1, None, date(1, 1, 1), 7, None, early, None),
    ]
    path = written(tmp_path, answers_to(MEASURES, rows))
    assert cells(path, "mine")[2:] == [
        [
            2024,
            True,
            datetime(2024, 2, 29),
            10**15,
            0.3333,
            datetime(2024, 1, 31, 22, 59, 59),
            10**16 + 1,
            str(10**16 + 1),
        ],
        [1, None, "0001-01-01", 7, None, "0001-01-01 06:30:00", None, None],
    ]
    sheet = openpyxl.load_workbook(path)["mine"]
    assert [sheet.cell(3, column).number_format for column in (1, 3, 4, 5, 6)] == [
        "General",
        "yyyy-mm-dd",
        "#,##0",
        "#,##0.0###",
        "yyyy-mm-dd hh:mm:ss",
    ]


def test_a_long_answer_is_cut_to_the_first_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workbook, "MOST_CELLS", 5 * 40)
    monkeypatch.setattr(workbook, "LEAST_CELLS", 6)
    path = written(tmp_path, MadeAnswers({"1": sales(*["75"] * 100)}))
    rows = cells(path, "Q1")
    bound = "the first 20 of 100 rows; all of them are in results_query_1.csv"
    assert rows[0][0] == f"Large purchases in opening hours (Q1): {bound}"
    assert len(rows) == 2 + 20
    assert f"Q1 has {bound}." in [row[0] for row in cells(path, "About")]


def test_long_texts_limit_the_rows_of_a_sheet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"sale {number:05d}" for number in range(100)]
    answers = MadeAnswers({"1": [(text, Decimal(75)) for text in texts]})
    share = 30 * len(texts[0]) + 1  # bytes: thirty rows and a piece of the next one
    monkeypatch.setattr(workbook, "MOST_TEXT_BYTES", share * len(answers.question_set.questions))
    path = written(tmp_path, answers)
    assert [row[0] for row in cells(path, "Q1")[2:]] == texts[:30]
    bound = "the first 30 of 100 rows; all of them are in results_query_1.csv"
    assert f"Q1 has {bound}." in [row[0] for row in cells(path, "About")]


def test_no_rows_make_a_sheet_with_a_header(tmp_path: Path) -> None:
    assert cells(written(tmp_path, MadeAnswers()), "Q1")[1:] == [["transaction_id", "final_amount"]]


@pytest.mark.parametrize(
    ("names", "sheets"),
    [
        (["about", "history"], ["about_2", "history_2"]),
        (["a" * 40, "a" * 39], ["a" * 31, "a" * 29 + "_2"]),
        ([f"{'a' * 38}{n}" for n in range(1, 10)] + ["x"], None),
    ],
)
def test_names_of_sheets_are_short_and_distinct(
    tmp_path: Path, names: list[str], sheets: list[str] | None
) -> None:
    own = [
        question(f'name = "{n}"\ntitle = "T"\nfrom = "transactions"\ncolumns = ["transaction_id"]')
        for n in names
    ]
    answers = MadeAnswers({}, QuestionSet(Parameters(), tuple(own)))
    found = openpyxl.load_workbook(written(tmp_path, answers)).sheetnames[1:]
    assert sheets is None or found == sheets
    assert len({name.lower() for name in found}) == len(names)
    assert max(map(len, found)) <= 31


def test_bytes_do_not_depend_on_how_rows_are_cut_into_batches(tmp_path: Path) -> None:
    class Whole(MadeAnswers):
        def batches(self, name: str, columns: Any = None) -> Any:
            yield from self.table(name).to_batches()

    born = [date(1990, 1, 1), None, date(1, 1, 1), date(1900, 2, 28)]
    rows = [(1, "North", rank, rank, each, 8, True, True) for rank, each in enumerate(born, start=1)]
    amounts = sales("75", "99999999999999.9999", "80.5")
    one = written(tmp_path, MadeAnswers({"1": amounts, "4": rows})).read_bytes()
    assert written(tmp_path, Whole({"1": amounts, "4": rows})).read_bytes() == one


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    most = 0

    class Counting(MadeAnswers):
        def batches(self, name: str, columns: Any = None) -> Any:
            nonlocal most
            alive = 0
            for batch in super().batches(name, columns):
                alive = max(alive, batch.num_rows)
                yield batch
            most = max(most, alive)

    written(tmp_path, Counting({"1": sales(*["75"] * 500)}))
    assert most == 2
