"""Cuts a CSV file into blocks of whole rows. `normal_form` parses the rows."""

import csv
import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from kopitiam.contracts.errors import InputError

BLOCK_BYTES = 4 << 20
LONGEST_ROW_BYTES = 4 << 20  # a file with a longer row is refused, to bound memory
_FIELD = rb'(?:"[^"]*+(?:""[^"]*+)*+"[^,\r\n]*+|[^",\r\n][^,\r\n]*+)?+'
_ROW = re.compile(_FIELD + rb"(?:," + _FIELD + rb")*+(?:\r?\n|\r)")
_NEWLINE = ord("\n")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Block:
    """Whole rows of one file, without its header."""

    data: memoryview
    first_line: int
    has_quotes: bool

    def rows(self) -> list[tuple[int, bytes]]:
        """Return every row that is not blank with the line it starts on; quoted newlines do not end a row."""
        rows: list[tuple[int, bytes]] = []
        data = bytes(self.data)
        start, line = 0, self.first_line
        for end in (*_row_ends(data), len(data)):
            if row := data[start:end].rstrip(b"\r\n"):
                rows.append((line, row))
            line += data.count(b"\n", start, end)
            start = end
        return rows


def read_header(path: Path) -> list[str]:
    with path.open("rb") as file:
        line = _take_header(file, path)
    try:
        return next(csv.reader([line.removeprefix(BYTE_ORDER_MARK).decode("utf-8")]), [])
    except csv.Error as error:
        raise InputError(f"{path}, line 1: not a CSV header: {error}") from None


def read_blocks(path: Path, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """Yield the rows after the header. Where blocks end depends only on the bytes of the file.

    Raises InputError for a row that is too long or a quote that is not closed.
    """
    with path.open("rb", buffering=0) as file:
        header = _take_header(file, path)
        offset, line, size = len(header), 1 + header.count(b"\n"), block_bytes
        while data := os.pread(file.fileno(), size, offset):
            is_last = len(data) < size
            has_quotes = b'"' in data
            cut = _last_row_end(data, has_quotes)
            if is_last:
                if has_quotes:
                    _require_closed(data[cut:], path, line + _lines(data, cut))
                cut = len(data)
            if cut:
                yield Block(memoryview(data)[:cut], line, has_quotes)
                offset, line, size = offset + cut, line + _lines(data, cut), block_bytes
            elif size >= LONGEST_ROW_BYTES:
                why = "a quote is opened here and not closed within" if has_quotes else "a row of more than"
                raise InputError(f"{path}, line {line}: {why} {LONGEST_ROW_BYTES >> 20} MiB")
            else:
                size *= 2


def column_at(path: Path, position: int) -> str:
    """Return the column of the byte at `position`: its name, or its number if the header is unreadable."""
    with path.open("rb") as file:
        header = _take_header(file, path)
    number = _cells(_before(path, len(header), position) if position >= len(header) else header[:position])
    try:
        return read_header(path)[number - 1]
    except (UnicodeDecodeError, IndexError):
        return str(number)


def _before(path: Path, start: int, position: int) -> bytes:
    """Return the bytes before `position` in the same row; the first row starts at `start`."""
    for block in read_blocks(path):
        if position < start + len(block.data):
            data = bytes(block.data[: position - start])
            return data[_last_row_end(data, block.has_quotes) :]
        start += len(block.data)
    return b""


def _cells(row_start: bytes) -> int:
    """Count the cells of the beginning of a row, the incomplete one included."""
    text = (row_start + b"?").decode("latin-1")
    return len(next(csv.reader(io.StringIO(text, newline=""))))


def _take_header(file: BinaryIO, path: Path) -> bytes:
    """Return the bytes of the first row, quoted newlines included."""
    text = file.readline(LONGEST_ROW_BYTES)
    start = len(BYTE_ORDER_MARK) if text.startswith(BYTE_ORDER_MARK) else 0
    while not (row := _ROW.match(text, start)):
        more = file.readline(LONGEST_ROW_BYTES)
        if not more and _ROW.match(text + b"\n", start):
            return text
        if not more or len(text) > LONGEST_ROW_BYTES:
            raise InputError(f"{path}, line 1: {_why_no_header(text)}")
        text += more
    return text[: row.end()]


def _why_no_header(text: bytes) -> str:
    if b'"' in text:
        return "a quote is opened in the header and not closed"
    return f"a header of more than {LONGEST_ROW_BYTES >> 20} MiB"


def _lines(data: bytes, end: int) -> int:
    """Count newlines: as `data.count(b"\\n", 0, end)`, but three times as fast for short lines."""
    return int(np.count_nonzero(np.frombuffer(data, np.uint8, end) == _NEWLINE))


def _last_row_end(data: bytes, has_quotes: bool) -> int:
    return max(_row_ends(data), default=0) if has_quotes else data.rfind(b"\n") + 1


def _require_closed(rest: bytes, path: Path, line: int) -> None:
    """Raise InputError for an open quote: all rows after it would disappear into one cell."""
    if rest and not _ROW.fullmatch(rest + b"\n"):
        raise InputError(f"{path}, line {line}: a quote is opened here and not closed")


def _row_ends(data: bytes) -> Iterator[int]:
    """Yield the end of each whole row; a quote counts only at the start of a field."""
    position = 0
    while match := _ROW.match(data, position):
        position = match.end()
        yield position
