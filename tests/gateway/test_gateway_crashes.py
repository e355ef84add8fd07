"""Kills at every crash point of an upload: acknowledged chunks stay, others can be sent again."""

import contextlib
import hashlib
from concurrent.futures import ThreadPoolExecutor

import httpx
import pyarrow.parquet as pq
import pytest
from gateway_client import eventually, parquet_of, rows_of

from kopitiam.contracts.api import CSV
from kopitiam.landing.chunks import chunk_key
from kopitiam.system.crash_points import POINTS
from sampling import IS_FULL

CHUNK_POINTS = [point for point in POINTS if point.startswith("chunk.")]
MATRIX = [(point, nth) for nth in (2, 1) for point in CHUNK_POINTS]
SAMPLE = MATRIX if IS_FULL else MATRIX[: len(CHUNK_POINTS) + 1]
END_POINTS = [point for point in POINTS if point.startswith("table.")]
FORCE_END_POINTS = [point for point in POINTS if point.startswith("force_end.")]
BODIES = [parquet_of("users", 10, 1), parquet_of("users", 20, 100)]


@pytest.mark.parametrize(("point", "nth"), SAMPLE)
@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
def test_an_unregistered_body_is_replaced_by_another_one(start, serve) -> None:
    """The gateway was killed when the body was durable but not registered."""
    lost, sent = b"user_id,birthdate\n1,\nbad,\n", b"user_id,birthdate\n2,\n3,\n4,\nworse,\n"
    doomed = start(KOPI_CRASH_AT="chunk.durable")
    before = doomed.connect()
    run = before.open_run()
    with pytest.raises(httpx.TransportError):
        before.put(run, 0, lost, media_type=CSV)
    assert doomed.is_killed()

    served = serve()
    client = served.client
    orphans = client.files_of(run)  # its rows and its rejected rows
    assert [client.put(run, 0, sent, media_type=CSV).status_code for _ in range(2)] == [201, 200]
    assert len(orphans) == 2 and not set(orphans) & set(client.files_of(run))
    assert client.put(run, 0, lost, media_type=CSV).status_code == 409
    assert client.durable(run) == {0: hashlib.sha256(sent).hexdigest()}
    (chunk,) = served.gateway.registry.chunks(run, "users")
    landed = served.gateway.storage.path(chunk_key(served.gateway.storage, run, chunk))
    assert hashlib.sha256(landed.read_bytes()).hexdigest() == chunk.landed
    assert pq.read_table(landed, partitioning=None)["user_id"].to_pylist() == [2, 3, 4]
    assert [path for path in client.files_of(run) if path.suffix == ".parquet"] == [landed]
    rejected = client.http.get(f"/api/v1/runs/{run}/rejected.csv").text
    assert (rejected.count("worse,"), rejected.count("bad,")) == (1, 0)
    assert client.end(run, chunks=1, rows=3).status_code == 200


@pytest.mark.long
def test_an_orphan_left_by_a_kill_after_registration_is_removed_by_the_next_upload(start, serve) -> None:
    """The kill comes between the commit of the registry and the removal."""
    doomed = start(KOPI_CRASH_AT="chunk.durable")
    run = doomed.connect().open_run()
    with pytest.raises(httpx.TransportError):
        doomed.client.put(run, 0, BODIES[0])
    assert doomed.is_killed()
    doomed = start("gateway-2", KOPI_CRASH_AT="chunk.registered")
    with pytest.raises(httpx.TransportError):
        doomed.connect().put(run, 0, BODIES[1])
    assert doomed.is_killed()

    client = serve().client
    assert len(client.files_of(run)) == 2
    assert client.put(run, 0, BODIES[1]).status_code == 200
    (remaining,) = client.files_of(run)
    assert remaining.read_bytes() == BODIES[1]


@pytest.mark.long
def test_an_orphan_beside_the_registered_body_is_removed_when_it_is_sent_again(start, serve) -> None:
    """The gateway was killed after storing it beside another body, which was registered later."""
    client = serve().client
    run = client.open_run()
    landed = client.file(run, 0)
    landed.parent.mkdir(parents=True)
    landed.write_bytes(BODIES[0])  # of a body that is not registered yet
    doomed = start(KOPI_CRASH_AT="chunk.durable")
    with pytest.raises(httpx.TransportError):
        doomed.connect().put(run, 0, BODIES[1])
    assert doomed.is_killed()
    assert client.put(run, 0, BODIES[0]).status_code == 201
    assert len(client.files_of(run)) == 2
    assert client.put(run, 0, BODIES[1]).status_code == 409
    assert client.files_of(run) == [landed]
    assert landed.read_bytes() == BODIES[0]


@pytest.mark.long
def test_one_of_many_bodies_wins_the_number_of_an_orphan(start, serve) -> None:
    doomed = start(KOPI_CRASH_AT="chunk.durable")
    before = doomed.connect()
    run = before.open_run()
    with pytest.raises(httpx.TransportError):
        before.put(run, 0, BODIES[0])
    assert doomed.is_killed()

    served = serve()
    bodies = [BODIES[0], *(parquet_of("users", 10, 1000 * n) for n in range(1, 8))]
    with ThreadPoolExecutor(len(bodies)) as threads:
        answers = list(threads.map(lambda body: served.client.put(run, 0, body).status_code, bodies))
    assert sorted(answers) == [201] + [409] * 7
    winner = bodies[answers.index(201)]
    (chunk,) = served.gateway.registry.chunks(run, "users")
    landed = served.gateway.storage.path(chunk_key(served.gateway.storage, run, chunk))
    assert landed.read_bytes() == winner
    assert served.client.files_of(run) == [landed]


@pytest.mark.parametrize("point", END_POINTS)
@pytest.mark.long
def test_a_gateway_killed_around_the_seal_of_a_table_accepts_its_end_again(start, serve, point: str) -> None:
    doomed = start(KOPI_CRASH_AT=point)
    before = doomed.connect()
    run = before.open_run()
    assert before.put(run, 0, BODIES[0]).status_code == 201
    with contextlib.suppress(httpx.TransportError):  # TABLE_END is sent while the client is answered
        before.end(run, chunks=1, rows=10)
        assert point == "table.announced"
    assert doomed.is_killed()

    client = serve().client
    table = client.status(run)["tables"]["users"]
    assert table["sealed"] is (point != "table.ending")
    assert client.end(run, chunks=1, rows=10).status_code == 200
    assert client.end(run, chunks=1, rows=10).status_code == 200
    assert client.end(run, chunks=2, rows=30).status_code == 409
    assert client.status(run)["tables"]["users"] == table | {
        "sealed": True,
        "expected_chunks": 1,
        "expected_rows": 10,
    }


@pytest.mark.parametrize("point", FORCE_END_POINTS)
@pytest.mark.long
def test_a_gateway_killed_around_force_end_leaves_nothing_half_ended(start, point: str) -> None:
    doomed = start(KOPI_CRASH_AT=point)
    before = doomed.connect()
    run, other = before.open_run(), before.open_run()
    for sent in (run, other):
        assert before.put(sent, 0, BODIES[0]).status_code == 201
    with pytest.raises(httpx.TransportError):
        before.http.delete(f"/api/v1/runs/{run}")
    assert doomed.is_killed()

    client = start().connect()  # with a janitor
    assert client.status(run)["state"] == ("open" if point == "force_end.begun" else "ended")
    assert client.http.delete(f"/api/v1/runs/{run}").json()["state"] == "ended"
    assert client.put(run, 1, BODIES[1]).status_code == 410
    eventually(lambda: client.files_of(run) == [])
    assert client.put(other, 1, BODIES[1]).status_code == 201
    assert len(client.files_of(other)) == 2
