"""The gateway's HTTP calls as methods. Retries and the translation of errors are in `http`."""

import base64
import hashlib
from collections.abc import Iterable, Iterator
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
from kopitiam.contracts.errors import RunNotFound, ServiceError
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

    def open_run(self, request: OpenRun) -> RunStatus:
        """Open a run. Without an idempotency key, a retry may open a second one."""
        body = request.model_dump_json(exclude_none=True).encode()
        return self._read(RunStatus, self.transport.call("POST", "/runs", body, _JSON))

    def status(self, run: str) -> RunStatus:
        return self._read(RunStatus, self.transport.call("GET", _path(run)))

    def cancel(self, run: str) -> RunStatus:
        return self._read(RunStatus, self.transport.call("DELETE", _path(run)))

    def page(self, limit: int, before: str | None) -> RunList:
        query = httpx.QueryParams({"limit": limit} | ({"before": before} if before is not None else {}))
        return self._read(RunList, self.transport.call("GET", f"/runs?{query}"))

    def durable(self, run: str, table: str) -> DurableChunks:
        return self._read(DurableChunks, self.transport.call("GET", f"{_path(run)}/tables/{table}/chunks"))

    def put_chunk(self, run: str, table: str, number: int, data: bytes) -> StoredChunk:
        digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
        headers = {"Content-Type": PARQUET, "Content-Digest": f"sha-256=:{digest}:"}
        path = f"{_path(run)}/tables/{table}/chunks/{number}"
        return self._read(StoredChunk, self.transport.call("PUT", path, data, headers))

    def put_rejected(self, run: str, table: str, data: bytes, part: int = 0, parts: int = 1) -> None:
        path = f"{_path(run)}/tables/{table}/rejected?part={part}&parts={parts}"
        self.transport.call("PUT", path, data, {"Content-Type": CSV})

    def end(self, run: str, table: str, end: End) -> Sealed:
        body = end.model_dump_json().encode()
        path = f"{_path(run)}/tables/{table}/end"
        return self._read(Sealed, self.transport.call("POST", path, body, _JSON))

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


def _statuses(lines: Iterable[str]) -> Iterator[RunStatus]:
    for line in lines:
        field, _, value = line.partition(":")
        if field == "data":
            try:
                yield RunStatus.model_validate_json(value)
            except ValidationError:
                raise ServiceError("the events are not those of a Kopitiam gateway") from None
