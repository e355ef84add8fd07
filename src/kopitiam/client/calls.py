"""The gateway's HTTP calls as methods. Retries and the translation of errors are in `http`."""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from kopitiam.client.http import Transport
from kopitiam.contracts.api import (
    ATTEMPT_HEADER,
    CSV,
    PARQUET,
    DurableChunks,
    End,
    OpenRun,
    RunList,
    RunStatus,
    Sealed,
    StoredChunk,
)
from kopitiam.contracts.data_api import (
    DataSetDetail,
    DataSetList,
    DroppedDataSet,
    FileList,
    FileStatus,
    NameFiles,
    RemovedSql,
    RunSql,
    SealRun,
    SourceFileView,
    SqlQuery,
)
from kopitiam.contracts.data_sets import DATA_SET_NAME, MOST_FILES_A_CALL
from kopitiam.contracts.errors import ConfigError, RunNotFound, ServiceError
from kopitiam.contracts.runs import RunState, is_run_id
from kopitiam.results.answer_files import SUMMARY_FILE

_JSON = {"Content-Type": "application/json"}
_RECONNECT_SECONDS = 0.5
Message = TypeVar("Message", bound=BaseModel)


class Calls:
    """The calls of one gateway. All of them are idempotent, so the transport may retry any of them:

    chunks are numbered, an opening carries an idempotency key, and a repeated END is the same END.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    @property
    def senders(self) -> int:
        return self.transport.connections

    def branch(self) -> "Calls":
        return Calls(self.transport.branch())

    def abandon(self) -> None:
        self.transport.abandon()

    def clock(self) -> float:
        return self.transport.clock()

    def sleep(self, seconds: float) -> None:
        self.transport.sleep(seconds)

    def open_run(self, request: OpenRun) -> RunStatus:
        """Open a run. Without an idempotency key, a retry may open a second one."""
        return self._read(RunStatus, self._post("/runs", request))

    def status(self, run: str) -> RunStatus:
        return self._read(RunStatus, self.transport.call("GET", _path(run)))

    def cancel(self, run: str) -> RunStatus:
        return self._read(RunStatus, self.transport.call("DELETE", _path(run)))

    def page(self, limit: int, before: str | None) -> RunList:
        query = httpx.QueryParams({"limit": limit} | ({"before": before} if before is not None else {}))
        return self._read(RunList, self.transport.call("GET", f"/runs?{query}"))

    # `place` is what chunks belong to: `tables/users`, or `files/…` with the id of a file of a data set.

    def durable(self, run: str, place: str) -> DurableChunks:
        return self._read(DurableChunks, self.transport.call("GET", f"{_path(run)}/{place}/chunks"))

    def put_chunk(self, run: str, place: str, number: int, data: bytes) -> StoredChunk:
        digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
        headers = {"Content-Type": PARQUET, "Content-Digest": f"sha-256=:{digest}:"}
        path = f"{_path(run)}/{place}/chunks/{number}"
        return self._read(StoredChunk, self.transport.call("PUT", path, data, headers))

    def put_rejected(self, run: str, place: str, data: bytes, part: int = 0, parts: int = 1) -> None:
        path = f"{_path(run)}/{place}/rejected?part={part}&parts={parts}"
        self.transport.call("PUT", path, data, {"Content-Type": CSV})

    def end(self, run: str, place: str, end: End) -> Sealed:
        return self._read(Sealed, self._post(f"{_path(run)}/{place}/end", end))

    def name_files(self, run: str, files: Sequence[SourceFileView]) -> list[FileStatus]:
        """Name the files that the run sends to its data set; some of them it may hold already."""
        path, named = f"{_path(run)}/files", list[FileStatus]()
        for first in range(0, len(files), MOST_FILES_A_CALL):
            request = NameFiles(files=list(files[first : first + MOST_FILES_A_CALL]))
            named += self._read(FileList, self._post(path, request)).files
        return named

    def seal(self, run: str, version: int) -> RunStatus:
        """Make the next version of the data set. Raises VersionConflict if `version` is not the newest."""
        return self._read(RunStatus, self._post(f"{_path(run)}/seal", SealRun(version=version)))

    def delete(self, run: str) -> RunStatus:
        """End the run if it is not over, and delete it with its answers."""
        return self._read(RunStatus, self.transport.call("DELETE", f"{_path(run)}?purge=true"))

    def data_sets(self) -> DataSetList:
        return self._read(DataSetList, self.transport.call("GET", "/data"))

    def data_set(self, name: str, version: int | None = None) -> DataSetDetail:
        query = "" if version is None else f"?version={version}"
        return self._read(DataSetDetail, self.transport.call("GET", f"{_data_path(name)}{query}"))

    def drop_data_set(self, name: str) -> DroppedDataSet:
        return self._read(DroppedDataSet, self.transport.call("DELETE", _data_path(name)))

    def run_sql(self, name: str, request: RunSql) -> SqlQuery:
        """Send a query. If the response is lost, the retry sends another; the first ends by itself."""
        return self._read(SqlQuery, self._post(f"{_data_path(name)}/sql", request))

    def sql_query(self, name: str, query: str, wait_seconds: float = 0.0) -> SqlQuery:
        path = f"{_data_path(name)}/sql/{query}?wait={wait_seconds:g}"
        return self._read(SqlQuery, self.transport.call("GET", path))

    def remove_sql(self, name: str, query: str) -> RemovedSql:
        return self._read(RemovedSql, self.transport.call("DELETE", f"{_data_path(name)}/sql/{query}"))

    def sql_result(self, name: str, file: str) -> bytes:
        return self.transport.call("GET", f"{_data_path(name)}/sql/{file}").content

    def fetch_sql(self, name: str, file: str, target: Path) -> None:
        self.transport.fetch(f"{_data_path(name)}/sql/{file}", target)

    def result(self, run: str, file: str) -> bytes:
        return self.transport.call("GET", f"{_path(run)}/results/{file}").content

    def provisional_attempt(self, run: str) -> str | None:
        """Return the id of the newest set of provisional answers, None if the gateway does not name it."""
        path = f"{_path(run)}/results/{SUMMARY_FILE}?provisional=true"
        attempt: str | None = self.transport.call("GET", path).headers.get(ATTEMPT_HEADER)
        return attempt

    def fetch_result(self, run: str, file: str, target: Path, query: str = "") -> None:
        self.transport.fetch(f"{_path(run)}/results/{file}{query}", target)

    def fetch_rejected(self, run: str, target: Path) -> None:
        self.transport.fetch(f"{_path(run)}/rejected.csv", target)

    def watch(self, run: str) -> Iterator[RunStatus]:
        """Yield the status of a run at once and after every change, until the run is over.

        Reconnects when the stream of events breaks.
        """
        path = f"{_path(run)}/events"
        while True:
            for status in _statuses(self.transport.lines(path)):
                yield status
                if RunState(status.state).is_over:
                    return
            self.transport.sleep(_RECONNECT_SECONDS)

    def _post(self, path: str, request: BaseModel) -> httpx.Response:
        body = request.model_dump_json(exclude_none=True).encode()
        return self.transport.call("POST", path, body, _JSON)

    def _read(self, kind: type[Message], response: httpx.Response) -> Message:
        try:
            return kind.model_validate_json(response.content)
        except ValidationError:
            server = self.transport.server
            raise ServiceError(f"{server}: the response is not that of a Kopitiam gateway") from None


def _path(run: str) -> str:
    """Return the path of a run. Raises RunNotFound for a text that is not an id: it must not enter a URL."""
    if not is_run_id(run):
        raise RunNotFound(f"no run {run!r}: an id has 16 to 32 letters and digits")
    return f"/runs/{run}"


def _data_path(name: str) -> str:
    """Return the path of a data set. Raises ConfigError for a text that is not a name."""
    if not DATA_SET_NAME.fullmatch(name):
        raise ConfigError(
            f"data set {name!r}: expected up to 40 small letters, digits, - and _, beginning with a letter"
        )
    return f"/data/{name}"


def _statuses(lines: Iterable[str]) -> Iterator[RunStatus]:
    for line in lines:
        field, _, value = line.partition(":")
        if field == "data":
            try:
                yield RunStatus.model_validate_json(value)
            except ValidationError:
                raise ServiceError("the events are not those of a Kopitiam gateway") from None
