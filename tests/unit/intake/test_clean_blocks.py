"""The compiled parser gives the rows that Arrow gives, for any bytes, and touches no memory but its own."""

import hashlib
import logging
import os
import signal
import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import guarded_parse
from compiled_parser import compiled_parser
from csv_cells import BAD, CELLS, JUDGES, good_cells, judge
from kopitiam.contracts.errors import InputError
from kopitiam.contracts.tables import AT_REST, Column, Kind, Table
from kopitiam.intake.blocks import SEPARATORS, Block
from kopitiam.intake.clean_blocks import CleanBlocks, kernel_path, load_kernel
from kopitiam.intake.normal_form import NormalForm
from packed_ids import with_texts

ALL_KINDS = Table(
    "all_kinds",
    tuple(
        Column(f"{name}{number}", kind, is_optional, repeats, is_uuid=name == "uuid")
        for name, kind in [("uuid", Kind.TEXT), *((kind.value, kind) for kind in JUDGES)]
        for number, (is_optional, repeats) in enumerate([(False, False), (True, True)])
    ),
)
EDITS = [bytes([byte]) for byte in b'",;\n\r\t 0195.-+TteZ:\x00\xff'] + [b"", b"\r\n", b'""', "é".encode()]
PLAIN_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=';,"\t\r\n'), min_size=1)


@pytest.fixture(scope="module")
def kernel():
    return compiled_parser()


def block_of(data, separator=","):
    return Block(memoryview(data), 1, data.count(b"\n"), b'"' in data, separator)


def read(form, block):
    try:
        normalized = form.normalize(block)
    except InputError as error:
        return str(error)
    return normalized.rows, normalized.rejected


def plain_cells(column):
    """Cells in a spelling that the compiled parser knows."""
    if column.kind is Kind.TEXT:
        cells = st.uuids().map(str) | PLAIN_TEXTS if column.is_uuid else PLAIN_TEXTS
    elif column.kind in (Kind.ID, Kind.COUNT):
        cells = st.integers(0 if column.kind is Kind.ID else 1 - 10**17, 10**17 - 1).map(str)
        cells |= cells.map("{}.0".format)
    else:
        cells = good_cells(Column(column.name, column.kind))
    return cells | st.just("") if column.is_optional else cells


@st.composite
def drawn_tables(draw):
    return Table("drawn", tuple(draw(st.lists(st.sampled_from(ALL_KINDS.columns), min_size=1, unique=True))))


@st.composite
def drawn_rows(draw, table, cells=plain_cells):
    """Rows of the table, a field before and after them that no table has, and the header."""
    header = ["?", *(column.name for column in table.columns), "!"]
    fields = [st.sampled_from(["", "x", "é"]), *map(cells, table.columns), st.sampled_from(["", "y"])]
    return header, draw(st.lists(st.tuples(*fields), min_size=1, max_size=5))


@st.composite
def drawn_blocks(draw, separator):
    """A header, and bytes that are nearly, or entirely, a sound block."""
    table = draw(drawn_tables())
    header, rows = draw(drawn_rows(table))
    if draw(st.booleans()):
        row, place = draw(st.integers(0, len(rows) - 1)), draw(st.integers(0, len(header) - 1))
        rows[row] = (*rows[row][:place], draw(CELLS), *rows[row][place + 1 :])
    quote = draw(st.sampled_from(['"', ""]))
    lines = (separator.join(f"{quote}{cell}{quote}" if cell else "" for cell in row) for row in rows)
    line_end = draw(st.sampled_from(["\n", "\n", "\r\n", "\n\n"]))
    data = line_end.join([*lines, draw(st.sampled_from(["", " "]))]).encode()
    for _ in range(draw(st.integers(0, 2))):
        place, length = draw(st.integers(0, len(data))), draw(st.integers(0, 2))
        data = data[:place] + draw(st.sampled_from(EDITS)) + data[place + length :]
    return table, header, data


MANY = settings(max_examples=4 * settings().max_examples)
# pyarrow cannot show a row that has too few fields and is not UTF-8 to the handler of such rows.
quiet = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.slow
@quiet
@given(st.data(), st.sampled_from(SEPARATORS))
@MANY
def test_any_bytes_give_the_same_rows_rejects_and_reasons_as_with_arrow(kernel, data, separator):
    table, header, content = data.draw(drawn_blocks(separator))
    if content:
        assert_same(kernel, table, header, content, separator)


@pytest.mark.slow
@quiet
@given(
    st.binary(min_size=1, max_size=40) | st.lists(st.sampled_from(EDITS)).map(b"".join),
    st.sampled_from(ALL_KINDS.columns),
)
@example(b'""\n', ALL_KINDS.columns[1])
@example(b"\n\r\n\r", ALL_KINDS.columns[1])
@example(b"\xef\xbb\xbf1", ALL_KINDS.columns[2])
@example(b"00000000-0000-0000-0000-00000000000a", ALL_KINDS.columns[0])
@MANY
def test_any_bytes_of_one_column_give_the_same_rows_as_with_arrow(kernel, content, column):
    assert_same(kernel, Table("one", (column,)), [column.name], content or b"\n", ",")


def assert_same(kernel, table, header, content, separator):
    block = block_of(content, separator)
    expected = read(NormalForm(table, header, "file.csv"), block)
    actual = read(NormalForm(table, header, "file.csv", kernel), block)
    if isinstance(expected, tuple) and isinstance(actual, tuple):
        assert actual[0].schema == expected[0].schema
        actual[0].validate(full=True)
    assert actual == expected


@pytest.mark.slow
@given(st.data(), st.sampled_from(SEPARATORS), st.sampled_from(["", '"']), st.sampled_from(["\n", "\r\n"]))
def test_usual_spellings_are_read_without_arrow(kernel, data, separator, quote, line_end):
    header, rows = data.draw(drawn_rows(ALL_KINDS))
    lines = (separator.join(f"{quote}{cell}{quote}" for cell in row) for row in rows)
    content = line_end.join(lines) + data.draw(st.sampled_from(["", "\n"]))
    clean = CleanBlocks(kernel, ALL_KINDS, header)
    columns = clean.read(block_of(content.encode(), separator))
    assert columns is not None
    packed = pa.Table.from_arrays(columns, schema=ALL_KINDS.packed.schema)
    judged = [[judge(column, row[n]) for row in rows] for n, column in enumerate(ALL_KINDS.columns, start=1)]
    assert not any(cell is BAD for cells in judged for cell in cells)
    assert with_texts(ALL_KINDS, packed).columns == [
        pa.chunked_array([pa.array(cells, AT_REST[column.kind])])
        for column, cells in zip(ALL_KINDS.columns, judged, strict=True)
    ]


SOUND_CELLS = {
    Kind.TEXT: ["0123abcd-0000-4abc-8def-ffffffffffff"],
    Kind.ID: ["7", "17272.0", "99999999999999999"],
    Kind.COUNT: ["0", "-17272.0", "99999999999999999"],
    Kind.MONEY: ["75", "-75.075", "99999999999999.9999"],
    Kind.INSTANT: ["2024-02-29 23:59:59", "1900-12-31T00:00:00", "0001-01-01 00:00:00"],
    Kind.DATE: ["2000-02-29", "1988-04-30", "0001-01-01"],
    Kind.BOOLEAN: ["True", "false", "1"],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SOUND_CELLS)
def test_a_cell_that_differs_by_a_byte_from_a_sound_one_is_read_as_by_arrow(kernel, kind):
    others = [chr(byte) for byte in range(128) if chr(byte) not in '",\r\n']
    is_text = kind is Kind.TEXT
    table = Table("cells", (Column("row", Kind.ID), Column("cell", kind, is_optional=True, is_uuid=is_text)))
    cells = {
        sound[:place] + letter + sound[place + length :]
        for sound in SOUND_CELLS[kind]
        for place in range(len(sound) + 1)
        for letter in ("", *others)
        for length in (0, 1)
    }
    rows = [f"{number},{cell}\n".encode() for number, cell in enumerate(cells)]
    arrow = NormalForm(table, table.schema.names, "").normalize(block_of(b"".join(rows)))
    accepted = {tuple(row.values()) for row in arrow.rows.to_pylist()}
    clean = CleanBlocks(kernel, table, table.schema.names)
    read = [columns for row in rows if (columns := clean.read(block_of(row))) is not None]
    assert {tuple(column[0].as_py() for column in columns) for columns in read} <= accepted


def test_a_text_at_its_bound_is_kept_and_a_longer_one_is_left_to_arrow(kernel):
    clean = CleanBlocks(kernel, Table("texts", (Column("text", Kind.TEXT),)), ["text"])
    for letter in ("x", "é", "🍵"):
        assert clean.read(block_of(f"{letter * 1_024}\n".encode())) is not None
        assert clean.read(block_of(f"{letter * 1_025}\n".encode())) is None
    assert clean.read(block_of(b"\xff\n")) is None


@pytest.mark.slow
def test_no_byte_beyond_a_block_or_its_columns_is_touched():
    """At every length, each of them ends where a protected page begins."""
    script, paths = guarded_parse.__file__, os.pathsep.join(sys.path)

    def run(*arguments):
        return subprocess.run(
            [sys.executable, script, *arguments],
            env=os.environ | {"PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )

    done = run()
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10  # some of them are sound
    assert run("beyond").returncode == -signal.SIGSEGV


BOUNDS_CHECKED = """
import numpy as np
import guarded_parse as g
from kopitiam.intake.clean_blocks import GAVE_UP
from kopitiam.intake.kernel import _parse
for text in g.every_length():
    rows = text.count(b"\\n")
    columns = (
        np.empty((g.NUMBERS, rows), np.int64), np.empty((g.NUMBERS, rows), np.uint8),
        np.zeros((g.TEXTS, rows + 1), np.int32), np.empty((g.TEXTS, len(text)), np.uint8),
    )
    _parse(np.frombuffer(bytearray(text), np.uint8), ord(","), g.fields(True), columns)
"""


@pytest.mark.slow
@pytest.mark.long
def test_every_index_is_within_its_array():
    """Compiled again, with a check of every index."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "NUMBA_BOUNDSCHECK": "1"}
    subprocess.run([sys.executable, "-c", BOUNDS_CHECKED], env=environment, check=True)


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KOPI_CACHE", str(tmp_path))
    load_kernel.cache_clear()
    yield tmp_path
    load_kernel.cache_clear()


def test_without_a_compiled_parser_arrow_reads_everything(own_cache, caplog):
    with caplog.at_level(logging.WARNING):
        assert load_kernel() is None
    assert "kopi warm" in caplog.text


@pytest.mark.parametrize("damage", [lambda file: file[:-1], lambda file: b"", lambda file: file + b"x"])
def test_a_damaged_file_is_not_loaded(kernel, damage, monkeypatch, tmp_path):
    file = kernel_path().read_bytes()
    assert hashlib.sha256(file[32:]).digest() == file[:32]
    monkeypatch.setenv("KOPI_CACHE", str(tmp_path))
    kernel_path().write_bytes(damage(file))
    load_kernel.cache_clear()
    assert load_kernel() is None
    load_kernel.cache_clear()


def test_without_llvmlite_arrow_reads_everything(kernel, monkeypatch):
    load_kernel.cache_clear()
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    assert load_kernel() is None
    load_kernel.cache_clear()


@pytest.mark.slow
def test_the_command_line_loads_neither_compiler_nor_parser():
    loaded = "import sys, kopitiam.cli.app; print(*{'numba', 'llvmlite'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
