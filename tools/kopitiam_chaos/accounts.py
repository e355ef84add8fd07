"""What became of the rows of a run: every row once, or lost, or counted twice. No I/O."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kopitiam.contracts.stages import ByTable

_SHOWN_DIFFERENCES = 20


@dataclass(frozen=True)
class TableAccount:
    """Rows of one table: those there are, those that the answers account for, those that END promised to
    the pipeline, and those that the pipeline has committed."""

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
