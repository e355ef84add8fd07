"""The report of a chaos run: what happened to nodes and runs, and whether every answer was exact. No I/O."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kopitiam.contracts.progress import ByTable
from kopitiam_chaos.plan import StrikeKind

_SHOWN_DIFFERENCES = 20


@dataclass
class StrikeRecord:
    """One strike and its consequences. Seconds are counted from the strike; the fields are the JSON keys."""

    number: int
    name: str
    deed: StrikeKind
    at_seconds: float  # since the start
    host: str = ""
    was_leader: bool = False
    hold_seconds: float = 0.0
    noticed_seconds: float | None = None  # None if never, for a node that woke in time
    revived_seconds: float | None = None
    is_replaced: bool = False
    runs_under_way: dict[str, str] = field(default_factory=dict)  # run and state at the strike

    def to_dict(self) -> dict[str, Any]:
        return {
            name: round(value, 3) if isinstance(value, float) else value for name, value in vars(self).items()
        }


@dataclass(frozen=True)
class TableAccount:
    """Row counts of one table: in the input, used and rejected according to the answers, expected by END, and
    committed by the pipeline."""

    there: int
    used: int
    rejected: int
    expected: int
    processed: int

    @property
    def lost(self) -> int:
        return max(0, self.there - self.used - self.rejected, self.expected - self.processed)

    @property
    def doubled(self) -> int:
        return max(0, self.used + self.rejected - self.there, self.processed - self.expected)


@dataclass(frozen=True)
class RowAccount:
    tables: Mapping[str, TableAccount]

    @property
    def there(self) -> int:
        return sum(table.there for table in self.tables.values())

    @property
    def lost(self) -> int:
        return sum(table.lost for table in self.tables.values())

    @property
    def doubled(self) -> int:
        return sum(table.doubled for table in self.tables.values())


@dataclass(frozen=True)
class RunOutcome:
    client: int
    run: str | None
    seconds: float
    rows: RowAccount | None = None
    differences: tuple[str, ...] = ()
    error: str | None = None

    @property
    def is_exact(self) -> bool:
        rows = self.rows
        return rows is not None and not (self.error or self.differences or rows.lost or rows.doubled)

    @property
    def complaint(self) -> str:
        if self.error or self.differences:
            return self.error or "; ".join(self.differences[:_SHOWN_DIFFERENCES])
        rows = self.rows
        return f"{rows.lost} rows lost, {rows.doubled} counted twice" if rows and not self.is_exact else ""

    def to_dict(self) -> dict[str, Any]:
        rows = self.rows
        return {
            "client": self.client,
            "run": self.run,
            "seconds": round(self.seconds, 3),
            "is_exact": self.is_exact,
            "rows": rows.there if rows else None,
            "rows_lost": rows.lost if rows else None,
            "rows_doubled": rows.doubled if rows else None,
            "differences": list(self.differences[:_SHOWN_DIFFERENCES]),
            "error": self.error,
        }


def processed_rows(processed: ByTable) -> dict[str, int]:
    return {table: sum(volume.rows for volume in by_shard.values()) for table, by_shard in processed.items()}


@dataclass(frozen=True)
class Spread:
    """Count, median and 99th percentile of durations in seconds."""

    count: int
    p50: float | None
    p99: float | None

    @classmethod
    def of(cls, seconds: Sequence[float | None]) -> "Spread":
        known = sorted(value for value in seconds if value is not None)
        return cls(len(known), _percentile(known, 0.5), _percentile(known, 0.99))

    def to_dict(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "p50": None if self.p50 is None else round(self.p50, 3),
            "p99": None if self.p99 is None else round(self.p99, 3),
        }


def _percentile(known: Sequence[float], share: float) -> float | None:
    return known[max(0, math.ceil(share * len(known)) - 1)] if known else None


@dataclass(frozen=True)
class ChaosReport:
    seed: int
    seconds: float
    planned: int
    records: tuple[StrikeRecord, ...]
    is_whole: bool  # all victims recovered, and the fleet was healthy at the end
    runs: tuple[RunOutcome, ...]
    clients: int
    clients_ended: int
    leaders_by_epoch: Mapping[int, tuple[str, ...]]
    violations: tuple[str, ...]  # of the rules of epochs
    actions_by_epoch: Mapping[int, Mapping[str, int]] = field(default_factory=dict)  # logged by each monitor

    @property
    def verified(self) -> int:
        return sum(run.is_exact for run in self.runs)

    @property
    def rows_lost(self) -> int:
        return sum(run.rows.lost for run in self.runs if run.rows)

    @property
    def rows_doubled(self) -> int:
        return sum(run.rows.doubled for run in self.runs if run.rows)

    @property
    def notice(self) -> Spread:
        return Spread.of([record.noticed_seconds for record in self.records])

    @property
    def revival(self) -> Spread:
        return Spread.of([record.revived_seconds for record in self.records])

    @property
    def complaints(self) -> list[str]:
        """Empty if every answer was exact and every victim recovered."""
        complaints = [
            f"client {run.client}, run {run.run}: {run.complaint}" for run in self.runs if not run.is_exact
        ]
        complaints += [
            f"{record.name}: struck after {record.at_seconds:.1f} s, not recovered"
            for record in self.records
            if record.revived_seconds is None
        ]
        if len(self.records) < self.planned:
            complaints.append(f"only {len(self.records)} of {self.planned} strikes could be made")
        if not self.is_whole:
            complaints.append("the fleet is not whole")
        complaints += [
            f"epoch {epoch} had {len(leaders)} leaders: {', '.join(leaders)}"
            for epoch, leaders in self.leaders_by_epoch.items()
            if len(leaders) != 1
        ]
        complaints += self.violations
        if not self.runs:
            complaints.append("no run was made")
        if self.clients_ended < self.clients:
            complaints.append(f"{self.clients - self.clients_ended} of {self.clients} clients did not end")
        return complaints

    def to_dict(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "is_exact": not self.complaints,
            "complaints": self.complaints,
            "seconds": round(self.seconds, 3),
            "strikes": {"planned": self.planned, "made": len(self.records)},
            "runs": {"made": len(self.runs), "verified": self.verified},
            "rows": {
                "there": sum(run.rows.there for run in self.runs if run.rows),
                "lost": self.rows_lost,
                "doubled": self.rows_doubled,
            },
            "clients": {"started": self.clients, "ended": self.clients_ended},
            "leaders_by_epoch": {str(epoch): list(names) for epoch, names in self.leaders_by_epoch.items()},
            "actions_by_epoch": {str(epoch): dict(count) for epoch, count in self.actions_by_epoch.items()},
            "notice_seconds": self.notice.to_dict(),
            "revive_seconds": self.revival.to_dict(),
            "timeline": [record.to_dict() for record in self.records],
            "run_list": [run.to_dict() for run in self.runs],
        }
