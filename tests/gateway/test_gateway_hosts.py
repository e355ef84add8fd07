"""`Host`, `Origin` and the listening address: which ones a gateway accepts."""

import http.client
import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import pytest
from gateway_client import GatewayClient

from kopitiam.contracts.config import GatewaySection
from kopitiam.contracts.errors import ConfigError
from kopitiam.contracts.messages import NodeRecord
from kopitiam.gateway.dashboard.pages import stamp
from kopitiam.gateway.server import listen

ROUTES = (
    ("GET", "/"),
    ("GET", "/favicon.ico"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/api/v1/about"),
    ("GET", "/api/v1/nodes"),
    ("GET", "/api/v1/runs"),
    ("POST", "/api/v1/runs"),
    ("GET", "/api/v1/runs/" + "0" * 24 + "/events"),
    ("PUT", "/api/v1/runs/" + "0" * 24 + "/tables/users/chunks/0"),
    ("DELETE", "/api/v1/runs/" + "0" * 24),
    ("GET", "/nowhere"),
)


def call(
    client: GatewayClient, headers: Iterable[tuple[str, str]], method: str = "GET", path: str = "/api/v1/runs"
) -> tuple[int, dict[str, Any]]:
    """Send a request with exactly these headers."""
    place = urlsplit(client.url)
    assert place.hostname
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=20)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in headers:
        connection.putheader(name, value)
    connection.putheader("Content-Length", "0")
    connection.endheaders()
    response = connection.getresponse()
    body = response.read()
    connection.close()
    is_json = (response.getheader("Content-Type") or "").startswith("application/json")
    return response.status, json.loads(body) if is_json else {}


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_every_route_refuses_a_name_that_the_gateway_does_not_have(
    client: GatewayClient, method: str, path: str
) -> None:
    rebound = [("Host", "evil.example:8440"), ("Origin", "http://evil.example:8440")]
    status, problem = call(client, rebound, method, path)
    assert (status, problem["error"]) == (421, "host")
    assert "evil.example" in problem["message"]
    assert "gateway.allowed_hosts" in problem["message"]


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:1", "10.1.2.3:80", "[::1]", "[fd00::1]:8440", "localhost", "LocalHost:8440"],
)
def test_addresses_and_localhost_are_admitted(client: GatewayClient, host: str) -> None:
    assert call(client, [("Host", host)])[0] == 200


@pytest.mark.parametrize(
    "host",
    ["", " ", "127.0.0.1:x", "127.0.0.1:99999", "a b", "user@127.0.0.1", "127.0.0.1/x", "[::1", "[x]", "é"],
)
def test_a_malformed_host_is_refused(client: GatewayClient, host: str) -> None:
    status, problem = call(client, [("Host", host)])
    assert (status, problem["error"]) == (400, "host")


@pytest.mark.parametrize("hosts", [[], ["127.0.0.1", "127.0.0.1"], ["127.0.0.1", "evil.example"]])
def test_a_request_needs_exactly_one_host_header(client: GatewayClient, hosts: list[str]) -> None:
    status, problem = call(client, [("Host", host) for host in hosts])
    assert (status, problem["error"]) == (400, "host")


@pytest.mark.parametrize(
    "host", ["1.2.3.4.example", "127.0.0.1.evil.example", "localhost.evil.example", "2130706433"]
)
def test_names_that_look_like_an_address_are_names(client: GatewayClient, host: str) -> None:
    assert call(client, [("Host", host)])[0] == 421


def test_configured_names_are_admitted(serve) -> None:
    names = {"advertise": "https://kopitiam.example/", "allowed_hosts": ["Inside.Example"]}
    client = serve(**names).client
    for host in ("kopitiam.example", "KOPITIAM.example:443", "inside.example.", "inside.example:8440"):
        assert call(client, [("Host", host)])[0] == 200, host
    for host in ("x.kopitiam.example", "example", "kopitiam.example.evil"):
        assert call(client, [("Host", host)])[0] == 421, host


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "", "http://127.0.0.1:1", "http://localhost:8440", "file://"]
)
@pytest.mark.parametrize(("method", "path"), [route for route in ROUTES if route[0] != "GET"])
def test_pages_of_other_sites_may_not_change_anything(
    client: GatewayClient, method: str, path: str, origin: str
) -> None:
    headers = [("Host", "127.0.0.1:8440"), ("Origin", origin), ("Content-Type", "application/json")]
    status, problem = call(client, headers, method, path)
    assert (status, problem["error"]) == (403, "origin")


def test_a_page_of_the_gateway_itself_may_open_runs_also_behind_a_proxy_with_tls(serve) -> None:
    client = serve(advertise="https://kopitiam.example").client
    for host, origin in (
        ("127.0.0.1:8440", "http://127.0.0.1:8440"),
        ("kopitiam.example", "https://kopitiam.example"),
        ("kopitiam.example:443", "https://kopitiam.example"),
    ):
        headers = [("Host", host), ("Origin", origin), ("Content-Type", "application/json")]
        assert call(client, headers, "POST")[0] == 201, origin


def test_a_page_of_another_gateway_of_the_fleet_may_call_this_one(serve) -> None:
    served = serve(tokens={"anna": "s3cret"})
    node = NodeRecord("gateway-2", "gateway", 1, "http://H2:8440", "alive", 0.0, 1)
    served.gateway.registry.report_node(node)
    served.gateway.registry.report_node(NodeRecord("monitor-1", "monitor", 1, "http://m:1", "alive", 0.0, 1))
    http, page = served.client.http, {"Origin": "http://h2:8440"}
    asking = {"Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "authorization"}
    allowed = http.options("/api/v1/runs", headers=page | asking)
    assert (allowed.status_code, allowed.content) == (204, b"")
    assert allowed.headers["access-control-allow-origin"] == "http://h2:8440"
    assert "PUT" in allowed.headers["access-control-allow-methods"]
    assert "authorization" in allowed.headers["access-control-allow-headers"]
    token = {"Authorization": "Bearer s3cret"}
    opened = http.post("/api/v1/runs", json={}, headers=page | token)
    refused = http.post("/api/v1/runs", json={}, headers=page)
    assert (opened.status_code, refused.status_code) == (201, 401), "a token is needed all the same"
    for answer in (opened, refused, http.get("/readyz", headers=page)):
        assert answer.headers["access-control-allow-origin"] == "http://h2:8440"
        assert "retry-after" in answer.headers["access-control-expose-headers"]
    for origin in ("http://h2", "https://h2:8440", "http://h2:84401", "http://m:1"):
        other = http.options("/api/v1/runs", headers=asking | {"Origin": origin})
        assert "access-control-allow-origin" not in other.headers
        assert http.post("/api/v1/runs", json={}, headers={"Origin": origin} | token).status_code == 403
    policy = http.get("/").headers["content-security-policy"]
    assert "connect-src 'self' http://h2:8440;" in policy
    worker = http.get(f"/static/{stamp()}/upload/worker.js")
    assert worker.headers["content-security-policy"] == policy
    assert worker.headers["cache-control"] == "no-cache", "the policy of the worker comes with its file"


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "10.0.0.1:0", "gateway.example:0"])
def test_no_gateway_listens_beyond_this_machine_without_tokens(address: str) -> None:
    with pytest.raises(ConfigError, match=r"gateway\.tokens.*--insecure"):
        listen(GatewaySection(listen=address))


@pytest.mark.parametrize(
    "settings", [{"tokens": {"anna": "a-secret"}}, {"admin_token": "a-secret"}, {"insecure": True}]
)
def test_with_tokens_or_insecure_it_may_listen_everywhere(settings: dict[str, Any]) -> None:
    listen(GatewaySection(listen="0.0.0.0:0", **settings)).close()


@pytest.mark.parametrize("address", ["127.0.0.1:0", "127.8.9.1:0", "localhost:0"])
def test_on_this_machine_no_token_is_needed(address: str) -> None:
    listen(GatewaySection(listen=address)).close()
