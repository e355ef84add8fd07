"""Sending an export to a data set: the files that differ from the newest version, in these bytes and columns.

A file is known by its table and name, and the same as before if its text is. Which columns are kept is
decided for each file: those that the questions need, and those that the data set keeps already, or all.
"""

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from kopitiam.client.calls import Calls
from kopitiam.client.export_files import ExportFile
from kopitiam.client.folder import InputFolder, check_structure, open_folder
from kopitiam.client.refusals import ConflictError
from kopitiam.client.upload import Part, UploadOptions, require_accepting, send_parts
from kopitiam.contracts.data_api import DataSetDetail, SourceFileView
from kopitiam.contracts.errors import (
    DataSetNotFound,
    InputError,
    KopitiamError,
    ServiceError,
    VersionConflict,
)
from kopitiam.contracts.runs import RunState
from kopitiam.contracts.tables import Table
from kopitiam.intake.blocks import find_separator, read_header
from kopitiam.intake.normal_form import in_layout_case
from kopitiam.questions.layout import LAYOUT

OnNote = Callable[[str], object]
OnBytes = Callable[[int], object]
Stamp = tuple[int, int]  # size in bytes, time of the last change in nanoseconds
_PIECE_BYTES = 1 << 20
_SEAL_ATTEMPTS = 100  # each of them lost to a version that another client has made


@dataclass(frozen=True)
class NewFile:
    """A file to send, with the columns to keep and the digest of its text."""

    file: ExportFile
    form: Table
    digest: str
    bytes: int  # of its text
    stamp: Stamp  # when its digest was computed

    @property
    def view(self) -> SourceFileView:
        return SourceFileView(
            table=self.form.name,
            name=self.file.name,
            digest=self.digest,
            bytes=self.bytes,
            columns=[column.name for column in self.form.columns],
        )


@dataclass(frozen=True)
class DataFolder:
    """The files of an export that a version of a data set does not have in these bytes and columns."""

    name: str  # of the data set
    path: Path
    seen: int  # the version; 0: there is none
    new: tuple[NewFile, ...]
    unchanged: int  # files

    @property
    def text(self) -> str:
        whole = len(self.new) + self.unchanged
        base = f"version {self.seen}" if self.seen else "which is new"
        return f"data set {self.name}, {base}: {len(self.new):,} of {whole:,} files are sent"


@dataclass(frozen=True)
class DataExports:
    """An export that is sent to a data set. `held` is the version that it is compared with, if any."""

    name: str
    folder: InputFolder  # with all columns of the layout
    needed: Mapping[str, Table]  # tables and columns that the questions of the run need
    held: DataSetDetail | None
    keeps_all: bool = False

    @classmethod
    def open(
        cls, path: Path, name: str, needed: Mapping[str, Table], held: DataSetDetail | None, keeps_all: bool
    ) -> "DataExports":
        """Find the files. Raises InputError if a needed table is neither there nor in the data set."""
        known = {file.table for file in held.files} if held else set()
        tables = [table for table in LAYOUT if keeps_all or table in needed or table in known]
        layout = {table: LAYOUT[table].normal_form(LAYOUT[table].by_name) for table in tables}
        folder = open_folder(path, layout, required=[table for table in needed if table not in known])
        if not any(folder.files.values()):
            raise InputError(f"{path}: no CSV file of {', '.join(tables)}")
        return cls(name, folder, needed, held, keeps_all)

    @property
    def total_bytes(self) -> int:
        return self.folder.total_bytes

    def of_files(self, paths: Collection[Path]) -> "DataExports":
        """Return the same exports with only the files at these paths."""
        files = {
            table: tuple(file for file in of_table if file.path in paths)
            for table, of_table in self.folder.files.items()
        }
        return replace(self, folder=replace(self.folder, files=files))

    def compare(
        self,
        on_bytes: OnBytes = lambda _: None,
        on_note: OnNote = lambda _: None,
        digest: "Callable[[ExportFile, OnBytes], tuple[str, int]] | None" = None,
    ) -> DataFolder:
        """Read every file, and check the structure of those that differ. `on_note` gets what was inferred.

        `digest` returns what `text_digest` does, and may remember it.

        Raises InputError with file, line and column of the first flaw.
        """
        digest = digest or text_digest
        files = [file for of_table in self.folder.files.values() for file in of_table]
        stamps = [stamp_of(file.path) for file in files]
        with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
            digests = list(threads.map(lambda file: digest(file, on_bytes), files))
        described = [
            NewFile(file, self._form(file), *text, stamp)
            for file, text, stamp in zip(files, digests, stamps, strict=True)
        ]
        new = tuple(file for file in described if not self._is_held(file))
        for note in self._check(new):
            on_note(note)
        seen = self.held.version if self.held else 0
        return DataFolder(self.name, self.folder.path, seen, new, len(files) - len(new))

    def _form(self, file: ExportFile) -> Table:
        layout = self.folder.tables[file.table]
        names = [column.name for column in layout.columns]
        header = in_layout_case(layout, read_header(file, find_separator(file, names)))
        wanted = set(names) if self.keeps_all else self._kept_columns(file.table)
        needed = (
            {column.name for column in self.needed[file.table].columns}
            if file.table in self.needed
            else set()
        )
        return LAYOUT[file.table].normal_form(needed | (wanted & set(header)))

    def _kept_columns(self, table: str) -> set[str]:
        """The columns that the data set has of every file of the table."""
        of_table = [set(file.columns) for file in self.held.files if file.table == table] if self.held else []
        return set.intersection(*of_table) if of_table else set()

    def _is_held(self, file: NewFile) -> bool:
        columns = {column.name for column in file.form.columns}
        return self.held is not None and any(
            (held.table, held.name, held.digest) == (file.form.name, file.file.name, file.digest)
            and columns <= set(held.columns)
            for held in self.held.files
        )

    def _check(self, new: tuple[NewFile, ...]) -> tuple[str, ...]:
        groups: dict[Table, list[ExportFile]] = defaultdict(list)
        for file in new:
            groups[file.form].append(file.file)
        notes = list(self.folder.notes)
        for form, files in groups.items():
            folder = replace(self.folder, tables={form.name: form}, files={form.name: tuple(files)}, notes=())
            notes += check_structure(folder)
        return tuple(notes)


def stamp_of(path: Path) -> Stamp:
    """Return what changes when a file is written. Raises InputError if it is not there."""
    try:
        status = path.stat()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    return status.st_size, status.st_mtime_ns


def text_digest(file: ExportFile, on_bytes: OnBytes = lambda _: None) -> tuple[str, int]:
    """Return the SHA-256 and the bytes of the text of a file, however it is stored. Raises InputError."""
    sha, size = hashlib.sha256(), 0
    try:
        with file.open() as opened:
            while data := opened.read(_PIECE_BYTES):
                sha.update(data)
                size += len(data)
                on_bytes(len(data))
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None
    return sha.hexdigest(), size


def find_version(calls: Calls, name: str, version: int | None = None) -> DataSetDetail | None:
    """Return the data set with the files of a version, the newest by default; None if it has none yet."""
    if version == 0:
        return None
    try:
        detail = calls.data_set(name, version)
    except DataSetNotFound:
        if version is not None:
            raise
        return None
    return detail if detail.version else None


def send_files(
    calls: Calls, run: str, folder: DataFolder, options: UploadOptions, on_note: OnNote = lambda _: None
) -> None:
    """Send the files that the data set does not hold, and seal the run; returns when the version is made.

    Raises as `upload`, and InputError if a file changes meanwhile. If another client makes a version,
    `on_note` gets a sentence about it, and this version is built on top of that one.
    """
    status = calls.status(run)
    require_accepting(status)
    if status.state != RunState.OPEN:
        return  # it is sealed
    try:
        named = calls.name_files(run, [file.view for file in folder.new])
    except ConflictError as error:
        raise InputError(f"the folder has changed since run {run} began: {error}") from None
    parts = [
        Part(f"files/{status.file}", f"{status.table}/{status.name}", new.form, (new.file,))
        for new, status in zip(folder.new, named, strict=True)
        if not (status.held or status.ended)
    ]
    send_parts(calls, run, parts, options)
    if changed := [file.file for file in folder.new if stamp_of(file.file.path) != file.stamp]:
        with suppress(KopitiamError):
            calls.cancel(run)
        raise InputError(f"{changed[0]}: was changed while it was sent; send it again")
    _seal(calls, run, folder.seen, on_note)


def _seal(calls: Calls, run: str, version: int, on_note: OnNote) -> None:
    for _ in range(_SEAL_ATTEMPTS):
        try:
            calls.seal(run, version)
            return
        except VersionConflict as conflict:
            on_note(f"{conflict}; this one is built on top of it")
            version = conflict.newest
    raise ServiceError(f"run {run}: other clients make versions faster than it can be sealed")
