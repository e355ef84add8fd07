"""A folder of CSV exports and the check of its structure. `exports` finds the files of its tables."""

import codecs
import csv
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten

from kopitiam.client.export_files import ExportFile
from kopitiam.client.exports import find_files
from kopitiam.client.notes import notes_on_headers, notes_on_months, notes_on_names
from kopitiam.contracts.errors import InputError
from kopitiam.contracts.tables import Table
from kopitiam.intake.blocks import COMMA, column_at, find_separator, read_blocks, read_header
from kopitiam.intake.normal_form import NormalForm, in_layout_case

_SCAN_BYTES = 1 << 20


@dataclass(frozen=True)
class InputFolder:
    """A folder or archive of CSV exports, with the tables to read from it."""

    path: Path
    tables: dict[str, Table]  # in normal form
    files: dict[str, tuple[ExportFile, ...]]  # by table, in the order in which their rows are numbered
    notes: tuple[str, ...] = ()  # what was inferred from the names, for people to read before it is sent

    @property
    def total_bytes(self) -> int:
        """Bytes of text, an estimate if files are compressed."""
        return sum(file.size for files in self.files.values() for file in files)


def open_folder(path: Path, tables: dict[str, Table], required: Collection[str] | None = None) -> InputFolder:
    """Find the files of the tables in a folder or a zip archive.

    Raises InputError if a file is there twice, or if a table is missing that is `required`; by default all
    are.
    """
    try:
        files, notes = find_files(path, list(tables), required)
    except OSError as error:
        raise InputError(f"{error.filename or path}: cannot be read: {error.strerror}") from None
    return InputFolder(path, tables, files, (*notes, *notes_on_names(files), *notes_on_months(files)))


def check_structure(folder: InputFolder, on_bytes: Callable[[int], None] = lambda _: None) -> tuple[str, ...]:
    """Check every header and every byte; return what was inferred about the folder and its files.

    Raises InputError with file, line and column of the first flaw.
    """
    separators: dict[str, str] = {}
    other_case: list[str] = []
    for name, files in folder.files.items():
        table = folder.tables[name]
        columns = [column.name for column in table.columns]
        for file in files:
            try:
                has_quotes = _check_text(file, columns, on_bytes)
                separator = find_separator(file, columns)
                header = read_header(file, separator)
                NormalForm(table, header, file.shown)
                if has_quotes:
                    _require_closed_quotes(file, separator)
            except OSError as error:
                raise InputError(f"{file}: cannot be read: {error.strerror}") from None
            if separator != COMMA:
                separators[file.shown] = separator
            if in_layout_case(table, header) != header:
                other_case.append(file.shown)
    return (*folder.notes, *notes_on_headers(separators, other_case))


def _check_text(file: ExportFile, columns: list[str], on_bytes: Callable[[int], None]) -> bool:
    """Check that a file is UTF-8 text; return whether it has quotes."""
    shown = file.shown
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
            where = _cell_at(file, columns, position + error.start - pending)
            raise InputError(f"{shown}, {where}: not UTF-8 text; save the file as UTF-8") from None
        position += len(data)
        on_bytes(len(data))
    if not position:
        raise InputError(f"{shown}: the file is empty, without even a header line")
    if decoder.getstate()[0]:
        where = _cell_at(file, columns, position - len(decoder.getstate()[0]))
        raise InputError(f"{shown}, {where}: not UTF-8 text: it ends inside a character")
    return has_quotes


def _require_closed_quotes(file: ExportFile, separator: str) -> None:
    for _ in read_blocks(file, separator=separator):  # raises InputError for a quote that is not closed
        pass


def _cell_at(file: ExportFile, columns: list[str], position: int) -> str:
    line = f"line {_line_at(file, position)}"
    try:
        column = column_at(file, position, find_separator(file, columns))
        return f"{line}, column {shorten(column, 60, placeholder='...')}"  # a name may have line ends
    except (InputError, csv.Error):  # after an unclosed quote the column is unknown
        return line


def _line_at(file: ExportFile, position: int) -> int:
    before = 0
    for data in _pieces(file):
        before += data.count(b"\n", 0, max(position, 0))
        position -= len(data)
    return before + 1


def _pieces(file: ExportFile) -> Iterator[bytes]:
    with file.open() as opened:
        while data := opened.read(_SCAN_BYTES):
            yield data
