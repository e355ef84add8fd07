"""The JSON of the HTTP calls about data sets and the files that a run sends to them."""

from typing import Annotated, Literal

from pydantic import Field

from kopitiam.contracts.api_types import Count, WireMessage
from kopitiam.contracts.data_sets import DATA_SET_NAME, MOST_FILES_A_CALL
from kopitiam.contracts.sql_queries import MAX_SQL_CHARACTERS, MOST_SQL_ROWS, MOST_SQL_SECONDS, SqlState

DataSetName = Annotated[str, Field(pattern=f"^{DATA_SET_NAME.pattern}$")]
FileName = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f/\\]+$")]
Version = Annotated[int, Field(ge=0, lt=2**53)]


class DataOfRun(WireMessage):
    """The data set of a new run. With `upload` the run sends files to it, and its seal makes the next
    version; without, the run asks a version that is there.

    `version` is the one to ask, or the newest one that the client saw before it sends; by default the newest.
    """

    name: DataSetName
    version: Version | None = None
    upload: bool = False


class DataChanges(WireMessage):
    """Files and rows by which a version differs from the one before it."""

    added: int
    replaced: int
    kept: int
    rows_added: int
    rows_removed: int


class DataStatus(WireMessage):
    """The data set of a run; version and changes are known when the run is sealed."""

    name: str
    upload: bool
    seen: int  # the newest version when the run was opened; 0: there was none
    version: int | None
    changes: DataChanges | None


class SourceFileView(WireMessage):
    """A file of an export: its text is known by its SHA-256, its place in the data set by table and name."""

    table: Annotated[str, Field(max_length=40)]
    name: FileName
    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    bytes: Count
    columns: Annotated[list[Annotated[str, Field(max_length=40)]], Field(min_length=1, max_length=40)]


class NameFiles(WireMessage):
    files: Annotated[list[SourceFileView], Field(min_length=1, max_length=MOST_FILES_A_CALL)]


class FileStatus(WireMessage):
    """A file of a run. If the data set holds it already, it need not be sent."""

    file: str
    table: str
    name: str
    digest: str
    columns: list[str]
    held: bool
    chunks: int
    rows: int
    rejected: int
    ended: bool


class FileList(WireMessage):
    files: list[FileStatus]


class SealRun(WireMessage):
    """`version` is the newest one that the client knows of; without it, the one it saw when it began."""

    version: Version | None = None


class DataVersionView(WireMessage):
    version: int
    run: str
    created_at: float
    changes: DataChanges
    added: list[str]  # table/name
    replaced: list[str]


class DataFileView(WireMessage):
    """A file of a version; `bytes` are those of its text."""

    table: str
    name: str
    digest: str
    bytes: int
    columns: list[str]
    chunks: int
    rows: int
    rejected: int


class DataSetView(WireMessage):
    name: str
    owner: str
    created_at: float
    version: int  # the newest; 0: the first upload is not sealed yet
    versions: int  # that are kept
    files: int  # of the newest version
    rows: int


class DataSetList(WireMessage):
    data_sets: list[DataSetView]


class DataSetDetail(WireMessage):
    """A data set: its versions, newest first, and the files of one of them."""

    name: str
    owner: str
    created_at: float
    version: int  # whose files are listed
    versions: list[DataVersionView]
    files: list[DataFileView]


class DroppedDataSet(WireMessage):
    name: str
    runs: int  # that are deleted with it


class RunSql(WireMessage):
    """A query over a version, by default the newest. Its limits are those of the gateway, or lower ones."""

    sql: Annotated[str, Field(min_length=1, max_length=MAX_SQL_CHARACTERS)]
    version: Version | None = None
    seconds: Annotated[int, Field(ge=1, le=MOST_SQL_SECONDS)] | None = None
    rows: Annotated[int, Field(ge=1, le=MOST_SQL_ROWS)] | None = None


class SqlColumn(WireMessage):
    name: str
    kind: Literal["text", "integer", "decimal", "float", "date", "instant", "boolean"]


class SqlQuery(WireMessage):
    """A query over a data set. `columns`, `rows` and `seconds` are known when it is done."""

    query: str
    data: str
    version: int
    sql: str
    state: SqlState
    created_at: float
    seconds: float | None
    columns: list[SqlColumn]
    rows: int
    cut: bool  # the query has more rows than its limit; only these are kept
    error: str | None  # why it failed, in one line
    again: bool  # it failed without an outcome, and may succeed if it is sent again


class SqlPage(WireMessage):
    """Rows of a result as exact texts; `matched` of `total` rows have the text that was searched for."""

    columns: list[str]
    rows: list[list[str]]
    offset: int
    matched: int
    total: int


class RemovedSql(WireMessage):
    query: str
