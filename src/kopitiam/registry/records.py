"""Records that the registry takes and returns, besides those in `contracts`, and checks of its arguments."""

from dataclasses import dataclass, field
from typing import Any, Literal

from kopitiam.contracts.batches import Partial
from kopitiam.contracts.progress import ByTable, FlowByStage
from kopitiam.contracts.runs import ChunkRecord, Run, RunFigures, Span
from kopitiam.questions.layout import LAYOUT

RANK_DIGITS = 6
LARGEST = 2**63 - 1  # the largest integer of the database
EndOutcome = Literal["sealed", "missing", "extra", "rows_differ", "conflict"]


@dataclass(frozen=True)
class Opened:
    run: Run
    is_new: bool  # False: an earlier call with the same key opened it


@dataclass(frozen=True)
class Registered:
    """The outcome of a registration. `conflict`: another body has this number, and `chunk` is its record."""

    outcome: Literal["stored", "same", "conflict"]
    chunk: ChunkRecord


@dataclass(frozen=True)
class Ended:
    """The outcome of END: the table is sealed, or nothing changed and the figures say why.

    `conflict`: the table was sealed before, with other figures than these.
    """

    outcome: EndOutcome
    chunks: int  # durable
    rows: int
    expected_chunks: int  # as in END
    expected_rows: int
    missing: tuple[Span, ...] = ()
    extra: tuple[Span, ...] = ()

    @property
    def sealed(self) -> bool:
        return self.outcome == "sealed"


@dataclass(frozen=True)
class Published:
    attempt: str
    figures: dict[str, Any]
    published_at: float
    digests: dict[str, str] = field(default_factory=dict)  # by file; empty if an earlier version published


@dataclass(frozen=True)
class RunAccount:
    """Everything the registry knows about a run, in one snapshot."""

    figures: RunFigures
    expected: ByTable  # of sealed tables
    processed: ByTable
    partials: tuple[Partial, ...]
    published: Published | None
    flows: FlowByStage  # of the stages before the barrier


@dataclass(frozen=True)
class Fence:
    """The lease under which a process writes. A write is refused with `StaleEpoch` unless the registry has
    this epoch **and** this holder for the name, checked in the transaction of the write.

    The holder is a random id, new at each start of a node. Epochs alone are not enough: they go back when
    the registry is restored from a backup, and then two starts may have the same one.
    """

    name: str
    epoch: int
    holder: str


@dataclass(frozen=True)
class Lease:
    """A lease as the registry has it now. `overdue_seconds` is negative until it expires."""

    epoch: int
    holder: str
    overdue_seconds: float

    @property
    def is_released(self) -> bool:
        return not self.holder

    @property
    def rank(self) -> int | None:
        """The rank in a holder that `ranked_holder` made; None for others."""
        rank, separator, _ = self.holder.partition(" ")
        return int(rank) if separator and rank.isdigit() else None


def ranked_holder(rank: int, holder: str) -> str:
    """Prefix the holder with its rank, in digits that compare as text like numbers."""
    return f"{rank:0{RANK_DIGITS}d} {holder}"


def require_table(table: str) -> None:
    """Raise `ValueError` unless the layout has this table."""
    if table not in LAYOUT:
        raise ValueError(f"no table {table!r}")


def require_counts(**counts: int) -> None:
    """Raise `ValueError` unless the database can store each count."""
    for name, count in counts.items():
        if not 0 <= count <= LARGEST:
            raise ValueError(f"{name} {count}: expected 0 to {LARGEST}")
