"""Small folders of sales, the answers to them computed another way, and two ways to send them in small
chunks.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from services import ANSWER_SECONDS, SHARDS, Service, until

from kopitiam.client.calls import Calls
from kopitiam.client.client import RunHandle
from kopitiam.client.folder import open_folder
from kopitiam.client.http import Transport
from kopitiam.client.upload import Sending, upload
from kopitiam.contracts.api import CSV, OpenRun
from kopitiam.contracts.questions import ANSWERS, Questions
from kopitiam.contracts.stages import TABLES_OF_STAGE
from kopitiam.contracts.tables import TABLES
from kopitiam.synthetic import generate
from oracle import plain_answers, rows_of

Row = dict[str, str]
FEW = {"users": 60, "transactions": 400, "transaction_items": 400}
_SCALE = 0.00005  # 730 transactions, 1,450 items, 110 users
_BAD_CELLS = {"transactions": {"created_at": "yesterday"}, "transaction_items": {"quantity": "two"}}
_ANSWERS_OF_STAGE = {
    "max_products": ("2_1", "2_2"),
    "sum_tpv": ("3",),
    "top_customers": ("4",),
    "server_results": tuple(ANSWERS),
}
_SHOWS_TABLE = {  # a stage that no other table feeds
    "stores": "join_stores_top",
    "menu_items": "join_items",
    "users": "join_users",
    "transactions": "agg_purchases",
    "transaction_items": "agg_products",
}


@dataclass(frozen=True)
class Sales:
    """Good rows of each table and the answers to them; `folder` has a bad row here and there besides."""

    folder: Path
    rows: dict[str, list[Row]]
    answers: dict[str, bytes]

    def chunks(self, chunk_rows: int) -> dict[str, list[int]]:
        """How many rows each chunk of a table has, if so many are cut off at a time."""
        return {table: [len(part) for part in _cut(rows, chunk_rows)] for table, rows in self.rows.items()}

    def texts(self, table: str, chunk_rows: int) -> list[str]:
        """The good rows of a table in chunks of CSV."""
        return [_csv_of_rows(part) for part in _cut(self.rows[table], chunk_rows)]


def make_sales(folder: Path, seed: int, wanted: Mapping[str, int] = FEW) -> Sales:
    """So many rows of a table, from the first day to the last; all rows of tables that are not named."""
    generate(folder / "generated", _SCALE, seed)
    good = {}
    for table in TABLES:
        rows = list(rows_of(folder / "generated", table))
        count = wanted.get(table, len(rows))
        good[table] = rows[:: len(rows) // count][:count]
        bad = [good[table][0] | cells for cells in [_BAD_CELLS.get(table)] if cells]
        _write(folder / "good" / table / f"{table}.csv", _csv_of_rows(good[table]))
        _write(folder / "exports" / table / f"{table}.csv", _csv_of_rows(bad + good[table]))
    return Sales(folder / "exports", good, answers_to(folder / "good"))


def answers_to(folder: Path) -> dict[str, bytes]:
    """The bytes of each answer file, from a folder without bad rows."""
    rows = plain_answers(folder, Questions())
    return {name: _csv(answer.columns, rows[name]).encode() for name, answer in ANSWERS.items()}


def answers_in(folder: Path) -> dict[str, bytes]:
    return {name: (folder / answer.csv_name).read_bytes() for name, answer in ANSWERS.items()}


def stages_of(chunks: Mapping[str, Sequence[int]], answers: Mapping[str, bytes]) -> dict[str, Any]:
    """What is told of the stages of a run that is done, if its chunks have so many rows."""
    stages = {
        stage: {
            str(shard): _all_processed([rows for table in tables for rows in chunks[table][shard::SHARDS]])
            for shard in range(SHARDS)
        }
        for stage, tables in TABLES_OF_STAGE.items()
    }
    for stage, names in _ANSWERS_OF_STAGE.items():
        rows = sum(answers[name].count(b"\n") - 1 for name in names)
        stages[stage] = {"0": {"expected": 1, "processed": 1, "rows": rows}}
    return stages


def _all_processed(chunks: Sequence[int]) -> dict[str, int]:
    return {"expected": len(chunks), "processed": len(chunks), "rows": sum(chunks)}


class FolderClient:
    """What `kopi submit` does, but for the size of the chunks: it bears with a service that dies."""

    def __init__(self, service: Service, patience_seconds: float = ANSWER_SECONDS) -> None:
        self._patience_seconds = patience_seconds
        self._transport = Transport(service.url, patience_seconds=patience_seconds)
        self._calls = Calls(self._transport)

    def send(self, sales: Sales, chunk_rows: int, label: str) -> str:
        run = self._calls.open_run(OpenRun(label=label, idempotency_key=label)).run
        upload(self._calls, open_folder(sales.folder), run, Sending(chunk_rows=chunk_rows))
        return run

    def fetch(self, run: str, out: Path) -> None:
        handle = RunHandle(run, self._calls)
        handle.wait(self._patience_seconds)
        handle.download(out)

    def close(self) -> None:
        """Whoever still waits for the service does so no more."""
        self._transport.close()


@dataclass
class Upload:
    """A run that is sent chunk by chunk over plain HTTP, as `curl` would; `sent` keeps what was sent."""

    service: Service
    sent: Path
    run: str = field(init=False)
    chunks: dict[str, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        opened = self.service.http.post("/api/v1/runs", json={"label": self.sent.name})
        assert opened.status_code == 201, opened.text
        self.run = opened.json()["run"]
        self.chunks = {table: [] for table in TABLES}

    @property
    def rows(self) -> int:
        return sum(map(sum, self.chunks.values()))

    def send(self, table: str, *texts: str) -> None:
        for text in texts:
            number = len(self.chunks[table])
            response = self.put(table, number, text)
            assert response.status_code == 201, response.text
            self.chunks[table].append(response.json()["rows"])
            _write(self.sent / table / f"{table}_{number}.csv", text)

    def send_all(self, sales: Sales, chunk_rows: int, tables: Iterable[str] = TABLES) -> None:
        for table in tables:
            self.send(table, *sales.texts(table, chunk_rows))

    def put(self, table: str, number: int, text: str) -> httpx.Response:
        path = f"{self._path}/tables/{table}/chunks/{number}"
        return self.service.http.put(path, content=text.encode(), headers={"Content-Type": CSV})

    def end(self) -> None:
        for table, rows in self.chunks.items():
            figures = {"chunks": len(rows), "rows": sum(rows)}
            ended = self.service.http.post(f"{self._path}/tables/{table}/end", json=figures)
            assert ended.status_code == 200, ended.text

    def cancel(self) -> None:
        assert self.service.http.delete(self._path).status_code == 200

    def status(self) -> dict[str, Any]:
        return self.service.status(self.run)

    def waiting(self) -> int:
        """Chunks that are durable and not processed."""
        return sum(map(len, self.chunks.values())) - processed_chunks(self.status())

    def await_processed(self) -> None:
        until(lambda: self.waiting() == 0, ANSWER_SECONDS)

    def await_end(self, state: str = "done") -> dict[str, Any]:
        until(lambda: self.status()["state"] in {"done", "failed", "ended"}, ANSWER_SECONDS)
        status = self.status()
        assert status["state"] == state, status["error"]
        return status

    def result(self, file: str, **query: bool) -> httpx.Response:
        return self.service.http.get(f"{self._path}/results/{file}", params=query)

    def answers(self, **query: bool) -> dict[str, bytes]:
        return {name: self.result(f"{name}.csv", **query).content for name in ANSWERS}

    def expected(self) -> dict[str, bytes]:
        """The answers to what was sent so far; every table must have had a chunk."""
        return answers_to(self.sent)

    @property
    def _path(self) -> str:
        return f"/api/v1/runs/{self.run}"


def processed_chunks(status: Mapping[str, Any]) -> int:
    shards = (shard for stage in _SHOWS_TABLE.values() for shard in status["stages"][stage].values())
    return sum(shard["processed"] for shard in shards)


def _cut(rows: list[Row], chunk_rows: int) -> Iterator[list[Row]]:
    for first in range(0, len(rows), chunk_rows):
        yield rows[first : first + chunk_rows]


def _csv_of_rows(rows: list[Row]) -> str:
    return _csv(rows[0], [row.values() for row in rows])


def _csv(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
