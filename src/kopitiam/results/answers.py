"""The answers of a run as record batches, with the columns, types and row order that all files share.

Writing and reading files is in `answer_files`; values as text are in `cells`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kopitiam.contracts.money import DECIMALS, DIGITS
from kopitiam.contracts.tables import MAX_TEXT_BYTES, Kind
from kopitiam.questions.definitions import Question
from kopitiam.questions.question_set import QuestionSet

BATCH_ROWS = 65_536
BATCH_BYTES = 16 << 20  # of text in one batch
MONEY = pa.decimal128(DIGITS + 1, DECIMALS)
_MOST_DIGITS = 38
_ARROW_TYPES: dict[Kind, pa.DataType] = {
    Kind.TEXT: pa.string(),
    Kind.ID: pa.int64(),
    Kind.COUNT: pa.int64(),
    Kind.MONEY: MONEY,
    Kind.NUMBER: MONEY,
    Kind.INSTANT: pa.timestamp("s"),
    Kind.DATE: pa.date32(),
    Kind.BOOLEAN: pa.bool_(),
}
_LARGER = {pa.int64(): pa.decimal128(_MOST_DIGITS, 0), MONEY: pa.decimal128(_MOST_DIGITS, DECIMALS)}


class Answers(Protocol):
    """The answers of a run: as the pipeline computed them, or read back from files."""

    @property
    def question_set(self) -> QuestionSet: ...

    def schema(self, name: str) -> pa.Schema: ...

    def rows(self, name: str) -> int: ...

    def batches(self, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yields the rows in the order of the answer file, with these columns or all; one batch in memory."""
        ...


@dataclass(frozen=True)
class ComputedAnswer:
    """One answer of the pipeline, money and ratios in ten-thousandths.

    A small answer is a table in any order; a large one is sorted Parquet files.
    """

    table: pa.Table | None = None
    files: tuple[Path, ...] = ()

    @property
    def rows(self) -> int:
        if self.table is not None:
            return int(self.table.num_rows)
        return sum(pq.read_metadata(file).num_rows for file in self.files)

    @property
    def schema(self) -> pa.Schema:
        return pq.read_schema(self.files[0]) if self.table is None else self.table.schema

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yields batches with these columns, or all.

        Batches end at the same rows for a table and for files with the same content.
        """
        names = self.schema.names if columns is None else list(columns)
        rows = rows_per_batch(self.schema, names)
        return _bounded_batches(_equal_pieces(self._pieces(names, rows), rows))

    def _pieces(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        if self.table is not None:
            yield from self.table.select(columns).to_batches(rows)
        for file in self.files:
            yield from pq.ParquetFile(file).iter_batches(rows, columns=columns)


@dataclass(frozen=True)
class ComputedAnswers:
    """The answers to a set of questions, with the ids that have no row in their table."""

    question_set: QuestionSet
    computed: Mapping[str, ComputedAnswer]
    unknown_ids: Mapping[str, pa.Array] = field(default_factory=dict)  # by table, distinct

    def schema(self, name: str) -> pa.Schema:
        return self._schemas[name]

    def rows(self, name: str) -> int:
        return self.computed[name].rows

    def batches(self, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        schema, computed = self.schema(name), self.computed[name]
        if computed.table is not None:
            computed = ComputedAnswer(_in_order(self.question_set.by_name[name], computed.table))
        for batch in computed.batches():
            rows = _typed(batch, schema)
            yield rows if columns is None else rows.select(list(columns))

    def unmatched(self) -> dict[str, int]:
        """Counts the distinct ids without a row, by table that attributes are looked up in."""
        tables = dict.fromkeys(
            table for question in self.question_set.questions for table in question.looked_up
        )
        return {
            table: len(self.unknown_ids[table]) if table in self.unknown_ids else 0
            for table in self.question_set.tables
            if table in tables
        }

    @cached_property
    def _schemas(self) -> dict[str, pa.Schema]:
        return {
            question.name: _widened(answer_schema(question), self.computed[question.name])
            for question in self.question_set.questions
        }


def rows_per_batch(schema: pa.Schema, columns: Iterable[str]) -> int:
    """Rows to read at once so that texts of the maximum length fit into BATCH_BYTES; a power of two."""
    texts = sum(pa.types.is_string(schema.field(name).type) for name in columns)
    most = BATCH_BYTES // (MAX_TEXT_BYTES * max(texts, 1))
    return min(BATCH_ROWS, 1 << most.bit_length() - 1) if texts else BATCH_ROWS


def _equal_pieces(pieces: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Cuts the same rows into pieces of `rows` rows; the last one may be shorter."""
    pending: list[pa.RecordBatch] = []
    count = 0
    for piece in pieces:
        rest = piece
        while count + rest.num_rows >= rows:
            yield _concatenate([*pending, rest.slice(0, rows - count)])
            rest, pending, count = rest.slice(rows - count), [], 0
        if rest.num_rows:
            pending.append(rest)
            count += rest.num_rows
    if pending:
        yield _concatenate(pending)


def _bounded_batches(pieces: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Joins pieces into batches of BATCH_ROWS rows or BATCH_BYTES of text, or slightly more."""
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for piece in pieces:
        pending.append(piece)
        rows, size = rows + piece.num_rows, size + _text_bytes(piece)
        if rows >= BATCH_ROWS or size >= BATCH_BYTES:
            yield _concatenate(pending)
            pending, rows, size = [], 0, 0
    if pending:
        yield _concatenate(pending)


def _text_bytes(batch: pa.RecordBatch) -> int:
    texts = [column for column in batch.columns if pa.types.is_string(column.type)]
    return sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in texts)


def _concatenate(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def answer_schema(question: Question) -> pa.Schema:
    """The Arrow schema of an answer; sums that do not fit get wider types later."""
    return pa.schema([(column.name, _ARROW_TYPES[column.kind]) for column in question.answer_columns])


def _in_order(question: Question, table: pa.Table) -> pa.Table:
    order = [(column, "ascending", "at_start") for column in question.sort_columns]
    if not order:
        return table  # without keys there is one row
    return table.take(pc.sort_indices(table, order))


def _widened(schema: pa.Schema, answer: ComputedAnswer) -> pa.Schema:
    """The schema with wider types for sums that do not fit; real sales never need them."""
    for name in schema.names:
        usual = schema.field(name).type
        is_sum = usual in _LARGER and pa.types.is_decimal(answer.schema.field(name).type)
        if is_sum and not all(_fits(batch[name], usual) for batch in answer.batches([name])):
            schema = schema.set(schema.get_field_index(name), pa.field(name, _LARGER[usual]))
    return schema


def _fits(units: pa.Array, usual: pa.DataType) -> bool:
    bounds = pc.min_max(units).as_py()
    limit = 2**63 if usual == pa.int64() else 10**MONEY.precision
    return all(bound is None or -limit < bound < limit for bound in bounds.values())


def _typed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [_converted(batch[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _converted(column: pa.Array, to: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(to) and to.scale:
        return money_of_units(column).cast(to)
    if pa.types.is_timestamp(to):
        return column.cast(pa.timestamp("us")).cast(to)
    return column.cast(to)


def money_of_units(units: pa.Array) -> pa.Array:
    """Converts ten-thousandths to decimal numbers without copying the digits."""
    if not pa.types.is_decimal(units.type):
        units = units.cast(pa.decimal128(DIGITS + 1, 0))
    kind = pa.decimal128(units.type.precision, DECIMALS)
    return pa.Array.from_buffers(kind, len(units), units.buffers(), units.null_count, units.offset)


def distinct(arrays: Iterable[pa.Array]) -> pa.Array:
    """The distinct ids of all arrays."""
    chunks = [array.cast(pa.int64()) for array in arrays]
    return pc.unique(pa.chunked_array(chunks, pa.int64()).combine_chunks())
