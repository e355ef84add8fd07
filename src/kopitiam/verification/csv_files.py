"""Finds the CSV files of a table and reads them in DuckDB as text, strictly by the CSV standard.

DuckDB strips blanks before a quote, refuses mixed line ends, and ends a row at a quoted newline when it reads
in parallel. So each file is inspected first: Python's csv module copies a file with irregular quotes or line
ends, and a file with any quotes is read in a single thread.

DuckDB also accepts a row with one empty field too many. So files are read with one more column than their
header has, short rows are padded with NULL, and a row is whole if only the additional column is NULL.
"""

import codecs
import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import duckdb

from kopitiam.contracts.errors import InputError

_PIECE_BYTES = 16 << 20
LONGEST_ROW_BYTES = 4 << 20  # above the default limits of DuckDB and the csv module
_STRAY_QUOTE = re.compile(rb'[^,\n]"[^,\r\n]')


@dataclass(frozen=True)
class CsvFile:
    """A file with regular quotes and line ends; `origin` is the file that it copies, or itself."""

    path: Path
    origin: Path
    header: tuple[str, ...]
    has_quotes: bool


def files_of_table(data: Path, table: str) -> list[Path]:
    """Find files such as `stores/stores.csv` or `4.transactions/transactions_202401.csv`.

    Raises InputError if the table has no folder, two folders, or no file.
    """
    if not data.is_dir():
        raise InputError(f"{data}: no such folder")
    named = re.compile(rf"(\d+\.\s*)?{re.escape(table)}")
    folders = sorted(path for path in data.iterdir() if path.is_dir() and named.fullmatch(path.name))
    if not folders:
        raise InputError(f"{data}: no folder {table} (a number before it, as in 4.{table}, is fine)")
    if len(folders) > 1:
        raise InputError(f"{data}: table {table} is there twice: {', '.join(f.name for f in folders)}")
    belongs = re.compile(rf"{re.escape(table)}(_.*)?", re.DOTALL)
    files = sorted(path for path in folders[0].glob("*.csv") if belongs.fullmatch(path.stem))
    if not files:
        raise InputError(f"{folders[0]}: no file {table}.csv or {table}_*.csv")
    return files


def open_csv(origin: Path, scratch: Path) -> CsvFile:
    """Return the file itself if it is regular, else a regular copy in the folder `scratch`.

    Raises InputError if it is empty, unreadable or not UTF-8.
    """
    try:
        header = next(_rows(origin), None)
        if header is None:
            raise InputError(f"{origin}: empty, without even a header")
        is_regular, has_quotes = _inspect(origin)
        path = origin if is_regular else _regular_copy(origin, scratch)
    except UnicodeDecodeError:
        raise InputError(f"{origin}: not UTF-8 text") from None
    except (OSError, csv.Error) as error:
        raise InputError(f"{origin}: cannot be read: {error}") from None
    return CsvFile(path, origin, tuple(header), has_quotes or not is_regular)


def _rows(path: Path) -> Iterator[list[str]]:
    """Yield all rows that are not blank, the header first."""
    csv.field_size_limit(LONGEST_ROW_BYTES)
    with path.open(encoding="utf-8-sig", newline="") as file:
        yield from filter(None, csv.reader(file))


def _inspect(path: Path) -> tuple[bool, bool]:
    """Return whether quotes and line ends are regular, and whether there are quotes at all."""
    quotes = 0
    has_stray_quotes = False
    line_ends = set()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES) + file.readline():
            line_ends.add(_line_end(piece))
            if b'"' in piece:
                quotes += piece.count(b'"')
                has_stray_quotes |= bool(_STRAY_QUOTE.search(piece.replace(b'""', b"")))
    has_regular_quotes = quotes % 2 == 0 and not has_stray_quotes
    has_regular_lines = line_ends in ({b"\n"}, {b"\r\n"}) and not _starts_with_blank_line(path)
    return has_regular_quotes and has_regular_lines, quotes > 0


def _line_end(piece: bytes) -> bytes | None:
    """Return the line end of all lines of a piece, None if they differ."""
    if b"\r" not in piece:
        return b"\n"
    is_uniform = piece.count(b"\r") == piece.count(b"\r\n") == piece.count(b"\n")
    return b"\r\n" if is_uniform else None


def _starts_with_blank_line(path: Path) -> bool:
    """Return whether the file starts with a blank line: DuckDB would read the header as a row."""
    with path.open("rb") as file:
        return file.readline().removeprefix(codecs.BOM_UTF8).strip(b"\r\n") == b""


def _regular_copy(origin: Path, scratch: Path) -> Path:
    copy = scratch / f"{len(list(scratch.glob('*.csv')))}.csv"
    with copy.open("w", encoding="utf-8", newline="") as file:
        # all cells in quotes: by default the module does not quote a lone carriage return
        csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(_rows(origin))
    return copy


IS_WHOLE = '"row is whole"'  # no column that is read has this name
_NEVER_IN_A_CELL = "\x00never\x00"  # as the NULL text: an empty cell must differ from a missing one


def read_as_text(
    database: duckdb.DuckDBPyConnection, files: Sequence[CsvFile], columns: Sequence[str]
) -> duckdb.DuckDBPyRelation:
    """Return the named columns of all files, and `IS_WHOLE`. Empty cells are NULL."""
    alike = groupby(sorted(files, key=_format), key=_format)
    first, *others = (_read_alike(database, list(group), columns) for _, group in alike)
    for other in others:
        first = first.union(other)
    return first


def count_overlong_rows(database: duckdb.DuckDBPyConnection, files: Sequence[CsvFile]) -> int:
    """Return how many rows DuckDB skipped in the last read because they have two or more fields too many.

    Raises InputError if it skipped a row for another reason.
    """
    skipped = database.execute("""
        SELECT DISTINCT scan_id, file_id, line_byte_position, line, error_type, file_path
        FROM reject_errors JOIN reject_scans USING (scan_id, file_id)
    """).fetchall()
    database.execute("DROP TABLE reject_errors; DROP TABLE reject_scans")
    origins = {str(file.path): file.origin for file in files}
    for *_, line, error, path in skipped:
        if error != "TOO MANY COLUMNS":
            reason = "not UTF-8 text" if error == "INVALID ENCODING" else f"cannot be read: {error.lower()}"
            raise InputError(f"{origins[path]}, line {line}: {reason}")
    return len(skipped)


def _format(file: CsvFile) -> tuple[tuple[str, ...], bool]:
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
