"""A page out of a long answer: only the row groups that hold it are read, or searched, a piece at a time."""

import contextlib
import csv
import functools
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kopitiam.landing.rejected import COLUMNS as REJECTED_COLUMNS
from kopitiam.results.answers import rows_of_any_texts
from kopitiam.results.reading import MAX_REJECTED_FIELD
from kopitiam.results.text import plain_text, shorten

_BATCH_ROWS = 4_096


@dataclass(frozen=True)
class Page:
    columns: list[str]
    rows: list[list[str]]
    matched: int
    total: int


def answer_page(source: Any, offset: int, limit: int, search: str = "") -> Page:
    """`source` is whatever Arrow reads Parquet from."""
    with pq.ParquetFile(source) as file:
        total = file.metadata.num_rows
        parts = _found(file, search) if search else _skipping(file, offset, limit)
        matched, rows, position = 0, list[list[str]](), offset if search else _within(file, offset)
        for part in parts:
            rows += _texts(part.slice(min(position, part.num_rows), limit - len(rows)))
            position = max(0, position - part.num_rows)
            matched += part.num_rows
        return Page(file.schema_arrow.names, rows, matched if search else total, total)


def rejected_page(lines: Iterable[str], offset: int, limit: int) -> tuple[list[list[str]], bool]:
    """Rows, and whether there are more, of CSV lines with a header."""
    found = list(itertools.islice(_rejected(lines), offset, offset + limit + 1))
    return found[:limit], len(found) > limit


def _rejected(lines: Iterable[str]) -> Iterator[list[str]]:
    """A client may have sent whatever it liked in their place."""
    csv.field_size_limit(MAX_REJECTED_FIELD)
    with contextlib.suppress(csv.Error):
        for row in itertools.islice(csv.reader(lines), 1, None):
            cells = [*row, *[""] * len(REJECTED_COLUMNS)][: len(REJECTED_COLUMNS)]
            yield [shorten(cell) for cell in cells]


def _groups(file: pq.ParquetFile) -> list[int]:
    return [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]


def _skipping(file: pq.ParquetFile, offset: int, limit: int) -> Iterator[pa.Table]:
    """The row groups that hold the page."""
    first = 0
    for group, rows in enumerate(_groups(file)):
        if first < offset + limit and offset < first + rows:
            yield from _tables(file, group)
        first += rows


def _within(file: pq.ParquetFile, offset: int) -> int:
    """Where the page begins in the first row group that is read for it."""
    first = 0
    for rows in _groups(file):
        if offset < first + rows:
            break
        first += rows
    return offset - first


def _found(file: pq.ParquetFile, search: str) -> Iterator[pa.Table]:
    """The rows with the text in one of their cells, whatever the case; a figure also as people write it."""
    wanted = {field.name: _wanted(field.type, search) for field in file.schema_arrow}
    for group in range(file.metadata.num_row_groups):
        for table in _tables(file, group):
            hits = [
                pc.match_substring(_searched(table[name].combine_chunks()), text, ignore_case=True)
                for name, text in wanted.items()
                if text is not None
            ]
            yield table.filter(functools.reduce(pc.or_, hits))


def _tables(file: pq.ParquetFile, group: int) -> Iterator[pa.Table]:
    """A row group in pieces, of which one at a time is in memory: texts may be long."""
    rows = min(_BATCH_ROWS, rows_of_any_texts(file.schema_arrow, file.schema_arrow.names))
    for batch in file.iter_batches(rows, row_groups=[group]):
        yield pa.Table.from_batches([batch])


def _wanted(kind: pa.DataType, search: str) -> str | None:
    """What to look for in a column of this kind, if anything."""
    if pa.types.is_decimal(kind) or pa.types.is_integer(kind):
        figure = re.sub(r"RM|[\s,]", "", search, flags=re.IGNORECASE)
        if not re.fullmatch(r"-?(\d+\.?\d*|\.\d*)", figure):
            return None
        return re.sub(r"(\.\d\d+?)0+$", r"\1", figure)
    is_searched = pa.types.is_string(kind) or re.fullmatch(r"[-.0-9]+", search)
    return search if is_searched else None


def _searched(column: pa.Array) -> pa.Array:
    """Amounts with the two decimals that are always shown of them."""
    text = plain_text(column)
    is_amount = pa.types.is_decimal(column.type)
    return pc.replace_substring_regex(text, r"(\.\d)$", r"\10") if is_amount else text


def _texts(rows: pa.Table) -> list[list[str]]:
    columns = [plain_text(column.combine_chunks()).to_pylist() for column in rows.columns]
    return [list(cells) for cells in zip(*columns, strict=True)]
