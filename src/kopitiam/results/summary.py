"""The account of a run: rows read = rows used + rows rejected, what was asked, what did not match."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from kopitiam.contracts.runs import TableState
from kopitiam.contracts.stages import ByTable
from kopitiam.questions.question_set import QuestionSet


@dataclass(frozen=True)
class RowCount:
    used: int
    rejected: int

    @property
    def read(self) -> int:
        return self.used + self.rejected


@dataclass(frozen=True)
class Coverage:
    """How much of a run provisional answers are about: rows processed, rows that have come, rows in all."""

    processed: int
    durable: int
    expected: int | None  # known when every table has had its END

    @property
    def share(self) -> float:
        """Of all rows, as far as they are known."""
        whole = self.durable if self.expected is None else self.expected
        return self.processed / whole if whole else 1.0

    def of_now(self, tables: Mapping[str, TableState]) -> "Coverage":
        """As much is processed as before, of what has come and is expected by now."""
        return replace(Coverage.of({}, tables), processed=self.processed)

    @classmethod
    def of(cls, processed: ByTable, tables: Mapping[str, TableState]) -> "Coverage":
        is_sealed = all(table.sealed for table in tables.values())
        return cls(
            sum(volume.rows for by_shard in processed.values() for volume in by_shard.values()),
            sum(table.rows for table in tables.values()),
            sum(table.expected_rows or 0 for table in tables.values()) if is_sealed else None,
        )


@dataclass(frozen=True)
class Summary:
    asked: QuestionSet
    tables: dict[str, RowCount]
    unmatched: dict[str, int]
    answers: dict[str, int]  # rows of each answer
    seconds: float
    coverage: Coverage | None = None  # of provisional answers
    fingerprint: str | None = None  # of the input as it was sent

    @property
    def read(self) -> int:
        return sum(count.read for count in self.tables.values())

    @property
    def used(self) -> int:
        return sum(count.used for count in self.tables.values())

    @property
    def rejected(self) -> int:
        return sum(count.rejected for count in self.tables.values())

    def to_dict(self) -> dict[str, Any]:
        coverage = {} if self.coverage is None else {"coverage": asdict(self.coverage)}
        fingerprint = {} if self.fingerprint is None else {"fingerprint": self.fingerprint}
        return {
            "questions": self.asked.to_dict(),
            "rows": {"read": self.read, "used": self.used, "rejected": self.rejected},
            "tables": {name: {"read": count.read, **asdict(count)} for name, count in self.tables.items()},
            "unmatched": self.unmatched,
            "answers": self.answers,
            "seconds": round(self.seconds, 2),
            **coverage,
            **fingerprint,
        }
