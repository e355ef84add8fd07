"""Rows that were set aside, on their way to the gateway: all of them, in parts of bounded size."""

import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path

from kopitiam.contracts.api import MOST_REJECTED_BYTES

_CUT = " … (cut)"


def parts_of(path: Path, most_bytes: int = MOST_REJECTED_BYTES) -> Iterator[bytes]:
    """The rows of a CSV file as files with its header each. Only a row that fits in no part is cut short:
    its line says where to find it whole."""
    csv.field_size_limit(sys.maxsize)  # such a row may be as long as it likes
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        header = _line(next(rows))
        part = [header]
        size = len(header)
        for row in rows:
            line = _fitting(row, most_bytes - len(header))
            if size + len(line) > most_bytes:
                yield b"".join(part)
                part, size = [header], len(header)
            part.append(line)
            size += len(line)
        yield b"".join(part)


def _fitting(row: list[str], most_bytes: int) -> bytes:
    line = _line(row)
    if len(line) <= most_bytes:
        return line
    *place, content = row
    room = max(0, most_bytes - len(_line([*place, f'"{_CUT}'])))
    return _line([*place, content[: room // 4] + _CUT])  # a character has four bytes at most


def _line(row: list[str]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerow(row)
    return text.getvalue().encode()
