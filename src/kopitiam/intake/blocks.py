"""A CSV file cut into blocks of whole rows. What the rows mean is decided elsewhere."""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kopitiam.contracts.errors import InputError

BLOCK_BYTES = 4 << 20
LONGEST_ROW_BYTES = 64 << 20
_FIELD = rb'(?:"[^"]*+(?:""[^"]*+)*+"[^,\r\n]*+|[^",\r\n][^,\r\n]*+)?+'
_ROW = re.compile(_FIELD + rb"(?:," + _FIELD + rb")*+(?:\r?\n|\r)")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Block:
    """Whole rows of one file, without its header."""

    data: bytes
    first_line: int

    def rows(self) -> list[tuple[int, bytes]]:
        """Every row that is not blank, with the line it starts on; a quoted newline does not end a row."""
        rows: list[tuple[int, bytes]] = []
        start, line = 0, self.first_line
        for end in (*_row_ends(self.data), len(self.data)):
            if row := self.data[start:end].rstrip(b"\r\n"):
                rows.append((line, row))
            line += self.data.count(b"\n", start, end)
            start = end
        return rows


def read_header(path: Path) -> list[str]:
    with path.open("rb") as file:
        line = _take_header(file, path)
    return next(csv.reader([line.decode("utf-8")]), [])


def read_blocks(path: Path, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """The rows after the header; the cuts depend on the bytes of the file only."""
    with path.open("rb") as file:
        line = 1 + _take_header(file, path).count(b"\n")
        rest = b""
        while True:
            fresh = file.read(block_bytes)
            data = rest + fresh
            cut = _last_row_end(data) if fresh else len(data)
            if cut:
                yield Block(data[:cut], line)
                line += data.count(b"\n", 0, cut)
            elif len(data) > LONGEST_ROW_BYTES:
                raise InputError(f"{path}, line {line}: a quote is opened here and not closed within 64 MiB")
            if not fresh:
                return
            rest = data[cut:]


def _take_header(file: BinaryIO, path: Path) -> bytes:
    """Reads the first line, quoted newlines included, and leaves the file behind it."""
    line = file.readline(LONGEST_ROW_BYTES).removeprefix(_BYTE_ORDER_MARK)
    while line.count(b'"') % 2:
        more = file.readline(LONGEST_ROW_BYTES)
        if not more or len(line) > LONGEST_ROW_BYTES:
            raise InputError(f"{path}, line 1: a quote is opened in the header and not closed")
        line += more
    return line


def _last_row_end(data: bytes) -> int:
    end = data.rfind(b"\n") + 1
    if b'"' in data:
        end = max(_row_ends(data), default=0)
    return end


def _row_ends(data: bytes) -> Iterator[int]:
    """Where each whole row ends, by the rule that a quote counts only at the start of a field."""
    position = 0
    while match := _ROW.match(data, position):
        position = match.end()
        yield position
