"""A private S3 server for tests, in its own process; each test has its own bucket."""

import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
from pyarrow import fs
from pydantic import SecretStr

from kopitiam.bus.private_broker import free_port
from kopitiam.contracts.config import StorageSection

PATIENCE_SECONDS = 90
KEY, SECRET = "a-key", "a-secret"


@dataclass
class S3Server:
    endpoint: str
    process: "subprocess.Popen[bytes]"
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def filesystem(self) -> fs.S3FileSystem:
        """Return the client that creates and removes buckets."""
        host = self.endpoint.removeprefix("http://")
        return fs.S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            region="us-east-1",
            scheme="http",
            endpoint_override=host,
            allow_bucket_creation=True,
            allow_bucket_deletion=True,
        )

    def section(self, url: str | None = None) -> StorageSection:
        """Return storage settings for `url`, or for a prefix in a new bucket."""
        if url is None:
            bucket = f"bucket-{next(self._numbers)}"
            self.filesystem.create_dir(bucket)
            url = f"s3://{bucket}/some/place"
        keys = {"access_key": SecretStr(KEY), "secret_key": SecretStr(SECRET)}
        return StorageSection(url=url, endpoint=self.endpoint, **keys)

    def plain_settings(self, section: StorageSection) -> dict[str, str]:
        """Return the settings as plain texts, secrets included."""
        return {"url": section.url, "endpoint": self.endpoint, "access_key": KEY, "secret_key": SECRET}

    def objects(self, section: StorageSection) -> dict[str, bytes]:
        """Return the objects below the prefix of these settings by key, without folder markers."""
        root = section.url.removeprefix("s3://")
        selector = fs.FileSelector(root, recursive=True, allow_not_found=True)
        files = [info.path for info in self.filesystem.get_file_info(selector) if info.is_file]
        return {path.removeprefix(f"{root}/"): self._read(path) for path in files}

    def _read(self, path: str) -> bytes:
        with self.filesystem.open_input_file(path) as file:
            return bytes(file.read())


@contextmanager
def private_s3() -> Iterator[S3Server]:
    """Run a server for the duration of the block."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        server = S3Server(f"http://127.0.0.1:{port}", process)
        _wait_for(server)
        yield server
    finally:
        process.kill()
        process.wait()


def _wait_for(server: S3Server) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            httpx.get(f"{server.endpoint}/moto-api/", trust_env=False)
            return
        except httpx.TransportError:
            assert server.process.poll() is None, "the S3 server did not start"
            assert time.monotonic() < deadline, f"the S3 server did not start within {PATIENCE_SECONDS} s"
            time.sleep(0.05)
