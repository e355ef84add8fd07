"""CSV files read by DuckDB as text, cell by cell, with nothing guessed.

DuckDB lets a row pass that has one empty field too many. So files are read as if their header had one more
column, short rows are padded with NULL, and a row is whole when exactly that one column is NULL.
"""

from collections.abc import Sequence
from itertools import groupby

import duckdb

from kopitiam.contracts.errors import InputError
from kopitiam.verification.csv_files import LONGEST_ROW_BYTES, CsvFile

IS_WHOLE = '"row is whole"'  # no column of a file that is read has this name
_NEVER_IN_A_CELL = "\x00never\x00"  # an empty cell must differ from one that is not there


def read_as_text(
    database: duckdb.DuckDBPyConnection, files: Sequence[CsvFile], columns: Sequence[str]
) -> duckdb.DuckDBPyRelation:
    """The named columns of all files, each by its own header, and `IS_WHOLE`. Empty cells are NULL."""
    alike = groupby(sorted(files, key=_reading), key=_reading)
    first, *others = (_read_alike(database, list(group), columns) for _, group in alike)
    for other in others:
        first = first.union(other)
    return first


def count_overlong_rows(database: duckdb.DuckDBPyConnection, files: Sequence[CsvFile]) -> int:
    """How many rows DuckDB left out, because of two or more fields too many, when it last read the files."""
    left_out = database.execute("""
        SELECT DISTINCT scan_id, file_id, line_byte_position, line, error_type, file_path
        FROM reject_errors JOIN reject_scans USING (scan_id, file_id)
    """).fetchall()
    database.execute("DROP TABLE reject_errors; DROP TABLE reject_scans")
    origins = {str(file.path): file.origin for file in files}
    for *_, line, error, path in left_out:
        if error != "TOO MANY COLUMNS":
            reason = "not UTF-8 text" if error == "INVALID ENCODING" else f"cannot be read: {error.lower()}"
            raise InputError(f"{origins[path]}, line {line}: {reason}")
    return len(left_out)


def _reading(file: CsvFile) -> tuple[tuple[str, ...], bool]:
    return file.header, file.has_quotes


def _read_alike(
    database: duckdb.DuckDBPyConnection, files: Sequence[CsvFile], columns: Sequence[str]
) -> duckdb.DuckDBPyRelation:
    header = files[0].header
    cells = database.read_csv(
        [str(file.path) for file in files],  # type: ignore[arg-type]  # DuckDB's stub knows single files only
        columns={f"cell_{i}": "VARCHAR" for i in range(len(header) + 1)},
        header=True,
        auto_detect=False,
        delimiter=",",
        quotechar='"',
        escapechar='"',
        na_values=_NEVER_IN_A_CELL,
        null_padding=True,
        parallel=not files[0].has_quotes,
        store_rejects=True,
        max_line_size=LONGEST_ROW_BYTES,
    )
    named = (f"nullif(cell_{header.index(column)}, '') AS \"{column}\"" for column in columns)
    last, extra = f"cell_{len(header) - 1}", f"cell_{len(header)}"
    return cells.project(f"{', '.join(named)}, {last} IS NOT NULL AND {extra} IS NULL AS {IS_WHOLE}")
