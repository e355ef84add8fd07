"""What a gateway tells the other nodes, what it asks of a pipeline, and how it shows their progress."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from gateway_client import eventually
from gateways import Served
from standin_pipeline import answering

from kopitiam.contracts.batches import Batch, Processed
from kopitiam.contracts.messages import (
    END_TOPICS,
    HEARTBEAT_TOPIC,
    ForceEnd,
    Heartbeat,
    Message,
    TableEnd,
)
from kopitiam.contracts.nodes import NodeRecord
from kopitiam.contracts.stages import BEFORE_BARRIER, BEHIND_BARRIER
from kopitiam.gateway import provisional

SHARDS = 3


@pytest.fixture
def served(serve: Callable[..., Served]) -> Served:
    return serve(shards=SHARDS)


@contextmanager
def heard(served: Served) -> Iterator[list[Message]]:
    """Everything about ENDs and Force Ends, in the order in which it was told."""
    messages: list[Message] = []
    bus = served.gateway.bus
    subscriptions = [bus.subscribe(END_TOPICS, messages.append), bus.listen(messages.append)]
    try:
        yield messages
    finally:
        for subscription in subscriptions:
            subscription.cancel()


def process(served: Served, run: str, table: str = "users") -> None:
    """As a pipeline commits what is in the log, of one table."""
    registry = served.gateway.registry
    spans = {
        shard: (after, registry.last_sequence(shard))
        for shard, after in registry.positions(range(SHARDS)).items()
    }
    log = [chunk for shard, span in spans.items() for chunk in registry.read_span(shard, *span)]
    processed = [Processed(run, table, chunk.shard, 1, chunk.rows) for chunk in log]
    registry.commit_batch(Batch("query", sum(upto for _, upto in spans.values()), spans, tuple(processed)))


def test_every_shard_is_told_its_end_and_every_node_of_a_force_end(served: Served) -> None:
    client, run = served.client, served.client.open_run()
    with heard(served) as messages:
        for number in (0, 1):
            client.put(run, number)
        assert client.end(run, chunks=3, rows=30).status_code == 409  # nobody is told of that
        assert client.end(run, chunks=2, rows=20).status_code == 200
        client.cancel(run)
        client.cancel(run)
        eventually(lambda: len(messages) == 2)
    assert messages == [
        TableEnd(run=run, table="users", shards={0: (1, 10), 1: (1, 10), 2: (0, 0)}),
        ForceEnd(runs=(run,), reason="cancelled"),
    ]


def test_a_bus_that_is_away_is_no_trouble_of_the_client(served: Served) -> None:
    client, run = served.client, served.client.open_run()
    served.gateway.bus.close()
    client.put(run)
    assert client.end(run).status_code == 200
    assert client.cancel(run).json()["state"] == "ended"
    assert client.files_of(run) == []


def test_the_stages_show_what_each_shard_expects_and_has_processed(served: Served) -> None:
    client, run = served.client, served.client.open_run()
    client.put(run, 1)
    stages = client.status(run)["stages"]
    assert set(stages) == {*BEFORE_BARRIER, *BEHIND_BARRIER}
    nothing = {"expected": None, "processed": 0, "rows": 0}
    assert stages["join_users"] == {str(shard): nothing for shard in range(SHARDS)}
    client.put(run, 0)
    client.end(run, chunks=2, rows=20)
    process(served, run)
    stages = client.status(run)["stages"]
    done = {"expected": 1, "processed": 1, "rows": 10}
    assert stages["join_users"] == {"0": done, "1": done, "2": nothing | {"expected": 0}}
    assert stages["filter_year"] == {str(shard): nothing for shard in range(SHARDS)}
    assert stages["server_results"] == {"0": {"expected": 1, "processed": 0, "rows": 0}}


def test_provisional_answers_are_made_once_for_what_has_been_processed(served: Served) -> None:
    client, run = served.client, served.client.open_run()

    def answer(name: str) -> str:
        response = client.http.get(f"/api/v1/runs/{run}/results/{name}", params={"provisional": True})
        assert response.status_code == 200
        return response.text

    with answering(served.gateway) as asked:
        names = ["1.csv", "2_1.json", "4.parquet", "summary.json"]
        assert {answer(name) for name in names} == {"attempt1"}
        client.put(run)
        assert answer("1.csv") == "attempt1"  # what has come is not processed yet
        process(served, run)
        assert {answer(name) for name in names} == {"attempt2"}
    assert asked == [run, run]
    assert client.http.get(f"/api/v1/runs/{run}/results/1.csv").status_code == 409
    client.cancel(run)
    late = client.http.get(f"/api/v1/runs/{run}/results/1.csv", params={"provisional": True})
    assert (late.status_code, late.json()["error"]) == (410, "over")


def test_without_a_pipeline_provisional_answers_are_refused_for_now(served: Served, monkeypatch) -> None:
    monkeypatch.setattr(provisional, "PATIENCE_SECONDS", 0.1)
    run = served.client.open_run()
    response = served.client.http.get(f"/api/v1/runs/{run}/results/1.csv", params={"provisional": True})
    assert (response.status_code, response.json()["error"]) == (503, "not_ready")
    assert int(response.headers["Retry-After"]) > 0


def test_a_run_that_ends_while_its_answers_are_waited_for_says_so(served: Served, monkeypatch) -> None:
    gateway, run = served.gateway, served.client.open_run()
    ended = gateway.registry.get_run(run)

    def end_meanwhile(_: float) -> None:
        gateway.registry.force_end(run, "cancelled")

    with pytest.raises(provisional.RunOver):
        provisional.provisional_attempt(gateway, ended, pause=end_meanwhile)


def test_nodes_are_shown_with_the_age_of_their_last_heartbeat(served: Served) -> None:
    for name in ("monitor-1", "monitor-2"):
        served.gateway.registry.report_node(NodeRecord(name, "monitor", 1, None, "alive", 0.0, 1))
    beat = Heartbeat(node="monitor-1", kind="monitor", epoch=1, pid=1, url=None, sent_at=0.0)
    served.gateway.bus.publish(HEARTBEAT_TOPIC, beat)

    def ages() -> dict[str, float | None]:
        nodes = served.client.http.get("/api/v1/nodes").json()
        return {node["name"]: node["heard_seconds_ago"] for node in nodes}

    eventually(lambda: ages()["monitor-1"] is not None)
    assert 0 <= (ages()["monitor-1"] or 0) < 60
    assert ages()["monitor-2"] is None
