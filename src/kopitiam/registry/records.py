"""What the registry takes and gives, beside the contracts that all sides share."""

from dataclasses import dataclass, field
from typing import Any, Literal

from kopitiam.contracts.batches import Partial
from kopitiam.contracts.runs import ChunkRecord, Run, RunFigures, RunState, Span
from kopitiam.contracts.stages import ByTable, FlowByStage

RANK_DIGITS = 6
EndOutcome = Literal["sealed", "missing", "extra", "rows_differ", "conflict"]


@dataclass(frozen=True)
class Opened:
    run: Run
    is_new: bool  # False: an earlier call with the same key opened it


@dataclass(frozen=True)
class Wanted:
    """Which runs a listing is about; what is left out does not matter."""

    owner: str | None = None
    states: tuple[RunState, ...] = ()
    search: str = ""  # in the label, whatever the case, or the beginning of the id


@dataclass(frozen=True)
class Registered:
    """`conflict`: another body is durable under this number, and `chunk` is that one."""

    outcome: Literal["stored", "same", "conflict"]
    chunk: ChunkRecord


@dataclass(frozen=True)
class Ended:
    """What END led to. The table is sealed, or nothing was changed and the figures say why not.

    `conflict`: the table was sealed before, with other figures than those now asked for.
    """

    outcome: EndOutcome
    chunks: int  # durable
    rows: int
    expected_chunks: int  # as END said
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
    digests: dict[str, str] = field(default_factory=dict)  # of its files; none of an earlier version's


@dataclass(frozen=True)
class RunAccount:
    """All there is to tell of a run, as it was at one moment."""

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

    The holder is the random id of one life of a node. Epochs alone are not enough: they go back when the
    registry is restored from a back-up, and then two lives may have the same one.
    """

    name: str
    epoch: int
    holder: str


@dataclass(frozen=True)
class Lease:
    """A lease as the registry has it now. `overdue_seconds` is negative until it has run out."""

    epoch: int
    holder: str
    overdue_seconds: float

    @property
    def is_released(self) -> bool:
        return not self.holder

    @property
    def rank(self) -> int | None:
        """The rank of a holder that was made by `ranked_holder`."""
        rank, separator, _ = self.holder.partition(" ")
        return int(rank) if separator and rank.isdigit() else None


def ranked_holder(rank: int, holder: str) -> str:
    """The rank stands in front, in digits that compare as numbers do."""
    return f"{rank:0{RANK_DIGITS}d} {holder}"
