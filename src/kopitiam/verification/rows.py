"""Loads the tables into DuckDB: converts cells to exact values and rejects bad rows.

A row is rejected for one bad cell, or for too few or too many fields.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from kopitiam.contracts.errors import InputError
from kopitiam.contracts.tables import Column
from kopitiam.questions.catalog import builtin
from kopitiam.questions.definitions import Question
from kopitiam.questions.layout import LAYOUT
from kopitiam.verification.csv_files import (
    IS_WHOLE,
    CsvFile,
    count_overlong_rows,
    open_csv,
    read_as_text,
)
from kopitiam.verification.exports import Export, Exports, plain_file

# Macros return NULL for a cell with a spelling that is not allowed.
CONVERSIONS = r"""
CREATE MACRO as_text(cell) AS
    CASE WHEN length(cell) <= 1024 THEN cell END;

CREATE MACRO as_boolean(cell) AS
    CASE WHEN lower(cell) IN ('true', '1') THEN TRUE WHEN lower(cell) IN ('false', '0') THEN FALSE END;

CREATE MACRO as_id(cell) AS
    CASE WHEN regexp_full_match(cell, '[ \t]*\d{1,17}(\.0{0,15})?[ \t]*')
    THEN TRY_CAST(cell AS BIGINT) END;

CREATE MACRO as_count(cell) AS
    CASE WHEN regexp_full_match(cell, '[ \t]*[-+]?\d{1,17}(\.0{0,15})?[ \t]*')
    THEN TRY_CAST(cell AS BIGINT) END;

CREATE MACRO as_money(cell) AS
    CASE WHEN regexp_full_match(cell, '[ \t]*[-+]?(\d{1,14}(\.\d{0,4}0{0,12})?|\.\d{1,4}0{0,12})[ \t]*')
    THEN TRY_CAST(cell AS DECIMAL(18, 4)) END;

-- there is no year 0, but DuckDB would read it as 1 BC
CREATE MACRO as_instant(cell) AS
    CASE WHEN regexp_full_match(cell, '\d{4}-\d\d-\d\d[ T]([01]\d|2[0-3]):[0-5]\d:[0-5]\d') AND cell >= '0001'
    THEN TRY_CAST(cell AS TIMESTAMP) END;

-- a date stays text: the order is the same, and DuckDB prints early years differently
CREATE MACRO as_date(cell) AS
    CASE WHEN regexp_full_match(cell, '\d{4}-\d\d-\d\d') AND cell >= '0001'
          AND TRY_CAST(cell AS DATE) IS NOT NULL
    THEN cell END;

CREATE MACRO money_as_text(amount) AS
    regexp_replace(CAST(amount AS VARCHAR), '0{1,3}$', '');
"""


@dataclass(frozen=True)
class RowCount:
    used: int
    rejected: int


@dataclass(frozen=True)
class LoadedTables:
    """A database with a view of the accepted rows of each table, and how many rows each has."""

    database: duckdb.DuckDBPyConnection
    scratch: Path
    counts: dict[str, RowCount]


def questions_or_catalog(questions: Iterable[Question] | None) -> list[Question]:
    return list(builtin().values() if questions is None else questions)


@contextmanager
def load_tables(data: Path, questions: Iterable[Question] | None = None) -> Iterator[LoadedTables]:
    """Load only the tables and columns that the questions read; None means the catalog's questions."""
    columns = _columns_to_read(questions_or_catalog(questions))
    exports = Exports(data)
    found = {table: exports.of_table(table) for table in columns}
    with TemporaryDirectory(prefix="kopi-verify-") as folder:
        scratch = Path(folder)
        with duckdb.connect(config={"temp_directory": str(scratch / "spilled")}) as database:
            database.execute(CONVERSIONS)
            files = {
                table: [_open(export, scratch, columns[table]) for export in found[table]]
                for table in columns
            }
            counts = {table: _load(database, table, columns[table], files[table]) for table in columns}
            yield LoadedTables(database, scratch, counts)


def _open(export: Export, scratch: Path, columns: list[Column]) -> CsvFile:
    names = [column.name for column in columns]
    return open_csv(plain_file(export, scratch), scratch, export.origin, names)


def _columns_to_read(questions: Iterable[Question]) -> dict[str, list[Column]]:
    needed: dict[str, set[str]] = {}
    for question in questions:
        for table, names in question.reads.items():
            needed.setdefault(table, set()).update(names)
    return {
        name: [column for column in table.columns if column.name in needed[name]]
        for name, table in LAYOUT.items()
        if name in needed
    }


def _load(
    database: duckdb.DuckDBPyConnection, table: str, columns: list[Column], files: list[CsvFile]
) -> RowCount:
    names = tuple(column.name for column in columns)
    for file in files:
        _require_columns(file, names)
    values = ", ".join(f"as_{column.kind.value}({column.name}) AS value_{column.name}" for column in columns)
    counts_if = " AND ".join(_counts_if(column) for column in columns)
    kept = ", ".join(f"value_{name} AS {name}" for name in names)
    try:
        read_as_text(database, files, names).project(f"*, {values}").project(
            f"{kept}, {IS_WHOLE} AND {counts_if} AS counts"
        ).create(f"read_{table}")
    except duckdb.Error as error:
        raise InputError(f"{files[0].origin.parent}: cannot be read: {first_line(error)}") from None
    rows = database.table(f"read_{table}")
    rows.filter("counts").project("* EXCLUDE (counts)").create_view(table)
    used, bad = rows.aggregate("count(*) FILTER (counts), count(*) FILTER (NOT counts)").fetchall()[0]
    return RowCount(used, bad + count_overlong_rows(database, files))


def _counts_if(column: Column) -> str:
    is_there = f"value_{column.name} IS NOT NULL"
    return f"({column.name} IS NULL OR {is_there})" if column.is_optional else is_there


def _require_columns(file: CsvFile, columns: tuple[str, ...]) -> None:
    for column in columns:
        if (times := file.header.count(column)) != 1:
            problem = "is there twice" if times else f"is missing (found: {', '.join(file.header)})"
            raise InputError(f"{file.origin}, line 1: column {column} {problem}")


def first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
