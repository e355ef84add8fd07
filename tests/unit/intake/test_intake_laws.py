"""Properties for any text: no row is lost, and parsing depends on neither other rows nor block bounds."""

import csv
import io

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from catalog_tables import TABLES
from csv_cells import BAD, CELLS, JUDGES, good_cells, judge, judge_whole
from kopitiam.contracts.errors import InputError
from kopitiam.contracts.tables import Column
from kopitiam.intake.blocks import BLOCK_BYTES, read_blocks, read_header
from kopitiam.intake.cells import bad_cells, convert
from kopitiam.intake.normal_form import NormalForm
from packed_ids import with_texts

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
            [tuple(row.values()) for part in made for row in with_texts(table, part.rows).to_pylist()],
            [rejected for part in made for rejected in part.rejected],
        )

    return intake


# Python 3.11 leaves a lone carriage return unquoted where lines end in a newline, hence the CRLF in MINIMAL.
MINIMAL = {"quoting": csv.QUOTE_MINIMAL, "lineterminator": "\r\n"}
DIALECTS = [
    MINIMAL,
    {"quoting": csv.QUOTE_ALL, "lineterminator": "\n"},
    {"quoting": csv.QUOTE_ALL, "lineterminator": "\r\n"},
]


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


@pytest.mark.parametrize("kind", JUDGES)
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
