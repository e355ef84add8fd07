"""Tokens and TLS: who may call, and whose runs they see."""

import json
import logging
import ssl
from pathlib import Path

import httpx
import pytest
import trustme
from gateway_client import GatewayClient, parquet_of

ANNA, BEN, ADMIN = "anna-7f3c-secret", "ben-91ab-secret", "admin-55de-secret"
TOKENS = {"tokens": {"anna": ANNA, "ben": BEN}, "admin_token": ADMIN}


@pytest.fixture
def guarded(serve, caplog) -> GatewayClient:
    caplog.set_level(logging.DEBUG)
    client: GatewayClient = serve(**TOKENS).client
    return client


def calls_of(client: GatewayClient, run: str) -> list[httpx.Response]:
    place, http = f"/api/v1/runs/{run}", client.http
    csv = {"Content-Type": "text/csv"}
    return [
        http.get(place),
        client.put(run, 7),
        client.end(run, "stores", 0, 0),
        http.get(f"{place}/tables/users/chunks"),
        http.put(f"{place}/tables/users/rejected", content=b"x\n", headers=csv),
        http.get(f"{place}/rejected.csv"),
        http.get(f"{place}/results/summary.json"),
        http.get(f"{place}/results/1.csv"),
        http.get(f"{place}/events"),
        http.delete(place),
    ]


def as_caller(client: GatewayClient, token: str) -> GatewayClient:
    return GatewayClient(client.url, client.home.path, token)


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer wrong", f"Basic {ANNA}", ANNA, "Bearer é"])
def test_every_call_but_health_needs_a_token(guarded: GatewayClient, header) -> None:
    if header is not None:
        guarded.http.headers = httpx.Headers([(b"Authorization", header.encode())])
    http = guarded.http
    refused = [*calls_of(guarded, "0" * 24), http.get("/api/v1/runs"), http.post("/api/v1/runs", json={})]
    for response in (*refused, http.get("/metrics"), http.get("/api/v1/nodes")):
        assert (response.status_code, response.json()["error"]) == (401, "unauthorized"), response.request.url
        assert response.headers["WWW-Authenticate"] == "Bearer"
    assert http.get("/healthz").status_code == 200
    assert http.get("/readyz").status_code == 200


def test_a_run_is_seen_only_by_its_owner_and_the_administrator(guarded: GatewayClient, caplog) -> None:
    anna, ben, admin = (as_caller(guarded, token) for token in (ANNA, BEN, ADMIN))
    run = anna.open_run(label="May")
    assert anna.put(run).status_code == 201
    refusals = calls_of(ben, run)
    assert {answer.status_code for answer in refusals} == {404}
    assert {answer.text for answer in refusals} == {
        json.dumps({"error": "not_found", "message": f"no run {run}"}, separators=(",", ":"))
    }
    assert ben.http.get("/api/v1/runs").json()["runs"] == []
    for caller in (anna, admin):
        assert [each["run"] for each in caller.http.get("/api/v1/runs").json()["runs"]] == [run]
        assert caller.status(run)["state"] == "open"
    own = ben.open_run()
    assert {each["run"] for each in admin.http.get("/api/v1/runs").json()["runs"]} == {run, own}
    assert admin.cancel(run).json()["state"] == "ended"

    everything = caplog.text + "".join(answer.text for answer in refusals)
    for token in (ANNA, BEN, ADMIN):
        assert token not in everything


def test_keys_of_two_owners_do_not_meet(guarded: GatewayClient) -> None:
    runs = {as_caller(guarded, token).open_run(idempotency_key="k") for token in (ANNA, BEN)}
    assert len(runs) == 2


def test_tokens_stay_out_of_the_log_of_a_gateway(start) -> None:
    process = start(KOPI_GATEWAY__TOKENS=json.dumps({"anna": ANNA}), KOPI_GATEWAY__ADMIN_TOKEN=ADMIN)
    client = process.connect(token=ANNA)
    run = client.open_run()
    answers = [client.put(run, 0, b"x"), client.put(run), *calls_of(as_caller(client, f"{BEN}x"), run)]
    process.popen.terminate()
    assert process.popen.wait(20) == 0
    said = process.log.read_text() + "".join(answer.text for answer in answers)
    for token in (ANNA, BEN, ADMIN):
        assert token not in said


def test_a_gateway_with_a_certificate_speaks_tls_only(serve, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(str(key))
    for position, blob in enumerate(issued.cert_chain_pems):
        blob.write_to_path(str(certificate), append=position > 0)
    plain = serve(tls_cert=str(certificate), tls_key=str(key)).client

    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    client = GatewayClient(plain.url, plain.home.path, verify=trusting)
    assert client.url.startswith("https://")
    run = client.open_run()
    assert client.put(run, 0, parquet_of("users", 5000)).status_code == 201
    for distrustful in (
        GatewayClient(client.url, client.home.path),
        GatewayClient("http" + client.url[5:], tmp_path),
    ):
        with pytest.raises(httpx.TransportError):
            distrustful.http.get("/healthz")
