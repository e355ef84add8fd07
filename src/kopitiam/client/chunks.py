"""The content of an upload: the rows of a table in numbered chunks, and its rejected rows in parts.

Where chunks are cut depends on the input only, never on timing.
"""

import csv
import io
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from kopitiam.client.folder import InputFolder
from kopitiam.contracts.api import MOST_REJECTED_BYTES
from kopitiam.contracts.tables import CHUNK_ROWS, Rejected, Table
from kopitiam.intake.blocks import Block, find_separator, read_blocks, read_header
from kopitiam.intake.clean_blocks import load_kernel
from kopitiam.intake.normal_form import NormalForm, Normalized

Item = TypeVar("Item")
Result = TypeVar("Result")
BLOCKS_AHEAD = 4
_LEAST_KERNEL_BYTES = 32 << 20  # reading less takes less time than loading the compiled parser


@dataclass(frozen=True)
class Chunk:
    table: Table
    number: int
    rows: pa.Table


def read_chunks(
    folder: InputFolder,
    table: Table,
    workers: Executor,
    on_rejected: Callable[[Rejected], None],
    on_bytes: Callable[[int], None] = lambda _: None,
    *,
    chunk_rows: int = CHUNK_ROWS,
) -> Iterator[Chunk]:
    """Parse the files of a table on `workers`, a few blocks ahead, and yield chunks numbered from 0.

    `on_rejected` is called for each bad row, `on_bytes` with the size of each block that is parsed.
    """

    def good_rows() -> Iterator[pa.Table]:
        for block, normalized in in_order(workers, _normalize, _blocks(folder, table), BLOCKS_AHEAD):
            on_bytes(len(block.data))
            for rejected in normalized.rejected:
                on_rejected(rejected)
            yield normalized.rows

    for number, rows in enumerate(cut(good_rows(), chunk_rows)):
        yield Chunk(table, number, rows)


def cut(parts: Iterable[pa.Table], chunk_rows: int) -> Iterator[pa.Table]:
    """Yield the same rows in tables of `chunk_rows` rows; only the last one may be shorter."""
    pending: list[pa.Table] = []
    count = 0
    for part in parts:
        pending.append(part)
        count += part.num_rows
        while count >= chunk_rows:
            joined = pa.concat_tables(pending)
            yield joined.slice(0, chunk_rows)
            pending = [joined.slice(chunk_rows)]
            count -= chunk_rows
    if count:
        yield pa.concat_tables(pending)


def in_order(
    workers: Executor, work: Callable[[Item], Result], items: Iterable[Item], ahead: int
) -> Iterator[Result]:
    """Yield `work(item)` for each item, in order, with at most `ahead` items in progress."""
    futures: deque[Future[Result]] = deque()
    try:
        for item in items:
            futures.append(workers.submit(work, item))
            if len(futures) >= ahead:
                yield futures.popleft().result()
        while futures:
            yield futures.popleft().result()
    finally:
        for future in futures:
            future.cancel()


def _blocks(folder: InputFolder, table: Table) -> Iterator[tuple[NormalForm, Block]]:
    columns = [column.name for column in table.columns]
    kernel = load_kernel() if folder.total_bytes >= _LEAST_KERNEL_BYTES else None
    for file in folder.files[table.name]:
        separator = find_separator(file, columns)
        form = NormalForm(table, read_header(file, separator), file.shown, kernel)
        for block in read_blocks(file, separator=separator):
            yield form, block


def _normalize(work: tuple[NormalForm, Block]) -> tuple[Block, Normalized]:
    form, block = work
    return block, form.normalize(block)


_CUT = " … (cut)"


def rejected_parts(path: Path, most_bytes: int = MOST_REJECTED_BYTES) -> Iterator[bytes]:
    """Split a CSV file of rejected rows into CSV files of at most `most_bytes`, each with the header.

    A row that is too long for any part is cut; its file and line say where the whole row is.
    """
    csv.field_size_limit(sys.maxsize)  # a rejected row may have any length
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        header = _line(next(rows))
        part = [header]
        size = len(header)
        for row in rows:
            line = _fitting(row, most_bytes - len(header))
            if size + len(line) > most_bytes:
                yield b"".join(part)
                part, size = [header], len(header)
            part.append(line)
            size += len(line)
        yield b"".join(part)


def _fitting(row: list[str], most_bytes: int) -> bytes:
    line = _line(row)
    if len(line) <= most_bytes:
        return line
    *place, content = row
    room = max(0, most_bytes - len(_line([*place, f'"{_CUT}'])))
    return _line([*place, content[: room // 4] + _CUT])  # a character has four bytes at most


def _line(row: list[str]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerow(row)
    return text.getvalue().encode()
