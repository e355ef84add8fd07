"""What gateway and client say to each other: the JSON of the HTTP calls under `/api/v1`."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

PARQUET = "application/vnd.apache.parquet"
CSV = "text/csv"
MOST_CHUNKS = 10_000_000
MOST_REJECTED_BYTES = 8 << 20  # of rows that a client set aside, in one call
MOST_REJECTED_PARTS = 99_999
MOST_QUESTIONS = 100  # in one run
ATTEMPT_HEADER = "Kopitiam-Attempt"  # which set of answers a file belongs to

Text = Annotated[str, Field(max_length=200, pattern=r"^[^\x00]*$")]  # no NUL: PostgreSQL keeps none
Number = Annotated[int, Field(ge=0, lt=MOST_CHUNKS)]
Count = Annotated[int, Field(ge=0, lt=2**53)]
QuestionName = Annotated[str, Field(pattern="^[a-z0-9_]{1,40}$")]
StageRole = Literal["check", "filter", "aggregate", "rank", "join", "publish"]


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AskedQuestions(_Message):
    """What a run asks. Parameters that are left out keep the gateway's default.

    `definitions` are own questions. `ask` names those to be answered, out of the catalog and `definitions`;
    without it all of `definitions` are asked, or the catalog if there are none.
    """

    years: tuple[int, int] | None = None
    hours: tuple[str, str] | None = None
    min_amount: Annotated[str, Field(max_length=40)] | None = None
    top: int | None = None
    ask: Annotated[list[QuestionName], Field(max_length=MOST_QUESTIONS)] | None = None
    definitions: Annotated[list[dict[str, Any]], Field(max_length=MOST_QUESTIONS)] = []


class OpenRun(_Message):
    label: Text = ""
    questions: AskedQuestions = AskedQuestions()
    idempotency_key: Annotated[Text, Field(min_length=1)] | None = None


class TableStatus(_Message):
    columns: list[str]  # of its normal form
    chunks: int
    rows: int
    expected_chunks: int | None
    expected_rows: int | None
    sealed: bool
    rejected: int
    processed: int  # chunks that have passed the stages before the barrier


class StageStatus(_Message):
    """One shard of a stage: chunks expected and processed, rows that came in and rows that went on."""

    role: StageRole
    expected: int | None
    processed: int
    rows: int
    rows_out: int


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
    tables: dict[str, list[str]]  # the columns that each must have for the questions of the catalog
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


class RejectedPage(_Message):
    """Some of the rows that were set aside, each with table, file, line, reason and the row itself."""

    columns: list[str]
    rows: list[list[str]]
    offset: int
    more: bool


class AnswerColumnView(_Message):
    name: str
    kind: str
    role: str  # key, measure, attribute, rank, matched
    shown: bool  # in the CSV file


class IndexColumn(AnswerColumnView):
    listed: bool  # in tables for people: all but marks of matching and ids that a name stands for
    matched: str | None  # of a name: the column that says whether its table has it


class ChartView(_Message):
    """What the chart of an answer shows; the chart itself is `{name}.svg`, `.png` or `.pdf`."""

    description: str
    caption: list[str]  # what it leaves out, adds up or sums up
    drawn: int  # rows of the answer
    rows: int


class PivotView(_Message):
    """An answer that may be shown with a line for each of `lines` and a column for each `period`."""

    lines: str
    label: str  # the column that names a line
    period: str
    figure: str
    most_periods: int


class AnswerView(_Message):
    name: str
    title: str
    about: str  # what was asked, with the parameters of the run
    file: str  # as which it is saved, without `.csv` or another ending
    rows: int
    columns: list[IndexColumn]
    chart: ChartView | None
    note: str  # why there is no chart
    pivot: PivotView | None


class AnswerIndex(_Message):
    """The answers of a run, all of one moment."""

    answers: list[AnswerView]
    summary: dict[str, Any]  # as summary.json has it; `coverage` says how much provisional answers are about
    provisional: bool
    attempt: str  # the set of answers, for other calls about the same moment


class QuestionView(_Message):
    """A question, and what follows from its definition."""

    name: str
    title: str
    builtin: bool
    definition: dict[str, Any]
    file: str  # of its answer as CSV
    reads: dict[str, list[str]]  # columns by table
    columns: list[AnswerColumnView]
    explains: list[str]  # what is read, kept, merged, ranked and shown


class Catalog(_Message):
    questions: list[QuestionView]


class CheckQuestions(_Message):
    """Definitions to be judged, as JSON or as the text of a TOML file."""

    definitions: Annotated[list[dict[str, Any]], Field(max_length=MOST_QUESTIONS)] = []
    toml: Annotated[str, Field(max_length=200_000)] = ""


class Flaw(_Message):
    line: int | None  # of the TOML text
    message: str


class CheckedQuestions(_Message):
    questions: list[QuestionView]
    flaws: list[Flaw]


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
    alarm: str | None = None  # reviving it did not help, or it lives and its work makes no progress
    heard_seconds_ago: float | None = None  # its last heartbeat, at this gateway
