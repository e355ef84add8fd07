"""The rows of the tables in DuckDB: which of them count, and with what values.

A row with one bad cell, or with too few or too many fields, does not count; it is counted as rejected.
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
from kopitiam.verification.conversions import CONVERSIONS
from kopitiam.verification.csv_files import CsvFile, files_of_table, open_csv
from kopitiam.verification.reading import IS_WHOLE, count_overlong_rows, read_as_text


@dataclass(frozen=True)
class RowCount:
    used: int
    rejected: int


@dataclass(frozen=True)
class LoadedTables:
    """A database with a view of the rows that count, for each table."""

    database: duckdb.DuckDBPyConnection
    scratch: Path
    counts: dict[str, RowCount]


def questions_or_catalog(asked: Iterable[Question] | None) -> list[Question]:
    return list(builtin().values() if asked is None else asked)


@contextmanager
def load_tables(data: Path, asked: Iterable[Question] | None = None) -> Iterator[LoadedTables]:
    """The tables and columns that the questions read, and no others; nothing asked means the catalog."""
    columns = _columns_to_read(questions_or_catalog(asked))
    paths = {table: files_of_table(data, table) for table in columns}
    with TemporaryDirectory(prefix="kopi-verify-") as folder:
        scratch = Path(folder)
        with duckdb.connect(config={"temp_directory": str(scratch / "spilled")}) as database:
            database.execute(CONVERSIONS)
            files = {table: [open_csv(path, scratch) for path in paths[table]] for table in columns}
            counts = {table: _load(database, table, columns[table], files[table]) for table in columns}
            yield LoadedTables(database, scratch, counts)


def _columns_to_read(asked: Iterable[Question]) -> dict[str, list[Column]]:
    needed: dict[str, set[str]] = {}
    for question in asked:
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
