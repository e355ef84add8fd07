"""Rejected rows: written to a CSV file with their place and reason, and stored with the run.

`results.answer_files` reads them.
"""

import csv
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from kopitiam.contracts.layout import KEYS
from kopitiam.contracts.tables import Rejected
from kopitiam.storage.port import StoragePort

COLUMNS = ("table", "file", "line", "reason", "row")


class RejectedWriter:
    """Writes rejected rows and counts them by table. Creates the file with the first row."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.counts: Counter[str] = Counter()
        self._closing = ExitStack()

    def add(self, table: str, rejected: Rejected) -> None:
        if not self.counts.total():
            file = self._closing.enter_context(self.path.open("w", newline="", encoding="utf-8"))
            self._writer = csv.writer(file)
            self._writer.writerow(COLUMNS)
        self._writer.writerow((table, rejected.file, rejected.line, rejected.reason, rejected.row))
        self.counts[table] += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()


def store_rejected(
    storage: StoragePort, run: str, table: str, content: bytes, *, part: int, parts: int
) -> None:
    """Store one part of a client's rejected rows, and remove parts of an earlier upload that had more."""
    folder, prefix = KEYS.rejected(run), f"{table}-client-"
    whole_lines = content if content.endswith(b"\n") else content + b"\n"
    storage.replace(folder / f"{prefix}{part:05d}.csv", whole_lines)
    for other in storage.find(f"{folder}/{prefix}*.csv"):
        if other.name >= f"{prefix}{parts:05d}.csv":
            storage.remove(other)
