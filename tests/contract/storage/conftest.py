"""Storage below a home folder, that lasts or ends with its process, in a mounted folder, and on S3: one suite
for all of them."""

import hashlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kopitiam.contracts.config import Settings, StorageSection
from kopitiam.storage.open import open_storage, temporary_storage
from kopitiam.storage.port import Key, StoragePort
from s3_server import S3Server, private_s3


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with private_s3() as server:
        yield server


@pytest.fixture(params=["file", "temporary", "mounted", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoragePort]:
    section = StorageSection(url=f"file://{tmp_path}/mounted" if request.param == "mounted" else "file")
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3")
        section = server.section()
    settings = Settings(home=tmp_path / "home", storage=section)
    if request.param == "temporary":
        with temporary_storage(settings) as storage:
            yield storage
    else:
        yield open_storage(settings)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """On the same file system as the home, as it always is."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.fixture
def keep(storage: StoragePort, scratch: Path) -> Callable[[Key, bytes], bool]:
    """Stores bytes as a gateway stores a body: from a local file."""
    numbers = itertools.count()

    def keep_bytes(key: Key, data: bytes) -> bool:
        body = scratch / f"{next(numbers)}.body"
        body.write_bytes(data)
        return storage.keep_once(body, key, hashlib.sha256(data).hexdigest())

    return keep_bytes
