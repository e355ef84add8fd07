"""A disk without room: clients are told to come back, and are served when there is room again."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from gateway_client import parquet_of
from gateways import served

from debian import skip_or_fail

ROOM_BYTES = 8 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={ROOM_BYTES}", "kopitiam-test", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        skip_or_fail("there is no mount here")
    if mounted.returncode:
        skip_or_fail(f"no disk of its own: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(file: Path) -> None:
    with file.open("wb", buffering=0) as ballast, pytest.raises(OSError, match="No space left"):
        for size in (1 << 16, 1 << 10, 1):
            try:
                while True:
                    ballast.write(bytes(size))
            except OSError:
                if size == 1:
                    raise


def test_a_full_disk_is_told_and_the_gateway_goes_on_when_there_is_room(small_disk: Path) -> None:
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
        assert client.http.get("/readyz").status_code == 200
        assert client.put(run, 1, body).status_code == 201
        assert client.put(run, 0, body).status_code == 200
        assert client.end(run, chunks=2, rows=10_000).status_code == 200
