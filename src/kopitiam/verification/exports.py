"""Finds the CSV files of a table in a folder or zip archive, and expands compressed ones for DuckDB.

The rules are those that the documentation gives to people; the code is independent of the client's.
"""

import gzip
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import pyarrow as pa

from kopitiam.contracts.errors import InputError
from kopitiam.questions.layout import LAYOUT

_PIECE_BYTES = 1 << 20
_MOST_BYTES_UNSUSPECTED, _MOST_TIMES = 1 << 30, 250


@dataclass(frozen=True)
class Export:
    """A CSV file, plain or compressed, in a folder or in an archive."""

    origin: Path  # an archive counts as a folder
    archive: Path | None = None
    member: str = ""

    @property
    def is_plain(self) -> bool:
        return self.archive is None and self.origin.suffix.lower() == ".csv"

    def expand(self, target: Path) -> None:
        """Write the text to a file. Raises InputError if the content is damaged or expands too far."""
        stored = (self.archive or self.origin).stat().st_size
        left = max(_MOST_BYTES_UNSUSPECTED, _MOST_TIMES * stored)
        try:
            with self._text() as text, target.open("wb") as file:
                while piece := text.read(_PIECE_BYTES):
                    left -= len(piece)
                    if left < 0:
                        raise InputError(f"{self.origin}: expands to more than {_MOST_TIMES} times its size")
                    file.write(piece)
        except (OSError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
            raise InputError(f"{self.origin}: cannot be unpacked: {error}") from None

    @contextmanager
    def _text(self) -> Iterator[IO[bytes]]:
        with self._stored() as stored:
            match self.origin.suffix.lower():
                case ".gz":
                    yield cast(IO[bytes], gzip.GzipFile(fileobj=stored))
                case ".zst":
                    yield pa.CompressedInputStream(stored, "zstd")
                case _:
                    yield stored

    @contextmanager
    def _stored(self) -> Iterator[IO[bytes]]:
        if self.archive is None:
            with self.origin.open("rb") as file:
                yield file
        else:
            with zipfile.ZipFile(self.archive) as archive, archive.open(self.member) as file:
                yield file


class Exports:
    """All CSV files of a folder or of zip archives."""

    def __init__(self, data: Path) -> None:
        self.data = data
        if data.is_file() and zipfile.is_zipfile(data):
            self._names = _in_archive(data)
        elif data.is_dir():
            self._names = _in_folder(data)
            archives = sorted(path for path in data.iterdir() if path.suffix.lower() == ".zip")
            if archives and not any(_is_of(table, name) for table in LAYOUT for name in self._names):
                self._names = {}
                for archive in archives:
                    for name, export in _in_archive(archive).items():
                        self._names[f"{archive.stem}.zip/{name}"] = export
        else:
            raise InputError(f"{data}: no such folder")

    def of_table(self, table: str) -> list[Export]:
        """Find files such as `stores/stores.csv` or `4.transactions/transactions_202401.csv.gz`.

        Raises InputError if the table has no file, two folders, or a file twice.
        """
        pattern = re.compile(
            rf"(?:(?P<folder>(?:\d+\.\s*)?{table})/)?{table}(?P<rest>(?:_[^/]*)?)\.csv(?:\.gz|\.zst)?",
            re.IGNORECASE,
        )
        found = {name: match for name in self._names if (match := pattern.fullmatch(_within(name)))}
        folders = sorted({match["folder"] for match in found.values() if match["folder"]})
        if len(folders) > 1:
            raise InputError(f"{self.data}: table {table} is there twice: {', '.join(folders)}")
        own = [name for name, match in found.items() if match["folder"]]
        by_rest: dict[str, str] = {}
        for name in own or found:
            if (other := by_rest.setdefault(found[name]["rest"], name)) != name:
                raise InputError(f"{self.data}: a file of {table} is there twice: {other} and {name}")
        if not by_rest:
            raise InputError(
                f"{self.data}: no file {table}.csv or {table}_*.csv, in a folder {table} or without"
            )
        return [self._names[by_rest[rest]] for rest in sorted(by_rest)]


def _within(name: str) -> str:
    """Return the name of a file within its archive, if it is in one."""
    archive, slash, inside = name.partition(".zip/")
    return inside if slash and "/" not in archive else name


def _is_of(table: str, name: str) -> bool:
    return re.match(rf"(\d+\.\s*)?{table}[/_.]", name, re.IGNORECASE) is not None


def _in_folder(data: Path) -> dict[str, Export]:
    """Return the files of a folder and of the folders in it, by their names with slashes."""
    paths = [*data.glob("*"), *data.glob("*/*")]
    return {path.relative_to(data).as_posix(): Export(path) for path in paths if not path.is_dir()}


def _in_archive(archive: Path) -> dict[str, Export]:
    try:
        with zipfile.ZipFile(archive) as opened:
            members = [member for member in opened.namelist() if not member.endswith("/")]
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{archive}: cannot be unpacked: {error}") from None
    if len(set(members)) < len(members):
        raise InputError(f"{archive}: has two files of the same name")
    names = {member: member.replace("\\", "/") for member in members}
    names = {member: name for member, name in names.items() if not name.startswith("__MACOSX/")}
    while len({name.partition("/")[0] for name in names.values()}) == 1:
        (top,) = {name.partition("/")[0] for name in names.values()}
        if any(re.fullmatch(rf"(\d+\.\s*)?{table}", top, re.IGNORECASE) for table in LAYOUT):
            break
        if not all("/" in name for name in names.values()):
            break
        names = {member: name.partition("/")[2] for member, name in names.items()}
    return {name: Export(archive / member, archive, member) for member, name in names.items()}


def plain_file(export: Export, scratch: Path) -> Path:
    """Return the file itself, or its text as a file in the folder `scratch`."""
    if export.is_plain:
        return export.origin
    target = scratch / f"{len(list(scratch.glob('*.expanded')))}.expanded"
    export.expand(target)
    return target
