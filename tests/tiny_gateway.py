"""A minimal gateway for tests of the client: real HTTP, state in memory, faults on demand."""

import base64
import hashlib
import io
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from catalog_tables import TABLES
from kopitiam.contracts.api import (
    PARQUET,
    DurableChunks,
    End,
    OpenRun,
    RunList,
    RunStatus,
    Sealed,
    StoredChunk,
    TableStatus,
)
from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.runs import gaps, new_run_id
from kopitiam.questions.catalog import builtin, read_json
from kopitiam.questions.question_set import QuestionSet
from kopitiam.results.summary import RowCount, RunSummary
from spans import spans
from waiting import PATIENCE_SECONDS

FIRST_RUN = "0123456789abcdef"
_CHUNK = re.compile(r"/api/v1/runs/([a-z0-9]+)/tables/(\w+)/(chunks|rejected|end)(?:/(\d+))?")
_RUN = re.compile(r"/api/v1/runs/([a-z0-9]+)(?:/(rejected\.csv|results/.+))?")


class FakeTime:
    """A clock that advances only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self.on_sleep: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        self.on_sleep()

    def clock(self) -> float:
        return self.now


@dataclass
class Fault:
    """A failure of the next calls whose `METHOD path` matches."""

    matches: str
    times: int = 1
    status: int | None = None  # returned instead of the real response
    error: str = "busy"
    body: bytes | None = None  # instead of the JSON of a refusal
    retry_after: float | None = None
    is_stored: bool = False  # the call takes effect, only the response is lost


@dataclass
class TinyTable:
    chunks: dict[int, bytes] = field(default_factory=dict)
    rejected_csv: bytes = b""
    end: End | None = None

    @property
    def rows(self) -> int:
        return sum(_rows(data) for data in self.chunks.values())

    def read(self) -> pa.Table:
        """Return all rows received, in the order of the chunks."""
        return pa.concat_tables(pq.read_table(io.BytesIO(self.chunks[n])) for n in sorted(self.chunks))


@dataclass
class TinyRun:
    run: str
    asked: OpenRun
    state: str = "open"
    error: str | None = None
    polls_to_go: int = 0  # status requests before the run is done
    tables: dict[str, TinyTable] = field(default_factory=lambda: {name: TinyTable() for name in TABLES})


class RefusedError(Exception):
    def __init__(self, status: int, error: str, message: str, **figures: Any) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": error, "message": message, **figures}


class TinyGateway:
    def __init__(self, token: str | None = None) -> None:
        self.token = token
        self.runs: dict[str, TinyRun] = {}
        self.calls: list[str] = []  # "METHOD path" of every request
        self.headers: list[dict[str, str]] = []
        self.faults: list[Fault] = []
        self.open_gate = threading.Event()  # PUTs of chunks wait for it
        self.open_gate.set()
        self.polls_to_go = 0
        self.lock = threading.Lock()
        self._port = 0
        self._connections: set[socket.socket] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def count(self, pattern: str) -> int:
        return sum(re.search(pattern, call) is not None for call in self.calls)

    def puts(self, table: str) -> list[int]:
        """Return the sorted numbers of the chunks received, repetitions included."""
        matches = (re.fullmatch(rf"PUT .*/tables/{table}/chunks/(\d+)", call) for call in self.calls)
        return sorted(int(match[1]) for match in matches if match)

    def start(self) -> None:
        gateway = self

        class Handler(_Handler):
            tiny = gateway

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.005,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop as if killed: every connection breaks."""
        self.open_gate.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def fault_for(self, call: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.times and re.search(fault.matches, call):
                    fault.times -= 1
                    return fault
        return None

    def status(self, run: TinyRun) -> RunStatus:
        is_done = run.state == "done"
        return RunStatus(
            run=run.run,
            label=run.asked.label,
            state=run.state,
            questions=_asked(run).to_dict(),
            created_at=1.0,
            finished_at=2.0 if is_done else None,
            tables={name: _table_status(name, table, _asked(run)) for name, table in run.tables.items()},
            stages={},
            rejected=sum(table.end.rejected for table in run.tables.values() if table.end),
            unmatched=0 if is_done else None,
            unmatched_by_table=None,
            answers=dict.fromkeys(builtin(), 1) if is_done else None,
            error=run.error,
        )


class _Handler(BaseHTTPRequestHandler):
    tiny: TinyGateway
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body are sent together

    def setup(self) -> None:
        super().setup()
        self.tiny._connections.add(self.connection)

    def finish(self) -> None:
        self.tiny._connections.discard(self.connection)
        with suppress(OSError):
            super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _serve(self) -> None:
        call = f"{self.command} {urlsplit(self.path).path}"
        with self.tiny.lock:
            self.tiny.calls.append(call)
            self.tiny.headers.append(dict(self.headers))
        length = int(self.headers.get("Content-Length", 0))
        fault = self.tiny.fault_for(call)
        if fault and not fault.is_stored and fault.status is None:
            self.rfile.read(length // 2)
            self._hang_up()
            return
        body = self.rfile.read(length)
        if fault and fault.status is not None:
            after = {} if fault.retry_after is None else {"Retry-After": f"{fault.retry_after:g}"}
            self._answer(fault.status, fault.body or _problem(fault.error, "told to fail"), after)
            return
        status, answer = self._respond(body)
        if fault:
            self._hang_up()
        else:
            self._answer(status, answer)

    do_GET = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815

    def _respond(self, body: bytes) -> tuple[int, bytes]:
        try:
            if self.tiny.token and self.headers.get("Authorization") != f"Bearer {self.tiny.token}":
                raise RefusedError(401, "unauthorized", "no such token")
            path = urlsplit(self.path).path
            if match := _CHUNK.fullmatch(path):
                return self._table_call(self._run(match[1]), match[2], match[3], match[4], body)
            if path == "/api/v1/runs":
                return self._open(body) if self.command == "POST" else self._list()
            if match := _RUN.fullmatch(path):
                return self._run_call(self._run(match[1]), match[2])
            raise RefusedError(404, "not_found", f"nothing at {path}")
        except RefusedError as refusal:
            return refusal.status, json.dumps(refusal.body).encode()

    def _open(self, body: bytes) -> tuple[int, bytes]:
        asked = OpenRun.model_validate_json(body)
        with self.tiny.lock:
            for run in self.tiny.runs.values():
                if run.asked.idempotency_key == asked.idempotency_key:
                    return 200, _json(self.tiny.status(run))
            name = new_run_id() if self.tiny.runs else FIRST_RUN
            run = self.tiny.runs[name] = TinyRun(name, asked, polls_to_go=self.tiny.polls_to_go)
        return 201, _json(self.tiny.status(run))

    def _list(self) -> tuple[int, bytes]:
        query = parse_qs(urlsplit(self.path).query)
        names = sorted(self.tiny.runs)
        first = names.index(query["before"][0]) + 1 if "before" in query else 0
        page = names[first : first + int(query["limit"][0])]
        rest = page[-1] if first + len(page) < len(names) else None
        return 200, _json(RunList(runs=[self.tiny.status(self.tiny.runs[n]) for n in page], next=rest))

    def _run(self, name: str) -> TinyRun:
        if name not in self.tiny.runs:
            raise RefusedError(404, "not_found", f"no run {name}")
        return self.tiny.runs[name]

    def _run_call(self, run: TinyRun, what: str | None) -> tuple[int, bytes]:
        if what is None:
            if self.command == "DELETE" and run.state not in {"done", "failed"}:
                run.state = "ended"
            elif run.state == "sealed":
                run.polls_to_go -= 1
                run.state = "done" if run.polls_to_go < 0 else "sealed"
            return 200, _json(self.tiny.status(run))
        if what == "rejected.csv":
            return 200, b"".join(table.rejected_csv for table in run.tables.values())
        if run.state != "done":
            raise RefusedError(409, "conflict", f"run {run.run} is {run.state}")
        return 200, _result(run, what.removeprefix("results/"))

    def _table_call(
        self, run: TinyRun, name: str, what: str, number: str | None, body: bytes
    ) -> tuple[int, bytes]:
        table = run.tables[name]
        if self.command != "GET" and run.state in {"done", "failed", "ended"}:
            raise RefusedError(410, "over", f"run {run.run} is {run.state}")
        match what:
            case "rejected":
                later = parse_qs(urlsplit(self.path).query)["part"] != ["0"]
                table.rejected_csv = table.rejected_csv + body.partition(b"\n")[2] if later else body
                return 204, b""
            case "end":
                return self._end(run, name, table, End.model_validate_json(body))
            case _ if number is None:
                stored = [_stored(name, n, data) for n, data in sorted(table.chunks.items())]
                return 200, _json(DurableChunks(table=name, rows=table.rows, chunks=stored))
            case _:
                return self._store(name, table, int(number), body)

    def _store(self, name: str, table: TinyTable, number: int, body: bytes) -> tuple[int, bytes]:
        assert self.tiny.open_gate.wait(PATIENCE_SECONDS)
        digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
        if self.headers.get("Content-Type") != PARQUET:
            raise RefusedError(415, "unsupported", "expected Parquet")
        if self.headers.get("Content-Digest") != f"sha-256=:{digest}:":
            raise RefusedError(422, "digest", "the body is not what was sent")
        with self.tiny.lock:
            is_new = number not in table.chunks
            if table.chunks.setdefault(number, body) != body:
                raise RefusedError(409, "conflict", f"{name} chunk {number} is there with other bytes")
        return 201 if is_new else 200, _json(_stored(name, number, body))

    def _end(self, run: TinyRun, name: str, table: TinyTable, end: End) -> tuple[int, bytes]:
        if missing := gaps(spans(table.chunks), end.chunks):
            raise RefusedError(409, "incomplete", f"{name} is not complete", missing=missing)
        assert end.rows == table.rows
        table.end = end
        if all(other.end for other in run.tables.values()):
            run.state = "sealed"
        return 200, _json(Sealed(table=name, state=run.state))

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        with suppress(OSError):
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()

    def _hang_up(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def serving(token: str | None = None) -> Iterator[TinyGateway]:
    gateway = TinyGateway(token)
    gateway.start()
    try:
        yield gateway
    finally:
        gateway.stop()


def _result(run: TinyRun, file: str) -> bytes:
    if file == "summary.json":
        tables = {n: RowCount(t.rows, t.end.rejected if t.end else 0) for n, t in run.tables.items()}
        asked = _asked(run)
        unmatched = {"stores": 0, "menu_items": 0, "users": 0}
        return json.dumps(
            RunSummary(asked, tables, unmatched, dict.fromkeys(builtin(), 1), 1.0).to_dict()
        ).encode()
    name, form = file.split(".")
    if form != "parquet":
        return f"answer {name} as {form}\n".encode()
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({column: [f"{name}-{column}"] for column in builtin()[name].shown}), sink)
    return bytes(sink.getvalue())


def _asked(run: TinyRun) -> QuestionSet:
    questions = run.asked.questions
    parameters = questions.model_dump(exclude_none=True, exclude={"ask", "definitions"})
    return QuestionSet.select(
        Parameters.from_dict(parameters), read_json(questions.definitions), questions.ask
    )


def _table_status(name: str, table: TinyTable, asked: QuestionSet) -> TableStatus:
    return TableStatus(
        columns=list(asked.tables[name].schema.names),
        processed=0,
        chunks=len(table.chunks),
        rows=table.rows,
        expected_chunks=table.end.chunks if table.end else None,
        expected_rows=table.end.rows if table.end else None,
        sealed=table.end is not None,
        rejected=table.end.rejected if table.end else 0,
    )


def _stored(name: str, number: int, data: bytes) -> StoredChunk:
    digest = hashlib.sha256(data).hexdigest()
    return StoredChunk(table=name, number=number, rows=_rows(data), rejected=0, digest=digest)


def _rows(data: bytes) -> int:
    return int(pq.read_metadata(io.BytesIO(data)).num_rows)


def _problem(error: str, message: str) -> bytes:
    return json.dumps({"error": error, "message": message}).encode()


def _json(message: Any) -> bytes:
    return message.model_dump_json().encode()  # type: ignore[no-any-return]
