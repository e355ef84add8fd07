"""A machine with a real server of S3's protocol, S3Proxy, which keeps its objects on the machine's disk."""

import contextlib
import time
from pathlib import Path

import pytest
from machines import Machine
from pyarrow import fs

from kopitiam.contracts.errors import ServiceError
from kopitiam.spark.installation import cache_folder, find_java
from kopitiam.spark.jars import fetch_jars, read_lock
from kopitiam.spark.s3a import fetch_s3a

BUCKET = "sales"
KEY, SECRET = "a-key", "a-secret-that-is-forty-characters-long-0"
PORT = 9000
_PATIENCE_SECONDS = 120.0
_LOCK = (
    "org.gaul:s3proxy:4.1.0:jar-with-dependencies "
    "sha256:a4d025969aaf796616ed4b1e2491d87d455ce84bb28cb9db086b2e6aaa68b48d"
)
_CONFIG = """
s3proxy.authorization=aws-v2-or-v4
s3proxy.identity={key}
s3proxy.credential={secret}
s3proxy.endpoint=http://0.0.0.0:{port}
jclouds.provider=filesystem-nio2
jclouds.filesystem.basedir={data}
"""


def fetch_or_skip() -> Path:
    """The jar of the server, with that of Spark's S3 beside it. Skips the test if Maven Central cannot be
    reached."""
    [server] = read_lock(_LOCK)
    folder = cache_folder() / "s3proxy"
    try:
        fetch_s3a()
        fetch_jars([server], folder)
    except ServiceError as error:
        pytest.skip(str(error))
    return folder / server.file_name


def storage_on(machine: Machine) -> dict[str, str]:
    """The storage settings of a fleet that uses the server."""
    endpoint = f"http://{machine.name}:{PORT}"
    return {"url": f"s3://{BUCKET}/fleet", "endpoint": endpoint, "access_key": KEY, "secret_key": SECRET}


def serve_s3(machine: Machine, jar: Path) -> None:
    """Start the server, and make the bucket unless it is on the disk already."""
    home = machine.lan.home
    (machine.disk / "objects").mkdir(exist_ok=True)
    config = machine.disk / "s3proxy.conf"
    text = _CONFIG.format(key=KEY, secret=SECRET, port=PORT, data=home / "objects")
    config.write_text(text, encoding="utf-8")
    java = find_java()
    command = f"exec {java.home}/bin/java -Xmx256m -jar {jar} --properties {home}/s3proxy.conf"
    machine.start("sh", "-c", f"({command} > {home}/s3proxy.log 2>&1) &", **java.environment).wait()
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        with contextlib.suppress(OSError):
            filesystem(machine).create_dir(BUCKET)
            return
        log = machine.disk / "s3proxy.log"
        assert time.monotonic() < deadline, log.read_text(encoding="utf-8")[-2000:]
        time.sleep(0.2)


def filesystem(machine: Machine) -> fs.S3FileSystem:
    """A client of the server, for this process."""
    return fs.S3FileSystem(
        access_key=KEY,
        secret_key=SECRET,
        region="us-east-1",
        scheme="http",
        endpoint_override=f"{machine.address}:{PORT}",
        allow_bucket_creation=True,
    )


def objects_on(machine: Machine) -> list[str]:
    """Keys below the fleet's prefix."""
    root = f"{BUCKET}/fleet"
    infos = filesystem(machine).get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True))
    return [info.path.removeprefix(f"{root}/") for info in infos if info.is_file]
