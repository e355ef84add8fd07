"""A client for the tests: plain HTTP, rows to send, raw sockets for malformed and slow requests."""

import base64
import hashlib
import json
import socket
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pyarrow as pa
import pyarrow.parquet as pq

from catalog_tables import TABLES
from kopitiam.contracts.api import CSV, PARQUET
from kopitiam.contracts.layout import Home
from kopitiam.contracts.tables import Kind
from kopitiam.landing.chunks import encode
from trees import files_below
from waiting import eventually  # noqa: F401 - the tests take it from here

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def rows_of(table: str, count: int = 10, first: int = 1) -> pa.Table:
    """Return valid rows, the same for the same arguments."""
    numbers = range(first, first + count)
    cells: dict[Kind, Callable[[int], Any]] = {
        Kind.TEXT: lambda n: f"text-{n}",
        Kind.ID: lambda n: n,
        Kind.COUNT: lambda n: n % 7,
        Kind.MONEY: lambda n: n * 10_000 + 5,
        Kind.INSTANT: lambda n: NOON + timedelta(seconds=n),
        Kind.DATE: lambda n: date(1990, 1, 1) + timedelta(days=n % 9000),
    }
    columns = [[cells[column.kind](n) for n in numbers] for column in TABLES[table].columns]
    return pa.Table.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, TABLES[table].schema, strict=True)],
        schema=TABLES[table].schema,
    )


def parquet_of(table: str = "users", count: int = 10, first: int = 1) -> bytes:
    return encode(TABLES[table], rows_of(table, count, first))


def parquet_file(rows: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, **options)
    return bytes(sink.getvalue())


def digest_header(body: bytes) -> dict[str, str]:
    return {"Content-Digest": f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode()}:"}


class GatewayClient:
    def __init__(self, url: str, home: Path, token: str | None = None, verify: Any = True) -> None:
        self.url, self.home = url, Home(home)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.http = httpx.Client(base_url=url, headers=headers, timeout=60, verify=verify, trust_env=False)

    def open_run(self, **request: Any) -> str:
        response = self.http.post("/api/v1/runs", json=request)
        assert response.status_code == 201, response.text
        run: str = response.json()["run"]
        return run

    def put(
        self,
        run: str,
        number: int | str = 0,
        body: Any = None,
        table: str = "users",
        media_type: str | None = PARQUET,
        *,
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        body = parquet_of(table) if body is None else body
        digest = digest_header(body) if isinstance(body, bytes) else {}
        request_headers = ({"Content-Type": media_type} if media_type else {}) | digest | (headers or {})
        return self.http.put(f"{chunk_path(run, number, table)}", content=body, headers=request_headers)

    def put_csv(self, run: str, text: str, number: int = 0, table: str = "users") -> httpx.Response:
        return self.put(run, number, text.encode(), table, CSV)

    def end(
        self, run: str, table: str = "users", chunks: int = 1, rows: int = 10, **more: Any
    ) -> httpx.Response:
        figures = {"chunks": chunks, "rows": rows, **more}
        return self.http.post(f"/api/v1/runs/{run}/tables/{table}/end", json=figures)

    def seal(self, run: str) -> None:
        """Seal all five tables, empty."""
        for table in TABLES:
            assert self.end(run, table, 0, 0).status_code == 200

    def status(self, run: str) -> dict[str, Any]:
        response = self.http.get(f"/api/v1/runs/{run}")
        assert response.status_code == 200, response.text
        status_body: dict[str, Any] = response.json()
        return status_body

    def durable(self, run: str, table: str = "users") -> dict[int, str]:
        """Return the digests of the durable chunks by number."""
        chunks = self.http.get(f"/api/v1/runs/{run}/tables/{table}/chunks").json()["chunks"]
        return {chunk["number"]: chunk["digest"] for chunk in chunks}

    def cancel(self, run: str) -> httpx.Response:
        return self.http.delete(f"/api/v1/runs/{run}")

    def metric(self, name: str, **labels: str) -> float:
        spelled = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
        sample = f"{name}{{{spelled}}}" if spelled else name
        for line in self.http.get("/metrics").text.splitlines():
            if line.startswith(sample + " "):
                return float(line.split()[-1])
        return 0.0

    def file(self, run: str, number: int = 0, table: str = "users", shard: int = 0) -> Path:
        return self.home.chunk(run, table, shard, number)

    def incoming(self) -> list[Path]:
        return list(files_below(self.home.incoming))

    def files_of(self, run: str) -> list[Path]:
        return [path for path in files_below(self.home.path) if run in str(path)]


def chunk_path(run: str, number: int | str = 0, table: str = "users") -> str:
    return f"/api/v1/runs/{run}/tables/{table}/chunks/{number}"


class RawUpload:
    """A chunk that is sent piece by piece over a bare socket."""

    def __init__(
        self,
        url: str,
        run: str,
        size: int,
        number: int = 0,
        *,
        source: str = "127.0.0.1",
        path: str | None = None,
    ) -> None:
        """Connect from an address of this machine. With a path, POST there."""
        place = urlsplit(url)
        assert place.hostname and place.port
        self._socket = socket.create_connection((place.hostname, place.port), 20, (source, 0))
        target = f"POST {path}" if path else f"PUT {chunk_path(run, number)}"
        self.send(
            f"{target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {PARQUET}\r\n"
            f"Content-Length: {size}\r\n\r\n".encode()
        )

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def answer(self) -> tuple[int, dict[str, Any]]:
        data = b""
        while b"}" not in data:
            piece = self._socket.recv(65536)
            assert piece, data
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body)

    def ended(self) -> bool:
        """Wait until the gateway has closed the connection."""
        try:
            return self._socket.recv(65536) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self._socket.close()
