"""Data sets over HTTP, as with curl: name files, send what is not held, seal; ask, list, drop, delete."""

import hashlib
from typing import Any

import pytest
from gateway_client import GatewayClient, eventually, parquet_of
from gateways import Served

from catalog_tables import TABLES
from kopitiam.contracts.api import CSV, PARQUET
from kopitiam.contracts.messages import END_TOPICS, TableEnd

ROWS = 10


class DataClient:
    def __init__(self, client: GatewayClient, name: str = "sales") -> None:
        self.client, self.http, self.name = client, client.http, name

    def open(self, upload: bool = True, **data: Any) -> Any:
        return self.http.post("/api/v1/runs", json={"data": {"name": self.name, "upload": upload, **data}})

    def opened(self, **data: Any) -> str:
        response = self.open(**data)
        assert response.status_code == 201, response.text
        run: str = response.json()["run"]
        return run

    def names(self, run: str, *files: dict[str, Any]) -> Any:
        return self.http.post(f"/api/v1/runs/{run}/files", json={"files": list(files)})

    def send(self, run: str, *files: dict[str, Any], first: int = 1) -> list[dict[str, Any]]:
        """Name files, and send one chunk of each that is not held."""
        response = self.names(run, *files)
        assert response.status_code == 200, response.text
        statuses: list[dict[str, Any]] = response.json()["files"]
        for status in statuses:
            if not status["held"]:
                body = parquet_of(status["table"], ROWS, first)
                assert self.put(run, status["file"], 0, body).status_code in (200, 201)
                assert self.end(run, status["file"]).status_code == 200
        return statuses

    def put(self, run: str, file: str, number: int, body: bytes, media_type: str = PARQUET) -> Any:
        path = f"/api/v1/runs/{run}/files/{file}/chunks/{number}"
        return self.http.put(path, content=body, headers={"Content-Type": media_type})

    def end(self, run: str, file: str, chunks: int = 1, rows: int = ROWS, **more: int) -> Any:
        figures = {"chunks": chunks, "rows": rows, **more}
        return self.http.post(f"/api/v1/runs/{run}/files/{file}/end", json=figures)

    def seal(self, run: str, **version: int) -> Any:
        return self.http.post(f"/api/v1/runs/{run}/seal", json=version)

    def submit(self, *files: dict[str, Any], **options: int) -> str:
        run = self.opened()
        self.send(run, *files, **options)
        assert self.seal(run).status_code == 200
        return run

    def show(self, **query: Any) -> Any:
        return self.http.get(f"/api/v1/data/{self.name}", params=query)


def file_of(table: str, name: str = "", content: str = "") -> dict[str, Any]:
    columns = [column.name for column in TABLES[table].columns]
    digest = hashlib.sha256((content or table).encode()).hexdigest()
    return {"table": table, "name": name or f"{table}.csv", "digest": digest, "bytes": 99, "columns": columns}


EVERY = [file_of(table) for table in TABLES]


@pytest.fixture
def data(serve) -> DataClient:
    return DataClient(serve().client)


def test_what_is_sent_becomes_a_version_and_what_is_held_need_not_be_sent(data: DataClient) -> None:
    run = data.opened()
    assert data.client.status(run)["data"] == {
        "name": "sales", "upload": True, "seen": 0, "version": None, "changes": None,
    }  # fmt: skip
    data.send(run, *EVERY)
    sealed = data.seal(run).json()
    assert (sealed["state"], sealed["data"]["version"]) == ("sealed", 1)
    assert sealed["data"]["changes"] == {
        "added": 5, "replaced": 0, "kept": 0, "rows_added": 50, "rows_removed": 0,
    }  # fmt: skip
    assert {table["sealed"] for table in sealed["tables"].values()} == {True}
    later = data.opened()
    statuses = data.send(later, *EVERY[:2], file_of("users", content="other"))
    assert [status["held"] for status in statuses] == [True, True, False]
    assert data.seal(later).json()["data"]["changes"]["replaced"] == 1
    shown = data.show().json()
    assert [(version["version"], version["run"]) for version in shown["versions"]] == [(2, later), (1, run)]
    assert shown["versions"][0]["replaced"] == ["users/users.csv"]
    assert len(shown["files"]) == 5 and {file["rows"] for file in shown["files"]} == {ROWS}
    assert [data.show(version=number).status_code for number in (1, 2, 3)] == [200, 200, 404]
    (listed,) = data.http.get("/api/v1/data").json()["data_sets"]
    assert (listed["name"], listed["version"], listed["files"], listed["rows"]) == ("sales", 2, 5, 50)


def test_chunks_lie_under_their_file_and_stay_when_the_run_is_over(data: DataClient, serve) -> None:
    run = data.opened()
    (status, *_) = data.send(run, *EVERY)
    assert data.client.files_of(run) == []
    (stored,) = data.client.files_of(status["file"])
    assert stored.read_bytes() == parquet_of(status["table"])
    assert data.http.get(f"/api/v1/runs/{run}/files/{status['file']}/chunks").json()["rows"] == ROWS
    data.seal(run)
    assert data.client.cancel(run).json()["state"] == "ended"
    assert data.client.files_of(status["file"]) == [stored]
    assert data.open(upload=False).status_code == 201


def test_an_ask_is_sealed_at_once_and_announced(serve) -> None:
    served = serve()
    data = DataClient(served.client)
    ends: list[str] = []

    def note(message: Any) -> None:
        if isinstance(message, TableEnd):
            ends.append(message.run)

    served.gateway.bus.subscribe(END_TOPICS, note)
    data.submit(*EVERY)
    asked = data.open(upload=False).json()
    assert (asked["state"], asked["data"]["version"], asked["data"]["upload"]) == ("sealed", 1, False)
    assert asked["tables"]["users"]["expected_rows"] == ROWS
    eventually(lambda: ends.count(asked["run"]) == len(TABLES))
    assert data.open(upload=False, version=2).status_code == 404
    assert DataClient(served.client, "unknown").open(upload=False).json()["error"] == "no_data_set"


def test_a_run_is_described_that_lists_the_rows_behind_a_row_of_an_answer(data: DataClient) -> None:
    def behind(run: str, *keys: str) -> Any:
        return data.http.get(f"/api/v1/runs/{run}/results/3/rows-behind", params={"key": keys})

    run = data.submit(*EVERY)
    request = behind(run, "2024-H1", "1").json()
    assert request["data"] == {"name": data.name, "version": 1, "upload": False}
    (definition,) = request["questions"]["definitions"]
    assert definition["where"] == ["@year", "@hour", "year_half(created_at) = '2024-H1'", "store_id = 1"]
    assert definition["columns"] == [column.name for column in TABLES["transactions"].columns]
    opened = [data.http.post("/api/v1/runs", json=request) for _ in range(2)]
    assert [response.status_code for response in opened] == [201, 200]
    assert opened[0].json()["state"] == "sealed"
    assert behind(run, "2024-H1", "1 or 1=1").status_code == 422
    refused = behind(data.client.open_run(), "2024-H1", "1")
    assert (refused.status_code, refused.json()["error"]) == (409, "no_data_set")


def test_the_loser_of_two_seals_learns_the_newest_version(data: DataClient) -> None:
    data.submit(*EVERY)
    one, other = data.opened(), data.opened()
    data.send(one, file_of("transactions", "transactions_1.csv", "1"))
    data.send(other, file_of("transactions", "transactions_2.csv", "2"))
    assert data.seal(other).status_code == 200
    lost = data.seal(one)
    assert (lost.status_code, lost.json()["error"], lost.json()["newest"]) == (409, "version", 2)
    assert data.seal(one, version=2).json()["data"]["version"] == 3
    assert len(data.show().json()["files"]) == 7


def test_refusals_say_what_is_wrong(data: DataClient) -> None:
    plain = data.client.open_run()
    assert data.names(plain, *EVERY).json()["error"] == "no_data_set"
    run = data.opened()
    on_table = data.client.put(run, 0)
    assert (on_table.status_code, on_table.json()["error"]) == (409, "data_set")
    assert data.put(run, "0" * 24, 0, b"").status_code == 404
    bad = [
        file_of("users") | {"table": "customers"},
        file_of("users") | {"columns": ["user_id", "shoe_size"]},
        file_of("users") | {"columns": ["user_id"]},
        file_of("users") | {"name": "../users.csv"},
        file_of("users") | {"digest": "no"},
    ]
    assert {data.names(run, file).status_code for file in bad} == {422}
    (status,) = data.names(run, file_of("users")).json()["files"]
    changed = data.names(run, file_of("users", content="other"))
    assert (changed.status_code, changed.json()["error"]) == (409, "conflict")
    assert data.put(run, status["file"], 0, parquet_of("stores")).status_code == 422
    assert data.put(run, status["file"], 1, parquet_of("users")).status_code == 201
    missing = data.end(run, status["file"], 2, 2 * ROWS)
    assert (missing.status_code, missing.json()["missing"]) == (409, [[0, 0]])
    assert data.seal(run).json()["error"] == "files"
    assert data.put(run, status["file"], 0, parquet_of("users")).status_code == 201
    assert data.end(run, status["file"], 2, 2 * ROWS).status_code == 200
    lacking = data.seal(run)
    assert (lacking.status_code, lacking.json()["error"]) == (422, "data_missing")
    assert "no file of table stores" in lacking.json()["message"]
    for name in ("Sales", "1", "-", "a" * 41, ""):
        assert DataClient(data.client, name).open().status_code == 422, name


def test_rejected_rows_belong_to_the_file_and_to_every_run_over_it(data: DataClient) -> None:
    run = data.opened()
    data.send(run, *EVERY[:2], *EVERY[3:])
    (status,) = data.names(run, file_of("users")).json()["files"]
    body = b"user_id,birthdate\n1,1990-01-01\nbad,\n"
    assert data.put(run, status["file"], 0, body, CSV).json()["rejected"] == 1
    path = f"/api/v1/runs/{run}/files/{status['file']}/rejected"
    content = b"table,file,line,reason,row\nusers,users.csv,9,worse,w\n"
    assert data.http.put(path, content=content, headers={"Content-Type": CSV}).status_code == 204
    assert data.end(run, status["file"], 1, 1, rejected=1).status_code == 200
    data.seal(run)
    asked = data.open(upload=False).json()
    assert (asked["rejected"], asked["tables"]["users"]["rejected"]) == (2, 2)
    for each in (run, asked["run"]):
        text = data.http.get(f"/api/v1/runs/{each}/rejected.csv").text
        assert text.count("bad,") == text.count("worse") == text.count("table,file") == 1
        assert len(data.http.get(f"/api/v1/runs/{each}/rejected").json()["rows"]) == 2


def test_data_sets_belong_to_tokens(serve) -> None:
    served = serve(tokens={"anna": "a", "bert": "b"}, admin_token="c", max_data_sets=1)
    clients = {
        name: DataClient(GatewayClient(served.client.url, served.client.home.path, token))
        for name, token in (("anna", "a"), ("bert", "b"), ("admin", "c"))
    }
    clients["anna"].submit(*EVERY)
    assert clients["bert"].show().status_code == 404
    assert clients["bert"].open(upload=False).status_code == 404
    assert clients["bert"].show(owner="anna").status_code == 404
    assert clients["bert"].http.delete("/api/v1/data/sales").status_code == 404
    assert clients["admin"].show(owner="anna").json()["owner"] == "anna"
    assert [view["owner"] for view in clients["admin"].http.get("/api/v1/data").json()["data_sets"]] == [
        "anna"
    ]
    assert clients["bert"].http.get("/api/v1/data").json()["data_sets"] == []
    more = DataClient(clients["anna"].client, "more").open()
    assert (more.status_code, more.json()["error"]) == (409, "too_many_data_sets")


def paths_of(served: Served) -> list[str]:
    home = served.client.home.path
    places = ("landing", "partials", "rejected", "results")
    return [str(path) for place in places for path in (home / place).rglob("*") if path.is_file()]


def test_dropping_a_data_set_removes_its_files_and_runs(serve, monkeypatch) -> None:
    monkeypatch.setattr("kopitiam.gateway.removal.SETTLING_SECONDS", -1.0)
    served = serve()
    data = DataClient(served.client)
    run, uploading = data.submit(*EVERY), data.opened()
    data.send(uploading, file_of("users", "users_2.csv", "2"))
    assert len(paths_of(served)) == 6
    dropped = data.http.delete("/api/v1/data/sales")
    assert dropped.json() == {"name": "sales", "runs": 2}
    assert paths_of(served) == []
    for each in (run, uploading):
        assert data.http.get(f"/api/v1/runs/{each}").status_code == 404
    assert data.http.get("/api/v1/data").json() == {"data_sets": []}
    assert data.http.delete("/api/v1/data/sales").status_code == 404
    assert data.submit(*EVERY)


def test_a_deleted_run_is_gone_and_its_data_set_stays(serve, monkeypatch) -> None:
    monkeypatch.setattr("kopitiam.gateway.removal.SETTLING_SECONDS", -1.0)
    served = serve()
    data = DataClient(served.client)
    run, plain = data.submit(*EVERY), data.client.open_run()
    data.client.put(plain)
    for each in (run, plain):
        assert data.http.delete(f"/api/v1/runs/{each}", params={"purge": True}).status_code == 200
        assert data.http.get(f"/api/v1/runs/{each}").status_code == 404
        assert data.http.delete(f"/api/v1/runs/{each}").status_code == 404
    assert data.http.get("/api/v1/runs").json()["runs"] == []
    assert len(paths_of(served)) == len(EVERY)
    assert data.open(upload=False).status_code == 201
