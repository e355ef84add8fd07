"""Properties for any text: no row is lost, and parsing depends on neither other rows nor block bounds."""

import csv
import io
import re
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from catalog_tables import TABLES
from kopitiam.contracts.errors import InputError
from kopitiam.contracts.tables import AT_REST, Column, Kind
from kopitiam.intake.blocks import BLOCK_BYTES, read_blocks, read_header
from kopitiam.intake.cells import bad_cells, convert
from kopitiam.intake.normal_form import NormalForm

pytestmark = pytest.mark.slow

STORES = TABLES["stores"]
TRANSACTIONS = TABLES["transactions"]


@pytest.fixture(scope="module")
def intake(tmp_path_factory):
    """Reads the text of a file; gives its good rows and its rejected ones."""
    file = tmp_path_factory.mktemp("intake") / "file.csv"

    def intake(table, text, block_bytes=BLOCK_BYTES):
        file.write_text(text, encoding="utf-8", newline="")
        form = NormalForm(table, read_header(file), "file.csv")
        made = [form.normalize(block) for block in read_blocks(file, block_bytes)]
        return (
            [tuple(row.values()) for part in made for row in part.rows.to_pylist()],
            [rejected for part in made for rejected in part.rejected],
        )

    return intake


# How each kind of cell is judged by hand: a value, or BAD.

BAD = object()


def _digits(text, most):
    return text.isascii() and text.isdigit() and len(text) <= most


def _sign_and_rest(text):
    return (-1 if text[0] == "-" else 1, text[1:]) if text[:1] in ("-", "+") else (1, text)


def judge_whole(text):
    whole, _, zeros = text.strip(" \t").partition(".")
    return int(whole) if _digits(whole, 17) and len(zeros) <= 15 and not zeros.strip("0") else BAD


def judge_signed(text):
    sign, rest = _sign_and_rest(text.strip(" \t"))
    value = judge_whole(rest) if rest == rest.strip(" \t") else BAD
    return value if value is BAD else sign * value


def judge_money(text):
    text = text.strip(" \t")
    _, rest = _sign_and_rest(text)
    whole, _, fraction = rest.partition(".")
    is_whole_sound = _digits(whole, 14) or (whole == "" and fraction != "")
    is_fraction_sound = fraction == "" or (_digits(fraction, 16) and not fraction[4:].strip("0"))
    return int(Decimal(text) * 10_000) if is_whole_sound and is_fraction_sound else BAD


def judge_instant(text):
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}", text):
        return BAD
    try:
        return datetime(*map(int, re.split("[- T:]", text)), tzinfo=UTC)
    except ValueError:
        return BAD


def judge_boolean(text):
    truth = {"true": True, "1": True, "false": False, "0": False}.get(text.lower())
    return truth if truth is not None and text.isascii() else BAD


def judge_date(text):
    if not re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return BAD
    try:
        return date(*map(int, text.split("-")))
    except ValueError:
        return BAD


JUDGES = {
    Kind.TEXT: lambda text: text,
    Kind.ID: judge_whole,
    Kind.COUNT: judge_signed,
    Kind.MONEY: judge_money,
    Kind.INSTANT: judge_instant,
    Kind.DATE: judge_date,
    Kind.BOOLEAN: judge_boolean,
}


def judge(column, text):
    if text == "":
        return None if column.is_optional else BAD
    return JUDGES[column.kind](text)


# Python 3.11 leaves a lone carriage return unquoted where lines end in a newline, hence the CRLF in MINIMAL.
MINIMAL = {"quoting": csv.QUOTE_MINIMAL, "lineterminator": "\r\n"}
DIALECTS = [
    MINIMAL,
    {"quoting": csv.QUOTE_ALL, "lineterminator": "\n"},
    {"quoting": csv.QUOTE_ALL, "lineterminator": "\r\n"},
]

# Cells: sound ones, near misses, and anything at all.

ANYTHING = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
NUMBER_LIKE = st.text("0123456789.+-eE \t_٣", max_size=22)
NUMBERS = st.builds(
    "{}{}{}{}{}".format,
    st.sampled_from(["", " ", "\t "]),
    st.sampled_from(["", "", "+", "-"]),
    st.one_of(st.integers(0, 10**19), st.decimals(0, 10**15, places=4), st.sampled_from([".5", "7.", "007"])),
    st.integers(0, 17).map("0".__mul__),
    st.sampled_from(["", "", " ", "e2"]),
)
DATES = st.builds(
    "{:04}-{:02}-{:02}".format, st.integers(0, 9999), st.integers(0, 13), st.integers(0, 32)
) | st.dates().map(str)
CLOCKS = st.builds("{:02}:{:02}:{:02}".format, st.integers(0, 24), st.integers(0, 60), st.integers(0, 60))
INSTANTS = st.builds("{}{}{}".format, DATES, st.sampled_from([" ", "T", "  ", ""]), CLOCKS)
CELLS = ANYTHING | NUMBER_LIKE | NUMBERS | DATES | INSTANTS
GOOD_CELLS = {
    Kind.TEXT: ANYTHING.filter(bool),
    Kind.ID: st.integers(0, 10**17 - 1).map(str),
    Kind.COUNT: st.integers(-(10**17) + 1, 10**17 - 1).map(str),
    Kind.MONEY: st.integers(-(10**18) + 1, 10**18 - 1).map(lambda units: str(Decimal(units).scaleb(-4))),
    Kind.INSTANT: st.datetimes(datetime(1, 1, 1)).map(lambda time: time.isoformat(" ", "seconds")),
    Kind.DATE: st.dates().map(str),
    Kind.BOOLEAN: st.sampled_from(["True", "False", "true", "FALSE", "1", "0"]),
}


def good_cells(column):
    good = GOOD_CELLS[column.kind].filter(lambda cell: judge(column, cell) is not BAD)
    return good | st.just("") if column.is_optional else good


def good_rows(table):
    return st.tuples(*map(good_cells, table.columns))


def likely_rows(table):
    """Rows with a fair chance to be good."""
    return st.tuples(*(good_cells(column) | CELLS for column in table.columns))


def csv_text(table, rows, dialect=MINIMAL):
    file = io.StringIO(newline="")
    writer = csv.writer(file, **dialect)
    writer.writerow([column.name for column in table.columns])
    writer.writerows(rows)
    return file.getvalue()


@pytest.mark.parametrize("kind", AT_REST)
@pytest.mark.parametrize("is_optional", [False, True])
@given(data=st.data())
def test_cells_are_accepted_exactly_by_the_written_rules(kind, is_optional, data):
    column = Column("cell", kind, is_optional)
    texts = data.draw(st.lists(good_cells(column) | CELLS, max_size=12))
    expected = [judge(column, text) for text in texts]
    cells = pa.array([text or None for text in texts], pa.string())
    bad = bad_cells(column, cells)
    assert list(bad) == [value is BAD for value in expected]
    kept = cells.filter(pa.array(~bad))
    assert convert(column, kept).to_pylist() == [value for value in expected if value is not BAD]
    if bad.any():
        with pytest.raises(pa.ArrowInvalid):
            convert(column, cells)


@given(st.lists(likely_rows(TRANSACTIONS), min_size=1, max_size=6), st.sampled_from(DIALECTS))
def test_a_row_is_parsed_the_same_alone_and_beside_others(intake, rows, dialect):
    together, rejected_together = intake(TRANSACTIONS, csv_text(TRANSACTIONS, rows, dialect))
    alone = [intake(TRANSACTIONS, csv_text(TRANSACTIONS, [row], dialect)) for row in rows]
    assert together == [row for good, _ in alone for row in good]
    assert [(row.reason, row.row) for row in rejected_together] == [
        (row.reason, row.row) for _, rejected in alone for row in rejected
    ]
    assert len(together) + len(rejected_together) == len(rows)


@given(st.lists(good_rows(TRANSACTIONS), max_size=12), st.sampled_from(DIALECTS), st.integers(1, 400))
def test_good_rows_are_the_same_for_any_quoting_and_block_size(intake, rows, dialect, block_bytes):
    read, rejected = intake(TRANSACTIONS, csv_text(TRANSACTIONS, rows, dialect), block_bytes)
    assert rejected == []
    assert read == [
        tuple(judge(column, cell) for column, cell in zip(TRANSACTIONS.columns, row, strict=True))
        for row in rows
    ]


def ends_inside_quotes(body: str) -> bool:
    """A quote counts at the start of a field only; two of them inside quotes are one."""
    state = "start"
    for letter in body:
        if state == "quoted":
            state = "closing" if letter == '"' else "quoted"
        elif letter == '"' and state in {"start", "closing"}:
            state = "quoted"
        else:
            state = "start" if letter in ",\r\n" else "plain"
    return state == "quoted"


@given(st.text('012,,""\n\n\rA .é\ufeff', max_size=60), st.sampled_from(["\n", "\r\n"]), st.integers(1, 70))
@example('1,"A\n2,B\n', "\n", 3)
@example('1,"A"\r\n\r\n\n2,"B', "\n", 1)
@example("\ufeff1,A\n", "\n", 1)
def test_no_row_is_lost_in_any_text(intake, body, line_end, block_bytes):
    """As many rows as Python's csv module finds, and the same good ones; an open quote is refused."""
    if ends_inside_quotes(body):
        with pytest.raises(InputError, match="a quote is opened here and not closed"):
            intake(STORES, f"store_id,store_name{line_end}{body}", block_bytes)
        return
    read, rejected = intake(STORES, f"store_id,store_name{line_end}{body}", block_bytes)
    found = [row for row in csv.reader(io.StringIO(body, newline="")) if row]
    good = [
        (judge_whole(row[0]), row[1])
        for row in found
        if len(row) == 2 and judge_whole(row[0]) is not BAD and row[1] != ""
    ]
    assert read == good
    assert len(read) + len(rejected) == len(found)


@given(
    st.lists(
        st.sampled_from(["1,A", '2,"B\nC"', "x,D", '"3\r\n",E', "4", "", '5,"F""\n"""', "6,7,8"]), max_size=12
    ),
    st.sampled_from(["\n", "\r\n"]),
    st.integers(1, 40),
)
def test_every_rejected_row_is_found_on_its_line(intake, rows, line_end, block_bytes):
    text = line_end.join(["store_id,store_name", *rows])
    read, rejected = intake(STORES, text, block_bytes)
    starts = [
        1 + "".join(row + line_end for row in ["header", *rows[:i]]).count("\n") for i in range(len(rows))
    ]
    bad = {"x,D", '"3\r\n",E', "4", "6,7,8"}
    assert [(row.line, row.row) for row in rejected] == [
        (line, row) for line, row in zip(starts, rows, strict=True) if row in bad
    ]
    assert len(read) == sum(row != "" and row not in bad for row in rows)


def test_the_real_sample_reads_whole(intake, real_sample):
    for path in sorted((real_sample / "input" / "stores").glob("*.csv")):
        text = path.read_text(encoding="utf-8")
        read, rejected = intake(STORES, text)
        assert rejected == []
        assert len(read) == len(list(csv.DictReader(io.StringIO(text))))
