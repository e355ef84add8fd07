"""Concurrent requests: a chunk is stored once, the first body wins, and file and registry agree."""

import hashlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import httpx
import pytest
from gateway_client import GatewayClient, parquet_of

from kopitiam.contracts.api import CSV

MANY = 10
NO_SLOT = 429


def at_once(work: Callable[[int], httpx.Response], count: int = MANY) -> list[httpx.Response]:
    together = Barrier(count)

    def begin(number: int) -> httpx.Response:
        together.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def put_in_the_end(client: GatewayClient, run: str, body: bytes, **options: Any) -> httpx.Response:
    """Send chunk 0, again if it gets no slot, as clients do."""
    while (answer := client.put(run, 0, body, **options)).status_code == NO_SLOT:
        pass
    return answer


def statuses(answers: list[httpx.Response]) -> Counter[int]:
    return Counter(answer.status_code for answer in answers)


def log_entries(shared, run: str) -> list[int]:
    registry = shared.gateway.registry
    log = registry.read_span(0, 0, registry.last_sequence(0))
    return [entry.number for entry in log if entry.run == run]


def test_the_same_chunk_sent_ten_times_at_once_is_stored_once(shared, run: str) -> None:
    client, body = shared.client, parquet_of("users", 5000)
    answers = at_once(lambda _: put_in_the_end(client, run, body))
    assert statuses(answers) == {201: 1, 200: MANY - 1}
    assert len({answer.text for answer in answers}) == 1
    assert [path.name for path in client.files_of(run)] == ["chunk-00000.parquet"]
    assert log_entries(shared, run) == [0]
    assert client.status(run)["tables"]["users"]["rows"] == 5000


@pytest.mark.parametrize("kind", ["parquet", "csv", "csv with the same good rows"])
def test_of_ten_bodies_under_one_number_one_wins(shared, run: str, kind: str) -> None:
    client = shared.client
    bodies = {
        "parquet": [parquet_of("users", 100 + n) for n in range(MANY)],
        "csv": [f"user_id,birthdate\n{n},\nbad-{n},\n".encode() for n in range(MANY)],
        "csv with the same good rows": [f"user_id,birthdate\n1,\nbad-{n},\n".encode() for n in range(MANY)],
    }[kind]
    media_type = {} if kind == "parquet" else {"media_type": CSV}
    answers = at_once(lambda n: put_in_the_end(client, run, bodies[n], **media_type))
    assert statuses(answers) == {201: 1, 409: MANY - 1}
    winner = next(n for n in range(MANY) if answers[n].status_code == 201)
    assert client.durable(run) == {0: hashlib.sha256(bodies[winner]).hexdigest()}
    assert log_entries(shared, run) == [0]
    if kind == "parquet":
        assert [file.read_bytes() for file in client.files_of(run)] == [bodies[winner]]
    else:
        assert f"bad-{winner}," in client.http.get(f"/api/v1/runs/{run}/rejected.csv").text
        assert client.status(run)["rejected"] == 1
    assert client.put(run, 0, bodies[winner], **media_type).status_code == 200
    assert client.incoming() == []


def test_chunks_and_ends_of_many_clients_add_up(client: GatewayClient, run: str) -> None:
    answers = at_once(lambda n: client.put(run, n))
    assert statuses(answers) == {201: MANY}
    ends = at_once(lambda _: client.end(run, chunks=MANY, rows=10 * MANY))
    assert statuses(ends) == {200: MANY}
    table = client.status(run)["tables"]["users"]
    assert (table["chunks"], table["rows"], table["sealed"]) == (MANY, 10 * MANY, True)


def test_chunks_during_force_end_are_stored_or_get_410(client: GatewayClient) -> None:
    body = parquet_of("users", 2000)
    for _ in range(5):
        run = client.open_run()
        answers = at_once(lambda n, run=run: client.cancel(run) if n == 4 else client.put(run, n, body))
        assert set(statuses(answers)) <= {200, 201, 410}
        assert client.status(run)["state"] == "ended"
        assert client.files_of(run) == []


def test_many_clients_may_upload_rejected_rows_at_once(client: GatewayClient, run: str) -> None:
    place = f"/api/v1/runs/{run}/tables/users/rejected"
    headers = {"Content-Type": CSV}
    answers = at_once(lambda n: client.http.put(place, content=f"table\n{n}\n".encode(), headers=headers))
    assert statuses(answers) == {204: MANY}
    assert client.http.get(f"/api/v1/runs/{run}/rejected.csv").text in {f"table\n{n}\n" for n in range(MANY)}


def test_a_key_used_by_many_at_once_opens_one_run(client: GatewayClient) -> None:
    answers = at_once(lambda _: client.http.post("/api/v1/runs", json={"idempotency_key": "many"}))
    assert statuses(answers) == {201: 1, 200: MANY - 1}
    assert len({answer.json()["run"] for answer in answers}) == 1
