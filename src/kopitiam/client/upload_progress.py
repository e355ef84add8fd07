"""How far the upload of each table has come."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class TableProgress:
    """`chunks` and `rows` are durable at the gateway; `resumed` of the chunks were so before this upload."""

    table: str
    bytes_read: int
    bytes_total: int
    chunks: int = 0
    rows: int = 0
    resumed: int = 0
    is_sealed: bool = False


Progress = Callable[[TableProgress], None]


class Meter:
    """Counts from any thread; whoever watches is called by one thread at a time."""

    def __init__(self, table: str, bytes_total: int, progress: Progress) -> None:
        self._lock = threading.Lock()
        self._seen = TableProgress(table, 0, bytes_total)
        self._progress = progress

    def on_bytes(self, count: int) -> None:
        with self._lock:
            self._show(replace(self._seen, bytes_read=self._seen.bytes_read + count))

    def on_stored(self, rows: int, was_there: bool) -> None:
        with self._lock:
            seen = self._seen
            self._show(
                replace(
                    seen, chunks=seen.chunks + 1, rows=seen.rows + rows, resumed=seen.resumed + int(was_there)
                )
            )

    def on_sealed(self) -> None:
        """Header lines are not counted on the way, so that only now all bytes are read."""
        with self._lock:
            self._show(replace(self._seen, bytes_read=self._seen.bytes_total, is_sealed=True))

    def _show(self, seen: TableProgress) -> None:
        self._seen = seen
        self._progress(seen)
