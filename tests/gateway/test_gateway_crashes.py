"""Killed at every point of a chunk's way: what was acknowledged is there, what was not can be sent again."""

import hashlib
import os

import httpx
import pyarrow.parquet as pq
import pytest
from gateway_client import parquet_of, rows_of

from kopitiam.contracts.api import CSV
from kopitiam.contracts.crash_points import POINTS

CHUNK_POINTS = [point for point in POINTS if point.startswith("chunk.")]
MATRIX = [(point, nth) for nth in (2, 1) for point in CHUNK_POINTS]
SAMPLE = MATRIX if os.environ.get("KOPI_TEST_FULL") else MATRIX[: len(CHUNK_POINTS) + 1]
BODIES = [parquet_of("users", 10, 1), parquet_of("users", 20, 100)]


@pytest.mark.parametrize(("point", "nth"), SAMPLE)
def test_a_gateway_killed_at_any_point_loses_nothing_it_acknowledged(
    start, serve, point: str, nth: int
) -> None:
    doomed = start(KOPI_CRASH_AT=f"{point}:{nth}")
    before = doomed.connect()
    run = before.open_run()
    for number in range(nth - 1):
        assert before.put(run, number, BODIES[number]).status_code == 201
    with pytest.raises(httpx.TransportError):
        before.put(run, nth - 1, BODIES[nth - 1])
    assert doomed.is_killed()

    client = serve().client
    assert client.incoming() == []
    acknowledged = {n: hashlib.sha256(BODIES[n]).hexdigest() for n in range(nth - 1)}
    durable = client.durable(run)
    assert durable.items() >= acknowledged.items()
    assert (len(durable) == nth) is (point == "chunk.registered")
    for number in durable:
        assert client.file(run, number).read_bytes() == BODIES[number]
    for number, body in enumerate(BODIES):
        assert client.put(run, number, body).status_code == (200 if number in durable else 201)
    assert client.end(run, chunks=2, rows=30).status_code == 200
    stored = pq.read_table([client.file(run, 0), client.file(run, 1)], partitioning=None)
    assert stored.num_rows == 30
    assert stored.slice(0, 10).equals(rows_of("users", 10, 1))
    assert {path.name for path in client.files_of(run)} == {"chunk-00000.parquet", "chunk-00001.parquet"}


def test_bad_rows_survive_a_kill_between_their_file_and_the_registry(start, serve) -> None:
    body = b"user_id,birthdate\n1,\nbad,\n"
    doomed = start(KOPI_CRASH_AT="chunk.durable")
    before = doomed.connect()
    run = before.open_run()
    with pytest.raises(httpx.TransportError):
        before.put(run, 0, body, media_type=CSV)
    assert doomed.is_killed()
    client = serve().client
    assert client.put(run, 0, body, media_type=CSV).status_code == 201
    assert client.status(run)["rejected"] == 1
    assert client.http.get(f"/api/v1/runs/{run}/rejected.csv").text.count("bad,") == 1
