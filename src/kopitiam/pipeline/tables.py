"""Landed tables as DataFrames with declared schemas, and how many bytes tables and answers take at most.

Broadcasts and collected answers are bounded by bytes. Neither the rows of a table nor the size of its files
bounds them: a text cell may have 4 KB, and a Parquet dictionary holds it once for any number of rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from kopitiam.contracts.tables import MAX_TEXT_BYTES, Column, Kind, Table
from kopitiam.questions.definitions import AnswerColumn, Question
from kopitiam.questions.expressions import Call, ColumnRef
from kopitiam.storage.port import Key, StoragePort

BROADCAST_ROWS = 200_000
BROADCAST_BYTES = 16 << 20  # of one table; Spark holds several copies for each running question
COLLECTED_BYTES = 256 << 20  # of all answers of a run
_LEAST_SHARES = 4  # no question gets more than a fourth of the collected bytes
NUMBER_BYTES = 16  # of any value except text
_SHORT_TEXT_BYTES = 24  # of an id as text, or a period such as `2024-H1`
_BATCH_ROWS = 1_024
_TYPES: dict[Kind, t.DataType] = {
    Kind.TEXT: t.StringType(),
    Kind.ID: t.LongType(),
    Kind.COUNT: t.LongType(),
    Kind.MONEY: t.LongType(),
    Kind.INSTANT: t.TimestampType(),
    Kind.DATE: t.DateType(),
    Kind.BOOLEAN: t.BooleanType(),
    Kind.HALF: t.LongType(),
}
# Columns from folder names. Declared, since Spark would infer a number from a run id that looks like one.
_FOLDERS = (
    t.StructField("table", t.StringType()),
    t.StructField("shard", t.IntegerType()),
    t.StructField("run", t.StringType()),
)


def spark_schema(table: Table) -> t.StructType:
    columns = [t.StructField(c.name, _TYPES[c.kind], c.is_optional) for c in table.columns]
    return t.StructType([*columns, *_FOLDERS])


def read_table(spark: SparkSession, landing: str, table: Table, files: Sequence[str]) -> DataFrame:
    """The table in exactly these Parquet files, since other files beside them were never acknowledged.

    Each file may have UUIDs as texts or as numbers; the table has texts. Spark makes them only for rows that
    pass the filters.
    """
    if not files:
        return spark.createDataFrame([], spark_schema(table))
    stored = spark.read.schema(spark_schema(table.packed)).option("basePath", landing).parquet(*files)
    for column in table.columns:
        if column.is_uuid:
            stored = stored.withColumn(column.name, f.expr(_text_of(column))).drop(*column.halves)
    return stored


def _text_of(column: Column) -> str:
    """The text of a column that has either texts or the two numbers of UUIDs."""
    high, low = column.halves
    digits = ", '-', ".join(
        [
            _hexadecimal(f"shiftrightunsigned({high}, 32)", 8),
            _hexadecimal(f"shiftrightunsigned({high}, 16)", 4),
            _hexadecimal(high, 4),
            _hexadecimal(f"shiftrightunsigned({low}, 48)", 4),
            _hexadecimal(low, 12),
        ]
    )
    return f"coalesce({column.name}, lower(concat({digits})))"


def _hexadecimal(number: str, digits: int) -> str:
    """The last digits of a number. A one before them keeps leading zeros."""
    one = 16**digits
    return f"substr(hex(({number} & {one - 1}L) | {one}L), 2)"


@dataclass(frozen=True)
class TableSize:
    """Upper bounds: the bytes of all rows, and those of the longest text in each column of texts."""

    rows: int
    bytes: int
    longest: Mapping[str, int]

    @property
    def is_small(self) -> bool:
        """Whether the table may be sent to every task."""
        return self.rows <= BROADCAST_ROWS and self.bytes <= BROADCAST_BYTES


def table_size(storage: StoragePort, table: Table, files: Sequence[Key], rows: int) -> TableSize:
    """Measures the texts in these files. Stops when they are too large for a broadcast, and then assumes the
    longest allowed texts."""
    texts = [column.name for column in table.columns if column.kind is Kind.TEXT]
    row_bytes = NUMBER_BYTES * (len(table.columns) - len(texts))
    unmeasured = TableSize(
        rows, rows * (row_bytes + MAX_TEXT_BYTES * len(texts)), dict.fromkeys(texts, MAX_TEXT_BYTES)
    )
    if rows > BROADCAST_ROWS or not texts:
        return unmeasured
    size, longest = rows * row_bytes, dict.fromkeys(texts, 0)
    for file in files:
        with storage.open(file) as opened, pq.ParquetFile(opened) as content:
            for batch in content.iter_batches(_BATCH_ROWS, columns=texts):
                for name in texts:
                    lengths = pc.binary_length(batch[name])
                    longest[name] = max(longest[name], pc.max(lengths).as_py() or 0)
                    size += pc.sum(lengths).as_py() or 0
                if size > BROADCAST_BYTES:
                    return unmeasured
    return TableSize(rows, size, longest)


def can_be_collected(question: Question, rows: int, sizes: Mapping[str, TableSize], questions: int) -> bool:
    """Whether an answer with this many rows fits into its share of the memory for the answers of a run."""
    row_bytes = sum(_most_bytes(question, column, sizes) for column in question.answer_columns)
    return rows * row_bytes <= COLLECTED_BYTES // max(questions, _LEAST_SHARES)


def _most_bytes(question: Question, column: AnswerColumn, sizes: Mapping[str, TableSize]) -> int:
    if column.kind is not Kind.TEXT:
        return NUMBER_BYTES
    value = column.attribute or question.named[column.name].expression
    if isinstance(value, Call):
        return _SHORT_TEXT_BYTES
    if isinstance(value, ColumnRef) and value.is_attribute:
        return _SHORT_TEXT_BYTES + sizes[value.table].longest[value.name]
    return MAX_TEXT_BYTES
