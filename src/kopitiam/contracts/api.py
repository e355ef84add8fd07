"""What gateway and client say to each other: the JSON of the HTTP calls under `/api/v1`."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from kopitiam.contracts.questions import Questions

PARQUET = "application/vnd.apache.parquet"
CSV = "text/csv"
MOST_CHUNKS = 10_000_000
MOST_REJECTED_BYTES = 8 << 20  # of rows that a client set aside, in one call
MOST_REJECTED_PARTS = 99_999
ATTEMPT_HEADER = "Kopitiam-Attempt"  # which set of answers a file belongs to

Text = Annotated[str, Field(max_length=200, pattern=r"^[^\x00]*$")]  # no NUL: PostgreSQL keeps none
Number = Annotated[int, Field(ge=0, lt=MOST_CHUNKS)]
Count = Annotated[int, Field(ge=0, lt=2**53)]
TableName = Literal["stores", "menu_items", "users", "transactions", "transaction_items"]


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Asked(_Message):
    """The parameters of the questions; what is left out keeps the gateway's default."""

    years: tuple[int, int] | None = None
    hours: tuple[str, str] | None = None
    min_amount: Annotated[str, Field(max_length=40)] | None = None
    top: int | None = None

    def above(self, defaults: Questions) -> Questions:
        return Questions.from_dict(defaults.to_dict() | self.model_dump(exclude_none=True))


class OpenRun(_Message):
    label: Text = ""
    questions: Asked = Asked()
    idempotency_key: Annotated[Text, Field(min_length=1)] | None = None


class TableStatus(_Message):
    chunks: int
    rows: int
    expected_chunks: int | None
    expected_rows: int | None
    sealed: bool
    rejected: int


class StageStatus(_Message):
    expected: int | None
    processed: int
    rows: int


class RunStatus(_Message):
    run: str
    label: str
    state: str
    questions: dict[str, Any]
    created_at: float
    finished_at: float | None
    tables: dict[str, TableStatus]
    stages: dict[str, dict[str, StageStatus]]
    rejected: int
    unmatched: int | None  # known when the run is done
    unmatched_by_table: dict[str, int] | None
    answers: dict[str, int] | None  # rows of each answer, when the run is done
    error: str | None


class RunList(_Message):
    runs: list[RunStatus]
    next: str | None  # the `before` of the next page
    total: int | None = None  # runs of all pages together


class StoredChunk(_Message):
    table: str
    number: int
    rows: int
    rejected: int
    digest: str  # hexadecimal SHA-256 of the body


class DurableChunks(_Message):
    """What need not be sent again."""

    table: str
    rows: int
    chunks: list[StoredChunk]


class End(_Message):
    """END: how many chunks and rows the table has; `rejected` rows were set aside by the client."""

    chunks: Count
    rows: Count
    rejected: Count = 0


class Sealed(_Message):
    table: str
    sealed: Literal[True] = True
    state: str  # of the run


class About(_Message):
    """What a client should know before it begins: limits, defaults, and whether a token is needed."""

    version: str
    needs_token: bool
    questions: dict[str, Any]
    tables: dict[str, list[str]]  # the columns that each must have
    max_chunk_bytes: int
    max_chunk_rows: int
    lease_seconds: float


class AnswerPage(_Message):
    """Some rows of an answer, in its order; every cell is text, amounts exact to the last decimal."""

    answer: str
    columns: list[str]
    rows: list[list[str]]
    offset: int
    matched: int  # rows that the search finds
    total: int  # rows of the answer
    provisional: bool


class Charts(_Message):
    """What is drawn of the answers: by chart, rows with numbers for the axes and exact text for people."""

    charts: dict[str, list[dict[str, Any]]]
    summary: dict[str, Any]  # as summary.json has it; `coverage` says how much provisional answers are about
    provisional: bool


class RejectedPage(_Message):
    """Some of the rows that were set aside, each with table, file, line, reason and the row itself."""

    columns: list[str]
    rows: list[list[str]]
    offset: int
    more: bool


class Problem(BaseModel):
    """Every refusal: a word for programs, a sentence for people, and sometimes figures."""

    model_config = ConfigDict(extra="allow", frozen=True)

    error: str
    message: str


class Node(_Message):
    name: str
    kind: Literal["gateway", "pipeline", "monitor", "service"]
    pid: int | None
    url: str | None
    state: Literal["starting", "alive", "dead", "stopped"]
    since: float
    epoch: int | None
    leader: bool
    alarm: str | None = None  # reviving it did not help
    heard_seconds_ago: float | None = None  # its last heartbeat, at this gateway
