"""Parses blocks of every length whose bytes and columns end at a protected page, as a process of its own.

    python guarded_parse.py [beyond]

A read or write beyond any of them ends the process by SIGSEGV. With `beyond`, it reads one byte too many.
"""

import ctypes
import itertools
import mmap
import sys

import numpy as np

from compiled_parser import compiled_parser
from kopitiam.intake.clean_blocks import (
    BOOLEAN,
    COUNT,
    DATE,
    GAVE_UP,
    ID,
    INSTANT,
    MONEY,
    SKIPPED,
    TEXT,
    UUID,
)

PAGE = mmap.PAGESIZE
PLACES = {  # of each kind, among the numbers and among the texts
    TEXT: (0, 0),
    ID: (0, 0),
    COUNT: (1, 0),
    MONEY: (2, 0),
    INSTANT: (3, 0),
    DATE: (4, 0),
    BOOLEAN: (5, 0),
    SKIPPED: (0, 0),
    UUID: (6, 1),
}
NUMBERS, TEXTS = 8, 2
ROWS = (
    b"abc,17272.0,-3,75.075,2024-01-31 22:59:59,1988-09-25,True,x,01234567-89ab-cdef-0123-456789abcdef\n"
    b'"abc","17272","3","75",2024-02-29T00:00:00,"0001-01-01",false,"","0123"\r\n'
    b"\xc3\xa9,99999999999999999,-99999999999999999,-99999999999999.9999,9999-12-31 23:59:59,,1,,\n\n"
)
_MAPS = []  # keeps the memory


class Guarded:
    """Memory that ends where a protected page begins."""

    def __init__(self, size: int) -> None:
        pages = -(-size // PAGE)
        memory = mmap.mmap(-1, (pages + 1) * PAGE)
        _MAPS.append(memory)
        self._bytes = np.frombuffer(memory, np.uint8)[: pages * PAGE]
        libc = ctypes.CDLL(None, use_errno=True)
        page = ctypes.c_void_p(self._bytes.ctypes.data + pages * PAGE)
        assert libc.mprotect(page, ctypes.c_size_t(PAGE), 0) == 0, ctypes.get_errno()

    def array(self, shape: tuple[int, ...], kind: type) -> np.ndarray:
        """An array whose last byte is the last one before the protected page."""
        size = int(np.prod(shape)) * np.dtype(kind).itemsize
        return self._bytes[len(self._bytes) - size :].view(kind).reshape(shape)


def main() -> None:
    kernel = compiled_parser()
    data, values, is_valid, ends, letters = (Guarded(1 << 14) for _ in range(5))
    if "beyond" in sys.argv:
        ctypes.string_at(data.array((1,), np.uint8).ctypes.data, 2)
    accepted = 0
    for text, is_optional in itertools.product(every_length(), (False, True)):
        block = data.array((len(text),), np.uint8)
        block[:] = np.frombuffer(text, np.uint8)
        rows = text.count(b"\n")
        offsets = ends.array((TEXTS, rows + 1), np.int32)
        offsets[:] = 0
        parsed = kernel.parse(
            block,
            ord(","),
            fields(is_optional),
            (values.array((NUMBERS, rows), np.int64), is_valid.array((NUMBERS, rows), np.uint8)),
            (offsets, letters.array((TEXTS, len(text)), np.uint8)),
        )
        accepted += parsed != GAVE_UP
    sys.stdout.write(f"{accepted}\n")


def fields(is_optional: bool) -> np.ndarray:
    return np.array([(kind, *places, is_optional) for kind, places in PLACES.items()], np.int64)


def every_length():
    """Beginnings and ends of the rows, and each cell cut at each byte."""
    for cut in range(len(ROWS)):
        yield ROWS[:cut] + b"\n"
        yield ROWS[cut:]
    for row in ROWS.splitlines():
        cells = row.split(b",")
        for place, cell in enumerate(cells):
            for cut in range(len(cell)):
                yield b",".join([*cells[:place], cell[:cut], *cells[place + 1 :]]) + b"\n"
                yield b",".join([*cells[:place], cell[:cut]]) + b"\n"


if __name__ == "__main__":
    main()
