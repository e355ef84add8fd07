"""The rows of the five tables in DuckDB: which of them count, and with what values.

A row with one bad cell, or with too few or too many fields, does not count; it is counted as rejected.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from kopitiam.contracts.errors import InputError
from kopitiam.verification.conversions import CONVERSIONS
from kopitiam.verification.csv_files import CsvFile, files_of_table, open_csv
from kopitiam.verification.reading import count_overlong_rows, read_as_text


@dataclass(frozen=True)
class Source:
    """How the cells of a table become values, and what a row must have to count."""

    columns: tuple[str, ...]
    values: str
    counts_if: str


SOURCES: dict[str, Source] = {
    "transactions": Source(
        ("transaction_id", "store_id", "user_id", "final_amount", "created_at"),
        "transaction_id AS sale, as_id(store_id) AS store, as_id(user_id) AS customer,"
        " as_money(final_amount) AS amount, as_instant(created_at) AS instant",
        "sale IS NOT NULL AND store IS NOT NULL AND amount IS NOT NULL AND instant IS NOT NULL"
        " AND (user_id IS NULL OR customer IS NOT NULL)",
    ),
    "transaction_items": Source(
        ("item_id", "quantity", "subtotal", "created_at"),
        "as_id(item_id) AS item, as_count(quantity) AS pieces, as_money(subtotal) AS amount,"
        " as_instant(created_at) AS instant",
        "item IS NOT NULL AND pieces IS NOT NULL AND amount IS NOT NULL AND instant IS NOT NULL",
    ),
    "users": Source(
        ("user_id", "birthdate"),
        "as_id(user_id) AS customer, as_date(birthdate) AS born",
        "customer IS NOT NULL AND (birthdate IS NULL OR born IS NOT NULL)",
    ),
    "stores": Source(
        ("store_id", "store_name"),
        "as_id(store_id) AS store, store_name AS name",
        "store IS NOT NULL AND name IS NOT NULL",
    ),
    "menu_items": Source(
        ("item_id", "item_name"),
        "as_id(item_id) AS item, item_name AS name",
        "item IS NOT NULL AND name IS NOT NULL",
    ),
}


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


@contextmanager
def load_tables(data: Path) -> Iterator[LoadedTables]:
    paths = {table: files_of_table(data, table) for table in SOURCES}
    with TemporaryDirectory(prefix="kopi-verify-") as folder:
        scratch = Path(folder)
        with duckdb.connect(config={"temp_directory": str(scratch / "spilled")}) as database:
            database.execute(CONVERSIONS)
            files = {table: [open_csv(path, scratch) for path in paths[table]] for table in SOURCES}
            counts = {table: _load(database, table, files[table]) for table in SOURCES}
            yield LoadedTables(database, scratch, counts)


def _load(database: duckdb.DuckDBPyConnection, table: str, files: list[CsvFile]) -> RowCount:
    source = SOURCES[table]
    for file in files:
        _require_columns(file, source.columns)
    try:
        read_as_text(database, files, source.columns).project(f"*, {source.values}").project(
            f"* EXCLUDE (is_whole, {', '.join(source.columns)}), is_whole AND {source.counts_if} AS counts"
        ).create(f"read_{table}")
    except duckdb.Error as error:
        raise InputError(f"{files[0].origin.parent}: cannot be read: {_first_line(error)}") from None
    rows = database.table(f"read_{table}")
    rows.filter("counts").project("* EXCLUDE (counts)").create_view(table)
    used, bad = rows.aggregate("count(*) FILTER (counts), count(*) FILTER (NOT counts)").fetchall()[0]
    return RowCount(used, bad + count_overlong_rows(database, files))


def _require_columns(file: CsvFile, columns: tuple[str, ...]) -> None:
    for column in columns:
        if (times := file.header.count(column)) != 1:
            problem = "is there twice" if times else f"is missing (found: {', '.join(file.header)})"
            raise InputError(f"{file.origin}, line 1: column {column} {problem}")


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
