"""Runs: their states and transitions, and the records of runs, tables and chunks. No I/O.

    open ──▶ sealed ──▶ final ──▶ done
      └─────────┴─────────┴─────▶ failed, ended

A run is *open* while chunks come in, *sealed* when all its tables have had their END, *final* while
its answers are made, and then over: *done*, *failed* (its figures or work went wrong) or *ended* (by force).
"""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kopitiam.contracts.batches import shard_of
from kopitiam.contracts.data_sets import DataUse

RUN_ID = re.compile(r"[a-z0-9]{16,32}")


class RunState(StrEnum):
    OPEN = "open"
    SEALED = "sealed"
    FINAL = "final"
    DONE = "done"
    FAILED = "failed"
    ENDED = "ended"

    @property
    def is_over(self) -> bool:
        return not TRANSITIONS[self]


TRANSITIONS: dict[RunState, frozenset[RunState]] = {
    RunState.OPEN: frozenset({RunState.SEALED, RunState.FAILED, RunState.ENDED}),
    RunState.SEALED: frozenset({RunState.FINAL, RunState.FAILED, RunState.ENDED}),
    RunState.FINAL: frozenset({RunState.DONE, RunState.FAILED, RunState.ENDED}),
    RunState.DONE: frozenset(),
    RunState.FAILED: frozenset(),
    RunState.ENDED: frozenset(),
}
OVER = tuple(state for state in RunState if state.is_over)


def can_move(state: RunState, to: RunState) -> bool:
    return to in TRANSITIONS[state]


def new_run_id() -> str:
    return secrets.token_hex(12)


def is_run_id(text: str) -> bool:
    """Whether the text has the form of a run id; only such a text may become part of a path or a message."""
    return RUN_ID.fullmatch(text) is not None


@dataclass(frozen=True)
class Run:
    run: str
    label: str
    state: RunState
    questions: dict[str, Any]  # as QuestionSet.to_dict() gives them
    owner: str
    shards: int
    created_at: float
    lease_expires_at: float
    finished_at: float | None = None
    error: str | None = None
    data: DataUse | None = None  # the data set that the run sends files to, or asks
    is_purged: bool = False  # its owner has deleted it

    @property
    def cursor(self) -> tuple[float, str]:
        """The `before` of the next page of a listing."""
        return self.created_at, self.run


@dataclass(frozen=True)
class TableState:
    """Durable chunks and rows of a table, and those that its END expects, if it has come."""

    chunks: int = 0
    rows: int = 0
    rejected: int = 0
    expected_chunks: int | None = None
    expected_rows: int | None = None
    sealed: bool = False


@dataclass(frozen=True)
class Origin:
    """Where the file of a chunk lies that belongs to a data set: below its data file, not below a run."""

    file: str
    shard: int
    number: int


@dataclass(frozen=True)
class ChunkRecord:
    table: str
    number: int
    digest: str
    rows: int
    bytes: int
    rejected: int
    lane: int
    sequence: int
    landed: str | None = None  # digest of the file, which differs from that of a CSV body; None: unknown
    is_beside: bool = False  # the file's name has the digest, since an orphan had the plain name
    origin: Origin | None = None  # of a data set

    @property
    def shard(self) -> int:
        return shard_of(self.lane)


@dataclass(frozen=True)
class LogEntry:
    """An entry of a lane's chunk log, ordered by when the chunks became durable."""

    lane: int
    sequence: int
    run: str
    table: str
    number: int
    rows: int
    bytes: int

    @property
    def shard(self) -> int:
        return shard_of(self.lane)


@dataclass(frozen=True)
class RunFigures:
    """A run and its tables in one snapshot; `version` grows with every change."""

    run: Run
    tables: dict[str, TableState]
    version: int

    @property
    def rejected(self) -> int:
        return sum(table.rejected for table in self.tables.values())


Span = tuple[int, int]  # from the first number to the last, both included


def gaps(durable: Sequence[Span], count: int) -> tuple[Span, ...]:
    """Return the numbers below `count` that are not in these ordered spans, as spans."""
    missing: list[Span] = []
    next_number = 0
    for first, last in durable:
        if next_number < min(first, count):
            missing.append((next_number, min(first, count) - 1))
        next_number = last + 1
    if next_number < count:
        missing.append((next_number, count - 1))
    return tuple(missing)


def beyond(durable: Sequence[Span], count: int) -> tuple[Span, ...]:
    """Return the parts of these ordered spans from `count` on."""
    return tuple((max(first, count), last) for first, last in durable if last >= count)
