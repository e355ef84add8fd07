"""The summary of a run: its questions, rows read = used + rejected, unmatched ids, the input's fingerprint.

How it is written to and read from `summary.json` is in `answer_files`.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from kopitiam.contracts.data_sets import DataUse
from kopitiam.contracts.progress import ByTable
from kopitiam.contracts.runs import ChunkRecord, TableState
from kopitiam.questions.question_set import QuestionSet


@dataclass(frozen=True)
class RowCount:
    """Rows of one table."""

    used: int
    rejected: int

    @property
    def read(self) -> int:
        return self.used + self.rejected


@dataclass(frozen=True)
class Coverage:
    """How much of a run provisional answers cover: rows processed, rows received, rows in all."""

    processed: int
    durable: int
    expected: int | None  # known once every table has its END

    @property
    def share(self) -> float:
        """Processed rows as a share of all rows, or of those received while the total is unknown."""
        whole = self.durable if self.expected is None else self.expected
        return self.processed / whole if whole else 1.0

    def of_now(self, tables: Mapping[str, TableState]) -> "Coverage":
        """The same processed rows, with the received and expected rows of these tables."""
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
class RunSummary:
    """Content of `summary.json`."""

    question_set: QuestionSet
    tables: dict[str, RowCount]
    unmatched: dict[str, int]
    answers: dict[str, int]  # rows by question
    seconds: float
    coverage: Coverage | None = None  # only of provisional answers
    fingerprint: str | None = None  # of the input as it was sent
    data: DataUse | None = None  # the data set that it answers over

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
        data = {} if self.data is None else {"data": self.data.to_dict()}
        return {
            "questions": self.question_set.to_dict(),
            "rows": {"read": self.read, "used": self.used, "rejected": self.rejected},
            "tables": {name: {"read": count.read, **asdict(count)} for name, count in self.tables.items()},
            "unmatched": self.unmatched,
            "answers": self.answers,
            "seconds": round(self.seconds, 2),
            **coverage,
            **fingerprint,
            **data,
        }


def fingerprint(chunks: Iterable[ChunkRecord]) -> str:
    """SHA-256 over table, number, rows and digest of every chunk, sorted.

    Two reports with the same fingerprint are about the same input. Order of arrival, shards and repeated
    uploads do not change it. The same folder sent by another client or as CSV has other chunks, so
    different fingerprints prove nothing.
    """
    lines = sorted(f"{chunk.table} {chunk.number:08d} {chunk.rows} {chunk.digest}\n" for chunk in chunks)
    return f"sha256:{hashlib.sha256(''.join(lines).encode()).hexdigest()}"
