"""Where the CSV files of a table are, and files that DuckDB reads as the CSV standard means them.

DuckDB strips blanks before a quote, refuses mixed line ends, and takes a quoted newline for the end of a
row when it reads a file in parallel. So each file is looked at first: one with irregular quotes or line ends
is copied by Python's csv module, and one with any quotes is read in a single thread.
"""

import codecs
import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kopitiam.contracts.errors import InputError

_PIECE_BYTES = 16 << 20
LONGEST_ROW_BYTES = 4 << 20  # DuckDB and the csv module stop sooner of their own accord
_STRAY_QUOTE = re.compile(rb'[^,\n]"[^,\r\n]')


@dataclass(frozen=True)
class CsvFile:
    """A file with regular quotes and line ends; `origin` is the file it was made from, or itself."""

    path: Path
    origin: Path
    header: tuple[str, ...]
    has_quotes: bool


def files_of_table(data: Path, table: str) -> list[Path]:
    """`stores/stores.csv`, `4.transactions/transactions_202401.csv`, …"""
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
    """The file itself when it is regular, else a regular copy of it in the folder `scratch`."""
    try:
        header = next(_rows(origin), None)
        if header is None:
            raise InputError(f"{origin}: empty, without even a header")
        is_regular, has_quotes = _look_over(origin)
        path = origin if is_regular else _regular_copy(origin, scratch)
    except UnicodeDecodeError:
        raise InputError(f"{origin}: not UTF-8 text") from None
    except (OSError, csv.Error) as error:
        raise InputError(f"{origin}: cannot be read: {error}") from None
    return CsvFile(path, origin, tuple(header), has_quotes or not is_regular)


def _rows(path: Path) -> Iterator[list[str]]:
    """All rows that are not blank, the header first."""
    csv.field_size_limit(LONGEST_ROW_BYTES)
    with path.open(encoding="utf-8-sig", newline="") as file:
        yield from filter(None, csv.reader(file))


def _look_over(path: Path) -> tuple[bool, bool]:
    """Whether quotes and line ends are regular, and whether there are any quotes."""
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
    """How all lines of a piece end, or None if not all alike."""
    if b"\r" not in piece:
        return b"\n"
    is_uniform = piece.count(b"\r") == piece.count(b"\r\n") == piece.count(b"\n")
    return b"\r\n" if is_uniform else None


def _starts_with_blank_line(path: Path) -> bool:
    """DuckDB would take the header for a row then."""
    with path.open("rb") as file:
        return file.readline().removeprefix(codecs.BOM_UTF8).strip(b"\r\n") == b""


def _regular_copy(origin: Path, scratch: Path) -> Path:
    copy = scratch / f"{len(list(scratch.glob('*.csv')))}.csv"
    with copy.open("w", encoding="utf-8", newline="") as file:
        # all cells in quotes: of its own accord the module leaves a lone carriage return bare
        csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(_rows(origin))
    return copy
