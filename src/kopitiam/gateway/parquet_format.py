"""Which Parquet files the gateway accepts: a closed list, each entry of which is tested through Spark.

Spark skips row groups by the statistics in their footer. Wrong statistics would lose rows without an error,
so the gateway compares them with the values: bounds of numbers, texts and booleans, and null counts. It
refuses page indexes and bloom filters, which it cannot compare; the Spark session does not use them either.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow.parquet as pq

from kopitiam.contracts.tables import Column, Kind, Table
from kopitiam.gateway.parquet_footer import Footer, RowGroup, Statistics, Unsound

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
    Kind.HALF: _INTEGER,
}
# The deprecated annotation of a type. If a footer has both and they differ, Spark uses this one.
_INT_64 = 18
_CONVERTED_TYPES = {Kind.TEXT: 0, Kind.DATE: 6, Kind.INSTANT: 10} | dict.fromkeys(
    (Kind.ID, Kind.COUNT, Kind.MONEY, Kind.HALF), _INT_64
)
_BOUND_BYTES = {"INT64": 8, "INT32": 4, "BOOLEAN": 1}
_SPARK_VERSION, _LEGACY_CALENDAR = b"org.apache.spark.version", b"org.apache.spark.legacyDateTime"


Bound = int | bytes  # texts compare by their bytes, as in Parquet


@dataclass(frozen=True)
class Spread:
    """Null count, least and greatest value of a column; no values have no bounds."""

    nulls: int = 0
    least: Bound | None = None
    greatest: Bound | None = None

    def __add__(self, other: "Spread") -> "Spread":
        least = [bound for bound in (self.least, other.least) if bound is not None]
        greatest = [bound for bound in (self.greatest, other.greatest) if bound is not None]
        return Spread(self.nulls + other.nulls, min(least, default=None), max(greatest, default=None))


def check_format(file: pq.ParquetFile, table: Table) -> None:
    """Check the footer as Arrow shows it. Raises Unsound, with a reason, if the file is not on the list."""
    _check_columns(file, table)
    _check_calendar(file.metadata.metadata or {})
    if file.metadata.num_row_groups > MAX_ROW_GROUPS:
        raise Unsound(f"{file.metadata.num_row_groups:,} row groups; at most {MAX_ROW_GROUPS} are accepted")
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        for index in range(group.num_columns):
            _check_column_chunk(group.column(index), group.num_rows)


def check_footer(footer: Footer, table: Table, size: int) -> None:
    """Check the fields that Arrow hides, in a file of `size` bytes. Raises Unsound, with a reason."""
    columns = {column.name: column for column in table.columns}
    for name, converted in footer.converted_types.items():
        if name not in columns or converted not in (None, _CONVERTED_TYPES.get(columns[name].kind)):
            raise Unsound(f"{name}: its two type annotations differ")
    for group in footer.groups:
        # Arrow finds the values of a column by its place in the row group, and Spark by its name.
        if group.columns != tuple(footer.converted_types):
            raise Unsound("its row groups have their columns in another order than its schema")
        if not 0 <= group.middle < size:
            raise Unsound("its footer gives a wrong size of a row group")


def check_statistics(group: RowGroup, table: Table, spreads: Mapping[str, Spread]) -> None:
    """Compare the statistics of a row group with its values. Raises Unsound if they would mislead Spark.

    Statistics may be absent, and bounds may be wider than the values: some writers shorten long texts.
    """
    kinds = {column.name: column.kind for column in table.columns}
    for name, statistics in zip(group.columns, group.statistics, strict=True):
        spread = spreads[name]
        holds = statistics.nulls in (None, spread.nulls)
        for low, high in _bounds_in_use(statistics, kinds[name]):
            least, greatest = _bound(low, kinds[name]), _bound(high, kinds[name])
            if least is None or greatest is None:
                holds = False
            elif spread.least is not None and spread.greatest is not None:
                # Both sides are numbers, or both are bytes.
                holds &= least <= spread.least and spread.greatest <= greatest  # type: ignore[operator]
        if not holds:
            raise Unsound(f"{name}: the statistics in its footer do not fit its values")


def _bounds_in_use(statistics: Statistics, kind: Kind) -> Iterator[tuple[bytes, bytes]]:
    if statistics.bounds is not None:
        yield statistics.bounds
    if (deprecated := statistics.deprecated_bounds) is not None:
        low, high = deprecated
        # Old writers ordered texts by signed bytes. Spark uses such bounds only if they are equal.
        if kind is not Kind.TEXT or low == high:
            yield deprecated


def _bound(raw: bytes, kind: Kind) -> Bound | None:
    """Decode a bound of the statistics; None if it has the wrong length."""
    if kind is Kind.TEXT:
        return raw
    physical, _ = _TYPES[kind]
    if len(raw) != _BOUND_BYTES[physical]:
        return None
    return int(raw != b"\0") if kind is Kind.BOOLEAN else int.from_bytes(raw, "little", signed=True)


def _check_columns(file: pq.ParquetFile, table: Table) -> None:
    """Check the columns, in any order. A required column may be stored as optional: its values are checked
    for nulls."""
    spelled = ", ".join(f"{field.name}: {field.type}" for field in table.schema)
    unlike = Unsound(f"not the normal form of {table.name}; expected the columns {spelled}")
    schema = file.metadata.schema
    stored = [schema.column(index) for index in range(len(schema))]
    columns = {column.name: column for column in table.columns}
    if sorted(column.path for column in stored) != sorted(columns):
        raise unlike
    if {field.name: field.type for field in file.schema_arrow} != dict(
        zip(table.schema.names, table.schema.types, strict=True)
    ):
        raise unlike
    for column in stored:
        is_nested = column.max_repetition_level or column.max_definition_level > 1
        if is_nested or not _has_type(column, columns[column.path]):
            raise unlike


def _has_type(stored: pq.ColumnSchema, column: Column) -> bool:
    physical, logical = _TYPES[column.kind]
    return stored.physical_type == physical and logical.fullmatch(str(stored.logical_type)) is not None


def _check_calendar(metadata: Mapping[bytes, bytes]) -> None:
    """Spark would shift early dates of a file that says it was written by Spark 2, or in its calendar."""
    version = metadata.get(_SPARK_VERSION, b"")
    if _LEGACY_CALENDAR in metadata or version[:2] in (b"1.", b"2."):
        raise Unsound("dates in the calendar of Spark 2; write them with Spark 3 or later, mode CORRECTED")


def _check_column_chunk(column: pq.ColumnChunkMetaData, rows: int) -> None:
    name = column.path_in_schema
    if column.compression not in CODECS:
        spelled = ", ".join(codec.lower() for codec in CODECS).replace("lz4", "lz4_raw")
        raise Unsound(
            f"{name}: codec {column.compression.lower()} is not accepted; expected one of {spelled}"
        )
    if unknown := set(column.encodings) - ENCODINGS:
        spelled = ", ".join(sorted(ENCODINGS))
        raise Unsound(f"{name}: encoding {', '.join(sorted(unknown))} is not accepted; expected {spelled}")
    if column.num_values != rows:
        raise Unsound(f"{name}: {column.num_values:,} values for {rows:,} rows")
    if column.has_column_index or column.has_offset_index:
        raise Unsound(f"{name}: page indexes are not accepted; write the file without them")
    if column.bloom_filter_offset is not None:
        raise Unsound(f"{name}: bloom filters are not accepted; write the file without them")
