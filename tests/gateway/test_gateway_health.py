"""Health, metrics, nodes, and events of a run."""

import json
import shutil
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, nullcontext
from dataclasses import asdict
from typing import Any

import httpx
import psycopg
import pytest
from gateway_client import GatewayClient, eventually, parquet_of
from gateways import Served
from sqlalchemy import text

from kopitiam.bus.memory import MemoryBus
from kopitiam.contracts.config import GatewaySection, Settings
from kopitiam.contracts.errors import RunFailed, Unavailable
from kopitiam.contracts.messages import NodeRecord
from kopitiam.contracts.runs import RunState
from kopitiam.gateway import observability
from kopitiam.gateway.app import close_gateway, open_gateway
from kopitiam.gateway.observability import Readiness
from kopitiam.gateway.server import listen, serving
from kopitiam.registry import Fence, open_registry
from waiting import PATIENCE_SECONDS


def test_a_healthy_gateway_is_ready(client: GatewayClient) -> None:
    assert client.http.get("/healthz").text == "ok\n"
    assert client.http.get("/readyz").text == "ready\n"
    assert client.incoming() == []


def test_a_gateway_without_its_registry_is_alive_but_not_ready(serve) -> None:
    served = serve()
    client = served.client
    run = client.open_run()
    served.gateway.registry.close()  # connections that are open keep their file
    for file in client.home.path.glob("registry.sqlite*"):
        file.unlink()
    (client.home.path / "registry.sqlite").mkdir()
    for response in (client.http.get("/readyz"), client.put(run), client.http.get("/api/v1/runs")):
        assert (response.status_code, response.json()["error"]) == (503, "unavailable")
        assert response.headers["Retry-After"]
    assert client.http.get("/healthz").status_code == 200


def test_a_gateway_is_not_ready_while_its_postgresql_is_away(start, postgresql, postgresql_url: str) -> None:
    client = start(KOPI_REGISTRY__URL=postgresql_url).connect()
    run = client.open_run()
    elsewhere = postgresql.get_uri().replace("/postgres?", "/template1?")
    away = "ALTER DATABASE postgres ALLOW_CONNECTIONS {}"
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'kopitiam'"
    with psycopg.connect(elsewhere, autocommit=True) as admin:
        admin.execute(away.format("false"))
        try:
            admin.execute(cut)
            response = client.http.get("/readyz")
        finally:
            admin.execute(away.format("true"))
    assert (response.status_code, response.json()["error"]) == (503, "unavailable")
    eventually(lambda: client.http.get("/readyz").status_code == 200)
    assert client.put(run).status_code == 201


def test_a_gateway_that_cannot_write_is_not_ready_and_answers_503(serve) -> None:
    served = serve()
    client, folder = served.client, served.gateway.incoming
    run = client.open_run()
    shutil.rmtree(folder)
    folder.write_text("in the way")
    for response in (client.http.get("/readyz"), client.put(run)):
        assert (response.status_code, response.json()["error"]) == (503, "unavailable")
        assert response.headers["Retry-After"]
    folder.unlink()
    folder.mkdir()
    eventually(lambda: client.http.get("/readyz").status_code == 200)
    assert client.put(run).status_code == 201


def test_many_probes_at_once_are_all_answered_and_write_nothing_to_the_registry(serve, monkeypatch) -> None:
    monkeypatch.setattr(observability, "WRITTEN_SECONDS", 3600)
    served = serve()
    client, registry = served.client, served.gateway.registry

    def writes() -> int:
        return registry._read(lambda connection: connection.scalar(text("SELECT checks FROM readiness")))

    assert client.http.get("/readyz").status_code == 200
    before = writes()
    with ThreadPoolExecutor(8) as probers:
        answers = probers.map(lambda _: client.http.get("/readyz").status_code, range(400))
        assert set(answers) == {200}
    assert writes() == before


def test_a_check_that_hangs_blocks_one_thread_for_any_number_of_probes(serve, monkeypatch) -> None:
    monkeypatch.setattr(observability, "_TIMEOUT_SECONDS", 0.3)
    served = serve()
    client, hanging, checks = served.client, threading.Event(), []

    def hang() -> None:
        checks.append(1)
        hanging.wait(20)

    served.gateway.readiness = Readiness([hang])
    try:
        with ThreadPoolExecutor(60) as probers:
            answers = list(probers.map(lambda _: client.http.get("/readyz"), range(60)))
        assert {answer.status_code for answer in answers} == {503}
        assert len(checks) == 1
        assert client.http.get("/api/v1/runs").status_code == 200
    finally:
        hanging.set()


def test_without_a_token_readyz_gives_no_reason(serve) -> None:
    served = serve(tokens={"anna": "a-secret"})
    client = served.client

    def check() -> None:
        raise Unavailable("registry: 10.0.0.5 does not answer")

    served.gateway.readiness = Readiness([check])
    for header, message in (
        (None, "not ready"),
        ("Bearer wrong", "not ready"),
        ("Bearer a-secret", "registry: 10.0.0.5 does not answer"),
    ):
        response = client.http.get("/readyz", headers={"Authorization": header} if header else {})
        assert (response.status_code, response.json()["message"]) == (503, message)


def test_a_landing_that_cannot_be_written_gets_503(serve) -> None:
    client = serve().client
    run = client.open_run()
    client.home.landing.write_text("in the way")
    response = client.put(run)
    assert (response.status_code, response.json()["error"]) == (503, "unavailable")
    client.home.landing.unlink()
    assert client.put(run).status_code == 201


def test_metrics_count_chunks_rows_and_bodies(serve) -> None:
    client = serve().client
    run, other = client.open_run(), client.open_run()
    assert client.metric("kopitiam_open_runs") == 2
    body = parquet_of("users", 10)
    client.put(run, 0, body)
    client.put(run, 0, body)
    client.put(run, 0, parquet_of("users", 11))
    client.put(run, 1, b"x")
    client.put_csv(run, "user_id,birthdate\n1,\nbad,\n", 2)
    for outcome, count in {"stored": 2, "same": 1, "conflict": 1, "refused": 1}.items():
        assert client.metric("kopitiam_chunks_total", table="users", outcome=outcome) == count, outcome
    assert client.metric("kopitiam_chunk_bytes_total", table="users") == len(body) + len(
        "user_id,birthdate\n1,\nbad,\n"
    )
    assert client.metric("kopitiam_rows_total", table="users") == 11
    assert client.metric("kopitiam_rejected_rows_total", table="users") == 1
    assert client.metric("kopitiam_chunk_seconds_count", step="check") == 5
    assert client.metric("kopitiam_chunk_seconds_count", step="register") >= 3
    client.cancel(other)
    assert client.metric("kopitiam_open_runs") == 1
    assert client.metric("kopitiam_bodies_under_way") == 0


def test_nodes_are_listed_as_registered(shared) -> None:
    assert shared.client.http.get("/api/v1/nodes").json() == []
    known = NodeRecord("gateway-1", "gateway", 1, "http://x", "alive", since=1.5, epoch=7)
    shared.gateway.registry.report_node(known)
    try:
        assert shared.client.http.get("/api/v1/nodes").json() == [asdict(known) | {"heard_seconds_ago": None}]
    finally:
        shared.gateway.registry.delete_node("gateway-1")


def statuses(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def test_events_come_at_once_with_every_change_and_until_the_run_is_over(
    client: GatewayClient, run: str
) -> None:
    with client.http.stream("GET", f"/api/v1/runs/{run}/events") as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        events = statuses(response)
        assert next(events) == client.status(run)
        client.put(run)
        assert next(events)["tables"]["users"]["rows"] == 10
        client.end(run)
        assert next(events)["tables"]["users"]["sealed"]
        client.cancel(run)
        assert next(events)["state"] == "ended"
        assert list(events) == []


def test_events_of_a_run_that_is_over_are_its_last_status(client: GatewayClient, run: str) -> None:
    client.cancel(run)
    with client.http.stream("GET", f"/api/v1/runs/{run}/events") as response:
        assert [event["state"] for event in statuses(response)] == ["ended"]


def test_events_end_when_the_run_is_removed(shared, run: str) -> None:
    client, registry = shared.client, shared.gateway.registry
    seen: list[str] = []

    def watch() -> None:
        with client.http.stream("GET", f"/api/v1/runs/{run}/events") as response:
            seen.extend(event["state"] for event in statuses(response))

    watcher = threading.Thread(target=watch)
    watcher.start()
    eventually(lambda: seen == ["open"])
    registry.move(run, RunState.FAILED)
    registry.delete_run(run)
    watcher.join(PATIENCE_SECONDS)
    assert not watcher.is_alive()
    assert seen in (["open"], ["open", "failed"])


def test_small_responses_are_not_delayed_by_nagle(shared: Served) -> None:
    """asyncio turns Nagle off only for sockets with IPPROTO_TCP; otherwise every call takes 40 ms more."""
    with closing(listen(shared.gateway.settings.gateway)) as bound:
        assert bound.proto == socket.IPPROTO_TCP


def test_a_gateway_is_not_ready_while_its_embedded_pipeline_fails(serve) -> None:
    served = serve()
    health = served.gateway.health
    health.failure = "Spark's process died; Spark is being started again"
    response = served.client.http.get("/readyz")
    assert (response.status_code, response.json()["error"]) == (503, "unavailable")
    assert "Spark's process died" in response.text
    health.record_progress()
    assert served.client.http.get("/readyz").status_code == 200


def test_a_blocked_event_loop_fails_the_pulse(tmp_path) -> None:
    is_blocked, released, ended = threading.Event(), threading.Event(), threading.Event()
    probes = []

    def keep_probe(probe):
        probes.append(probe)
        return nullcontext()

    settings = Settings(home=tmp_path, gateway=GatewaySection(listen="127.0.0.1:0"))
    with (
        closing(open_registry("sqlite", tmp_path)) as registry,
        closing(MemoryBus()) as bus,
        ThreadPoolExecutor(1) as threads,
    ):
        gateway = open_gateway(Fence("gateway-1", 1, "life"), settings, registry, bus)
        with serving(gateway, on_ended=ended.set, pulse=keep_probe):
            (probe,) = probes
            probe()
            server = probe.args[0]

            def stand_still() -> None:
                is_blocked.set()
                released.wait(20)

            server.loop.call_soon_threadsafe(stand_still)
            assert is_blocked.wait(20)
            answer = threads.submit(probe)
            assert not wait([answer], timeout=0.3).done
            released.set()
            answer.result(20)
            assert not ended.is_set()
            server.should_exit = True  # as if it had failed
            assert ended.wait(20)
            with pytest.raises(RunFailed):
                probe()
        close_gateway(gateway)
