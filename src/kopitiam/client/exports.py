"""Finds the CSV files of the tables in an export, as it comes: a folder for each table or all files in one,
plain or compressed, in a zip archive, in capitals."""

import itertools
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kopitiam.client.export_files import (
    ARCHIVE_SUFFIX,
    COMPRESSIONS,
    ExportFile,
    Member,
    archive_members,
    plain_file,
)
from kopitiam.contracts.errors import InputError
from kopitiam.questions.layout import LAYOUT

FilesByTable = dict[str, tuple[ExportFile, ...]]
_MAC_FOLDER = "__MACOSX"  # in archives made by a Mac: descriptions of the files, with the same names


def find_files(
    path: Path, tables: list[str], required: Collection[str] | None = None
) -> tuple[FilesByTable, list[str]]:
    """Return the files of the tables, and notes on what was inferred.

    Raises InputError if a table is there twice, or is missing and `required`, which means all by default;
    OSError if the folder cannot be read.
    """
    files, notes = _find_files(path, tables)
    by_table = _by_table(path, files, tables)
    for table in tables if required is None else required:
        if not by_table[table]:
            raise InputError(
                f"{path}: no table {table}; expected a folder {table}/ with {table}.csv or {table}_YYYYMM.csv"
            )
    return by_table, notes


def _find_files(path: Path, tables: list[str]) -> tuple[Iterable[ExportFile], list[str]]:
    if _is_archive(path):
        return _Archive(path, path.parent).files(tables), []
    if not path.is_dir():
        what = "is a file, not a folder" if path.exists() else "no such folder"
        raise InputError(f"{path}: {what}")
    entries = sorted(path.iterdir())
    if not entries:
        raise InputError(f"{path}: the folder is empty; expected folders {', '.join(tables)} with CSV files")
    folder = _Folder(path, entries)
    archives = [entry for entry in entries if _is_archive(entry)]
    if archives and not folder.has_tables():
        files = [file for archive in archives for file in _Archive(archive, path).files(tables)]
        names = ", ".join(archive.name for archive in archives)
        return files, [f"there are no tables beside archives: reading {names}"]
    return folder.files(tables), []


def _is_archive(path: Path) -> bool:
    return path.suffix.lower() == ARCHIVE_SUFFIX and path.is_file()


@dataclass(frozen=True)
class _Spelling:
    """How people spell the name of a table: in any case, its folder with a number before it."""

    table: str

    def is_folder(self, name: str) -> bool:
        return re.fullmatch(rf"(\d+\.\s*)?{self.table}", name, re.IGNORECASE) is not None

    def parse_file(self, name: str) -> tuple[str, str] | None:
        """Return the name of the plain file and the suffix of its compression, None for another file."""
        found = re.fullmatch(rf"{self.table}(_.*)?\.csv(\.gz|\.zst)?", name, re.IGNORECASE | re.DOTALL)
        return found and (f"{self.table}{found[1] or ''}.csv", (found[2] or "").lower())


def _pick(
    place: Path, table: str, paths: Sequence[Sequence[str]], folders: Sequence[str]
) -> Iterator[tuple[int, str, str]]:
    """Yield position, plain name and compression suffix of the files of a table: those in its folder, or else
    those beside the folders. `paths` are relative to the place and split at slashes.

    Raises InputError if the table has two folders, or one without CSV files.
    """
    spelling = _Spelling(table)
    own = [folder for folder in folders if spelling.is_folder(folder)]
    if len(own) > 1:
        raise InputError(f"{place}: table {table} is there twice: {own[0]}/ and {own[1]}/")
    is_found = False
    for position, (*above, name) in enumerate(paths):
        if above == own and (parsed := spelling.parse_file(name)):
            yield position, *parsed
            is_found = True
    if own and not is_found:
        raise InputError(f"{place / own[0]}: no CSV file here; expected {table}.csv or {table}_YYYYMM.csv")


@dataclass(frozen=True)
class _Folder:
    path: Path
    entries: list[Path]

    def has_tables(self) -> bool:
        spellings = [_Spelling(table) for table in LAYOUT]
        return any(s.is_folder(e.name) or s.parse_file(e.name) for s in spellings for e in self.entries)

    def files(self, tables: list[str]) -> Iterator[ExportFile]:
        folders = [entry.name for entry in self.entries if entry.is_dir()]
        beside = [entry for entry in self.entries if not entry.is_dir()]
        for table in tables:
            own = [folder for folder in folders if _Spelling(table).is_folder(folder)]
            files = [*beside, *(file for folder in own for file in sorted((self.path / folder).iterdir()))]
            paths = [file.relative_to(self.path).parts for file in files]
            for position, name, suffix in _pick(self.path, table, paths, folders):
                shown = _encodable("/".join(paths[position]))
                yield plain_file(table, name, files[position], shown, COMPRESSIONS[suffix])


@dataclass(frozen=True)
class _Archive:
    path: Path
    base: Path  # of the names that people see

    def files(self, tables: list[str]) -> Iterator[ExportFile]:
        members = [member for member in archive_members(self.path) if member.parts[0] != _MAC_FOLDER]
        while _has_folder_around(members):
            members = [replace(member, depth=member.depth + 1) for member in members]
        paths = [member.parts for member in members]
        folders = sorted({path[0] for path in paths if len(path) > 1})
        for table in tables:
            for position, name, suffix in _pick(self.path, table, paths, folders):
                member = members[position]
                shown = _encodable(f"{self.path.relative_to(self.base)}/{member.name}")
                yield ExportFile(
                    table, name, self.path, shown, member.size, COMPRESSIONS[suffix], member.name
                )


def _has_folder_around(members: Sequence[Member]) -> bool:
    """Return whether all files are below one folder that is not the folder of a table."""
    tops = {member.parts[0] for member in members}
    is_below_one = len(tops) == 1 and all(len(member.parts) > 1 for member in members)
    return is_below_one and not any(_Spelling(table).is_folder(*tops) for table in LAYOUT)


def _by_table(path: Path, files: Iterable[ExportFile], tables: list[str]) -> FilesByTable:
    """Return the files by table, in order of name."""
    ordered = sorted(files, key=lambda file: (file.name, file.shown))
    by_table = {table: tuple(file for file in ordered if file.table == table) for table in tables}
    for own in by_table.values():
        for one, other in itertools.pairwise(own):
            if one.name == other.name:
                raise InputError(f"{path}: {one.name} is there twice: {one.shown} and {other.shown}")
    return by_table


def _encodable(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "replace")
