"""What nodes tell each other over the bus. Counters are absolute and messages may be lost, repeated or
reordered: none of them is the truth, which is in the registry; they only make it travel faster.
"""

from typing import Literal

import msgspec

VERSION: Literal[1] = 1
NodeKind = Literal["gateway", "pipeline", "monitor", "service"]


class _Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", kw_only=True):
    v: Literal[1] = VERSION


class TableEnd(_Message, frozen=True, tag="TABLE_END"):
    """A table is sealed: what each of its shards has to process, as (chunks, rows), zero included."""

    run: str
    table: str
    shards: dict[int, tuple[int, int]]


class WorkerStats(_Message, frozen=True, tag="WORKER_STATS"):
    """How far a shard of a stage is with a run; `expected` chunks are unknown before END."""

    run: str
    stage: str
    shard: int
    expected: int | None
    processed: int
    rows: int


class WorkerEnd(_Message, frozen=True, tag="WORKER_END"):
    """A shard of a stage has processed all that it expects of a run."""

    run: str
    stage: str
    shard: int
    processed: int
    rows: int


class BarrierForward(_Message, frozen=True, tag="BARRIER_FORWARD"):
    """The barrier of a run is open: whoever gets this makes the answers."""

    run: str
    epoch: int


class ProvisionalWanted(_Message, frozen=True, tag="PROVISIONAL_WANTED"):
    """Somebody would like to see what the answers are so far."""

    run: str


class ForceEnd(_Message, frozen=True, tag="FORCE_END"):
    """These runs were ended by force; all nodes drop what they have of them."""

    runs: tuple[str, ...]
    reason: str


class Heartbeat(_Message, frozen=True, tag="HEARTBEAT"):
    node: str
    kind: NodeKind
    epoch: int
    pid: int
    url: str | None
    sent_at: float


class Stopped(_Message, frozen=True, tag="STOPPED"):
    """A node leaves on purpose, and is not to be revived."""

    node: str
    epoch: int


class Election(_Message, frozen=True, tag="ELECTION"):
    """Bully: a monitor asks those with higher ids whether one of them lives."""

    sender: int


class Answer(_Message, frozen=True, tag="ANSWER"):
    """Bully: a higher one lives, and takes the election over."""

    sender: int
    to: int


class Coordinator(_Message, frozen=True, tag="COORDINATOR"):
    """Bully: the sender leads, under this epoch of the registry."""

    sender: int
    epoch: int


Message = (
    TableEnd
    | WorkerStats
    | WorkerEnd
    | BarrierForward
    | ProvisionalWanted
    | ForceEnd
    | Heartbeat
    | Stopped
    | Election
    | Answer
    | Coordinator
)


def progress_topic(stage: str, shard: int) -> str:
    return f"coordination.barrier.{stage}.{shard}"


PROGRESS_TOPICS = "coordination.barrier.*.*"
FINAL_QUEUE = "pipeline.final"  # BARRIER_FORWARD: one pipeline gets it
PROVISIONAL_QUEUE = "pipeline.provisional"


def end_topic(table: str) -> str:
    return f"coordination.end.{table}"


END_TOPICS = "coordination.end.*"
HEARTBEAT_TOPIC = "monitor.heartbeat"
ELECTION_TOPIC = "monitor.election"
