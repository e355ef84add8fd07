"""The leader ends runs of lost clients; the janitor removes expired answers and orphans."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from gateway_client import GatewayClient, RawUpload, eventually, parquet_of

from kopitiam.contracts.errors import RegistryUnavailable
from kopitiam.contracts.runs import RunState, new_run_id
from kopitiam.gateway import janitor
from kopitiam.gateway.context import Gateway
from kopitiam.registry import Fence, Registry
from kopitiam.supervision import coordinator

HOUR = 3600


@pytest.fixture
def often(monkeypatch) -> None:
    monkeypatch.setattr(janitor, "_ROUND_SECONDS", 0.05)
    monkeypatch.setattr(janitor, "SETTLING_SECONDS", 0.0)
    monkeypatch.setattr(coordinator, "RECONCILE_SECONDS", 0.05)


@contextmanager
def janitor_and_leader(gateway: Gateway) -> Iterator[None]:
    """Run a janitor, and a leader that ends the runs of lost clients."""
    stopping = threading.Event()
    fence = Fence("leader", gateway.registry.take_over("leader", "monitor-1", HOUR), "monitor-1")
    leader = coordinator.Coordinator(gateway.registry, gateway.bus, fence)
    thread = threading.Thread(target=janitor.run_janitor, args=(gateway, stopping))
    thread.start()
    leader.start()
    try:
        yield
    finally:
        leader.stop()
        stopping.set()
        thread.join()


@pytest.mark.usefixtures("often")
def test_only_the_run_of_a_lost_client_is_ended(serve) -> None:
    served = serve(lease_seconds=5)
    client = served.client
    client.put(client.open_run())  # the first body waits for the examiners to start
    with janitor_and_leader(served.gateway):
        sealed = client.open_run(label="sealed")
        client.seal(sealed)
        lost, alive = (client.open_run(label=label) for label in ("lost", "alive"))
        for run in (lost, alive):
            assert client.put(run).status_code == 201

        def is_gone() -> bool:
            client.http.get(f"/api/v1/runs/{alive}/tables/users/chunks")  # any call renews the lease
            is_over = served.gateway.registry.get_run(lost).state is RunState.ENDED
            return is_over and client.files_of(lost) == []

        eventually(is_gone, 60)
        late = client.put(lost, 1)
        assert (late.status_code, late.json()["error"]) == (410, "over")
        assert client.status(lost)["error"] == "client lost for longer than its lease"
        assert client.status(alive)["state"] == "open"
        assert client.put(alive, 1).status_code == 201
        assert client.end(alive, chunks=2, rows=20).status_code == 200
        assert client.status(sealed)["state"] == "final"  # a sealed run needs no client


@pytest.mark.usefixtures("often")
def test_a_body_that_comes_slowly_keeps_its_run_alive(serve) -> None:
    served = serve(lease_seconds=3)
    client, body = served.client, parquet_of("users", 2000)
    with janitor_and_leader(served.gateway):
        run, other = client.open_run(), client.open_run()
        upload = RawUpload(client.url, run, len(body))
        position = 0

        def other_is_over() -> bool:
            nonlocal position
            upload.send(body[position : position + 1])
            position += 1
            return served.gateway.registry.get_run(other).state is RunState.ENDED

        begun = time.monotonic()
        eventually(lambda: other_is_over() and time.monotonic() > begun + 4, 60)
        upload.send(body[position:])
        assert upload.answer()[0] == 201
        upload.close()


def later(monkeypatch, hours: float) -> None:
    """Advance the registry's clock, which the janitor uses."""
    now = Registry.now
    monkeypatch.setattr(Registry, "now", lambda registry: now(registry) + hours * HOUR)


def published(client: GatewayClient, gateway: Gateway) -> str:
    run = client.open_run()
    client.put(run)
    client.end(run)
    for table in ("stores", "menu_items", "transactions", "transaction_items"):
        client.end(run, table, 0, 0)
    folder = client.home.attempt(run, "a1")
    folder.mkdir(parents=True)
    (folder / "results_query_1.csv").write_text("transaction_id,final_amount\n")
    gateway.registry.move(run, RunState.FINAL)
    gateway.registry.publish_results(run, "a1", {})
    return run


def test_answers_are_removed_after_keep_results_hours(serve, monkeypatch) -> None:
    served = serve(keep_results_hours=2)
    client, gateway = served.client, served.gateway
    done, still_open = published(client, gateway), client.open_run()
    client.put(still_open)
    later(monkeypatch, 1.9)
    janitor.remove_finished(gateway)
    assert client.http.get(f"/api/v1/runs/{done}/results/1.csv").status_code == 200

    later(monkeypatch, 2.1)
    janitor.remove_finished(gateway)
    assert client.files_of(done) == []
    assert client.http.get(f"/api/v1/runs/{done}").status_code == 404
    assert client.http.get(f"/api/v1/runs/{done}/results/1.csv").status_code == 404
    assert client.durable(still_open)
    assert client.file(still_open).is_file()


@pytest.mark.parametrize("hours", [24, 0])
def test_files_of_ended_runs_are_swept_and_those_of_unknown_runs_after_orphan_hours(
    serve, caplog, hours: int
) -> None:
    served = serve(orphan_hours=hours)
    client, gateway = served.client, served.gateway
    alive, ended, failed, done = (client.open_run() for _ in range(3)), None, None, None
    alive, ended, failed = alive
    done = published(client, gateway)
    for run in (alive, ended, failed):
        assert client.put(run).status_code == 201
    kept = client.file(failed).read_bytes()
    gateway.registry.force_end(ended, "left files behind")
    gateway.registry.move(failed, RunState.FAILED, "wrong")
    forgotten = new_run_id()
    stranger = client.home.path / "landing" / "table=users" / "shard=0" / "run=..not-a-run"
    for folder in (client.home.table_folder(forgotten, "users", 0), client.home.results(forgotten), stranger):
        folder.mkdir(parents=True)
        (folder / "chunk-00000.parquet").write_bytes(kept)
    for _ in range(2):
        janitor.sweep(gateway)
    assert client.file(alive).is_file()
    for run in (ended, failed):
        assert client.files_of(run) == []
    assert len(client.files_of(forgotten)) == (2 if hours else 0)
    messages = [record.message for record in caplog.records if getattr(record, "run", None) == forgotten]
    expected = "stay for 24 h" if hours else "for 0 h; its files are removed"
    assert len(messages) == 1 and expected in messages[0]
    assert [path.name for path in client.files_of(done)] == ["results_query_1.csv"]
    assert (stranger / "chunk-00000.parquet").is_file()


@pytest.mark.usefixtures("often")
def test_the_janitor_survives_errors_of_the_registry(serve, monkeypatch) -> None:
    served = serve()
    registry, failures = served.gateway.registry, iter([RegistryUnavailable("gone"), OSError(28, "full")])
    healthy = registry.finished_before

    def finished_before(*arguments, **more):
        for failure in failures:
            raise failure
        return healthy(*arguments, **more)

    monkeypatch.setattr(registry, "finished_before", finished_before)
    client, run = served.client, served.client.open_run()
    with janitor_and_leader(served.gateway):
        assert client.put(run).status_code == 201
        registry.move(run, RunState.FAILED, "left files behind")
        eventually(lambda: client.files_of(run) == [])
    assert next(failures, None) is None
