"""The calls that an upload, a wait and a download make: `calls` makes them over HTTP, `kopi analyze` in the
process of the pipeline."""

from pathlib import Path
from typing import Protocol, Self

from kopitiam.contracts.api import DurableChunks, End, RunStatus


class RunCalls(Protocol):
    """All calls are idempotent: chunks are numbered, and a repeated END is the same END.

    `place` is what chunks belong to: `tables/users`, or `files/…` with the id of a file of a data set.
    """

    @property
    def senders(self) -> int:
        """How many threads may send chunks at once."""

    def branch(self) -> Self:
        """Return the same calls, which can be abandoned separately."""

    def abandon(self) -> None:
        """Make all calls that wait for a retry raise Unavailable now."""

    def clock(self) -> float:
        """Return the seconds of a clock that never goes back."""

    def sleep(self, seconds: float) -> None: ...

    def status(self, run: str) -> RunStatus: ...

    def cancel(self, run: str) -> RunStatus: ...

    def durable(self, run: str, place: str) -> DurableChunks:
        """Return the chunks that need not be sent again."""

    def put_chunk(self, run: str, place: str, number: int, data: bytes) -> object:
        """Store a chunk that `landing.chunks.encode` has encoded."""

    def put_rejected(self, run: str, place: str, data: bytes, part: int = 0, parts: int = 1) -> None: ...

    def end(self, run: str, place: str, end: End) -> object:
        """State that the chunks are complete. Raises IncompleteError if chunks are missing."""

    def fetch_result(self, run: str, file: str, target: Path, query: str = "") -> None:
        """Write a file of the answers to `target`; `query` is that of the call over HTTP."""

    def fetch_rejected(self, run: str, target: Path) -> None:
        """Write all rejected rows to `target`. Raises RunNotFound if none were stored."""
