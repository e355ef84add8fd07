"""The registry's chunk log as a streaming source: one row for each chunk, in the order of the log.

An offset holds the last sequence number of each shard. Spark keeps the reader in a Python process beside
its driver and pickles it there: it is small, and opens a registry of its own. No folder is ever listed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Row
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from kopitiam.contracts.errors import ForeignCheckpoint
from kopitiam.contracts.runs import LogEntry

if TYPE_CHECKING:
    from kopitiam.registry.port import RegistryPort

NAME = "chunk_log"
# The span comes with every row, and in a row of its own: a batch of forgotten runs has nothing else.
SCHEMA = "shard INT, after LONG, upto LONG, sequence LONG, run STRING, table STRING, number LONG, rows LONG, bytes LONG"  # noqa: E501

Offset = dict[str, int]
LogRow = tuple[int, int, int, int | None, str | None, str | None, int | None, int | None, int | None]


@dataclass(frozen=True)
class LogBounds:
    """Which shards to read, and how much of them in one batch."""

    shards: tuple[int, ...]
    max_chunks: int
    max_bytes: int

    def of_one_shard(self) -> tuple[int, int]:
        shards = len(self.shards)
        return -(-self.max_chunks // shards), -(-self.max_bytes // shards)


@dataclass(frozen=True)
class Descriptors:
    """What a batch is about: the span of each shard, and the chunks in it."""

    spans: dict[int, tuple[int, int]]
    chunks: tuple[LogEntry, ...]

    @classmethod
    def of_rows(cls, rows: list[Row]) -> "Descriptors":
        spans = {row.shard: (row.after, row.upto) for row in rows}
        chunks = (
            LogEntry(row.shard, row.sequence, row.run, row.table, row.number, row.rows, row.bytes)
            for row in rows
            if row.run is not None
        )
        return cls(spans, tuple(sorted(chunks, key=lambda chunk: (chunk.shard, chunk.sequence))))


def chunk_log(connect: "Callable[[], RegistryPort]", bounds: LogBounds) -> type[DataSource]:
    """A source of its own for each pipeline: addresses and passwords stay out of Spark's plans."""

    class ChunkLog(DataSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def schema(self) -> str:
            return SCHEMA

        def simpleStreamReader(self, schema: object) -> "ChunkLogReader":
            del schema
            return ChunkLogReader(connect, bounds)

    return ChunkLog


class ChunkLogReader(SimpleDataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, connect: "Callable[[], RegistryPort]", bounds: LogBounds) -> None:
        self._connect = connect
        self._bounds = bounds
        self._opened: RegistryPort | None = None
        self._target: Offset | None = None  # with available-now: what was there at the start

    @property
    def _registry(self) -> "RegistryPort":
        if self._opened is None:
            self._opened = self._connect()
        return self._opened

    def initialOffset(self) -> Offset:
        """A new query goes on where the registry says that the last one stopped."""
        positions = self._registry.positions(self._bounds.shards)
        return {str(shard): positions[shard] for shard in self._bounds.shards}

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = {str(shard): self._registry.last_sequence(shard) for shard in self._bounds.shards}

    def read(self, start: Offset) -> tuple[Iterator[LogRow], Offset]:
        if any(start[str(shard)] > at for shard, at in self._registry.positions(self._bounds.shards).items()):
            raise ForeignCheckpoint(f"the checkpoint is at {start}, which the registry has not reached")
        end = {str(shard): self._head(shard, start[str(shard)]) for shard in self._bounds.shards}
        return iter(list(self.readBetweenOffsets(start, end))), end  # Spark copies it, as only lists can be

    def readBetweenOffsets(self, start: Offset, end: Offset) -> Iterator[LogRow]:
        for shard in self._bounds.shards:
            after, upto = start[str(shard)], end[str(shard)]
            if upto > after:
                yield shard, after, upto, None, None, None, None, None, None
                for chunk in self._registry.read_span(shard, after, upto):
                    what = (chunk.run, chunk.table, chunk.number, chunk.rows, chunk.bytes)
                    yield shard, after, upto, chunk.sequence, *what

    def _head(self, shard: int, after: int) -> int:
        head = self._registry.log_head(shard, after, *self._bounds.of_one_shard())
        return head if self._target is None else max(after, min(head, self._target[str(shard)]))
