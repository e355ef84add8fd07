"""Batches that the stream commits, with their counts and partials; attempts and their limit; lanes. No I/O.

A lane is a part of a shard's chunk log. Each shard has two: an express lane for the first chunks of each
table of a run, so that small runs do not wait behind large ones, and a slow lane for the rest.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal


@dataclass(frozen=True)
class Processed:
    """Chunks and rows of a run's table that one batch processed in a shard; the registry adds them up."""

    run: str
    table: str
    shard: int
    chunks: int
    rows: int


@dataclass(frozen=True)
class StageRows:
    """Rows into and out of a stage of a run, in one batch and shard, as Spark counted them; the registry adds
    them up."""

    run: str
    stage: str
    shard: int
    rows_in: int
    rows_out: int


@dataclass(frozen=True)
class FileRows:
    """Rows of a data file that one batch counted for a plan of a run; the registry adds them up.

    Step 0 is the rows that the partial keeps; step n those that passed the first n filters of the plan.
    """

    run: str
    file: str
    plan: str  # its name in this run
    step: int
    shard: int
    rows: int


@dataclass(frozen=True)
class Partial:
    """A stored partial of a run. The path is relative and unique."""

    run: str
    path: str
    level: int = 0
    rows: int = 0
    origin: str | None = None  # the data file that it was computed from; None: chunks of the run
    kept_as: str | None = None  # of a partial that an earlier run computed: the name of its plan in this run

    @property
    def kind(self) -> str:
        """The name of the plan in this run."""
        return self.kept_as or kind_of(self.path)


def kind_of(path: str) -> str:
    """Return the plan under whose name a partial was written: the last folder of its path."""
    return path.rpartition("kind=")[2]


@dataclass(frozen=True)
class Batch:
    """A micro-batch of a streaming query. Its spans are the parts of each lane that it read."""

    query: str
    batch: int
    spans: Mapping[int, tuple[int, int]]  # lane → (after, upto)
    processed: tuple[Processed, ...] = ()
    partials: tuple[Partial, ...] = ()
    stage_rows: tuple[StageRows, ...] = ()
    file_rows: tuple[FileRows, ...] = ()

    @property
    def shards(self) -> frozenset[int]:
        return frozenset(map(shard_of, self.spans))

    @property
    def runs(self) -> frozenset[str]:
        parts: Iterable[Processed | Partial | StageRows] = chain(
            self.processed, self.partials, self.stage_rows
        )
        return frozenset(part.run for part in parts)


@dataclass(frozen=True)
class Committed:
    """`repeated`: the batch was committed before, and nothing changed. `ignored` runs were over or
    deleted, and nothing of them was stored."""

    outcome: Literal["committed", "repeated"]
    ignored: frozenset[str] = field(default_factory=frozenset)


Step = Literal["batch", "final", "provisional"]

MOST_ATTEMPTS = 3
_STEPS: dict[Step, str] = {
    "batch": "a batch of it",
    "final": "the final step",
    "provisional": "the provisional step",
}
_WITHOUT_REASON = "the pipeline's process died without an error"


@dataclass(frozen=True)
class Attempt:
    """An attempt that has begun and not succeeded. No reason: its process died before it recorded one."""

    attempt: str
    reason: str | None = None


def verdict(step: Step, attempts: Sequence[Attempt]) -> str | None:
    """Return why there is no further attempt; None if another one is allowed."""
    if len(attempts) < MOST_ATTEMPTS:
        return None
    times = {3: "three times"}.get(len(attempts), f"{len(attempts)} times")
    last = attempts[-1].reason or _WITHOUT_REASON
    return f"{_STEPS[step]} was tried {times} and ended badly each time; the last time {last}"


MOST_SHARDS = 1024
EXPRESS_CHUNKS = 32  # of each table of a run: about four million rows


def lane_of(number: int, shards: int) -> int:
    """Return the lane of a chunk in a run with this many shards."""
    return lane_at(number % shards, number)


def lane_at(shard: int, position: int) -> int:
    """Return the lane of the chunk of a shard at this position in its table."""
    return shard if position < EXPRESS_CHUNKS else slow_lane(shard)


def slow_lane(shard: int) -> int:
    return MOST_SHARDS + shard


def shard_of(lane: int) -> int:
    return lane % MOST_SHARDS
