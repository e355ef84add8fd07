"""Watches a folder that fills with exports, and sends to a data set whatever is complete and new.

Nothing is kept on disk: the data set itself says which files it has in which bytes. A watch that is started
again sends nothing twice, and continues the upload that it was killed in.
"""

import hashlib
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kopitiam.client.client import Client
from kopitiam.client.data_sets import DataExports, DataFolder, OnBytes, Stamp, stamp_of, text_digest
from kopitiam.client.export_files import ExportFile
from kopitiam.client.run_handle import RunHandle
from kopitiam.contracts.errors import InputError
from kopitiam.contracts.runs import RunState
from kopitiam.contracts.tables import Table

SETTLE_SECONDS = 30.0


@dataclass
class Completeness:
    """Decides which files are complete: by marker files beside them, or if they have not changed for a while.

    Time counts from when this process first saw a stamp, by its monotonic clock: the clock of the machine
    that writes the files does not matter.
    """

    settle_seconds: float = SETTLE_SECONDS
    marker: str = ""  # suffix of marker files; none: files are complete when they settle
    _since: dict[Path, tuple[Stamp, float]] = field(default_factory=dict)

    def complete(self, stamps: Mapping[Path, Stamp], markers: Collection[Path], now: float) -> set[Path]:
        """Return the complete files. `stamps` are those of all files, `markers` all marker files."""
        self._since = {
            path: since
            if (since := self._since.get(path)) is not None and since[0] == stamp
            else (stamp, now)
            for path, stamp in stamps.items()
        }
        if self.marker:
            return {path for path in stamps if path.with_name(path.name + self.marker) in markers}
        return {path for path, (_, since) in self._since.items() if now - since >= self.settle_seconds}


@dataclass
class FolderWatch:
    """One folder and one data set. `tables` are those that the questions of each run need."""

    client: Client
    folder: Path
    data: str
    tables: Mapping[str, Table]
    questions: dict[str, Any]  # arguments of `Client.open_run`
    completeness: Completeness
    keeps_all: bool = False
    is_strict: bool = False
    clock: Callable[[], float] = time.monotonic
    _handled: dict[Path, Stamp] = field(default_factory=dict)  # by the last look that came to an end
    _digests: dict[tuple[Path, Stamp], tuple[str, int]] = field(default_factory=dict)

    def look(self, on_note: Callable[[str], object] = lambda _: None) -> RunHandle | None:
        """Send what is complete and new, and return its run, which is sealed; None if there is nothing.

        Raises InputError for a flaw in a file, and Unavailable if the gateway cannot be reached: call again.
        """
        stamps, markers = self._list()
        complete = self.completeness.complete(stamps, markers, self.clock())
        ready = {path: stamps[path] for path in complete}
        if not ready or ready == self._handled:
            return None
        try:
            run = self._send_new(ready, on_note)
        except InputError:
            self._handled = ready  # until a file changes, the flaw is the same
            raise
        self._handled = ready
        return run

    def _send_new(self, ready: Mapping[Path, Stamp], on_note: Callable[[str], object]) -> RunHandle | None:
        exports = self.client.data_exports(self.folder, self.data, self.tables, keeps_all=self.keeps_all)
        if missing := self._missing(exports, ready):
            on_note(f"waiting for files of {', '.join(missing)}")
            return None

        def digest(file: ExportFile, on_bytes: OnBytes) -> tuple[str, int]:
            key = file.path, ready[file.path]
            if key not in self._digests:
                self._digests[key] = text_digest(file, on_bytes)
            return self._digests[key]

        changes = exports.of_files(ready).compare(on_note=on_note, digest=digest)
        return self._send(changes, on_note) if changes.new else None

    def _list(self) -> tuple[dict[Path, Stamp], set[Path]]:
        stamps: dict[Path, Stamp] = {}
        markers = set()
        for path in self.folder.rglob("*"):
            if not path.is_file():
                continue
            if self.completeness.marker and path.name.endswith(self.completeness.marker):
                markers.add(path)
                continue
            with suppress(InputError):  # it was moved or removed meanwhile
                stamps[path] = stamp_of(path)
        return stamps, markers

    def _missing(self, exports: DataExports, ready: Collection[Path]) -> list[str]:
        """Return the needed tables without any file that is complete or in the data set."""
        held = {file.table for file in exports.held.files} if exports.held else set()
        files = exports.folder.files
        return [
            table
            for table in self.tables
            if table not in held and not any(file.path in ready for file in files.get(table, ()))
        ]

    def _send(self, changes: DataFolder, on_note: Callable[[str], object]) -> RunHandle:
        """Send the files. The key of the run follows from them, so that a watch that was killed continues."""
        digests = sorted(f"{file.view.table}/{file.view.name} {file.digest}" for file in changes.new)
        text = "\n".join([changes.name, str(changes.seen), *digests])
        key = f"watch-{hashlib.sha256(text.encode()).hexdigest()}"
        run = self.client.open_upload(changes, idempotency_key=key, **self.questions)
        if run.status().state in (RunState.FAILED, RunState.ENDED):
            run = self.client.open_upload(changes, **self.questions)
        run.send_files(changes, strict=self.is_strict, on_note=on_note)
        return run
