"""Reads CSV files in DuckDB as text, strictly by the CSV standard.

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
SEPARATORS = ",;\t"
_STRAY_QUOTES = {s: re.compile(rb'[^%b\n]"[^%b\r\n]' % (s.encode(), s.encode())) for s in SEPARATORS}


@dataclass(frozen=True)
class CsvFile:
    """A file with regular quotes and line ends; `origin` is the file that it copies, or itself."""

    path: Path
    origin: Path
    header: tuple[str, ...]
    has_quotes: bool
    separator: str = ","


def open_csv(path: Path, scratch: Path, origin: Path | None = None, names: Sequence[str] = ()) -> CsvFile:
    """Return the file itself if it is regular, else a regular copy in the folder `scratch`.

    The separator is the one by which most of `names` are in the header. `origin` is the file that people
    know, if it is another one. Raises InputError if the file is empty, unreadable or not UTF-8.
    """
    origin = origin or path
    try:
        headers = {separator: next(_rows(path, separator), []) for separator in SEPARATORS}
        separator = max(SEPARATORS, key=lambda s: len({c.lower() for c in headers[s]} & set(names)))
        header = _named(headers[separator], names)
        if not header:
            raise InputError(f"{origin}: empty, without even a header")
        is_regular, has_quotes = _inspect(path, separator)
        if not is_regular:
            path, separator = _regular_copy(path, scratch, separator), ","
    except UnicodeDecodeError:
        raise InputError(f"{origin}: not UTF-8 text") from None
    except (OSError, csv.Error) as error:
        raise InputError(f"{origin}: cannot be read: {error}") from None
    return CsvFile(path, origin, tuple(header), has_quotes or not is_regular, separator)


def _named(header: list[str], names: Sequence[str]) -> list[str]:
    """Return the header; a name that only differs in case from one of `names` is replaced by that one."""
    absent = set(names).difference(header)
    return [column.lower() if column.lower() in absent else column for column in header]


def _rows(path: Path, separator: str) -> Iterator[list[str]]:
    """Yield all rows that are not blank, the header first."""
    csv.field_size_limit(LONGEST_ROW_BYTES)
    with path.open(encoding="utf-8-sig", newline="") as file:
        yield from filter(None, csv.reader(file, delimiter=separator))


def _inspect(path: Path, separator: str) -> tuple[bool, bool]:
    """Return whether quotes and line ends are regular, and whether there are quotes at all."""
    quotes = 0
    has_stray_quotes = False
    line_ends = set()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES) + file.readline():
            line_ends.add(_line_end(piece))
            if b'"' in piece:
                quotes += piece.count(b'"')
                has_stray_quotes |= bool(_STRAY_QUOTES[separator].search(piece.replace(b'""', b"")))
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


def _regular_copy(origin: Path, scratch: Path, separator: str) -> Path:
    copy = scratch / f"{len(list(scratch.glob('*.csv')))}.csv"
    with copy.open("w", encoding="utf-8", newline="") as file:
        # all cells in quotes: by default the module does not quote a lone carriage return
        csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(_rows(origin, separator))
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


def _format(file: CsvFile) -> tuple[tuple[str, ...], bool, str]:
    return file.header, file.has_quotes, file.separator


def _read_alike(
    database: duckdb.DuckDBPyConnection, files: Sequence[CsvFile], columns: Sequence[str]
) -> duckdb.DuckDBPyRelation:
    header = files[0].header
    cells = database.read_csv(
        [str(file.path) for file in files],  # type: ignore[arg-type]  # DuckDB's stub knows single files only
        columns={f"cell_{i}": "VARCHAR" for i in range(len(header) + 1)},
        header=True,
        auto_detect=False,
        delimiter=files[0].separator,
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
