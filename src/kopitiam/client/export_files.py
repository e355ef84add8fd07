"""CSV files as they are exported: plain, compressed with gzip or Zstandard, or members of a zip archive.

All of them are read as streams and never unpacked to disk, so an archive cannot write anywhere, and a file
that expands without end takes no memory.
"""

import io
import lzma
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, cast

import pyarrow as pa

from kopitiam.contracts.errors import InputError

Compression = Literal["gzip", "zstd"]
COMPRESSIONS: dict[str, Compression | None] = {"": None, ".gz": "gzip", ".zst": "zstd"}
ARCHIVE_SUFFIX = ".zip"
_LEAST_SUSPECT_BYTES = 1 << 30
_MOST_EXPANSION = 250  # sales compress to a fifth or a tenth; gzip reaches 1,000 for empty content only
_ZSTD_EXPANSION = 5  # of ordinary exports; an estimate for progress bars
_GZIP_TRAILER_BYTES = 4  # the size of the content, modulo 2^32
_DAMAGE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError)  # of zipfile when it reads


@dataclass(frozen=True)
class ExportFile:
    """A CSV file of an export. `open` gives its text, whatever form it is stored in."""

    table: str
    name: str  # of the plain file: transactions_202401.csv
    path: Path  # of the file, or of the archive that has it
    shown: str  # the path within the folder, in messages
    size: int  # bytes of text; an estimate for a compressed file
    compression: Compression | None = None
    member: str | None = None  # its name in the archive

    def __str__(self) -> str:
        return str(self.path) if self.member is None else f"{self.path}/{self.member}"

    def open(self, mode: Literal["rb"] = "rb", buffering: Literal[0] = 0) -> BinaryIO:
        """Open the text of the file. Reading raises InputError for damaged or suspicious content."""
        with ExitStack() as stack:
            opened: BinaryIO = stack.enter_context(self.path.open(mode, buffering))
            stored = os.fstat(opened.fileno()).st_size
            if self.member is not None:
                archive = stack.enter_context(_opened_archive(self.path, opened))
                opened = stack.enter_context(self._opened_member(archive))
            elif self.compression is None:
                stack.pop_all()
                return opened
            if self.compression is not None:
                opened = stack.enter_context(pa.CompressedInputStream(opened, self.compression))
            most_bytes = max(_LEAST_SUSPECT_BYTES, _MOST_EXPANSION * stored)
            return cast(BinaryIO, _Expanded(self, opened, most_bytes, stack.pop_all()))

    def _opened_member(self, archive: zipfile.ZipFile) -> BinaryIO:
        assert self.member is not None
        try:
            return cast(BinaryIO, archive.open(self.member))
        except RuntimeError:  # zipfile has no error of its own for a password
            raise InputError(f"{self}: is encrypted; unpack the archive and send the folder") from None
        except (NotImplementedError, zipfile.BadZipFile, KeyError) as error:
            raise InputError(f"{self}: cannot be unpacked: {error}") from None


class _Expanded(io.RawIOBase):
    """The expanded content of a file; closes everything below it."""

    def __init__(self, file: ExportFile, content: BinaryIO, most_bytes: int, below: ExitStack) -> None:
        self._file = file
        self._content = content
        self._left = most_bytes
        self._below = below

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            count = self._content.readinto(buffer)  # type: ignore[attr-defined]
        except _DAMAGE as error:
            raise InputError(f"{self._file}: is damaged or cut off: {error}; export it again") from None
        except OSError as error:
            if error.errno is not None:  # of the disk; Arrow's errors about the content have none
                raise
            raise InputError(f"{self._file}: is damaged or cut off: {error}; export it again") from None
        self._left -= count
        if self._left < 0:
            raise InputError(
                f"{self._file}: expands to more than {_MOST_EXPANSION} times its size, which no export does; "
                f"if it is sound, unpack it and send the folder"
            )
        return int(count)

    def close(self) -> None:
        if not self.closed:
            self._below.close()
        super().close()


def plain_file(table: str, name: str, path: Path, shown: str, compression: Compression | None) -> ExportFile:
    """Return a file of a folder. Raises OSError if it is not there, such as a broken link."""
    stored = path.stat().st_size
    return ExportFile(table, name, path, shown, _text_size(path, stored, compression), compression)


@dataclass(frozen=True)
class Member:
    """A file in an archive."""

    archive: Path
    name: str
    size: int
    depth: int = 0  # of the folders around all files

    @property
    def parts(self) -> list[str]:
        return _parts(self.name)[self.depth :]


def archive_members(path: Path) -> list[Member]:
    """List the files of a zip archive. Raises InputError if it is damaged or looks hostile."""
    with path.open("rb") as file, _opened_archive(path, file) as archive:
        infos = [info for info in archive.infolist() if not info.is_dir()]
        stored = os.fstat(file.fileno()).st_size
    for info in infos:
        if _leads_outside(info.filename):
            raise InputError(f"{path}: its member {info.filename!r} leads out of the archive")
        if stat.S_ISLNK(info.external_attr >> 16):
            raise InputError(f"{path}: its member {info.filename!r} is a link; expected files only")
    if (twice := _first_repeated(info.filename for info in infos)) is not None:
        raise InputError(f"{path}: its member {twice!r} is there twice")
    if sum(info.file_size for info in infos) > max(_LEAST_SUSPECT_BYTES, _MOST_EXPANSION * stored):
        raise InputError(
            f"{path}: expands to more than {_MOST_EXPANSION} times its size, which no export does; "
            f"if it is sound, unpack it and send the folder"
        )
    return [Member(path, info.filename, info.file_size) for info in infos]


def _opened_archive(path: Path, file: BinaryIO) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise InputError(f"{path}: not a sound zip archive: {error}") from None


def _leads_outside(name: str) -> bool:
    parts = _parts(name)
    return ".." in parts or parts[0] == "" or ":" in parts[0]


def _parts(name: str) -> list[str]:
    return re.split(r"[/\\]", name)  # some programs of Windows write backslashes


def _first_repeated(names: Iterator[str]) -> str | None:
    known: set[str] = set()
    for name in names:
        if name in known:
            return name
        known.add(name)
    return None


def _text_size(path: Path, stored: int, compression: Compression | None) -> int:
    if compression is None:
        return stored
    if compression == "zstd" or stored < _GZIP_TRAILER_BYTES:
        return stored * _ZSTD_EXPANSION
    with path.open("rb") as file:
        file.seek(-_GZIP_TRAILER_BYTES, os.SEEK_END)
        return max(stored, int.from_bytes(file.read(), "little"))
