"""Ids, tables and numbers are closed sets, never paths: anything else is not found."""

from pathlib import Path

import pytest
from gateway_client import GatewayClient, parquet_of

from kopitiam.contracts.api import PARQUET

TRICKS = [
    "..",
    "..%2f..%2fetc",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "..%5c..%5cx",
    "%00",
    "aaaaaaaaaaaaaaaaaaaaaaaa%00",
    "aaaaaaaaaaaaaaaaaaaaaaaa%0a",
    "AAAAAAAAAAAAAAAAAAAAAAAA",
    "a" * 15,
    "a" * 33,
    "a" * 5000,
    "%2fetc%2fpasswd",
    "run=aaaaaaaaaaaaaaaaaaaa",
    "*",
    "%ff%fe",
    "ａａａａａａａａａａａａａａａａ",
]


def tree(home: Path) -> set[Path]:
    return {path for path in home.parent.rglob("*") if "registry" not in path.name}


def put(client: GatewayClient, path: str) -> tuple[int, str]:
    response = client.http.put(path, content=parquet_of(), headers={"Content-Type": PARQUET})
    return response.status_code, response.json()["error"]


@pytest.mark.parametrize("trick", TRICKS)
def test_an_invalid_id_is_not_found_and_nothing_is_written(client: GatewayClient, trick: str) -> None:
    before = tree(client.home.path)
    for path in (
        f"/api/v1/runs/{trick}/tables/users/chunks/0",
        f"/api/v1/runs/{trick}/tables/users/rejected",
    ):
        assert put(client, path) == (404, "not_found")
    for path in (f"/api/v1/runs/{trick}/rejected.csv", f"/api/v1/runs/{trick}/results/1.csv"):
        response = client.http.get(path)
        assert (response.status_code, response.json()["error"]) == (404, "not_found")
    assert tree(client.home.path) == before


@pytest.mark.parametrize("trick", [*TRICKS, "vouchers", "Users", "users%2f", "users%2f..%2fstores"])
def test_an_invalid_table_is_not_found_and_nothing_is_written(client, run: str, trick: str) -> None:
    before = tree(client.home.path)
    assert put(client, f"/api/v1/runs/{run}/tables/{trick}/chunks/0") == (404, "not_found")
    assert client.http.get(f"/api/v1/runs/{run}/tables/{trick}/chunks").status_code == 404
    end = client.http.post(f"/api/v1/runs/{run}/tables/{trick}/end", json={"chunks": 0, "rows": 0})
    assert end.status_code == 404
    assert tree(client.home.path) == before


@pytest.mark.parametrize(
    "number", ["-1", "10000000", str(2**63), "9" * 4000, "x", "1.5", "1e3", "%00", "..%2f0", "0x10", "%20"]
)
def test_an_invalid_number_is_not_found_and_nothing_is_written(client, run: str, number: str) -> None:
    before = tree(client.home.path)
    assert put(client, f"/api/v1/runs/{run}/tables/users/chunks/{number}") == (404, "not_found")
    assert tree(client.home.path) == before


def test_the_largest_number_is_accepted(client: GatewayClient, run: str) -> None:
    assert client.put(run, 9_999_999).status_code == 201


def test_unknown_paths_and_wrong_methods_get_json(client: GatewayClient) -> None:
    missing, wrong = client.http.get("/nowhere"), client.http.delete("/api/v1/runs")
    assert (missing.status_code, missing.json()["error"]) == (404, "not_found")
    assert (wrong.status_code, wrong.json()["error"]) == (405, "method_not_allowed")
    assert wrong.headers["Allow"]
