"""The account of a run: rows read = rows used + rows rejected, what was asked, what did not match."""

from dataclasses import asdict, dataclass
from typing import Any

from kopitiam.contracts.questions import Questions


@dataclass(frozen=True)
class RowCount:
    used: int
    rejected: int

    @property
    def read(self) -> int:
        return self.used + self.rejected


@dataclass(frozen=True)
class Summary:
    questions: Questions
    tables: dict[str, RowCount]
    unmatched: dict[str, int]
    answers: dict[str, int]  # rows of each answer
    seconds: float

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
        return {
            "questions": self.questions.to_dict(),
            "rows": {"read": self.read, "used": self.used, "rejected": self.rejected},
            "tables": {name: {"read": count.read, **asdict(count)} for name, count in self.tables.items()},
            "unmatched": self.unmatched,
            "answers": self.answers,
            "seconds": round(self.seconds, 2),
        }
