"""The files of the dashboard: policy, compression and caching."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from gateway_client import GatewayClient

from kopitiam.gateway.dashboard.pages import STATIC, stamp


class Addresses(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.inline: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.addresses += [
            value for name in ("src", "href") if (value := attributes.get(name)) and value[0] != "#"
        ]
        self.inline += [tag for name in attributes if name == "style" or name.startswith("on")]


def test_the_page_comes_with_a_strict_content_security_policy(client: GatewayClient) -> None:
    response = client.http.get("/")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")
    header = response.headers["content-security-policy"]
    policy = dict(part.strip().split(" ", 1) for part in header.split(";"))
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "connect-src", "worker-src")} == {"'self'"}
    assert {policy[name] for name in ("frame-ancestors", "base-uri", "form-action")} == {"'none'"}
    assert "unsafe" not in header
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "no-referrer"


def test_every_file_that_the_page_names_exists_and_may_be_cached_for_ever(client: GatewayClient) -> None:
    page = Addresses(client.http.get("/").text)
    assert page.inline == []
    assert len(page.addresses) > 5
    for address in page.addresses:
        response = client.http.get(address)
        assert response.status_code == 200, address
        assert "immutable" in response.headers["cache-control"]


def test_every_import_of_a_module_exists(client: GatewayClient) -> None:
    for module in STATIC.rglob("*.js"):
        for name in re.findall(r'(?:from|import\(|^import) ?"(\.[^"]+)"', module.read_text(), re.MULTILINE):
            path = (module.parent / name).resolve().relative_to(STATIC)
            assert client.http.get(f"/static/{stamp()}/{path}").status_code == 200, (module, name)


def test_a_page_that_has_not_changed_is_not_sent_again(client: GatewayClient) -> None:
    for address in ("/", f"/static/{stamp()}/app.js"):
        tag = client.http.get(address).headers["etag"]
        again = client.http.get(address, headers={"If-None-Match": tag})
        assert (again.status_code, again.content) == (304, b"")
        assert client.http.get(address, headers={"If-None-Match": '"other"'}).status_code == 200


def test_files_are_compressed_if_the_client_accepts_gzip(client: GatewayClient) -> None:
    address = f"/static/{stamp()}/style.css"
    packed = client.http.get(address, headers={"Accept-Encoding": "gzip"})
    plain = client.http.get(address, headers={"Accept-Encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.content == plain.content
    assert int(packed.headers["content-length"]) < len(plain.content) / 2


def test_a_page_of_another_version_gets_files_but_must_not_cache_them(client: GatewayClient) -> None:
    response = client.http.get("/static/another/app.js")
    assert (response.status_code, response.headers["cache-control"]) == (200, "no-cache")


@pytest.mark.parametrize(
    "name",
    [
        "nothing.js",
        "",
        "..%2ffiles.py",
        "%2e%2e/files.py",
        "charts/__init__.py",
        "charts/..%2freport.py",
        "%00",
    ],
)
def test_only_files_of_the_page_are_served(client: GatewayClient, name: str) -> None:
    response = client.http.get(f"/static/{stamp()}/{name}")
    assert (response.status_code, response.json()["error"]) == (404, "not_found")


def test_the_page_needs_no_token_but_its_data_does(serve) -> None:
    client = serve(tokens={"anna": "anna-7f3c-secret"}).client
    assert client.http.get("/").status_code == 200
    about = client.http.get("/api/v1/about").json()
    assert about["needs_token"] is True
    assert "anna" not in str(about)
    assert client.http.get("/api/v1/runs").status_code == 401


def test_about_lists_limits_and_default_questions(serve, tmp_path: Path) -> None:
    client = serve(max_chunk_bytes=1000, max_chunk_rows=10, lease_seconds=7).client
    about = client.http.get("/api/v1/about").json()
    assert (about["max_chunk_bytes"], about["max_chunk_rows"], about["lease_seconds"]) == (1000, 10, 7)
    assert about["needs_token"] is False
    assert about["questions"]["years"] == [2024, 2025]
    assert about["tables"]["users"] == ["user_id", "birthdate"]
