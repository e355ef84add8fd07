"""Messages of a gateway: ENDs, Force Ends, requests for provisional answers; and progress of the stages."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest
from gateway_client import eventually
from gateways import Served
from standin_pipeline import answering

from kopitiam.contracts.api import ATTEMPT_HEADER
from kopitiam.contracts.batches import Batch, Processed, StageRows
from kopitiam.contracts.layout import KEYS
from kopitiam.contracts.messages import (
    END_TOPICS,
    HEARTBEAT_TOPIC,
    ForceEnd,
    Heartbeat,
    Message,
    NodeRecord,
    TableEnd,
)
from kopitiam.contracts.runs import RunState
from kopitiam.gateway import run_answers
from kopitiam.gateway.routes import runs
from kopitiam.pipeline.reporting import report_answers
from kopitiam.questions.question_set import QuestionSet

SHARDS = 3


@pytest.fixture
def served(serve: Callable[..., Served]) -> Served:
    return serve(shards=SHARDS)


@contextmanager
def recorded(served: Served) -> Iterator[list[Message]]:
    """Record all ENDs and Force Ends in order."""
    messages: list[Message] = []
    bus = served.gateway.bus
    subscriptions = [bus.subscribe(END_TOPICS, messages.append), bus.listen(messages.append)]
    try:
        yield messages
    finally:
        for subscription in subscriptions:
            subscription.cancel()


def process(served: Served, run: str, table: str = "users") -> None:
    """Commit the chunks of one table, as a pipeline does."""
    registry = served.gateway.registry
    spans = {
        shard: (after, registry.last_sequence(shard))
        for shard, after in registry.positions(range(SHARDS)).items()
    }
    log = [chunk for shard, span in spans.items() for chunk in registry.read_span(shard, *span)]
    processed = [Processed(run, table, chunk.shard, 1, chunk.rows) for chunk in log]
    counted = [StageRows(run, f"check_{table}", chunk.shard, chunk.rows, chunk.rows) for chunk in log]
    number = sum(upto for _, upto in spans.values())
    registry.commit_batch(Batch("query", number, spans, tuple(processed), stage_rows=tuple(counted)))


def test_every_shard_gets_its_end_and_every_node_a_force_end(served: Served) -> None:
    client, run = served.client, served.client.open_run()
    with recorded(served) as messages:
        for number in (0, 1):
            client.put(run, number)
        assert client.end(run, chunks=3, rows=30).status_code == 409  # no message for a refused END
        assert client.end(run, chunks=2, rows=20).status_code == 200
        eventually(lambda: messages)  # otherwise the broadcast might overtake it
        client.cancel(run)
        client.cancel(run)
        eventually(lambda: len(messages) == 2)
    assert messages == [
        TableEnd(run=run, table="users", shards={0: (1, 10), 1: (1, 10), 2: (0, 0)}),
        ForceEnd(runs=(run,), reason="cancelled"),
    ]


def test_clients_do_not_notice_that_the_bus_is_away(served: Served) -> None:
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
    plan = QuestionSet.of_catalog().stages
    assert list(stages) == [*plan.before_barrier, *plan.behind_barrier]
    nothing = {"role": "check", "expected": None, "processed": 0, "rows": 0, "rows_out": 0}
    assert stages["check_users"] == {str(shard): nothing for shard in range(SHARDS)}
    client.put(run, 0)
    client.end(run, chunks=2, rows=20)
    process(served, run)
    stages = client.status(run)["stages"]
    done = {"role": "check", "expected": 1, "processed": 1, "rows": 10, "rows_out": 10}
    assert stages["check_users"] == {"0": done, "1": done, "2": nothing | {"expected": 0}}
    assert stages["filter_year"] == {str(shard): nothing | {"role": "filter"} for shard in range(SHARDS)}
    assert stages["server_results"] == {"0": nothing | {"role": "publish", "expected": 1}}


def test_watchers_of_a_run_get_its_end_at_once(served: Served, monkeypatch) -> None:
    monkeypatch.setattr(runs, "_POLL_SECONDS", 600)
    client, gateway, run = served.client, served.gateway, served.client.open_run()
    client.seal(run)
    gateway.registry.move(run, RunState.FINAL)
    with client.http.stream("GET", f"/api/v1/runs/{run}/events") as response:
        events = (json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: "))
        assert next(events)["state"] == "final"
        gateway.registry.publish_results(run, "a1", {"answers": {"1": 5}})
        report_answers(gateway.bus, run, 5)
        assert [event["state"] for event in events] == ["done"]


def test_provisional_answers_are_made_once_for_what_has_been_processed(served: Served) -> None:
    client, run = served.client, served.client.open_run()

    def answer(name: str) -> str:
        response = client.http.get(f"/api/v1/runs/{run}/results/{name}", params={"provisional": True})
        assert response.status_code == 200
        attempt = json.loads(response.text)["attempt"] if name.endswith(".json") else response.text
        assert attempt == response.headers[ATTEMPT_HEADER]
        return str(attempt)

    with answering(served.gateway) as requested:
        names = ["1.csv", "2_1.json", "4.parquet", "summary.json"]
        assert {answer(name) for name in names} == {"attempt1"}
        client.put(run)
        assert answer("1.csv") == "attempt1"  # the new rows are not processed yet
        process(served, run)
        assert {answer(name) for name in names} == {"attempt2"}
    assert requested == [run, run]
    assert client.http.get(f"/api/v1/runs/{run}/results/1.csv").status_code == 409
    client.cancel(run)
    late = client.http.get(f"/api/v1/runs/{run}/results/1.csv", params={"provisional": True})
    assert (late.status_code, late.json()["error"]) == (410, "over")


def test_provisional_answers_give_their_current_coverage(served: Served) -> None:
    client, run = served.client, served.client.open_run()

    def covered(path: str) -> dict[str, int | None]:
        body = client.http.get(f"/api/v1/runs/{run}/results{path}", params={"provisional": True}).json()
        coverage: dict[str, int | None] = body.get("summary", body)["coverage"]
        return coverage

    with answering(served.gateway, are_real=True) as requested:
        client.put(run)
        process(served, run)
        paths = ("/summary.json", "/3.json", "")  # the last one is the index of the answers
        for path in paths:
            assert covered(path) == {"processed": 10, "durable": 10, "expected": None}
        client.put(run, 1)  # not processed yet
        for path in paths:
            assert covered(path) == {"processed": 10, "durable": 20, "expected": None}
        page = client.http.get(f"/api/v1/runs/{run}/results/report.html", params={"provisional": True})
        assert "Provisional: 10 rows of 20 received so far." in page.text
    assert requested == [run]


def test_one_attempt_of_provisional_answers_can_be_read_until_it_is_replaced(served: Served) -> None:
    client, run = served.client, served.client.open_run()

    def get(name: str, attempt: str) -> httpx.Response:
        query = {"provisional": "true", "attempt": attempt}
        return client.http.get(f"/api/v1/runs/{run}/results/{name}", params=query)

    with answering(served.gateway, are_real=True):
        query = {"provisional": True}
        first = client.http.get(f"/api/v1/runs/{run}/results/summary.json", params=query)
        client.put(run)
        process(served, run)
        newer = client.http.get(f"/api/v1/runs/{run}/results/summary.json", params=query)
        attempt = first.headers[ATTEMPT_HEADER]
        assert attempt != newer.headers[ATTEMPT_HEADER]
        for name in ("summary.json", "1.csv", "3.json", "4.parquet", "report.html"):
            response = get(name, attempt)
            assert (response.status_code, response.headers[ATTEMPT_HEADER]) == (200, attempt)
    served.gateway.storage.remove(KEYS.provisional(run, attempt))
    for name in ("summary.json", "1.csv", "3.json", "4.parquet", "report.html"):
        response = get(name, attempt)
        assert (response.status_code, response.json()["error"]) == (404, "replaced")
    assert get("1.csv", "../a1").status_code == 422


def test_without_a_pipeline_provisional_answers_get_503(served: Served, monkeypatch) -> None:
    monkeypatch.setattr(run_answers, "PROVISIONAL_SECONDS", 0.1)
    run = served.client.open_run()
    response = served.client.http.get(f"/api/v1/runs/{run}/results/1.csv", params={"provisional": True})
    assert (response.status_code, response.json()["error"]) == (503, "not_ready")
    assert int(response.headers["Retry-After"]) > 0


def test_a_run_that_ends_while_provisional_answers_are_awaited_is_over(served: Served, monkeypatch) -> None:
    gateway, run = served.gateway, served.client.open_run()
    ended = gateway.registry.get_run(run)

    def end_meanwhile(_: float) -> None:
        gateway.registry.force_end(run, "cancelled")

    with pytest.raises(run_answers.RunOver):
        run_answers.provisional_attempt(gateway, ended, pause=end_meanwhile)


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
