"""Converts blocks of CSV rows to the normal form of their table. Bad rows are rejected with line and reason.

A compiled parser reads clean blocks (`clean_blocks`). Others are read by Arrow: a whole block as text, and
columns with repeating values as dictionaries, so that each distinct value is converted once. Bad rows are
searched for only if the conversion of the block fails.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from textwrap import shorten

import numpy as np
import pyarrow as pa
import pyarrow.csv

from kopitiam.contracts.errors import InputError
from kopitiam.contracts.tables import MAX_REJECTED_CHARACTERS, Column, Rejected, Table
from kopitiam.contracts.uuids import pack
from kopitiam.intake.blocks import BYTE_ORDER_MARK, Block
from kopitiam.intake.cells import bad_cells, convert, reason
from kopitiam.intake.clean_blocks import CleanBlocks, Kernel

_DICTIONARY = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True)
class Normalized:
    """The good rows of a block in normal form, with UUIDs as two numbers, and the rejected ones."""

    rows: pa.Table
    rejected: tuple[Rejected, ...] = ()


class NormalForm:
    """Normalizes blocks of files with the same header, with the same result with and without a `kernel`.

    Raises InputError if the header lacks a column of the table or has it twice.
    """

    def __init__(self, table: Table, header: list[str], file: str, kernel: Kernel | None = None) -> None:
        self._table = table
        self._file = file
        header = in_layout_case(table, header)
        missing = [c.name for c in table.columns if c.name not in header]
        if missing:
            names = shorten(", ".join(header), 400, placeholder="...")  # names may have line ends
            raise InputError(f"{file}, line 1: no column {', '.join(missing)} (found: {names})")
        twice = [c.name for c in table.columns if header.count(c.name) > 1]
        if twice:
            raise InputError(f"{file}, line 1: column {', '.join(twice)} is there twice")
        needed = {c.name for c in table.columns}
        self._fields = [name if name in needed else f"#{i}" for i, name in enumerate(header)]
        self._clean_blocks = None if kernel is None else CleanBlocks(kernel, table, self._fields)

    def normalize(self, block: Block) -> Normalized:
        if self._clean_blocks is not None and (columns := self._clean_blocks.read(block)) is not None:
            return Normalized(pa.Table.from_arrays(columns, schema=self._table.packed.schema))
        misfits: list[int] = []
        try:
            cells = self._read(block, _as_read, misfits)
            if not misfits:
                return Normalized(self._at_rest([convert(c, cells[c.name]) for c in self._table.columns]))
        except pa.ArrowInvalid:
            misfits.clear()
        return self._reject_bad_rows(block)

    def _read(
        self, block: Block, type_of: Callable[[Column], pa.DataType], misfits: list[int]
    ) -> dict[str, pa.Array]:
        """Return the columns of the table; appends rows with too few or too many fields to `misfits`."""
        types = {column.name: type_of(column) for column in self._table.columns}

        def skip(row: pa.csv.InvalidRow) -> str:
            misfits.append(row.number - 1)
            return "skip"

        data = block.data
        if data[: len(BYTE_ORDER_MARK)] == BYTE_ORDER_MARK:  # Arrow removes one at the start of its input
            data = memoryview(BYTE_ORDER_MARK + data)
        read = pa.csv.read_csv(
            pa.BufferReader(pa.py_buffer(data)),
            read_options=pa.csv.ReadOptions(
                column_names=self._fields, use_threads=False, block_size=len(data) + 1
            ),
            parse_options=pa.csv.ParseOptions(
                delimiter=block.separator, newlines_in_values=block.has_quotes, invalid_row_handler=skip
            ),
            convert_options=pa.csv.ConvertOptions(
                column_types=types, include_columns=list(types), null_values=[""], strings_can_be_null=True
            ),
        )
        return {name: read[name].combine_chunks() for name in types}

    def _at_rest(self, columns: list[pa.Array]) -> pa.Table:
        packed: list[pa.Array] = []
        for column, values in zip(self._table.columns, columns, strict=True):
            packed += pack(values) if column.is_uuid else [values]
        return pa.Table.from_arrays(packed, schema=self._table.packed.schema)

    def _reject_bad_rows(self, block: Block) -> Normalized:
        located = block.rows()
        misfits: list[int] = []
        try:
            cells = self._read(block, lambda _: pa.string(), misfits)
        except pa.ArrowInvalid as error:
            raise InputError(self._why_unreadable(located, error)) from None
        parsed = np.delete(np.arange(len(located)), misfits)
        reasons = {number: f"not {len(self._fields)} fields" for number in misfits}
        good = np.ones(len(parsed), dtype=bool)
        for column in self._table.columns:
            bad = bad_cells(column, cells[column.name])
            for row in np.flatnonzero(bad & good):
                reasons[int(parsed[row])] = reason(column, cells[column.name][row].as_py())
            good &= ~bad
        kept = pa.array(good)
        rows = self._at_rest([convert(c, cells[c.name].filter(kept)) for c in self._table.columns])
        return Normalized(rows, tuple(self._rejected(located, reasons)))

    def _rejected(self, located: list[tuple[int, bytes]], reasons: dict[int, str]) -> Iterator[Rejected]:
        for number, why in sorted(reasons.items()):
            line, row = located[number]
            yield Rejected(self._file, line, why, _shortened(row))

    def _why_unreadable(self, located: list[tuple[int, bytes]], error: pa.ArrowInvalid) -> str:
        for line, row in located:
            try:
                row.decode("utf-8")
            except UnicodeDecodeError:
                return f"{self._file}, line {line}: not UTF-8 text (save the file as UTF-8)"
        return f"{self._file}: not readable as CSV: {error}"


def in_layout_case(table: Table, header: list[str]) -> list[str]:
    """Return the header with the columns of the table in their own spelling, if only the case differs."""
    names = {column.name for column in table.columns} - set(header)
    return [name.lower() if name.lower() in names else name for name in header]


def _shortened(row: bytes) -> str:
    """Return the row as text, cut if it is long: rejected rows are stored, sent and shown."""
    text = row[: 4 * MAX_REJECTED_CHARACTERS].decode("utf-8", "replace")
    if len(text) <= MAX_REJECTED_CHARACTERS and len(row) <= 4 * MAX_REJECTED_CHARACTERS:
        return text
    return text[:MAX_REJECTED_CHARACTERS] + "..."


def _as_read(column: Column) -> pa.DataType:
    return _DICTIONARY if column.repeats else pa.string()
