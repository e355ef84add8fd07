"""What `summary.json` beside the answers says: the questions asked, the rows read, the ids not found."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kopitiam.contracts.errors import UserError
from kopitiam.questions.question_set import QuestionSet
from kopitiam.verification.report import Figure
from kopitiam.verification.rows import RowCount

FILE = "summary.json"


@dataclass(frozen=True)
class Summary:
    asked: QuestionSet | None = None
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    unmatched: Mapping[str, Any] = field(default_factory=dict)
    answers: Mapping[str, Any] = field(default_factory=dict)
    trouble: str = ""


def read_summary(results: Path) -> Summary:
    """Nothing where the file is not there; `trouble` says why a file that is there does not serve."""
    path = results / FILE
    if not path.exists():
        return Summary()
    try:
        said = json.loads(path.read_bytes())
        asked = _asked(said["questions"]) if "questions" in said else None
        tables = {table: dict(counts) for table, counts in said.get("tables", {}).items()}
        return Summary(asked, tables, dict(said.get("unmatched", {})), dict(said.get("answers", {})))
    except (OSError, ValueError, TypeError, LookupError, AttributeError, UserError) as error:
        return Summary(trouble=f"{type(error).__name__}: {error}")


def _asked(said: Mapping[str, Any]) -> QuestionSet:
    return QuestionSet.from_dict({**said, "min_amount": str(said["min_amount"])})


def compare_summary(
    summary: Summary,
    counts: Mapping[str, RowCount],
    unmatched: Mapping[str, int],
    answers: Mapping[str, int],
) -> Iterator[Figure]:
    if summary.trouble:
        yield Figure(FILE, "a summary", summary.trouble)
    if summary.tables:
        for table, count in counts.items():
            yield from _compare_table(table, count, summary.tables.get(table, {}))
    if summary.unmatched:
        for table, missing in unmatched.items():
            found = summary.unmatched.get(table, "nothing")
            yield Figure(f"{FILE}: ids not found in {table}", missing, found)
    if summary.answers:
        for name, rows in answers.items():
            yield Figure(f"{FILE}: rows of answer {name}", rows, summary.answers.get(name, "nothing"))


def _compare_table(table: str, count: RowCount, said: Mapping[str, Any]) -> Iterator[Figure]:
    read, used, rejected = (said.get(key, "nothing") for key in ("read", "used", "rejected"))
    yield Figure(f"{FILE}: rows of {table} used", count.used, used)
    yield Figure(f"{FILE}: rows of {table} rejected", count.rejected, rejected)
    yield Figure(f"{FILE}: rows of {table} read", count.used + count.rejected, read)
