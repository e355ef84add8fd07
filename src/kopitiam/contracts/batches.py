"""What the stream commits: how far it has read, what it has counted, and the partial results that it left
at rest. No I/O.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kopitiam.contracts.lanes import shard_of
from kopitiam.contracts.runs import Run
from kopitiam.contracts.stages import ByTable


@dataclass(frozen=True)
class Processed:
    """What one batch processed of a run's table in a shard; the registry adds it up."""

    run: str
    table: str
    shard: int
    chunks: int
    rows: int


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

    @property
    def shards(self) -> frozenset[int]:
        return frozenset(map(shard_of, self.spans))

    @property
    def runs(self) -> frozenset[str]:
        return frozenset(each.run for each in self.processed) | {each.run for each in self.partials}


@dataclass(frozen=True)
class Committed:
    """`repeated`: it was committed before, and nothing changed. Of the runs in `ignored`, which were over
    or gone, nothing was kept."""

    outcome: Literal["committed", "repeated"]
    ignored: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True)
class BarrierView:
    """A run before its barrier: what its shards have to process, what they have processed, and how many
    of its chunks are still ahead of them in the log."""

    run: Run
    expected: ByTable
    processed: ByTable
    pending: int
