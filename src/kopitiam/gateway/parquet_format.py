"""Which Parquet files the gateway accepts: a closed list, each entry of which is tested through Spark.

Spark skips row groups by the statistics of their footer, so statistics that do not hold would lose rows
without an error. They are compared with the values. Filters that cannot be compared are refused: page
indexes and bloom filters.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow.parquet as pq

from kopitiam.contracts.tables import Column, Kind, Table

CODECS = (
    "UNCOMPRESSED",
    "SNAPPY",
    "GZIP",
    "ZSTD",
    "LZ4",
)  # Arrow says LZ4 for LZ4_RAW, UNKNOWN for Hadoop's LZ4
ENCODINGS = frozenset({"PLAIN", "RLE", "PLAIN_DICTIONARY", "RLE_DICTIONARY"})
MAX_ROW_GROUPS = 64
_INTEGER = ("INT64", re.compile(r"None|Int\(bitWidth=64, isSigned=true\)"))
_TYPES = {  # the physical type, and the logical type as Arrow spells it
    Kind.TEXT: ("BYTE_ARRAY", re.compile("String")),
    Kind.ID: _INTEGER,
    Kind.COUNT: _INTEGER,
    Kind.MONEY: _INTEGER,
    Kind.INSTANT: ("INT64", re.compile(r"Timestamp\(isAdjustedToUTC=true, timeUnit=microseconds,.*")),
    Kind.DATE: ("INT32", re.compile("Date")),
    Kind.BOOLEAN: ("BOOLEAN", re.compile("None")),
}
_SPARK_VERSION, _LEGACY_CALENDAR = b"org.apache.spark.version", b"org.apache.spark.legacyDateTime"


class Unsound(Exception):
    """The body is refused; the text says why."""


@dataclass(frozen=True)
class Spread:
    """Null count, least and greatest value of a column; no values have no bounds."""

    nulls: int = 0
    least: int | None = None
    greatest: int | None = None

    def __add__(self, other: "Spread") -> "Spread":
        least = [bound for bound in (self.least, other.least) if bound is not None]
        greatest = [bound for bound in (self.greatest, other.greatest) if bound is not None]
        return Spread(self.nulls + other.nulls, min(least, default=None), max(greatest, default=None))


def check_format(file: pq.ParquetFile, table: Table) -> None:
    """Raises Unsound, with a reason, for a file that is not on the list. Looks at the footer only."""
    _check_columns(file, table)
    _check_calendar(file.metadata.metadata or {})
    if file.metadata.num_row_groups > MAX_ROW_GROUPS:
        raise Unsound(f"{file.metadata.num_row_groups:,} row groups; at most {MAX_ROW_GROUPS} are taken")
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        for index in range(group.num_columns):
            _check_column_chunk(group.column(index), group.num_rows)


def check_statistics(group: pq.RowGroupMetaData, spreads: Mapping[str, Spread]) -> None:
    """Bounds may be wider than the values; no statistics are fine, too. Nothing filters by those of texts."""
    for index in range(group.num_columns):
        column = group.column(index)
        found, statistics = spreads[column.path_in_schema], column.statistics
        if statistics is None:
            continue
        holds = not statistics.has_null_count or statistics.null_count == found.nulls
        if statistics.has_min_max and found.least is not None and found.greatest is not None:
            holds &= statistics.min_raw <= found.least and found.greatest <= statistics.max_raw
        if not holds:
            raise Unsound(f"{column.path_in_schema}: the statistics in its footer do not fit its values")


def _check_columns(file: pq.ParquetFile, table: Table) -> None:
    """In any order; optional columns may stand for required ones, since their values are checked."""
    spelled = ", ".join(f"{field.name}: {field.type}" for field in table.schema)
    unlike = Unsound(f"not the normal form of {table.name}; want the columns {spelled}")
    schema = file.metadata.schema
    found = [schema.column(index) for index in range(len(schema))]
    columns = {column.name: column for column in table.columns}
    if sorted(column.path for column in found) != sorted(columns):
        raise unlike
    if {field.name: field.type for field in file.schema_arrow} != dict(
        zip(table.schema.names, table.schema.types, strict=True)
    ):
        raise unlike
    for each in found:
        if (
            each.max_repetition_level
            or each.max_definition_level > 1
            or not _has_type(each, columns[each.path])
        ):
            raise unlike


def _has_type(found: pq.ColumnSchema, column: Column) -> bool:
    physical, logical = _TYPES[column.kind]
    return found.physical_type == physical and logical.fullmatch(str(found.logical_type)) is not None


def _check_calendar(metadata: Mapping[bytes, bytes]) -> None:
    """Spark would shift early dates of a file that says it was written by Spark 2, or in its calendar."""
    version = metadata.get(_SPARK_VERSION, b"")
    if _LEGACY_CALENDAR in metadata or version[:2] in (b"1.", b"2."):
        raise Unsound("dates in the calendar of Spark 2; write them with Spark 3 or later, mode CORRECTED")


def _check_column_chunk(column: pq.ColumnChunkMetaData, rows: int) -> None:
    name = column.path_in_schema
    if column.compression not in CODECS:
        spelled = ", ".join(codec.lower() for codec in CODECS).replace("lz4", "lz4_raw")
        raise Unsound(f"{name}: codec {column.compression.lower()} is not taken; want one of {spelled}")
    if unknown := set(column.encodings) - ENCODINGS:
        spelled = ", ".join(sorted(ENCODINGS))
        raise Unsound(f"{name}: encoding {', '.join(sorted(unknown))} is not taken; want {spelled}")
    if column.num_values != rows:
        raise Unsound(f"{name}: {column.num_values:,} values for {rows:,} rows")
    if column.has_column_index or column.has_offset_index:
        raise Unsound(f"{name}: page indexes are not taken; write the file without")
    if column.bloom_filter_offset is not None:
        raise Unsound(f"{name}: bloom filters are not taken; write the file without")
