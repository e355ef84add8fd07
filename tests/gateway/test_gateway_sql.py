"""SQL over HTTP: queries are checked and handed to a pipeline, results are served in every form, and whatever
is killed, a query ends. The pipeline here is a stand-in that writes what a test gives it."""

import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gateway_client import GatewayClient, eventually
from gateways import Served
from gateways import served as served_at
from test_gateway_data_sets import EVERY, DataClient

from kopitiam import Client
from kopitiam.contracts.errors import DataMissing, DataSetNotFound, QuestionError, Unavailable
from kopitiam.contracts.messages import SQL_QUEUE, Message, SqlRequest
from kopitiam.contracts.sql_queries import (
    BEGIN_SECONDS,
    GRACE_SECONDS,
    KEPT_SECONDS,
    QueryBegun,
    QueryOutcome,
    ResultColumn,
    new_query_id,
)
from kopitiam.gateway.janitor import sweep
from kopitiam.gateway.sql_queries import MOST_ACTIVE, MOST_KEPT
from kopitiam.results.query_files import QueryFolder

NOON = datetime(2024, 1, 2, 12)
SELECT = "select store_id, store_name from stores"
ROWS = pa.table({
    "n": pa.array([1, None], pa.int64()),
    "total, RM": pa.array([Decimal("900000000000.0001"), Decimal("75.5000")], pa.decimal128(19, 4)),
    "name": ["=1+1", 'a "b"'],
    "at": pa.array([NOON, NOON.replace(microsecond=250_000)], pa.timestamp("us")),
})  # fmt: skip
KINDS = ("integer", "decimal", "text", "instant")
OUTCOME = QueryOutcome(
    1.5, tuple(map(ResultColumn, ROWS.column_names, KINDS)), ROWS.num_rows, True, "result-1.parquet"
)


class SqlClient(DataClient):
    @property
    def path(self) -> str:
        return f"/api/v1/data/{self.name}/sql"

    def run(self, sql: str = SELECT, **fields: Any) -> Any:
        return self.http.post(self.path, json={"sql": sql, **fields})

    def sent(self, sql: str = SELECT, **fields: Any) -> str:
        response = self.run(sql, **fields)
        assert response.status_code == 202, response.text
        return str(response.json()["query"])

    def get(self, below: str, **query: Any) -> Any:
        return self.http.get(f"{self.path}/{below}", params=query)


def folder_of(served: Served, query: str) -> QueryFolder:
    (key,) = served.gateway.storage.find(f"queries/data=*/query={query}")
    return QueryFolder(served.gateway.storage, key.parent.name.removeprefix("data="), query)


def finish(served: Served, query: str, outcome: QueryOutcome = OUTCOME) -> None:
    folder = folder_of(served, query)
    if outcome.result:
        folder.write_result(outcome.result, ROWS, served.gateway.incoming)
    folder.write_outcome(outcome)


@contextmanager
def pipeline(served: Served, outcome: QueryOutcome = OUTCOME) -> Iterator[list[str]]:
    """Answer every query inside the block. Gives their ids, one entry for each message."""
    received: list[str] = []

    def answer(message: Message) -> None:
        assert isinstance(message, SqlRequest)
        received.append(message.query)
        finish(served, message.query, outcome)

    subscription = served.gateway.bus.consume(SQL_QUEUE, answer)
    try:
        yield received
    finally:
        subscription.cancel()


World = tuple[Served, SqlClient]


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway that all tests here share, each with a data set of its own."""
    tokens = {"anna": "a-token", "ben": "b-token"}
    home = tmp_path_factory.mktemp("quiet") / "home"
    with served_at(home, sql_seconds=20, sql_rows=500, tokens=tokens, admin_token="root-token") as served:
        yield served


def client_of(served: Served, token: str, name: str) -> SqlClient:
    return SqlClient(GatewayClient(served.client.url, served.client.home.path, token), name)


@pytest.fixture
def world(quiet: Served, request: pytest.FixtureRequest) -> World:
    """A gateway, and a client with a data set of empty files."""
    client = client_of(quiet, "a-token", f"data-{abs(hash(request.node.name)) % 10**12}")
    make_version(client)
    return quiet, client


def make_version(client: SqlClient) -> None:
    run = client.opened()
    for status in client.names(run, *EVERY).json()["files"]:
        assert client.end(run, status["file"], 0, 0).status_code == 200
    assert client.seal(run).status_code == 200


def queries_at_rest(served: Served, client: SqlClient) -> list[str]:
    """The folders of the queries of a data set; of all those that are gone too."""
    known = {each.id for each in served.gateway.registry.data_sets(None) if each.name != client.name}
    folders = served.gateway.storage.find("queries/data=*/query=*")
    return [key.name for key in folders if key.parent.name.removeprefix("data=") not in known]


def test_a_query_is_answered_in_every_form(world: World) -> None:
    served, client = world
    with pipeline(served):
        query = client.sent(version=1, rows=2)
        done = client.get(query, wait=20).json()
    assert (done["state"], done["rows"], done["cut"], done["error"]) == ("done", 2, True, None)
    assert (done["data"], done["version"], done["sql"]) == (client.name, 1, SELECT)
    assert [column["kind"] for column in done["columns"]] == list(KINDS)
    assert client.get(f"{query}.csv").text == (
        'n,"total, RM",name,at\n1,900000000000.0001,=1+1,2024-01-02 12:00:00\n'
        ',75.5,"a ""b""",2024-01-02 12:00:00.25\n'
    )
    as_json = json.loads(client.get(f"{query}.json").text, parse_float=Decimal)
    assert (as_json["count"], as_json["cut"]) == (2, True)
    assert [row["total, RM"] for row in as_json["rows"]] == [Decimal("900000000000.0001"), Decimal("75.5")]
    assert as_json["rows"][1]["n"] is None
    assert pq.read_table(pa.BufferReader(client.get(f"{query}.parquet").content)).equals(ROWS)
    sheet = openpyxl.load_workbook(io.BytesIO(client.get(f"{query}.xlsx").content))["Result"]
    title, names, first, second = sheet.iter_rows(values_only=True)
    assert title[0] == "2 rows; the query has more"
    assert names == ("n", "total, RM", "total, RM (exact)", "name", "at")
    assert first[2:4] == ("900000000000.0001", "=1+1") and second[:2] == (None, 75.5)
    page = client.get(f"{query}/rows", offset=1, limit=1).json()
    assert (page["rows"], page["total"]) == ([["", "75.5", 'a "b"', "2024-01-02 12:00:00.25"]], 2)
    disposition = client.get(f"{query}.csv").headers["Content-Disposition"]
    assert disposition == f'attachment; filename="{client.name}-sql.csv"'
    eventually(lambda: not list(served.gateway.incoming.iterdir()))


@pytest.mark.parametrize(
    ("request_", "status", "reason"),
    [
        ({"sql": "drop table stores"}, 422, "only a query"),
        ({"sql": "select * from parquet.`/etc/passwd`"}, 422, "is not a table"),
        ({"sql": "select reflect('a', 'b') from stores"}, 422, "no function reflect"),
        ({"sql": "select 1 from vouchers"}, 422, "has no file of table vouchers"),
        ({"sql": SELECT, "version": 2}, 404, "version 2 does not exist"),
        ({"sql": SELECT, "rows": 501}, 422, "allows up to 500"),
        ({"sql": SELECT, "seconds": 21}, 422, "allows up to 20"),
        ({"sql": SELECT, "owner": "anna"}, 422, "owner"),
        ({"sql": ""}, 422, "sql"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_one_line_and_leaves_nothing(
    world: World, request_: dict[str, Any], status: int, reason: str
) -> None:
    served, client = world
    response = client.http.post(client.path, json=request_)
    assert response.status_code == status
    assert reason in response.json()["message"] and "\n" not in response.json()["message"]
    assert queries_at_rest(served, client) == []


def test_a_failed_query_says_why_and_has_no_result(world: World) -> None:
    served, client = world
    with pipeline(served, QueryOutcome(0.5, error="there is no column x")):
        query = client.sent()
        view = client.get(query, wait=20).json()
    assert (view["state"], view["error"], view["again"]) == ("failed", "there is no column x", False)
    for form in (".csv", ".xlsx", "/rows"):
        refused = client.get(query + form)
        assert (refused.status_code, refused.json()["error"]) == (422, "sql")


def test_a_query_without_a_pipeline_waits_and_then_fails_instead_of_hanging(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, client = world
    query = client.sent()
    assert client.get(query, wait=0.2).json()["state"] == "waiting"
    assert client.get(f"{query}.csv").json()["error"] == "running"
    registry = served.gateway.registry
    now = registry.now()
    monkeypatch.setattr(registry, "now", lambda: now + BEGIN_SECONDS + 2)
    view = client.get(query, wait=20).json()
    assert (view["state"], view["again"]) == ("failed", True)
    assert "no pipeline has begun" in view["error"]


def test_a_query_whose_pipeline_is_gone_or_silent_fails(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, client = world
    registry, query = served.gateway.registry, client.sent()
    epoch = registry.take_over("pipeline-1", "a life", 1_000)
    begun = QueryBegun("pipeline-1", epoch, "a life", registry.now())
    folder_of(served, query).write_begun(begun)
    assert client.get(query).json()["state"] == "running"
    now = registry.now()
    with monkeypatch.context() as patch:
        patch.setattr(registry, "now", lambda: now + 20 + GRACE_SECONDS + 1)
        assert "not answered in time" in client.get(query).json()["error"]
    registry.take_over("pipeline-1", "another life", 1_000)
    view = client.get(query, wait=20).json()
    assert view["error"] == "the pipeline that computed the query has stopped; ask again"


def test_a_lost_message_is_sent_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    served, client = world
    monkeypatch.setattr("kopitiam.gateway.routes.sql._REPEAT_SECONDS", 0.1)
    lost: list[Message] = []
    losing = served.gateway.bus.consume(SQL_QUEUE, lost.append)
    query = client.sent()
    eventually(lambda: lost)
    losing.cancel()
    with pipeline(served) as received:
        assert client.get(query, wait=20).json()["state"] == "done"
    assert set(received) == {query}


def test_queries_of_another_owner_or_another_data_set_do_not_exist(world: World) -> None:
    served, anna = world
    ben, admin = (client_of(served, token, anna.name) for token in ("b-token", "root-token"))
    with pipeline(served):
        query = anna.sent()
        assert anna.get(query, wait=20).json()["state"] == "done"
    assert ben.run().json()["error"] == "no_data_set"
    other = client_of(served, "b-token", "mine")
    make_version(other)
    for client, below in [(ben, query), (ben, f"{query}.csv"), (other, query), (other, f"{query}.csv")]:
        assert client.get(below).status_code == 404
    assert other.http.delete(f"{other.path}/{query}").status_code == 404
    assert other.get(query, owner="anna").status_code == 404
    assert admin.get(f"{query}.csv", owner="anna").status_code == 200
    assert anna.get("0" * 32).json()["error"] == "no_query"
    assert anna.get("..%2F..%2Fregistry.json").status_code == 404


def test_only_a_few_queries_are_under_way_and_kept(world: World) -> None:
    served, client = world
    queries = [client.sent() for _ in range(MOST_ACTIVE)]
    refused = client.run()
    assert (refused.status_code, refused.json()["error"]) == (429, "too_many_queries")
    assert client.http.delete(f"{client.path}/{queries[0]}").json() == {"query": queries[0]}
    assert client.get(queries[0]).status_code == 404
    client.sent()
    for name in queries_at_rest(served, client):
        finish(served, name.removeprefix("query="), replace(OUTCOME, result="", error="no"))
    folder = folder_of(served, queries[1])
    request = folder.read().request
    for second in range(MOST_KEPT):
        old = new_query_id(served.gateway.registry.now() - 100 - second)
        copy = replace(folder, query=old)
        copy.write_request(request)
        copy.write_outcome(QueryOutcome(1.0, error="no"))
    client.sent()
    kept = queries_at_rest(served, client)
    assert len(kept) == MOST_KEPT and folder.key.name in kept


def test_results_go_after_an_hour_and_with_their_data_set(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, client = world
    with pipeline(served):
        query = client.sent()
        client.get(query, wait=20)
    registry = served.gateway.registry
    sweep(served.gateway)
    assert client.get(query).status_code == 200
    with monkeypatch.context() as patch:
        now = registry.now()
        patch.setattr(registry, "now", lambda: now + KEPT_SECONDS + 5)
        sweep(served.gateway)
    assert queries_at_rest(served, client) == []
    client.sent()
    assert client.http.delete(f"/api/v1/data/{client.name}").status_code == 200
    assert queries_at_rest(served, client) == []


def test_the_python_client_returns_a_table_or_raises_what_the_gateway_says(world: World, tmp_path) -> None:
    served, client = world
    name, failed = client.name, QueryOutcome(0.1, error="took longer than 20 s, and was cancelled")
    with Client(served.client.url, "a-token", patience_seconds=10) as user:
        with pipeline(served):
            result = user.sql(name, SELECT, rows=2)
            assert result.table().equals(ROWS)
            result.save(tmp_path / "rows.csv")
            assert (tmp_path / "rows.csv").read_bytes() == result.content("csv")
            result.remove()
        with pipeline(served, failed), pytest.raises(QuestionError, match="took longer"):
            user.sql(name, SELECT)
        for sql, error in [("", QuestionError), ("select 1 from vouchers", DataMissing)]:
            with pytest.raises(error):
                user.sql(name, sql)
        with pytest.raises(DataSetNotFound):
            user.sql("others", SELECT)
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(user.sql, name, SELECT)
            (sent,) = eventually(lambda: unanswered(served, client))
            sent.write_begun(QueryBegun("pipeline-2", 1, "an earlier life", 1.0))
            with pytest.raises(Unavailable, match="has stopped; ask again"):
                waiting.result()


def unanswered(served: Served, client: SqlClient) -> list[QueryFolder]:
    names = queries_at_rest(served, client)
    folders = [folder_of(served, name.removeprefix("query=")) for name in names]
    return [folder for folder in folders if (record := folder.read()) and not record.outcome]
