"""Messages between nodes over the bus, and the record of a node.

Messages may be lost, repeated or reordered, so counters are absolute and decisions follow from the registry;
a message only makes its receiver look there sooner. The types of fields limit their values, checked on
arrival: a name or an id may become part of a path, and a number goes into the registry.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from kopitiam.contracts.runs import RUN_ID
from kopitiam.contracts.sql_queries import QUERY_ID

VERSION: Literal[1] = 1
NodeKind = Literal["gateway", "pipeline", "monitor", "service"]
RunId = Annotated[str, msgspec.Meta(pattern=rf"\A{RUN_ID.pattern}\Z")]
QueryId = Annotated[str, msgspec.Meta(pattern=rf"\A{QUERY_ID.pattern}\Z")]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
Url = Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Instant = Annotated[float, msgspec.Meta(ge=0)]
Reason = Annotated[str, msgspec.Meta(max_length=1000)]


class _Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", kw_only=True):
    v: Literal[1] = VERSION


class TableEnd(_Message, frozen=True, tag="TABLE_END"):
    """A table is sealed; `shards` has the (chunks, rows) that each shard has to process, zero included."""

    run: RunId
    table: Name
    shards: dict[Count, tuple[Count, Count]]


class WorkerStats(_Message, frozen=True, tag="WORKER_STATS"):
    """Progress of a shard of a stage with a run; `expected` chunks are unknown before END."""

    run: RunId
    stage: Name
    shard: Count
    expected: Count | None
    processed: Count
    rows: Count


class WorkerEnd(_Message, frozen=True, tag="WORKER_END"):
    """A shard of a stage has processed all chunks that it expects of a run."""

    run: RunId
    stage: Name
    shard: Count
    processed: Count
    rows: Count


class BarrierForward(_Message, frozen=True, tag="BARRIER_FORWARD"):
    """The barrier of a run is open: the pipeline that receives this makes the answers."""

    run: RunId
    epoch: Count


class ProvisionalWanted(_Message, frozen=True, tag="PROVISIONAL_WANTED"):
    """A client asked for provisional answers."""

    run: RunId


class SqlRequest(_Message, frozen=True, tag="SQL_REQUEST"):
    """A client sent a query over a data set: the pipeline that receives this reads the request in storage."""

    query: QueryId
    data_set: RunId  # ids of data sets have the form of those of runs


class ForceEnd(_Message, frozen=True, tag="FORCE_END"):
    """These runs were ended by force; all nodes stop working on them."""

    runs: tuple[RunId, ...]
    reason: str


class Heartbeat(_Message, frozen=True, tag="HEARTBEAT", forbid_unknown_fields=False):
    """A node is alive. Heartbeats of other versions, with more or fewer fields, are accepted too: the leader
    names nodes of another version."""

    node: Name
    kind: NodeKind
    epoch: Count
    pid: Count
    url: Url | None
    sent_at: Instant
    alarm: Reason | None = None  # why the work makes no progress, though the node is alive
    host: Name | None = None
    version: Name | None = None


class Stopped(_Message, frozen=True, tag="STOPPED"):
    """A node stops on purpose, and is not to be revived."""

    node: Name
    epoch: Count


class Election(_Message, frozen=True, tag="ELECTION"):
    """Bully: a monitor asks whether a monitor with a higher id is alive."""

    sender: Count


class ElectionAnswer(_Message, frozen=True, tag="ANSWER"):
    """Bully: a monitor with a higher id is alive, and takes over the election."""

    sender: Count
    to: Count


class LeaderAnnouncement(_Message, frozen=True, tag="COORDINATOR"):
    """Bully: the sender leads, under this epoch of the registry."""

    sender: Count
    epoch: Count


Message = (
    TableEnd
    | WorkerStats
    | WorkerEnd
    | BarrierForward
    | ProvisionalWanted
    | SqlRequest
    | ForceEnd
    | Heartbeat
    | Stopped
    | Election
    | ElectionAnswer
    | LeaderAnnouncement
)


def progress_topic(stage: str, shard: int) -> str:
    return f"coordination.barrier.{stage}.{shard}"


PROGRESS_TOPICS = "coordination.barrier.*.*"
FINAL_QUEUE = "pipeline.final"  # BARRIER_FORWARD, for one pipeline
PROVISIONAL_QUEUE = "pipeline.provisional"
SQL_QUEUE = "pipeline.sql"


def end_topic(table: str) -> str:
    return f"coordination.end.{table}"


END_TOPICS = "coordination.end.*"
HEARTBEAT_TOPIC = "monitor.heartbeat"
ELECTION_TOPIC = "monitor.election"


NodeState = Literal["starting", "alive", "dead", "stopped"]


@dataclass(frozen=True)
class NodeRecord:
    """The state of a node in one epoch, since `since`."""

    name: str
    kind: NodeKind
    pid: int | None
    url: str | None
    state: NodeState
    since: float
    epoch: int
    alarm: str | None = None
    leader: bool = False
    host: str | None = None  # the machine it runs on; None if an earlier version reported it
