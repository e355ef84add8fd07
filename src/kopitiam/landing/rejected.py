"""Rejected rows, written to a CSV file with their place and reason. `results.answer_files` reads them."""

import csv
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from kopitiam.contracts.tables import Rejected

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
