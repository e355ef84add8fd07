"""The registry's chunk log as a streaming source: one row for each chunk, in the order of the log.

An offset holds the last sequence number of each lane. Spark pickles the reader and runs it in a Python
process beside its driver: it is therefore small and opens the registry itself. No folder is ever listed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Row
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from kopitiam.contracts.batches import slow_lane
from kopitiam.contracts.errors import ForeignCheckpoint
from kopitiam.contracts.runs import LogEntry
from kopitiam.pipeline.batch_timing import Waiting, Watch, is_due

if TYPE_CHECKING:
    from kopitiam.registry.registry import Registry

NAME = "chunk_log"
BESIDE_CHUNKS = 16  # a batch has at least as many of the slow lane, beside those of the express lane
# Every row has the span of its lane. Each lane also has a row without a chunk, so that a batch has rows even
# if its runs were deleted.
SCHEMA = "lane INT, after LONG, upto LONG, sequence LONG, run STRING, table STRING, number LONG, rows LONG, bytes LONG"  # noqa: E501
_LOG_ROW = Row(*(column.split()[0] for column in SCHEMA.split(", ")))

Offset = dict[str, int]
LogRow = tuple[int, int, int, int | None, str | None, str | None, int | None, int | None, int | None]


@dataclass(frozen=True)
class LogBounds:
    """Which shards to read, and how much of them in one batch: at least one chunk of each shard."""

    shards: tuple[int, ...]
    max_chunks: int
    max_bytes: int

    @property
    def lanes(self) -> tuple[int, ...]:
        return tuple(lane for shard in self.shards for lane in (shard, slow_lane(shard)))

    @property
    def of_one_shard(self) -> "Room":
        shards = len(self.shards)
        return Room(max(1, self.max_chunks // shards), max(1, self.max_bytes // shards))


@dataclass(frozen=True)
class Room:
    """How much a batch may still read."""

    chunks: int
    bytes: int

    def half(self, rounding: int) -> "Room":
        return Room((self.chunks + rounding) // 2, (self.bytes + rounding) // 2)

    def at_most(self, chunks: int) -> "Room":
        return Room(min(self.chunks, chunks), self.bytes)

    def without(self, taken: list[LogEntry]) -> "Room":
        return Room(self.chunks - len(taken), self.bytes - sum(chunk.bytes for chunk in taken))

    @property
    def is_empty(self) -> bool:
        return self.chunks < 1 or self.bytes < 1


@dataclass(frozen=True)
class Descriptors:
    """The content of a batch: the span of each lane, and the chunks in it."""

    spans: dict[int, tuple[int, int]]
    chunks: tuple[LogEntry, ...]

    @classmethod
    def of_rows(cls, rows: list[Row]) -> "Descriptors":
        spans = {row.lane: (row.after, row.upto) for row in rows}
        chunks = (
            LogEntry(row.lane, row.sequence, row.run, row.table, row.number, row.rows, row.bytes)
            for row in rows
            if row.run is not None
        )
        return cls(spans, tuple(sorted(chunks, key=lambda chunk: (chunk.lane, chunk.sequence))))


def chunk_log(
    connect: "Callable[[], Registry]", bounds: LogBounds, is_cluster: bool = False
) -> type[DataSource]:
    """A source class for one pipeline: addresses and passwords are in its closure, not in Spark's plans."""

    class ChunkLog(DataSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def schema(self) -> str:
            return SCHEMA

        def simpleStreamReader(self, schema: object) -> "ChunkLogReader":
            del schema
            return ChunkLogReader(connect, bounds, Watch(is_cluster))

    return ChunkLog


class ChunkLogReader(SimpleDataSourceStreamReader, SupportsTriggerAvailableNow):
    """With a watch, chunks wait until a batch is due; without one, a batch takes what is there."""

    def __init__(
        self, connect: "Callable[[], Registry]", bounds: LogBounds, watch: Watch | None = None
    ) -> None:
        self._connect = connect
        self._bounds = bounds
        self._watch = watch
        self._opened: Registry | None = None
        self._target: Offset | None = None  # with available-now: the end of the log at the start

    @property
    def _registry(self) -> "Registry":
        if self._opened is None:
            self._opened = self._connect()
        return self._opened

    def initialOffset(self) -> Offset:
        """A new query continues from the positions in the registry."""
        positions = self._registry.positions(self._bounds.lanes)
        return {str(lane): position for lane, position in positions.items()}

    def prepareForTriggerAvailableNow(self) -> None:
        self._watch = None
        self._target = {str(lane): self._registry.last_sequence(lane) for lane in self._bounds.lanes}

    def read(self, start: Offset) -> tuple[Iterator[LogRow], Offset]:
        positions = self._registry.positions(self._bounds.lanes)
        if start.keys() != {str(lane) for lane in positions}:
            raise ForeignCheckpoint(f"the checkpoint is at {start}, which has other lanes")
        if any(start[str(lane)] > position for lane, position in positions.items()):
            raise ForeignCheckpoint(f"the checkpoint is at {start}, which the registry has not reached")
        end: Offset = {}
        for shard in self._bounds.shards:
            end |= self._heads(start, shard)
        rows = list(self.readBetweenOffsets(start, end))  # Spark copies the iterator: only lists allow that
        if self._watch is not None and not self._is_due(self._watch, rows):
            return iter([]), start
        return iter(rows), end

    def _is_due(self, watch: Watch, rows: list[LogRow]) -> bool:
        chunks = Descriptors.of_rows([_LOG_ROW(*row) for row in rows]).chunks
        has_idle_core = watch.has_idle_core()
        if chunks and not is_due(self._waiting(chunks, has_idle_core, watch.seconds)):
            return False
        watch.restart()
        return True

    def _waiting(self, chunks: Sequence[LogEntry], has_idle_core: bool, seconds: float) -> Waiting:
        ended = self._registry.ended_tables({chunk.run for chunk in chunks})
        return Waiting(
            is_half_full=self._is_half_full(chunks),
            has_complete_run=any(all(tables.values()) for tables in ended.values()),
            has_ended_table=any(ended.get(chunk.run, {}).get(chunk.table) for chunk in chunks),
            has_idle_core=has_idle_core,
            seconds=seconds,
        )

    def _is_half_full(self, chunks: Sequence[LogEntry]) -> bool:
        half = self._bounds.of_one_shard.half(rounding=1)
        by_shard: dict[int, list[LogEntry]] = defaultdict(list)
        for chunk in chunks:
            by_shard[chunk.shard].append(chunk)
        return any(half.without(of_shard).is_empty for of_shard in by_shard.values())

    def readBetweenOffsets(self, start: Offset, end: Offset) -> Iterator[LogRow]:
        for lane in self._bounds.lanes:
            after, upto = start[str(lane)], end[str(lane)]
            if upto > after:
                yield lane, after, upto, None, None, None, None, None, None
                for chunk in self._registry.read_span(lane, after, upto):
                    fields = (chunk.run, chunk.table, chunk.number, chunk.rows, chunk.bytes)
                    yield lane, after, upto, chunk.sequence, *fields

    def _heads(self, start: Offset, shard: int) -> Offset:
        """Each lane gets half of the room, and the room that the other lane does not use. The lanes get an
        odd place in turn. If the express lane has a run of its own, the slow lane gets less, so that this run
        does not wait for a large batch."""
        express, slow = str(shard), str(slow_lane(shard))
        room = self._bounds.of_one_shard
        head = self._head(start, express, room.half(rounding=(start[express] + start[slow]) % 2))
        taken = self._taken(express, start, head)
        rest = room.without(taken)
        slow_head = self._head(start, slow, rest)
        beside = self._taken(slow, start, slow_head)
        if {chunk.run for chunk in taken} - {chunk.run for chunk in beside}:
            slow_head = self._head(start, slow, rest.at_most(max(len(taken), BESIDE_CHUNKS)))
            beside = self._taken(slow, start, slow_head)
        return {express: self._head(start, express, room.without(beside)), slow: slow_head}

    def _head(self, start: Offset, lane: str, room: Room) -> int:
        after = start[lane]
        if room.is_empty:
            return after
        head = self._registry.log_head(int(lane), after, room.chunks, room.bytes)
        return head if self._target is None else max(after, min(head, self._target[lane]))

    def _taken(self, lane: str, start: Offset, upto: int) -> list[LogEntry]:
        return self._registry.read_span(int(lane), start[lane], upto) if upto > start[lane] else []
