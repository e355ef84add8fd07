"""The rows of a user's query as an Arrow table: plain types, unique names, bounded columns and texts."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import types as t

from kopitiam.contracts.errors import QuestionError
from kopitiam.contracts.sql_queries import ResultColumn

MOST_COLUMNS = 100
MOST_TEXT_BYTES = 64 << 20
_READ_ROWS = 64  # texts may have a megabyte each
_KINDS: dict[type[t.DataType], tuple[str, pa.DataType]] = {
    t.StringType: ("text", pa.string()),
    t.NullType: ("text", pa.string()),
    t.ByteType: ("integer", pa.int64()),
    t.ShortType: ("integer", pa.int64()),
    t.IntegerType: ("integer", pa.int64()),
    t.LongType: ("integer", pa.int64()),
    t.DoubleType: ("float", pa.float64()),
    t.DateType: ("date", pa.date32()),
    t.TimestampType: ("instant", pa.timestamp("us")),
    t.BooleanType: ("boolean", pa.bool_()),
}


def require_plain_columns(frame: DataFrame) -> None:
    """Raises QuestionError for too many columns, or a type that no form of the result has."""
    columns = frame.schema
    if len(columns) > MOST_COLUMNS:
        raise QuestionError(f"the result has {len(columns):,} columns; at most {MOST_COLUMNS} are allowed")
    for column in columns:
        if not isinstance(column.dataType, (*_KINDS, t.DecimalType)):
            kind = column.dataType.simpleString()
            raise QuestionError(f"column {column.name[:60]}: cast {kind[:60]} to a text or a number")


def read_result(columns: Sequence[t.StructField], files: Sequence[Path]) -> pa.Table:
    """The rows in these files with clean types and unique names. Raises QuestionError if the texts are too
    long for the memory of a gateway, or a number is infinite."""
    pieces, size = [], 0
    for file in files:
        with pq.ParquetFile(file) as content:
            for batch in content.iter_batches(_READ_ROWS):
                size += sum(
                    pc.sum(pc.binary_length(column)).as_py() or 0
                    for column in batch.columns
                    if pa.types.is_string(column.type)
                )
                if size > MOST_TEXT_BYTES:
                    limit = MOST_TEXT_BYTES >> 20
                    raise QuestionError(f"the texts of the result have more than {limit} MB; ask for fewer")
                pieces.append(batch)
    schema = pa.schema(
        [pa.field(name, _arrow_type(c)) for name, c in zip(_names(columns), columns, strict=True)]
    )
    if not pieces:
        return schema.empty_table()
    table = pa.Table.from_batches(pieces).rename_columns(schema.names).cast(schema)
    for at, field in enumerate(schema):
        if pa.types.is_floating(field.type) and not pc.all(pc.is_finite(table[at])).as_py():
            raise QuestionError(f"column {field.name[:60]}: a number is not finite")
    return table


def _names(columns: Sequence[t.StructField]) -> list[str]:
    """The names of the columns, with a number if two of them are the same."""
    names: dict[str, str] = {}  # by lower case
    for column in columns:
        name, number = column.name, 1
        while name.lower() in names:
            number += 1
            name = f"{column.name}_{number}"
        names[name.lower()] = name
    return list(names.values())


def _arrow_type(column: t.StructField) -> pa.DataType:
    kind = column.dataType
    if isinstance(kind, t.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    return _KINDS[type(kind)][1]


def result_columns(schema: pa.Schema) -> tuple[ResultColumn, ...]:
    return tuple(ResultColumn(field.name, _kind(field.type)) for field in schema)


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return "decimal"
    return next(name for name, at_rest in _KINDS.values() if at_rest == kind)
