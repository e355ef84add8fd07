"""Checks every value in the body of a chunk, in a process with bounded memory and time.

A malformed Parquet file may crash Arrow, and a small one may decompress to gigabytes. `Examiners` are the
processes, `examiner` is their main module. Which Parquet files are accepted is in `parquet_format`.
"""

import itertools
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kopitiam.contracts.api import CSV
from kopitiam.contracts.errors import InputError
from kopitiam.contracts.money import DIGITS
from kopitiam.contracts.tables import MAX_TEXT_CHARACTERS, Column, Kind, Table
from kopitiam.gateway.parquet_footer import Unsound, read_footer
from kopitiam.gateway.parquet_format import Spread, check_footer, check_format, check_statistics
from kopitiam.gateway.problems import storage_error_text
from kopitiam.intake.blocks import Block, find_separator, read_blocks, read_header
from kopitiam.intake.cells import is_text_too_long
from kopitiam.intake.normal_form import NormalForm
from kopitiam.landing.chunks import encode
from kopitiam.landing.rejected import RejectedWriter
from kopitiam.questions.layout import LAYOUT
from kopitiam.system.worker_processes import WorkerProcesses, WorkersDied

_BATCH_ROWS = 65_536
_MOST_EXPANSION = 8  # a chunk in memory is at most this many times as large as the largest body
_SECOND = 1_000_000  # in microseconds
_DAY = 86_400 * _SECOND
_EPOCH = date(1970, 1, 1).toordinal()
_FIRST_DAY, _DAY_AFTER = date.min.toordinal() - _EPOCH, date.max.toordinal() + 1 - _EPOCH
_RANGES = {  # as stored, the end excluded; the same as for CSV
    Kind.ID: (0, 10 ** (DIGITS - 1)),
    Kind.COUNT: (1 - 10 ** (DIGITS - 1), 10 ** (DIGITS - 1)),
    Kind.MONEY: (1 - 10**DIGITS, 10**DIGITS),
    Kind.DATE: (_FIRST_DAY, _DAY_AFTER),
    Kind.INSTANT: (_FIRST_DAY * _DAY, _DAY_AFTER * _DAY),
    Kind.HALF: (-(2**63), 2**63),
}


@dataclass(frozen=True)
class Order:
    """A body to examine. Paths are the gateway's own, never a client's."""

    body: str
    media_type: str
    table: str
    columns: list[str]  # of its normal form
    parquet: str  # where the normal form of a CSV body is written
    rejected: str  # where its rejected rows are written
    max_bytes: int
    max_rows: int
    file: str = ""  # for CSV: the file that the chunk was cut from, as named by the client
    line: int | None = None  # the line of its first row in that file

    @property
    def form(self) -> Table:
        return LAYOUT[self.table].normal_form(self.columns)


@dataclass(frozen=True)
class Finding:
    """Row counts of a sound body, or why it is refused or must be sent again."""

    rows: int = 0
    rejected: int = 0
    refusal: str | None = None
    failure: str | None = None  # a failure of the gateway's storage: the body may be sent again

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def examine(order: Order) -> Finding:
    """Check a Parquet body, or convert a CSV body to Parquet. Raises MemoryError only."""
    try:
        if order.media_type == CSV:
            return _normalize(order)
        return Finding(_check_parquet(Path(order.body), order.form, order))
    except (Unsound, InputError) as refusal:
        return Finding(refusal=str(refusal).replace(order.body, f"chunk of {order.table}"))
    except MemoryError:
        raise  # ends the process; a new process tries again
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # from the system, not from Arrow
            return Finding(failure=storage_error_text(error))
        return Finding(refusal=f"cannot be read: {str(error).partition(chr(10))[0]}")


def _normalize(order: Order) -> Finding:
    """Convert a CSV body to the Parquet file that a client would have sent."""
    body, table = Path(order.body), order.form
    separator = find_separator(body, [column.name for column in table.columns])
    form = NormalForm(table, read_header(body, separator), order.file or f"chunk of {table.name}")
    parts, count = [table.packed.schema.empty_table()], 0
    with RejectedWriter(Path(order.rejected)) as quarantine:
        for block in _with_file_lines(read_blocks(body, separator=separator), order.line):
            normalized = form.normalize(block)
            for rejected in normalized.rejected:
                quarantine.add(table.name, rejected)
            parts.append(normalized.rows)
            count += normalized.rows.num_rows
            if count + quarantine.counts.total() > order.max_rows:
                raise Unsound(f"more than {order.max_rows:,} rows in one chunk")
        Path(order.parquet).write_bytes(encode(table, pa.concat_tables(parts)))
        return Finding(count, quarantine.counts.total())


def _with_file_lines(blocks: Iterator[Block], line: int | None) -> Iterator[Block]:
    """Number the lines as in the client's file: from `line` on, if it is known."""
    first = next(blocks, None)
    if first is None:
        return
    shift = 0 if line is None else line - first.first_line
    for block in itertools.chain([first], blocks):
        yield replace(block, first_line=block.first_line + shift)


def _check_parquet(path: Path, table: Table, order: Order) -> int:
    """Check a Parquet body and return its row count. Raises Unsound, or an error of Arrow."""
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        metadata = file.metadata
        if metadata.num_rows > order.max_rows:
            raise Unsound(f"{metadata.num_rows:,} rows; at most {order.max_rows:,} are accepted in one chunk")
        form = table.stored_as(set(file.schema_arrow.names))
        check_format(file, form)
        footer = read_footer(path)
        check_footer(footer, form, path.stat().st_size)
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        most_bytes = _MOST_EXPANSION * order.max_bytes
        if sum(group.total_byte_size for group in groups) > most_bytes:
            raise Unsound(f"takes more than {most_bytes:,} bytes in memory")
        rows = size = 0
        for number, group in enumerate(groups):
            spreads = {column.name: Spread() for column in form.columns}
            before = rows
            for batch in file.iter_batches(_BATCH_ROWS, row_groups=[number]):
                batch.validate(full=True)
                for column in form.columns:
                    spreads[column.name] += _check_values(column, batch[column.name])
                _check_uuids(table, batch)
                rows += batch.num_rows
                size += batch.nbytes
                if size > most_bytes:
                    raise Unsound(f"takes more than {most_bytes:,} bytes in memory")
            if rows - before != group.num_rows:
                raise Unsound(f"{rows - before:,} rows, but its footer says {group.num_rows:,}")
            check_statistics(footer.groups[number], form, spreads)
    if rows != metadata.num_rows:
        raise Unsound(f"{rows:,} rows, but its footer says {metadata.num_rows:,}")
    return rows


def _check_values(column: Column, values: pa.Array) -> Spread:
    """Check every value of a column and return their spread, as Parquet stores them. Raises Unsound."""
    if values.null_count and not column.is_optional:
        raise Unsound(f"{column.name} has empty values")
    if column.kind is Kind.TEXT:
        return _check_texts(column, values)
    if column.kind is Kind.BOOLEAN:
        spread = pc.min_max(values).as_py()
        return Spread(values.null_count, spread["min"], spread["max"])
    numbers = values.cast(pa.int32() if column.kind is Kind.DATE else pa.int64())
    least, beyond = _RANGES[column.kind]
    spread = pc.min_max(numbers).as_py()
    if spread["min"] is not None and not (least <= spread["min"] and spread["max"] < beyond):
        raise Unsound(f"{column.name} has values out of range")
    if column.kind is Kind.INSTANT:
        whole = pc.multiply(pc.divide(numbers, _SECOND), _SECOND)
        if pc.all(pc.equal(numbers, whole)).as_py() is False:
            raise Unsound(f"{column.name} has fractions of a second")
    return Spread(values.null_count, spread["min"], spread["max"])


def _check_uuids(table: Table, rows: pa.RecordBatch) -> None:
    """Check that every text is there once: as a text, or as both numbers of a UUID. Raises Unsound."""
    for column in table.columns:
        if not column.is_uuid or column.halves[0] not in rows.schema.names:
            continue
        has_high, has_low = (rows[half].is_valid() for half in column.halves)
        if not has_high.equals(has_low):
            raise Unsound(f"{column.name} has one number of a UUID without the other")
        if column.name in rows.schema.names:
            has_text = rows[column.name].is_valid()
            if pc.any(pc.and_(has_text, has_high)).as_py():
                raise Unsound(f"{column.name} has a text and a UUID in one row")
            if not column.is_optional and pc.all(pc.or_(has_text, has_high)).as_py() is False:
                raise Unsound(f"{column.name} has empty values")


def _check_texts(column: Column, texts: pa.Array) -> Spread:
    spread = pc.min_max(texts.cast(pa.binary())).as_py()
    if spread["min"] == b"":  # the empty text sorts first
        raise Unsound(f"{column.name} has empty values")
    if is_text_too_long(texts):
        most = f"{MAX_TEXT_CHARACTERS:,} characters"
        raise Unsound(f"{column.name} has texts of more than {most}")
    return Spread(texts.null_count, spread["min"], spread["max"])


COMMAND = (sys.executable, "-m", "kopitiam.gateway.examiner")
_DEADLY = Finding(refusal="reading it crashes, or takes more memory or time than a chunk may take")


class Examiners:
    """Examiner processes, each with bounded memory and time. A body over which two of them die is refused."""

    def __init__(self, count: int) -> None:
        self._workers = WorkerProcesses(lambda: COMMAND, count, is_eager=True)

    def examine(self, order: Order) -> Finding:
        """Examine a body; waits while all examiners are busy."""
        try:
            return Finding(**self._workers.ask(asdict(order)))
        except WorkersDied:
            return _DEADLY

    def close(self) -> None:
        self._workers.close()
