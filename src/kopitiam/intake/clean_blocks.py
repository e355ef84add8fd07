"""Reads clean CSV blocks with a compiled parser, in a fraction of Arrow's time; others are left to Arrow.

`kopi warm` compiles the parser, whose source is `kernel`, into a file of the cache folder. A run loads that
file. Without it, Arrow reads all blocks.
"""

import ctypes
import functools
import hashlib
import logging
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kopitiam.contracts.tables import AT_REST, Column, Kind, Table
from kopitiam.intake.blocks import NEWLINE, Block
from kopitiam.intake.cells import is_text_too_long
from kopitiam.system.files import cache_folder, replace_file

SKIPPED, TEXT, ID, COUNT, MONEY, INSTANT, DATE, BOOLEAN, UUID = range(9)
GAVE_UP = -1
FUNCTION = "kopitiam_parse"
_KINDS = {
    Kind.ID: ID,
    Kind.COUNT: COUNT,
    Kind.MONEY: MONEY,
    Kind.INSTANT: INSTANT,
    Kind.DATE: DATE,
    Kind.BOOLEAN: BOOLEAN,
}
_SOURCE = Path(__file__).with_name("kernel.py")
_DIGEST_BYTES = hashlib.sha256().digest_size
_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_int64
_DATA, _FIELDS = (_POINTER, _SIZE, ctypes.c_int64), (_POINTER, _SIZE)
_NUMBERS, _TEXTS = (_POINTER, _POINTER, _SIZE), (_POINTER, _POINTER, _SIZE)
_Function = ctypes.CFUNCTYPE(_SIZE, *_DATA, *_FIELDS, *_NUMBERS, *_TEXTS, _SIZE)
_log = logging.getLogger(__name__)


class Kernel:
    """The compiled parser in the memory of this process. Its calls release the global interpreter lock."""

    def __init__(self, code: bytes) -> None:
        import llvmlite.binding as llvm  # noqa: PLC0415 - only for inputs that are worth it

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)  # owns the memory
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        self._parse = _Function(self._engine.get_function_address(FUNCTION))

    def parse(
        self,
        data: npt.NDArray[np.uint8],
        separator: int,
        fields: npt.NDArray[np.int64],
        numbers: tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]],
        texts: tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]],
    ) -> int:
        """Parse rows into columns, and return how many; GAVE_UP if anything is unusual.

        `numbers` are the columns of numbers and which of their cells are not empty, `texts` the ends of the
        texts and their bytes. The data ends in a newline.
        """
        (values, is_valid), (ends, letters) = numbers, texts
        most_rows = values.shape[1]
        assert data[-1] == NEWLINE
        assert ends.shape == (len(letters), most_rows + 1) and is_valid.shape == values.shape
        pointers = [array.ctypes.data for array in (data, fields, values, is_valid, ends, letters)]
        return int(
            self._parse(
                pointers[0], len(data), separator, pointers[1], len(fields),
                pointers[2], pointers[3], len(values), pointers[4], pointers[5], len(ends), most_rows,
            )
        )  # fmt: skip


def write_kernel() -> Path:
    """Compile the parser for this machine into the cache folder. Takes some ten seconds."""
    from kopitiam.intake.kernel import compile_kernel  # noqa: PLC0415 - loads Numba

    code = compile_kernel()
    path = kernel_path()
    replace_file(path, hashlib.sha256(code).digest() + code)
    return path


def kernel_path() -> Path:
    """The file of the parser, whether it exists or not."""
    source = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]
    machine = f"{platform.system()}-{platform.machine()}".lower()
    return cache_folder() / f"kernel-{source}-llvm-{version('llvmlite')}-{machine}"


@functools.cache
def load_kernel() -> Kernel | None:
    """Load the parser, once in a process. Returns None, which is logged, if that is not possible."""
    try:
        file = kernel_path().read_bytes()
        digest, code = file[:_DIGEST_BYTES], file[_DIGEST_BYTES:]
        if hashlib.sha256(code).digest() != digest:
            raise ValueError("the file is damaged")
        return Kernel(code)
    except (OSError, ImportError, ValueError, RuntimeError) as error:
        _log.warning("reading CSV without the compiled parser, which `kopi warm` makes: %s", error)
        return None


class CleanBlocks:
    """Reads the blocks of files with the same header, whose fields may have more columns than the table."""

    def __init__(self, kernel: Kernel, table: Table, header: Sequence[str]) -> None:
        self._kernel = kernel
        self._form = table.packed
        self._texts = [column.name for column in self._form.columns if column.kind is Kind.TEXT]
        self._numbers = [column.name for column in self._form.columns if column.kind is not Kind.TEXT]
        by_name = {column.name: column for column in table.columns}
        self._fields = np.array([self._field(by_name.get(name)) for name in header], np.int64)

    def read(self, block: Block) -> list[pa.Array] | None:
        """Return the columns of the packed table; None if the block is not clean."""
        data = np.frombuffer(block.data, np.uint8)
        if data[-1] != NEWLINE:
            data = np.append(data, np.uint8(NEWLINE))
        most_rows = block.lines + 1
        values = np.empty((len(self._numbers), most_rows), np.int64)
        is_valid = np.empty((len(self._numbers), most_rows), np.uint8)
        ends = np.zeros((len(self._texts), most_rows + 1), np.int32)
        letters = np.empty((len(self._texts), len(data)), np.uint8)
        separator = ord(block.separator)
        rows = self._kernel.parse(data, separator, self._fields, (values, is_valid), (ends, letters))
        if rows == GAVE_UP:
            return None
        columns = []
        for column in self._form.columns:
            if column.kind is Kind.TEXT:
                place = self._texts.index(column.name)
                texts = _texts(ends[place, : rows + 1], letters[place])
                if texts is None:
                    return None
                columns.append(texts)
            else:
                place = self._numbers.index(column.name)
                columns.append(_numbers(column, values[place, :rows], is_valid[place, :rows]))
        return columns

    def _field(self, column: Column | None) -> tuple[int, int, int, bool]:
        if column is None:
            return SKIPPED, 0, 0, True
        if column.is_uuid:
            place = self._numbers.index(column.halves[0])
            return UUID, place, self._texts.index(column.name), column.is_optional
        if column.kind is Kind.TEXT:
            return TEXT, 0, self._texts.index(column.name), column.is_optional
        return _KINDS[column.kind], self._numbers.index(column.name), 0, column.is_optional


def _numbers(column: Column, values: npt.NDArray[np.int64], is_valid: npt.NDArray[np.uint8]) -> pa.Array:
    stored: npt.NDArray[np.generic] = values
    if column.kind is Kind.DATE:
        stored = values.astype(np.int32)
    elif column.kind is Kind.BOOLEAN:
        stored = np.packbits(values != 0, bitorder="little")
    return pa.Array.from_buffers(AT_REST[column.kind], len(values), [_bitmap(is_valid), pa.py_buffer(stored)])


def _texts(ends: npt.NDArray[np.int32], letters: npt.NDArray[np.uint8]) -> pa.Array | None:
    """Return texts, of which the empty ones are null; None if one is too long or not UTF-8."""
    buffers = [_bitmap(np.diff(ends) != 0), pa.py_buffer(ends), pa.py_buffer(letters)]
    try:
        texts = pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers).cast(pa.string())
    except pa.ArrowInvalid:
        return None
    return None if is_text_too_long(texts) else texts


def _bitmap(is_valid: npt.NDArray[np.uint8 | np.bool_]) -> pa.Buffer | None:
    return None if is_valid.all() else pa.py_buffer(np.packbits(is_valid, bitorder="little"))
