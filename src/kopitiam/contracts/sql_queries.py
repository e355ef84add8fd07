"""SQL queries over data sets: their ids, what is recorded about them, and the state that follows. No I/O.

A query has a folder of its own in storage for an hour. The gateway writes the request, a pipeline writes that
it has begun, then the result, and last the outcome. Any gateway can tell the state of a query from these
files, and a query that nobody computes ends by its age.
"""

import re
import secrets
from dataclasses import asdict, dataclass
from typing import Any, Literal

QUERY_ID = re.compile(r"[0-9a-f]{32}")
MAX_SQL_CHARACTERS = 20_000
MOST_SQL_SECONDS = 3_600
MOST_SQL_ROWS = 1_000_000
BEGIN_SECONDS = 60  # within which a pipeline has to begin
GRACE_SECONDS = 15  # to cancel a query and to store its outcome, in addition to its time limit
KEPT_SECONDS = 3_600
REQUEST_FILE = "request.json"
BEGUN_FILE = "begun.json"
OUTCOME_FILE = "status.json"
_TIME_DIGITS = 8

SqlState = Literal["waiting", "running", "done", "failed"]


def new_query_id(now: float) -> str:
    """Return an id that nobody can guess. It begins with the registry's time, so that the folder of a query
    has an age even if a crash left it incomplete."""
    return f"{int(now):0{_TIME_DIGITS}x}{secrets.token_hex(12)}"


def created_at(query: str) -> float:
    """Return the registry's time at which the query was sent."""
    return float(int(query[:_TIME_DIGITS], 16))


@dataclass(frozen=True)
class QueryRequest:
    """A query that was checked, and its limits."""

    data: str  # name of the data set
    sql: str
    version: int
    seconds: int
    rows: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class QueryBegun:
    """A pipeline computes the query, at most until its lease ends."""

    pipeline: str
    epoch: int
    holder: str
    at: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class ResultColumn:
    name: str
    kind: str  # text, integer, decimal, float, date, instant, boolean


@dataclass(frozen=True)
class QueryOutcome:
    """The end of a query: the size of its result and the file that holds it, or the error, in one line."""

    seconds: float
    columns: tuple[ResultColumn, ...] = ()
    rows: int = 0
    is_cut: bool = False  # the query has more rows; only these are kept
    result: str = ""
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "QueryOutcome":
        return cls(**{**values, "columns": tuple(ResultColumn(**column) for column in values["columns"])})


@dataclass(frozen=True)
class QueryRecord:
    """The files of a query."""

    query: str
    request: QueryRequest
    begun: QueryBegun | None
    outcome: QueryOutcome | None

    def state(self, now: float, is_pipeline_alive: bool) -> tuple[SqlState, str | None]:
        """Return the state at this time of the registry, and why it failed. `is_pipeline_alive`: the pipeline
        that has begun holds its lease.

        A query that has begun is not repeated, since it may be what ended its pipeline.
        """
        if self.outcome is not None:
            return ("failed", self.outcome.error) if self.outcome.error else ("done", None)
        if self.begun is None:
            if now - created_at(self.query) <= BEGIN_SECONDS:
                return "waiting", None
            reason = f"no pipeline has begun the query within {BEGIN_SECONDS} s"
            return "failed", f"{reason}: all are busy, or none is running; ask again"
        if not is_pipeline_alive:
            return "failed", "the pipeline that computed the query has stopped; ask again"
        if now - self.begun.at > self.request.seconds + GRACE_SECONDS:
            return "failed", "the pipeline has not answered in time; ask again"
        return "running", None
