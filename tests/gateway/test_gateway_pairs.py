"""Gateways hold no state of their own: two with one home and one registry work as one."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from gateway_client import GatewayClient, eventually, parquet_of

CHUNKS = 12


@pytest.fixture(params=["sqlite", "postgresql"])
def pair(request: pytest.FixtureRequest, start) -> tuple[GatewayClient, GatewayClient]:
    is_sqlite = request.param == "sqlite"
    url = "sqlite" if is_sqlite else request.getfixturevalue("postgresql_url")
    processes = [start(name, KOPI_REGISTRY__URL=url) for name in ("gateway-1", "gateway-2")]
    one, other = (process.connect() for process in processes)
    return one, other


def test_two_gateways_work_together_on_one_run(pair: tuple[GatewayClient, GatewayClient]) -> None:
    one, other = pair
    request = {"label": "May", "idempotency_key": "k"}
    run = one.open_run(**request)
    again = other.http.post("/api/v1/runs", json=request)
    assert (again.status_code, again.json()["run"]) == (200, run)

    def put(number: int) -> tuple[int, int]:
        first, second = (one, other) if number % 2 else (other, one)
        body = parquet_of("users", 10, number)
        return first.put(run, number, body).status_code, second.put(run, number, body).status_code

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(put, range(CHUNKS))) == {(201, 200)}
    assert one.put(run, 0, parquet_of("users", 11)).status_code == 409
    assert one.durable(run) == other.durable(run)
    assert len(one.durable(run)) == CHUNKS
    assert one.end(run, chunks=CHUNKS + 1, rows=10 * CHUNKS).json()["missing"] == [[CHUNKS, CHUNKS]]
    assert other.end(run, chunks=CHUNKS, rows=10 * CHUNKS).status_code == 200
    assert one.end(run, chunks=CHUNKS, rows=10 * CHUNKS).status_code == 200
    assert one.status(run) == other.status(run)
    assert one.http.get("/api/v1/runs").json() == other.http.get("/api/v1/runs").json()
    assert stored_at_once(one, other) == [200] * 7 + [201]
    assert other.cancel(run).json()["state"] == "ended"
    assert one.put(run, 0).status_code == 410
    eventually(lambda: one.files_of(run) == [])


def stored_at_once(one: GatewayClient, other: GatewayClient) -> list[int]:
    """Return the responses to one body, sent many times through both."""
    run, body = one.open_run(), parquet_of("users", 5000)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: (one, other)[n % 2].put(run, 0, body).status_code, range(8)))
    assert [path.name for path in one.files_of(run)] == ["chunk-00000.parquet"]
    return sorted(answers)
