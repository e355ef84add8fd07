"""Signals: SIGTERM drains, a second one exits at once, and SIGKILL leaves no processes behind."""

import time

import httpx
import pytest
from gateway_client import GatewayClient, RawUpload, eventually, parquet_of
from gateways import served

from kopitiam.gateway import server
from processes import is_alive
from waiting import PATIENCE_SECONDS


def under_way(client: GatewayClient, run: str, body: bytes) -> RawUpload:
    upload = RawUpload(client.url, run, len(body))
    upload.send(body[:-1])
    eventually(lambda: client.metric("kopitiam_bodies_under_way") == 1)
    return upload


def refusal(url: str) -> httpx.Response | None:
    response = httpx.get(f"{url}/healthz", trust_env=False)
    return response if response.status_code == 503 else None


def test_after_sigterm_a_gateway_finishes_requests_under_way(start) -> None:
    process = start()
    client, body = process.connect(), parquet_of("users", 2000)
    run = client.open_run()
    upload = under_way(client, run, body)
    with client.http.stream("GET", f"/api/v1/runs/{run}/events") as events:
        process.popen.terminate()
        refused = eventually(lambda: refusal(client.url))
        assert refused.json()["error"] == "closing"
        assert refused.headers["Retry-After"]
        events.read()  # the stream ends, so the client goes to another gateway
    assert process.popen.poll() is None
    upload.send(body[-1:])
    assert upload.answer()[0] == 201
    answered = time.monotonic()
    assert process.popen.wait(PATIENCE_SECONDS) == 0
    assert time.monotonic() - answered < 10
    assert client.file(run).read_bytes() == body
    assert client.incoming() == []


def test_a_closing_gateway_does_not_wait_forever_for_a_client(tmp_path, monkeypatch) -> None:
    assert server.CLOSING_SECONDS < 9
    monkeypatch.setattr(server, "CLOSING_SECONDS", 0.5)
    with served(tmp_path / "home") as hurried:
        client = hurried.client
        upload = under_way(client, client.open_run(), parquet_of())
        signalled_at = time.monotonic()
    assert time.monotonic() - signalled_at < 15
    upload.close()


@pytest.mark.long
def test_after_a_second_sigterm_a_gateway_exits_at_once(start) -> None:
    process = start()
    client, body = process.connect(), parquet_of()
    upload = under_way(client, client.open_run(), body)
    examiners = process.children()
    process.popen.terminate()
    eventually(lambda: refusal(client.url))
    signalled_at = time.monotonic()
    process.popen.terminate()
    process.popen.wait(PATIENCE_SECONDS)
    assert time.monotonic() - signalled_at < server.CLOSING_SECONDS
    upload.close()
    eventually(lambda: not any(map(is_alive, examiners)))


def test_a_killed_gateway_leaves_no_examiner_process(start) -> None:
    process = start()
    client = process.connect()
    assert client.put(client.open_run()).status_code == 201
    examiners = process.children()
    assert len(examiners) >= 2
    process.popen.kill()
    process.popen.wait()
    eventually(lambda: not any(map(is_alive, examiners)))
