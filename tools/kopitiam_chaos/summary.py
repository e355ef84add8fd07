"""What came of it all, in figures; and whether it was as it has to be. No I/O."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kopitiam_chaos.accounts import RunOutcome
from kopitiam_chaos.ordeals import Ordeal


@dataclass(frozen=True)
class Spread:
    """Seconds, of which half of the cases, or all but one in a hundred, took no more."""

    count: int
    p50: float | None
    p99: float | None

    @classmethod
    def of(cls, seconds: Sequence[float | None]) -> "Spread":
        known = sorted(each for each in seconds if each is not None)
        return cls(len(known), _rank(known, 0.5), _rank(known, 0.99))

    def to_dict(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "p50": None if self.p50 is None else round(self.p50, 3),
            "p99": None if self.p99 is None else round(self.p99, 3),
        }


def _rank(known: Sequence[float], share: float) -> float | None:
    return known[max(0, math.ceil(share * len(known)) - 1)] if known else None


@dataclass(frozen=True)
class Summary:
    seed: int
    seconds: float
    planned: int
    ordeals: tuple[Ordeal, ...]
    is_whole: bool  # all victims came back, and the fleet was well in the end
    runs: tuple[RunOutcome, ...]
    clients: int
    clients_ended: int
    leaders_by_epoch: Mapping[int, tuple[str, ...]]
    flaws: tuple[str, ...]  # of epochs
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
        return Spread.of([ordeal.noticed_seconds for ordeal in self.ordeals])

    @property
    def revival(self) -> Spread:
        return Spread.of([ordeal.revived_seconds for ordeal in self.ordeals])

    @property
    def complaints(self) -> list[str]:
        """Nothing to say if everything was exact and everybody came back."""
        found = [
            f"client {run.client}, run {run.run}: {run.complaint}" for run in self.runs if not run.is_exact
        ]
        found += [
            f"{ordeal.name}: struck after {ordeal.at_seconds:.1f} s, and not back"
            for ordeal in self.ordeals
            if ordeal.revived_seconds is None
        ]
        if len(self.ordeals) < self.planned:
            found.append(f"only {len(self.ordeals)} of {self.planned} strikes could be made")
        if not self.is_whole:
            found.append("the fleet is not whole")
        found += [
            f"epoch {epoch} had {len(leaders)} leaders: {', '.join(leaders)}"
            for epoch, leaders in self.leaders_by_epoch.items()
            if len(leaders) != 1
        ]
        found += self.flaws
        if not self.runs:
            found.append("no run was made")
        if self.clients_ended < self.clients:
            found.append(f"{self.clients - self.clients_ended} of {self.clients} clients did not end")
        return found

    def to_dict(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "is_exact": not self.complaints,
            "complaints": self.complaints,
            "seconds": round(self.seconds, 3),
            "strikes": {"planned": self.planned, "made": len(self.ordeals)},
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
            "timeline": [ordeal.to_dict() for ordeal in self.ordeals],
            "run_list": [run.to_dict() for run in self.runs],
        }
