"""Chunks and END over HTTP: a chunk is stored once, conflicts are refused, rows are counted."""

import hashlib

import pyarrow.parquet as pq
import pytest
from gateway_client import GatewayClient, parquet_of, rows_of

from catalog_tables import TABLES
from kopitiam.contracts.runs import RunState


def test_a_stored_chunk_is_on_disk_as_it_was_sent(client: GatewayClient, run: str) -> None:
    body = parquet_of("users", 10)
    response = client.put(run, 0, body)
    assert response.status_code == 201
    digest = hashlib.sha256(body).hexdigest()
    assert response.json() == {"table": "users", "number": 0, "rows": 10, "rejected": 0, "digest": digest}
    assert client.file(run).read_bytes() == body
    assert client.durable(run) == {0: digest}
    assert client.incoming() == []


def test_the_same_chunk_again_gets_200(client: GatewayClient, run: str) -> None:
    first = client.put(run)
    again = client.put(run)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()
    assert client.status(run)["tables"]["users"]["chunks"] == 1


def test_other_bytes_under_the_same_number_are_refused(client: GatewayClient, run: str) -> None:
    client.put(run)
    response = client.put(run, 0, parquet_of("users", 11))
    assert (response.status_code, response.json()["error"]) == (409, "conflict")
    assert client.file(run).read_bytes() == parquet_of()
    assert client.status(run)["tables"]["users"]["rows"] == 10


@pytest.mark.parametrize("table", TABLES)
def test_every_table_accepts_its_rows(client: GatewayClient, run: str, table: str) -> None:
    assert client.put(run, 3, table=table).status_code == 201
    assert pq.read_table(client.file(run, 3, table), partitioning=None).equals(rows_of(table))


def test_chunks_are_spread_over_the_shards_of_the_run(serve) -> None:
    client = serve(shards=3).client
    run = client.open_run()
    for number in range(5):
        assert client.put(run, number).status_code == 201
        assert client.file(run, number, shard=number % 3).is_file()


def test_durable_chunks_are_listed_for_resume(client: GatewayClient, run: str) -> None:
    for number in (4, 0, 2):
        client.put(run, number, parquet_of("users", number + 1))
    listed = client.http.get(f"/api/v1/runs/{run}/tables/users/chunks").json()
    assert [chunk["number"] for chunk in listed["chunks"]] == [0, 2, 4]
    assert listed["rows"] == 9
    assert client.durable(run, "stores") == {}


def test_an_end_that_comes_too_early_names_what_is_missing(client: GatewayClient, run: str) -> None:
    for number in (0, 1, 4):
        client.put(run, number)
    response = client.end(run, chunks=7, rows=70)
    assert response.status_code == 409
    problem = response.json()
    assert (problem["error"], problem["missing"], problem["extra"]) == ("incomplete", [[2, 3], [5, 6]], [])
    assert problem["missing_numbers"] == [2, 3, 5, 6]
    assert (problem["chunks"], problem["rows"]) == (3, 30)
    assert (problem["expected_chunks"], problem["expected_rows"]) == (7, 70)
    assert not client.status(run)["tables"]["users"]["sealed"]


def test_of_very_many_missing_chunks_only_the_first_are_listed_by_number(
    client: GatewayClient, run: str
) -> None:
    problem = client.end(run, chunks=9_999_999, rows=1).json()
    assert problem["missing"] == [[0, 9_999_998]]
    assert problem["missing_numbers"] == list(range(1000))


def test_an_end_with_too_few_chunks_names_what_is_extra(client: GatewayClient, run: str) -> None:
    for number in range(3):
        client.put(run, number)
    problem = client.end(run, chunks=1, rows=10).json()
    assert (problem["error"], problem["extra"]) == ("extra", [[1, 2]])


def test_rows_that_do_not_add_up_are_refused_with_both_figures(client: GatewayClient, run: str) -> None:
    client.put(run)
    response = client.end(run, chunks=1, rows=11)
    assert response.status_code == 409
    problem = response.json()
    assert (problem["error"], problem["rows"], problem["expected_rows"]) == ("rows_differ", 10, 11)


def test_an_end_may_be_repeated_but_not_changed(client: GatewayClient, run: str) -> None:
    client.put(run)
    for _ in range(2):
        response = client.end(run, chunks=1, rows=10, rejected=3)
        sealed = {"table": "users", "sealed": True, "state": "open"}
        assert (response.status_code, response.json()) == (200, sealed)
    other = client.end(run, chunks=1, rows=9)
    assert (other.status_code, other.json()["error"]) == (409, "conflict")
    table = client.status(run)["tables"]["users"]
    assert table["sealed"]
    assert (table["expected_chunks"], table["expected_rows"], table["rejected"]) == (1, 10, 3)


@pytest.mark.parametrize(
    "figures",
    [
        {},
        {"chunks": -1, "rows": 0},
        {"chunks": 1, "rows": 2**53},
        {"chunks": "x", "rows": 1},
        {"chunks": 1.5, "rows": 1},
    ],
)
def test_an_invalid_end_is_refused(client: GatewayClient, run: str, figures) -> None:
    response = client.http.post(f"/api/v1/runs/{run}/tables/users/end", json=figures)
    assert (response.status_code, response.json()["error"]) == (422, "invalid")


def test_a_sealed_table_refuses_new_chunks_and_acknowledges_its_own_again(
    client: GatewayClient, run: str
) -> None:
    client.put(run)
    client.end(run)
    late = client.put(run, 1)
    assert (late.status_code, late.json()["error"]) == (409, "sealed")
    assert not client.file(run, 1).exists()
    assert client.put(run, 0).status_code == 200


def test_a_chunk_after_the_seal_leaves_no_rejected_rows(client: GatewayClient, run: str) -> None:
    client.end(run, chunks=0, rows=0)
    assert client.put_csv(run, "user_id,birthdate\nbad,\n").status_code == 409
    assert client.files_of(run) == []


def test_a_run_is_sealed_with_its_last_table(client: GatewayClient, run: str) -> None:
    client.put(run, table="transactions")
    for table in TABLES:
        is_fed = table == "transactions"
        response = client.end(run, table, 1 if is_fed else 0, 10 if is_fed else 0)
        expected = "sealed" if table == list(TABLES)[-1] else "open"
        assert response.json() == {"table": table, "sealed": True, "state": expected}
    assert client.status(run)["state"] == "sealed"
    late = client.put(run, 1, table="transactions")
    assert (late.status_code, late.json()["error"]) == (410, "over")
    assert not client.file(run, 1, "transactions").exists()
    assert client.put(run, 0, table="transactions").status_code == 200
    assert client.end(run, "users", 0, 0).json()["state"] == "sealed"


def test_a_run_in_its_final_step_accepts_nothing(shared, run: str) -> None:
    shared.client.seal(run)
    shared.gateway.registry.move(run, RunState.FINAL)
    assert shared.client.put(run).status_code == 410
