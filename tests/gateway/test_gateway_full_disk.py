"""A full disk: clients get 503, and are served when there is room again."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from gateway_client import eventually, parquet_of
from gateways import served

from full_disk import fill, mounted


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk") as folder:
        yield folder


def test_a_full_disk_gets_503_and_the_gateway_recovers_when_there_is_room(small_disk: Path) -> None:
    body = parquet_of("users", 5_000)
    with served(small_disk / "home") as one:
        client = one.client
        run = client.open_run()
        assert client.put(run, 0, body).status_code == 201
        fill(small_disk / "ballast")

        for response in (client.put(run, 1, body), client.put_csv(run, "user_id,birthdate\n1,\n", 2)):
            assert (response.status_code, response.json()["error"]) == (503, "unavailable")
            assert "No space left on device" in response.json()["message"]
            assert response.headers["Retry-After"]
        assert client.http.get("/readyz").status_code == 503
        assert client.http.get("/healthz").status_code == 200
        assert client.incoming() == []

        (small_disk / "ballast").unlink()
        eventually(lambda: client.http.get("/readyz").status_code == 200)
        assert client.put(run, 1, body).status_code == 201
        assert client.put(run, 0, body).status_code == 200
        assert client.end(run, chunks=2, rows=10_000).status_code == 200
