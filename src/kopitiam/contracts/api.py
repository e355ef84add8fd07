"""The JSON of the HTTP calls under `/api/v1`, between client and gateway; that of data sets is in
`data_api`."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from kopitiam.contracts.api_types import Count, Text, WireMessage
from kopitiam.contracts.data_api import DataOfRun, DataStatus

PARQUET = "application/vnd.apache.parquet"
CSV = "text/csv"
MOST_CHUNKS = 10_000_000
MOST_REJECTED_BYTES = 8 << 20  # of rows that a client rejected, in one call
MOST_REJECTED_PARTS = 99_999
MOST_QUESTIONS = 100  # in one run
ATTEMPT_HEADER = "Kopitiam-Attempt"  # the attempt whose answers a file belongs to

Number = Annotated[int, Field(ge=0, lt=MOST_CHUNKS)]
QuestionName = Annotated[str, Field(pattern="^[a-z0-9_]{1,40}$")]
StageRole = Literal["check", "filter", "aggregate", "rank", "join", "publish"]


class AskedQuestions(WireMessage):
    """The questions of a run and their parameters; missing parameters have the gateway's defaults.

    `definitions` are the client's own questions. `ask` names the questions to answer, from the catalog and
    `definitions`; without it, all of `definitions` are asked, or the catalog if there are none.
    """

    years: tuple[int, int] | None = None
    hours: tuple[str, str] | None = None
    min_amount: Annotated[str, Field(max_length=40)] | None = None
    top: int | None = None
    ask: Annotated[list[QuestionName], Field(max_length=MOST_QUESTIONS)] | None = None
    definitions: list[dict[str, Any]] = Field(default_factory=list, max_length=MOST_QUESTIONS)


class OpenRun(WireMessage):
    label: Text = ""
    questions: AskedQuestions = AskedQuestions()
    idempotency_key: Annotated[Text, Field(min_length=1)] | None = None
    data: DataOfRun | None = None


class TableStatus(WireMessage):
    columns: list[str]  # of its normal form
    chunks: int
    rows: int
    expected_chunks: int | None
    expected_rows: int | None
    sealed: bool
    rejected: int
    processed: int  # chunks that have passed the stages before the barrier


class StageStatus(WireMessage):
    """One shard of a stage: chunks expected and processed, rows in and rows out."""

    role: StageRole
    expected: int | None
    processed: int
    rows: int
    rows_out: int


class RunStatus(WireMessage):
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
    data: DataStatus | None = None  # of a run over a data set


class RunList(WireMessage):
    runs: list[RunStatus]
    next: str | None  # the `before` of the next page
    total: int | None = None  # runs of all pages together


class StoredChunk(WireMessage):
    table: str
    number: int
    rows: int
    rejected: int
    digest: str  # hexadecimal SHA-256 of the body


class DurableChunks(WireMessage):
    """Chunks that are durable: a client that resumes does not send them again."""

    table: str
    rows: int
    chunks: list[StoredChunk]


class End(WireMessage):
    """END of a table: its number of chunks and rows, and of rows that the client rejected."""

    chunks: Count
    rows: Count
    rejected: Count = 0


class Sealed(WireMessage):
    table: str
    sealed: Literal[True] = True
    state: str  # of the run


class About(WireMessage):
    """Limits and defaults of the gateway, and whether it needs a token."""

    version: str
    needs_token: bool
    questions: dict[str, Any]
    tables: dict[str, list[str]]  # required columns by table, for the questions of the catalog
    layout: dict[str, list[str]]  # all columns by table that a question may name
    max_chunk_bytes: int
    max_chunk_rows: int
    lease_seconds: float


class AnswerPage(WireMessage):
    """A page of an answer, in its order; every cell is text, amounts exact to the last decimal."""

    answer: str
    columns: list[str]
    rows: list[list[str]]
    offset: int
    matched: int  # rows that match the search
    total: int  # rows of the answer
    provisional: bool


class RejectedPage(WireMessage):
    """A page of the rejected rows, each with table, file, line, reason and the row itself."""

    columns: list[str]
    rows: list[list[str]]
    offset: int
    more: bool


class AnswerColumnView(WireMessage):
    name: str
    kind: str
    role: str  # key, measure, attribute, rank, matched
    shown: bool  # in the CSV file


class IndexColumn(AnswerColumnView):
    listed: bool  # shown in tables: all except `…_is_matched` and ids whose name is shown
    matched: str | None  # for a name: the column that says whether the id was found in its table


class ChartView(WireMessage):
    """Description of the chart of an answer; the chart itself is `{name}.svg`, `.png` or `.pdf`."""

    description: str
    caption: list[str]  # what it leaves out or adds up
    drawn: int  # rows of the answer
    rows: int


class PivotView(WireMessage):
    """An answer that can be shown with a row for each of `lines` and a column for each `period`."""

    lines: str
    label: str  # the column that names a line
    period: str
    figure: str
    most_periods: int


class AnswerView(WireMessage):
    name: str
    title: str
    about: str  # the question in words, with the parameters of the run
    file: str  # name of its file, without extension
    rows: int
    columns: list[IndexColumn]
    chart: ChartView | None
    note: str  # why there is no chart
    pivot: PivotView | None
    unlisted: str  # why the rows behind its figures cannot be listed; empty: they can


class AnswerIndex(WireMessage):
    """The answers of a run, all of one attempt."""

    answers: list[AnswerView]
    summary: dict[str, Any]  # as in summary.json; `coverage`: the rows that provisional answers include
    provisional: bool
    attempt: str  # for other calls about the same answers


class QuestionView(WireMessage):
    """A question, and what is derived from its definition."""

    name: str
    title: str
    builtin: bool
    definition: dict[str, Any]
    file: str  # of its answer as CSV
    reads: dict[str, list[str]]  # columns by table
    columns: list[AnswerColumnView]
    explains: list[str]  # what is read, kept, merged, ranked and shown, in sentences


class Catalog(WireMessage):
    questions: list[QuestionView]


class CheckQuestions(WireMessage):
    """Definitions to check, as JSON or as the text of a TOML file."""

    definitions: list[dict[str, Any]] = Field(default_factory=list, max_length=MOST_QUESTIONS)
    toml: Annotated[str, Field(max_length=200_000)] = ""


class Flaw(WireMessage):
    line: int | None  # of the TOML text
    message: str


class CheckedQuestions(WireMessage):
    questions: list[QuestionView]
    flaws: list[Flaw]


class Problem(BaseModel):
    """Every refusal: a code for programs, a sentence for people, and sometimes figures."""

    model_config = ConfigDict(extra="allow", frozen=True)

    error: str
    message: str


class Node(WireMessage):
    name: str
    kind: Literal["gateway", "pipeline", "monitor", "service"]
    pid: int | None
    url: str | None
    state: Literal["starting", "alive", "dead", "stopped"]
    since: float
    epoch: int | None
    leader: bool
    alarm: str | None = None  # it cannot be revived, or it is alive and its work makes no progress
    host: str | None = None  # the machine it runs on
    heard_seconds_ago: float | None = None  # age of its last heartbeat at this gateway
