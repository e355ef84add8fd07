"""The rows of a table, cut into numbered chunks. The cuts depend on the input only, never on timing."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from kopitiam.client.folder import InputFolder
from kopitiam.contracts.tables import CHUNK_ROWS, Rejected, Table
from kopitiam.intake.blocks import Block, read_blocks, read_header
from kopitiam.intake.normal_form import NormalForm, Normalized

Item = TypeVar("Item")
Made = TypeVar("Made")
BLOCKS_AHEAD = 4


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
    """Parses blocks on the workers a few ahead, and gives chunks in order of number, from 0 on."""

    def good_rows() -> Iterator[pa.Table]:
        for block, normalized in in_order(workers, _normalize, _blocks(folder, table), BLOCKS_AHEAD):
            on_bytes(len(block.data))
            for rejected in normalized.rejected:
                on_rejected(rejected)
            yield normalized.rows

    for number, rows in enumerate(cut(good_rows(), chunk_rows)):
        yield Chunk(table, number, rows)


def cut(parts: Iterable[pa.Table], chunk_rows: int) -> Iterator[pa.Table]:
    """The same rows in tables of exactly `chunk_rows`, but for the last."""
    waiting: list[pa.Table] = []
    count = 0
    for part in parts:
        waiting.append(part)
        count += part.num_rows
        while count >= chunk_rows:
            joined = pa.concat_tables(waiting)
            yield joined.slice(0, chunk_rows)
            waiting = [joined.slice(chunk_rows)]
            count -= chunk_rows
    if count:
        yield pa.concat_tables(waiting)


def in_order(
    workers: Executor, work: Callable[[Item], Made], items: Iterable[Item], ahead: int
) -> Iterator[Made]:
    """What `work` makes of each item, in order, with at most `ahead` items under way."""
    under_way: deque[Future[Made]] = deque()
    try:
        for item in items:
            under_way.append(workers.submit(work, item))
            if len(under_way) >= ahead:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        for future in under_way:
            future.cancel()


def _blocks(folder: InputFolder, table: Table) -> Iterator[tuple[NormalForm, Block]]:
    for file in folder.files[table.name]:
        form = NormalForm(table, read_header(file), folder.shown(file))
        for block in read_blocks(file):
            yield form, block


def _normalize(work: tuple[NormalForm, Block]) -> tuple[Block, Normalized]:
    form, block = work
    return block, form.normalize(block)
