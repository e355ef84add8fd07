"""Tokens and TLS: who may call, and which runs a caller sees."""

import json
import logging
import ssl
from pathlib import Path

import httpx
import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from gateway_client import GatewayClient, parquet_of
from pydantic import ValidationError

from kopitiam.contracts.config import GatewaySection
from kopitiam.contracts.errors import ConfigError
from kopitiam.gateway.server import listen
from waiting import PATIENCE_SECONDS

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
        assert [entry["run"] for entry in caller.http.get("/api/v1/runs").json()["runs"]] == [run]
        assert caller.status(run)["state"] == "open"
    own = ben.open_run()
    assert {entry["run"] for entry in admin.http.get("/api/v1/runs").json()["runs"]} == {run, own}
    assert admin.cancel(run).json()["state"] == "ended"

    everything = caplog.text + "".join(answer.text for answer in refusals)
    for token in (ANNA, BEN, ADMIN):
        assert token not in everything


def test_idempotency_keys_of_two_owners_are_separate(guarded: GatewayClient) -> None:
    runs = {as_caller(guarded, token).open_run(idempotency_key="k") for token in (ANNA, BEN)}
    assert len(runs) == 2


def test_tokens_stay_out_of_the_log_of_a_gateway(start) -> None:
    process = start(KOPI_GATEWAY__TOKENS=json.dumps({"anna": ANNA}), KOPI_GATEWAY__ADMIN_TOKEN=ADMIN)
    client = process.connect(token=ANNA)
    run = client.open_run()
    answers = [client.put(run, 0, b"x"), client.put(run), *calls_of(as_caller(client, f"{BEN}x"), run)]
    process.popen.terminate()
    assert process.popen.wait(PATIENCE_SECONDS) == 0
    output = process.log.read_text() + "".join(answer.text for answer in answers)
    for token in (ANNA, BEN, ADMIN):
        assert token not in output


def issue(authority: trustme.CA, folder: Path) -> tuple[Path, Path]:
    folder.mkdir(exist_ok=True)
    certificate, key = folder / "cert.pem", folder / "key.pem"
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(str(key))
    for position, blob in enumerate(issued.cert_chain_pems):
        blob.write_to_path(str(certificate), append=position > 0)
    return certificate, key


@pytest.mark.parametrize(
    ("files", "named"),
    [
        (("away.pem", "one/key.pem"), "gateway.tls_cert: .*away.pem: cannot be read: No such file"),
        (("one/cert.pem", "away.pem"), "gateway.tls_key: .*away.pem: cannot be read: No such file"),
        (("one/cert.pem", "two/key.pem"), "gateway.tls_cert, gateway.tls_key: .*MISMATCH"),
        (("junk.pem", "one/key.pem"), "gateway.tls_cert, gateway.tls_key: not a certificate"),
        (("one/cert.pem", "locked.pem"), "gateway.tls_cert, gateway.tls_key: .*without a password"),
    ],
)
def test_an_invalid_certificate_is_refused_before_the_start(tmp_path, files, named) -> None:
    authority = trustme.CA()
    for folder in ("one", "two"):
        issue(authority, tmp_path / folder)
    (tmp_path / "junk.pem").write_text("no certificate")
    (tmp_path / "locked.pem").write_bytes(
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
        )
    )
    certificate, key = (str(tmp_path / file) for file in files)
    section = GatewaySection(listen="127.0.0.1:0", tls_cert=certificate, tls_key=key)
    with pytest.raises(ConfigError, match=named):
        listen(section)


@pytest.mark.parametrize("key", ["tls_cert", "tls_key"])
def test_a_certificate_without_its_key_or_the_reverse_is_refused(key: str) -> None:
    with pytest.raises(ValidationError, match="tls_cert and tls_key: set both or neither"):
        GatewaySection.model_validate({key: "file.pem"})


def test_a_gateway_with_a_certificate_speaks_tls_only(serve, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate, key = issue(authority, tmp_path)
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
