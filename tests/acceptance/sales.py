"""Small folders of sales, their answers computed without Spark, and two clients that send small chunks."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import httpx
from services import ANSWER_SECONDS, SHARDS, Service, until

from catalog_tables import TABLES
from kopitiam.client.calls import Calls
from kopitiam.client.folder import open_folder
from kopitiam.client.http import Transport
from kopitiam.client.run_handle import RunHandle
from kopitiam.client.upload import UploadOptions, upload
from kopitiam.contracts.api import CSV, OpenRun
from kopitiam.contracts.parameters import Parameters
from kopitiam.questions.catalog import builtin
from kopitiam.synthetic import generate
from oracle import plain_answers, rows_of

Row = dict[str, str]
FEW = {"users": 60, "transactions": 400, "transaction_items": 400}
_SCALE = 0.00005  # 730 transactions, 1,450 items, 110 users
_BAD_CELLS = {"transactions": {"created_at": "yesterday"}, "transaction_items": {"quantity": "two"}}
_BEFORE_BARRIER = {  # by table, in the order in which they are shown
    "stores": ["check_stores"],
    "menu_items": ["check_menu_items"],
    "users": ["check_users"],
    "transactions": ["filter_year", "filter_hour", "filter_amount", "filter_4", "agg_tpv", "agg_purchases"],
    "transaction_items": ["filter_year", "agg_products"],
}
_ANSWERS_OF_STAGE = {
    "max_products": ("2_1", "2_2"),
    "join_items": ("2_1", "2_2"),
    "sum_tpv": ("3",),
    "join_stores_tpv": ("3",),
    "top_customers": ("4",),
    "join_stores_top": ("4",),
    "join_users": ("4",),
    "server_results": tuple(builtin()),
}
_ROLES = {"agg": "aggregate", "max": "rank", "sum": "rank", "top": "rank", "server": "publish"}
BEFORE_BARRIER = list(dict.fromkeys(stage for stages in _BEFORE_BARRIER.values() for stage in stages))
BEHIND_BARRIER = list(_ANSWERS_OF_STAGE)


@dataclass(frozen=True)
class Sales:
    """Good rows of each table and their answers; `folder` also has some bad rows."""

    folder: Path
    rows: dict[str, list[Row]]
    answers: dict[str, bytes]

    def chunks(self, chunk_rows: int) -> dict[str, list[list[Row]]]:
        """The rows of each chunk of a table, with chunks of this size."""
        return {table: list(_cut(rows, chunk_rows)) for table, rows in self.rows.items()}

    def texts(self, table: str, chunk_rows: int) -> list[str]:
        """The good rows of a table in chunks of CSV."""
        return [_csv_of_rows(part) for part in _cut(self.rows[table], chunk_rows)]


def make_sales(folder: Path, seed: int, wanted: Mapping[str, int] = FEW) -> Sales:
    """Generate sales. `wanted` bounds the rows of a table; they are spread over all days."""
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
    rows = plain_answers(folder, Parameters())
    return {name: _csv(answer.shown, rows[name]).encode() for name, answer in builtin().items()}


def answers_in(folder: Path) -> dict[str, bytes]:
    return {name: (folder / answer.file_name("csv")).read_bytes() for name, answer in builtin().items()}


def stages_of(chunks: Mapping[str, Sequence[list[Row]]], answers: Mapping[str, bytes]) -> dict[str, Any]:
    """The stages of a finished run as its status must show them; the number of groups in partials is open."""
    stages: dict[str, Any] = {}
    for table, names in _BEFORE_BARRIER.items():
        for stage in names:
            shards = stages.setdefault(stage, {str(shard): _stage(stage) for shard in range(SHARDS)})
            for shard in range(SHARDS):
                shard_chunks = chunks[table][shard::SHARDS]
                rows = [row for chunk in shard_chunks for row in chunk]
                came, went = _through(stage, table, rows)
                shown = shards[str(shard)]
                shown["expected"] += len(shard_chunks)
                shown["processed"] += len(shard_chunks)
                shown["rows"] += came
                shown["rows_out"] = ANY if went is None else shown["rows_out"] + went
    for stage, names in _ANSWERS_OF_STAGE.items():
        rows = sum(answers[name].count(b"\n") - 1 for name in names)
        is_rank = _stage(stage)["role"] == "rank"
        figures = {"expected": 1, "processed": 1, "rows": ANY if is_rank else rows, "rows_out": rows}
        stages[stage] = {"0": _stage(stage) | figures}
    return stages


def _stage(name: str) -> dict[str, Any]:
    prefix = name.partition("_")[0]
    return {"role": _ROLES.get(prefix, prefix), "expected": 0, "processed": 0, "rows": 0, "rows_out": 0}


def _through(stage: str, table: str, rows: Sequence[Row]) -> tuple[int, int | None]:
    """Count the rows that come into a stage and those that leave it."""
    if stage.startswith("check_"):
        return len(rows), len(rows)
    parameters = Parameters()
    of_years = [
        row for row in rows if parameters.first_year <= int(row["created_at"][:4]) <= parameters.last_year
    ]
    in_hours = [row for row in of_years if parameters.opening <= row["created_at"][11:] <= parameters.closing]
    known = [row for row in of_years if row.get("user_id")]
    large = [row for row in in_hours if table == "transactions" and Decimal(row["final_amount"]) >= 75]
    return {
        "filter_year": (len(rows), len(of_years)),
        "filter_hour": (len(of_years), len(in_hours)),
        "filter_amount": (len(in_hours), len(large)),
        "filter_4": (len(of_years), len(known)),
        "agg_tpv": (len(in_hours), None),
        "agg_purchases": (len(known), None),
        "agg_products": (len(of_years), None),
    }[stage]


class FolderClient:
    """Uploads as `kopi submit` does, with smaller chunks; survives a restart of the service."""

    def __init__(self, service: Service, patience_seconds: float = ANSWER_SECONDS) -> None:
        self._patience_seconds = patience_seconds
        self._transport = Transport(service.url, patience_seconds=patience_seconds)
        self._calls = Calls(self._transport)

    def send(self, sales: Sales, chunk_rows: int, label: str) -> str:
        run = self._calls.open_run(OpenRun(label=label, idempotency_key=label)).run
        upload(self._calls, open_folder(sales.folder, TABLES), run, UploadOptions(chunk_rows=chunk_rows))
        return run

    def fetch(self, run: str, out: Path) -> None:
        handle = RunHandle(run, self._calls)
        handle.wait(self._patience_seconds)
        handle.download(out)

    def close(self) -> None:
        """Stop waiting for the service."""
        self._transport.close()


@dataclass
class Upload:
    """A run that is sent chunk by chunk over plain HTTP, as with `curl`; `sent` has the rows sent so far."""

    service: Service
    sent: Path
    run: str = field(init=False)
    chunks: dict[str, list[list[Row]]] = field(init=False)

    def __post_init__(self) -> None:
        opened = self.service.http.post("/api/v1/runs", json={"label": self.sent.name})
        assert opened.status_code == 201, opened.text
        self.run = opened.json()["run"]
        self.chunks = {table: [] for table in TABLES}

    @property
    def rows(self) -> int:
        return sum(len(chunk) for chunks in self.chunks.values() for chunk in chunks)

    def send(self, table: str, *texts: str) -> None:
        for text in texts:
            number = len(self.chunks[table])
            response = self.put(table, number, text)
            assert response.status_code == 201, response.text
            rows = list(csv.DictReader(io.StringIO(text)))
            assert response.json()["rows"] == len(rows)
            self.chunks[table].append(rows)
            _write(self.sent / table / f"{table}_{number}.csv", text)

    def send_all(self, sales: Sales, chunk_rows: int, tables: Iterable[str] = TABLES) -> None:
        for table in tables:
            self.send(table, *sales.texts(table, chunk_rows))

    def put(self, table: str, number: int, text: str) -> httpx.Response:
        path = f"{self._path}/tables/{table}/chunks/{number}"
        return self.service.http.put(path, content=text.encode(), headers={"Content-Type": CSV})

    def end(self) -> None:
        for table, chunks in self.chunks.items():
            figures = {"chunks": len(chunks), "rows": sum(map(len, chunks))}
            ended = self.service.http.post(f"{self._path}/tables/{table}/end", json=figures)
            assert ended.status_code == 200, ended.text

    def cancel(self) -> None:
        assert self.service.http.delete(self._path).status_code == 200

    def status(self) -> dict[str, Any]:
        return self.service.status(self.run)

    def waiting(self) -> int:
        """The number of chunks that are durable and not processed."""
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
        return {name: self.result(f"{name}.csv", **query).content for name in builtin()}

    def expected(self) -> dict[str, bytes]:
        """The answers over the rows sent so far; every table must have a chunk."""
        return answers_to(self.sent)

    @property
    def _path(self) -> str:
        return f"/api/v1/runs/{self.run}"


def processed_chunks(status: Mapping[str, Any]) -> int:
    return sum(table["processed"] for table in status["tables"].values())


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
