"""A folder of CSV exports: which files belong to which table, and the check of their structure."""

import codecs
import csv
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten

from kopitiam.contracts.errors import InputError
from kopitiam.contracts.tables import Table
from kopitiam.intake.blocks import column_at, read_blocks, read_header
from kopitiam.intake.normal_form import NormalForm

_SCAN_BYTES = 1 << 20


@dataclass(frozen=True)
class InputFolder:
    """A folder of CSV exports, with the tables to read from it."""

    path: Path
    tables: dict[str, Table]  # in normal form
    files: dict[str, tuple[Path, ...]]  # by table, in the order in which their rows are numbered

    @property
    def total_bytes(self) -> int:
        return sum(file.stat().st_size for files in self.files.values() for file in files)

    def shown(self, file: Path) -> str:
        """Return the path of a file within the folder, as text that can always be encoded."""
        return os.fsencode(file.relative_to(self.path)).decode("utf-8", "replace")


def open_folder(path: Path, tables: dict[str, Table]) -> InputFolder:
    """Find the files of the tables. Raises InputError if the folder or the files of a table are missing."""
    try:
        if not path.is_dir():
            what = "is a file, not a folder" if path.exists() else "no such folder"
            raise InputError(f"{path}: {what}")
        entries = sorted(path.iterdir())
        if not entries:
            names = ", ".join(tables)
            raise InputError(f"{path}: the folder is empty; want folders {names} with CSV files")
        files = {name: _files_of(name, path, entries) for name in tables}
    except OSError as error:
        raise InputError(f"{error.filename or path}: cannot be read: {error.strerror}") from None
    return InputFolder(path, tables, files)


def check_structure(folder: InputFolder, on_bytes: Callable[[int], None] = lambda _: None) -> None:
    """Check every header and every byte. Raises InputError with file, line and column of the first flaw."""
    for name, files in folder.files.items():
        for file in files:
            try:
                has_quotes = _check_text(file, folder.shown(file), on_bytes)
                NormalForm(folder.tables[name], read_header(file), folder.shown(file))
                if has_quotes:
                    _require_closed_quotes(file)
            except OSError as error:
                raise InputError(f"{file}: cannot be read: {error.strerror}") from None


def _files_of(name: str, path: Path, entries: list[Path]) -> tuple[Path, ...]:
    folders = [e for e in entries if re.fullmatch(rf"(\d+\.\s*)?{name}", e.name) and e.is_dir()]
    if not folders:
        raise InputError(
            f"{path}: no table {name}; want a folder {name}/ with {name}.csv or {name}_YYYYMM.csv"
        )
    if len(folders) > 1:
        raise InputError(f"{path}: table {name} is there twice: {folders[0].name}/ and {folders[1].name}/")
    files = tuple(sorted(f for f in folders[0].iterdir() if re.fullmatch(rf"{name}(_.*)?\.csv", f.name)))
    if not files:
        raise InputError(f"{folders[0]}: no CSV file here; want {name}.csv or {name}_YYYYMM.csv")
    for file in files:
        file.stat()  # raises OSError for a broken link
    return files


def _check_text(file: Path, shown: str, on_bytes: Callable[[int], None]) -> bool:
    """Check that a file is UTF-8 text; return whether it has quotes."""
    if not file.stat().st_size:
        raise InputError(f"{shown}: the file is empty, without even a header line")
    decoder = codecs.getincrementaldecoder("utf-8")()
    position, has_quotes = 0, False
    for data in _pieces(file):
        has_quotes = has_quotes or b'"' in data
        if b"\0" in data:
            line = _line_at(file, position + data.index(b"\0"))
            raise InputError(f"{shown}, line {line}: a binary file, not CSV")
        pending = len(decoder.getstate()[0])  # bytes of a character that the last piece did not complete
        try:
            if pending or not data.isascii():
                decoder.decode(data)
        except UnicodeDecodeError as error:
            where = _cell_at(file, position + error.start - pending)
            raise InputError(f"{shown}, {where}: not UTF-8 text; save the file as UTF-8") from None
        position += len(data)
        on_bytes(len(data))
    if decoder.getstate()[0]:
        where = _cell_at(file, position - len(decoder.getstate()[0]))
        raise InputError(f"{shown}, {where}: not UTF-8 text: it ends inside a character")
    return has_quotes


def _require_closed_quotes(file: Path) -> None:
    for _ in read_blocks(file):  # raises InputError for a quote that is not closed
        pass


def _cell_at(file: Path, position: int) -> str:
    line = f"line {_line_at(file, position)}"
    try:
        column = shorten(column_at(file, position), 60, placeholder="...")  # a name may have line ends
        return f"{line}, column {column}"
    except (InputError, csv.Error):  # after an unclosed quote the column is unknown
        return line


def _line_at(file: Path, position: int) -> int:
    before = 0
    for data in _pieces(file):
        before += data.count(b"\n", 0, max(position, 0))
        position -= len(data)
    return before + 1


def _pieces(file: Path) -> Iterator[bytes]:
    with file.open("rb", buffering=0) as opened:
        while data := opened.read(_SCAN_BYTES):
            yield data
