"""What the registry takes and gives, beside the contracts that all sides share."""

from dataclasses import dataclass
from typing import Any, Literal

from kopitiam.contracts.batches import Partial
from kopitiam.contracts.runs import ChunkRecord, Run, RunFigures, RunState, Span
from kopitiam.contracts.stages import ByTable

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


@dataclass(frozen=True)
class RunAccount:
    """All there is to tell of a run, as it was at one moment."""

    figures: RunFigures
    expected: ByTable  # of sealed tables
    processed: ByTable
    partials: tuple[Partial, ...]
    published: Published | None


@dataclass(frozen=True)
class Fence:
    """A lease under which something is written: if its epoch is stale, `StaleEpoch` and no effect."""

    name: str
    epoch: int


def ranked_holder(rank: int, holder: str) -> str:
    """The rank stands in front, in digits that compare as numbers do."""
    return f"{rank:0{RANK_DIGITS}d} {holder}"
