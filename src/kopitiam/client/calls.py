"""The calls that a client makes, as functions: contracts in, contracts out."""

import base64
import hashlib
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
from kopitiam.contracts.runs import is_run_id
from kopitiam.results.forms import SUMMARY_FILE

_JSON = {"Content-Type": "application/json"}
Message = TypeVar("Message", bound=BaseModel)


class Calls:
    """Every call may be made again: a chunk has a number, an opening a key, END is the same END."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    def open_run(self, wanted: OpenRun) -> RunStatus:
        """Only with an idempotency key does a repetition not open a second run."""
        body = wanted.model_dump_json(exclude_none=True).encode()
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
        """Which set of answers to what has come so far can be had now."""
        asked = f"{_path(run)}/results/{SUMMARY_FILE}?provisional=true"
        found: str | None = self.transport.call("GET", asked).headers.get(ATTEMPT_HEADER)
        return found

    def fetch_result(self, run: str, file: str, target: Path, query: str = "") -> None:
        self.transport.fetch(f"{_path(run)}/results/{file}{query}", target)

    def fetch_rejected(self, run: str, target: Path) -> None:
        self.transport.fetch(f"{_path(run)}/rejected.csv", target)

    def _read(self, kind: type[Message], response: httpx.Response) -> Message:
        try:
            return kind.model_validate_json(response.content)
        except ValidationError:
            server = self.transport.server
            raise ServiceError(f"{server} does not answer as a Kopitiam gateway does") from None


def _path(run: str) -> str:
    """Only what is an id may become part of an address."""
    if not is_run_id(run):
        raise RunNotFound(f"no run {run!r}: an id has 16 to 32 letters and digits")
    return f"/runs/{run}"
