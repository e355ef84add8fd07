"""What the stream commits: how far it has read, what it has counted, and the partial results that it wrote.
No I/O.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Processed:
    """What one batch processed of a run's table in a shard; the registry adds it up."""

    run: str
    table: str
    shard: int
    chunks: int
    rows: int


@dataclass(frozen=True)
class StageRows:
    """Rows that came into a stage of a run and rows that went on, in one batch and shard, as Spark counted
    them; the registry adds them up."""

    run: str
    stage: str
    shard: int
    rows_in: int
    rows_out: int


@dataclass(frozen=True)
class Partial:
    """Partial results of a run at rest. The path is relative, unique, and means nothing to the registry."""

    run: str
    path: str
    level: int = 0
    rows: int = 0


@dataclass(frozen=True)
class Batch:
    """A micro-batch of a streaming query. Its spans say from where to where each lane was read."""

    query: str
    batch: int
    spans: Mapping[int, tuple[int, int]]  # lane → (after, upto)
    processed: tuple[Processed, ...] = ()
    partials: tuple[Partial, ...] = ()
    stage_rows: tuple[StageRows, ...] = ()

    @property
    def shards(self) -> frozenset[int]:
        return frozenset(map(shard_of, self.spans))

    @property
    def runs(self) -> frozenset[str]:
        of_chunks = {each.run for each in self.processed} | {each.run for each in self.partials}
        return frozenset(of_chunks | {each.run for each in self.stage_rows})


@dataclass(frozen=True)
class Committed:
    """`repeated`: it was committed before, and nothing changed. Of the runs in `ignored`, which were over
    or gone, nothing was kept."""

    outcome: Literal["committed", "repeated"]
    ignored: frozenset[str] = field(default_factory=frozenset)


Step = Literal["batch", "final", "provisional"]

MOST_ATTEMPTS = 3
_STEPS: dict[Step, str] = {
    "batch": "a batch of it",
    "final": "the final step",
    "provisional": "the provisional step",
}
_WITHOUT_A_WORD = "the pipeline's process ended without a word"


@dataclass(frozen=True)
class Attempt:
    """One that has begun and not ended well; without a reason, its process ended before it could tell one."""

    attempt: str
    reason: str | None = None


def verdict(step: Step, attempts: Sequence[Attempt]) -> str | None:
    """Why there is no further attempt; None if there may be one."""
    if len(attempts) < MOST_ATTEMPTS:
        return None
    times = {3: "three times"}.get(len(attempts), f"{len(attempts)} times")
    last = attempts[-1].reason or _WITHOUT_A_WORD
    return f"{_STEPS[step]} was tried {times} and ended badly each time; the last time {last}"


MOST_SHARDS = 1024
EXPRESS_CHUNKS = 32  # of each table of a run: some four million rows


def lane_of(number: int, shards: int) -> int:
    """Where the chunk of that number goes in a run of so many shards."""
    shard = number % shards
    return shard if number < EXPRESS_CHUNKS else slow_lane(shard)


def slow_lane(shard: int) -> int:
    return MOST_SHARDS + shard


def shard_of(lane: int) -> int:
    return lane % MOST_SHARDS
