"""Answers and rejected rows page by page, and searched."""

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gateway_client import GatewayClient
from gateways import Served
from standin_pipeline import answering

from kopitiam.contracts.messages import PROVISIONAL_QUEUE, Message, ProvisionalWanted
from kopitiam.contracts.runs import RunState
from kopitiam.gateway.run_answers import fresh_provisional, read_answers
from kopitiam.storage.port import Key
from made_answers import MadeAnswers, small_answers

GROUP, GROUPS = 10, 5


def publish(shared: Served, run: str, answers: MadeAnswers, attempt: str = "a1") -> None:
    folder = answers.write(shared.client.home.attempt(run, attempt))
    (folder / "summary.json").write_text(json.dumps({"rows": {"read": 7}}))
    shared.client.seal(run)
    shared.gateway.registry.move(run, RunState.FINAL)
    shared.gateway.registry.publish_results(run, attempt, {"answers": {"1": 4}})


def page(client: GatewayClient, run: str, answer: str = "1", **query: Any) -> dict[str, Any]:
    response = client.http.get(f"/api/v1/runs/{run}/results/{answer}/rows", params=query)
    assert response.status_code == 200, response.text
    result: dict[str, Any] = response.json()
    return result


@pytest.fixture(scope="module")
def long_run(shared: Served) -> str:
    """A run whose first answer has fifty rows, in row groups of ten."""
    run = shared.client.open_run()
    publish(shared, run, MadeAnswers())
    rows = pa.table(
        {
            "transaction_id": [f"Sale-{number:03d}" for number in range(GROUP * GROUPS)],
            "final_amount": pa.array([Decimal(75 + number) for number in range(50)], pa.decimal128(19, 4)),
        }
    )
    path = shared.client.home.attempt(run, "a1") / "results_query_1.parquet"
    pq.write_table(rows, path, row_group_size=GROUP)
    return run


@pytest.mark.parametrize("offset", [0, 5, 9, 10, 11, 45, 49, 50, 1000])
@pytest.mark.parametrize("limit", [1, 10, 25, 1000])
def test_a_page_has_the_rows_from_its_offset(client, long_run: str, offset: int, limit: int) -> None:
    result = page(client, long_run, offset=offset, limit=limit)
    numbers = range(GROUP * GROUPS)[offset : offset + limit]
    assert result["rows"] == [[f"Sale-{number:03d}", f"{75 + number}.0"] for number in numbers]
    assert (result["total"], result["matched"], result["offset"]) == (50, 50, offset)
    assert result["columns"] == ["transaction_id", "final_amount"]
    assert result["provisional"] is False


@pytest.mark.parametrize(
    ("search", "numbers"),
    [
        ("sale-00", range(10)),
        ("SALE-0", range(50)),
        ("5", [n for n in range(50) if "5" in f"{n:03d}" or "5" in str(75 + n)]),
        ("124.0", [49]),
        ("124.00", [49]),
        ("124.0000", [49]),
        ("RM 124", [49]),
        ("rm124.00", [49]),
        (" 1,24", [49]),
        ("124.01", []),
        ("RM", []),
        ("RM sale", []),
        ("e-01", range(10, 20)),
        ("nothing", []),
        ("%", []),
        (".*", []),
    ],
)
def test_a_search_finds_text_in_any_cell_in_any_case(client, long_run: str, search, numbers) -> None:
    result = page(client, long_run, search=search, limit=1000)
    assert [row[0] for row in result["rows"]] == [f"Sale-{number:03d}" for number in numbers]
    assert (result["matched"], result["total"]) == (len(numbers), 50)


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        ("RM 12,055,387.76", ["sale-0003"]),
        ("12,055", ["sale-0003"]),
        ("76.50", ["sale-0001"]),
        ("76.500", ["sale-0001"]),
        ("100.075", ["sale-0002"]),
        ("100.0750", ["sale-0002"]),
        ("75.00", ["sale-0000"]),
        ("76.51", []),
    ],
)
def test_a_search_finds_an_amount_as_it_is_shown(
    shared, client, run: str, search: str, expected: list[str]
) -> None:
    publish(shared, run, small_answers())
    assert [row[0] for row in page(client, run, search=search)["rows"]] == expected


def test_search_results_have_pages_too(client, long_run: str) -> None:
    result = page(client, long_run, search="sale-0", offset=18, limit=4)
    assert [row[0] for row in result["rows"]] == ["Sale-018", "Sale-019", "Sale-020", "Sale-021"]
    assert result["matched"] == 50


def test_cells_are_exact_text(shared, client, run: str) -> None:
    publish(shared, run, small_answers())
    assert page(client, run)["rows"][-1] == ["sale-0003", "12055387.76"]
    assert page(client, run, "3")["rows"][0] == ["2024-H1", "1", "North", "115922.885", "true"]
    assert page(client, run, "2_1")["rows"][1] == ["2024-02", "99", "99", "12", "false"]


@pytest.mark.parametrize("path", ["results", "results/1/rows", "results/3.svg"])
def test_rows_of_missing_answers_are_refused_like_their_files(client, run: str, path: str) -> None:
    place = f"/api/v1/runs/{run}"
    assert client.http.get(f"{place}/{path}").json() == client.http.get(f"{place}/results/1.csv").json()
    client.cancel(run)
    assert client.http.get(f"{place}/{path}").status_code == 410


@pytest.mark.parametrize("path", ["results", "results/1/rows", "results/3.svg"])
def test_answers_that_were_cleaned_up_are_not_found(shared, client, run: str, path: str) -> None:
    client.seal(run)
    shared.gateway.registry.move(run, RunState.FINAL)
    shared.gateway.registry.publish_results(run, "gone", {"answers": {}})
    response = client.http.get(f"/api/v1/runs/{run}/{path}")
    assert (response.status_code, response.json()["error"]) == (404, "not_found")


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "offset=-1", "offset=x", "search=%00", "search=" + "x" * 201]
)
def test_an_invalid_page_is_refused(client, run: str, query: str) -> None:
    response = client.http.get(f"/api/v1/runs/{run}/results/1/rows?{query}")
    assert (response.status_code, response.json()["error"]) == (422, "invalid")


def test_paging_through_provisional_answers_makes_no_new_ones(shared, client, run: str) -> None:
    with answering(shared.gateway) as requested:
        client.http.get(f"/api/v1/runs/{run}/results/summary.json?provisional=true")
        provisional_record = shared.gateway.registry.provisional(run)
        small_answers().write(client.home.provisional(run, provisional_record.attempt))
        pages = [page(client, run, provisional=True, offset=offset, limit=1) for offset in range(3)]
    assert requested == [run]
    assert [entry["rows"][0][0] for entry in pages] == ["sale-0000", "sale-0001", "sale-0002"]
    assert all(entry["provisional"] for entry in pages)


def test_answers_published_while_provisional_ones_are_awaited_are_returned_instead(
    shared, client, run: str
) -> None:
    def finish(message: Message) -> None:
        assert isinstance(message, ProvisionalWanted)
        publish(shared, message.run, small_answers())

    waiting = shared.gateway.bus.consume(PROVISIONAL_QUEUE, finish)
    try:
        index = client.http.get(f"/api/v1/runs/{run}/results?provisional=true")
    finally:
        waiting.cancel()
    assert (index.status_code, index.json()["provisional"]) == (200, False), index.text


def test_published_answers_are_read_if_provisional_ones_are_removed_meanwhile(
    shared, client, run: str
) -> None:
    shared.gateway.registry.publish_provisional(run, "gone", {"processed": 0, "expected": None})
    tried = []

    def read(folder: Key) -> bytes:
        tried.append(folder.name)
        try:
            with shared.gateway.storage.open(folder / "results_query_3.parquet") as file:
                return file.read()
        except FileNotFoundError:
            publish(shared, run, small_answers())
            raise

    before = shared.gateway.registry.get_run(run)
    result = read_answers(shared.gateway, before, read, fresh_provisional)
    assert tried == ["provisional=gone", "attempt=a1"]
    assert result == client.http.get(f"/api/v1/runs/{run}/results/3.parquet").content


def test_rejected_rows_have_the_file_and_line_that_the_client_named(client, run: str) -> None:
    body = b'user_id,birthdate\n1,1990-01-01\nbad,1990-01-01\n"3\n",\n4,never\n'
    place = f"/api/v1/runs/{run}/tables/users/chunks"
    hint = {"file": "users/users_202401.csv", "line": 1001}
    stored = client.http.put(f"{place}/0", content=body, headers={"Content-Type": "text/csv"}, params=hint)
    assert (stored.status_code, stored.json()["rejected"]) == (201, 3)
    result = client.http.get(f"/api/v1/runs/{run}/rejected", params={"limit": 2}).json()
    assert result["columns"] == ["table", "file", "line", "reason", "row"]
    assert [row[:3] for row in result["rows"]] == [
        ["users", "users/users_202401.csv", "1002"],
        ["users", "users/users_202401.csv", "1003"],
    ]
    assert result["rows"][1][4] == '"3\n",'
    assert result["more"] is True
    rest = client.http.get(f"/api/v1/runs/{run}/rejected", params={"offset": 2}).json()
    assert [(row[2], row[4]) for row in rest["rows"]] == [("1005", "4,never")]
    assert rest["more"] is False


def test_without_file_and_line_rejected_rows_name_the_chunk(client, run: str) -> None:
    assert client.put_csv(run, "user_id,birthdate\n1,\nbad,\n").json()["rejected"] == 1
    [row] = client.http.get(f"/api/v1/runs/{run}/rejected").json()["rows"]
    assert row[1:3] == ["chunk of users", "3"]


def test_a_run_without_rejected_rows_has_an_empty_page(client, run: str) -> None:
    result = client.http.get(f"/api/v1/runs/{run}/rejected").json()
    columns = ["table", "file", "line", "reason", "row"]
    assert result == {"columns": columns, "rows": [], "offset": 0, "more": False}


@pytest.mark.parametrize("sent", [b"x\n", b'a,b\r\nshort\n"open', b"\x00\xff\n\r\r\n,,,,,,,,\n"])
def test_any_bytes_as_rejected_rows_make_a_page(client, run: str, sent: bytes) -> None:
    place = f"/api/v1/runs/{run}"
    headers = {"Content-Type": "text/csv"}
    assert client.http.put(f"{place}/tables/users/rejected", content=sent, headers=headers).status_code == 204
    result = client.http.get(f"{place}/rejected")
    assert result.status_code == 200
    assert {len(row) for row in result.json()["rows"]} <= {5}


def test_runs_are_listed_by_state_and_label_and_counted(serve) -> None:
    client = serve().client
    opened = [client.open_run(label=label) for label in ("Penang", "Ipoh", "Penang again")]
    client.cancel(opened[0])
    listed = client.http.get("/api/v1/runs", params={"search": "penang", "state": ["open", "sealed"]}).json()
    assert ([entry["run"] for entry in listed["runs"]], listed["total"]) == ([opened[2]], 1)
    assert client.http.get("/api/v1/runs", params={"limit": 1}).json()["total"] == 3
    assert client.http.get("/api/v1/runs", params={"search": opened[1][:10]}).json()["total"] == 1
