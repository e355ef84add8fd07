"""The contract of every storage: keep once, replace, list, read, remove."""

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kopitiam.storage.local import LocalStorage
from kopitiam.storage.port import AlreadyWritten, Key, StoragePort

Keep = Callable[[Key, bytes], bool]
KEY = Key("landing/table=users/shard=0/run=r1/chunk-00042.parquet")
NAMES = st.sampled_from(["a", "b=1", "b=2", "c.csv"])
KEYS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
PATTERNS = st.lists(st.sampled_from(["a", "b=1", "*", "b=*", "*.csv"]), min_size=1, max_size=3).map("/".join)


def read(storage: StoragePort, key: Key) -> bytes:
    with storage.open(key) as file:
        return bytes(file.read())


def name(storage: StoragePort, data: bytes) -> Key:
    return storage.name_of(KEY, hashlib.sha256(data).hexdigest())


def found(storage: StoragePort, pattern: str) -> list[str]:
    return list(map(str, storage.find(pattern)))


def test_a_stored_body_can_be_read_under_its_name(storage: StoragePort, keep: Keep) -> None:
    assert keep(KEY, b"rows") is True
    assert read(storage, name(storage, b"rows")) == b"rows"
    assert storage.find("landing/table=*/shard=*/run=r1/*") == [name(storage, b"rows")]


def test_storing_the_same_body_again_has_no_effect(storage: StoragePort, keep: Keep) -> None:
    keep(KEY, b"rows")
    assert keep(KEY, b"rows") is False
    assert read(storage, name(storage, b"rows")) == b"rows"


def test_another_body_never_replaces_the_first(storage: StoragePort, keep: Keep) -> None:
    keep(KEY, b"rows")
    with suppress(AlreadyWritten):
        keep(KEY, b"others")
    assert read(storage, name(storage, b"rows")) == b"rows"


def test_concurrent_writers_of_different_bodies_do_not_corrupt_each_other(
    storage: StoragePort, keep: Keep
) -> None:
    bodies = [bytes([number]) * 1000 for number in range(4)]
    gate = Barrier(len(bodies))

    def write(body: bytes) -> bytes | None:
        gate.wait(60)
        try:
            return body if keep(KEY, body) else None
        except AlreadyWritten:
            return None

    with ThreadPoolExecutor(len(bodies)) as writers:
        kept = [body for body in writers.map(write, bodies) if body]
    assert kept
    assert all(read(storage, name(storage, body)) == body for body in kept)


def test_a_replaced_file_has_its_last_content(storage: StoragePort) -> None:
    for content in (b"first", b"second, and longer"):
        storage.replace(Key("rejected/run=r1/users-client.csv"), content)
    assert read(storage, Key("rejected/run=r1/users-client.csv")) == b"second, and longer"
    assert found(storage, "rejected/run=r1/*") == ["rejected/run=r1/users-client.csv"]


def test_a_new_folder_appears_with_all_its_files(storage: StoragePort, scratch: Path) -> None:
    with storage.new_folder(Key("results/run=r1/attempt=a"), scratch) as folder:
        (folder / "empty.csv").touch()
        (folder / "large.csv").write_bytes(b"x" * (11 << 20))  # more than S3 takes in one part
    assert found(storage, "results/run=r1/attempt=a/*") == [
        "results/run=r1/attempt=a/empty.csv",
        "results/run=r1/attempt=a/large.csv",
    ]
    assert read(storage, Key("results/run=r1/attempt=a/empty.csv")) == b""
    assert read(storage, Key("results/run=r1/attempt=a/large.csv")) == b"x" * (11 << 20)
    assert list(scratch.iterdir()) == []


def test_files_are_fetched_in_order(storage: StoragePort, scratch: Path) -> None:
    for number in (2, 0, 1):
        storage.replace(Key(f"sorted/part-{number}.parquet"), bytes([number]))
    storage.replace(Key("sorted/.part-0.parquet.crc"), b"not wanted")
    fetched = storage.fetch("sorted/part-*.parquet", scratch)
    assert [file.read_bytes() for file in fetched] == [b"\0", b"\1", b"\2"]


def test_reading_a_missing_file_raises_file_not_found(storage: StoragePort, scratch: Path) -> None:
    with pytest.raises(FileNotFoundError):
        storage.open(Key("landing/none.parquet"))
    assert storage.find("landing/none.parquet") == storage.find("landing/*/none") == []
    assert storage.fetch("landing/*.parquet", scratch) == ()


def test_a_folder_is_removed_with_all_below_it_and_nothing_else(storage: StoragePort) -> None:
    for key in ("p/batch=1/run=r1/x", "p/batch=1/run=r1/kind=y/z", "p/batch=1/run=r11/x", "p/batch=10/x"):
        storage.replace(Key(key), b"partial")
    storage.remove(Key("p/batch=1/run=r1"))
    assert found(storage, "p/batch=1/*") == ["p/batch=1/run=r11"]
    storage.remove(Key("p/batch=1/run=r1"))  # repeated: no effect
    storage.remove(Key("p/batch=1/run=r11/x"))
    storage.remove(Key("p/batch=1/run=r11/x"))
    assert found(storage, "p/batch=10/x") == ["p/batch=10/x"]


def test_only_an_empty_folder_is_removed_as_such(storage: StoragePort) -> None:
    storage.replace(Key("p/batch=1/run=r1/x"), b"partial")
    assert storage.remove_if_empty(Key("p/batch=1")) is False
    storage.remove(Key("p/batch=1/run=r1"))
    assert storage.remove_if_empty(Key("p/batch=1")) is True
    assert storage.remove_if_empty(Key("p/batch=1")) is True
    assert storage.find("p/batch=1") == []


def test_concurrent_removals_of_the_same_folder_succeed(storage: StoragePort) -> None:
    for number in range(12):
        storage.replace(Key(f"landing/run=r1/{number}"), b"rows")
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: storage.remove(Key("landing/run=r1")), range(4)))
    assert found(storage, "landing/run=r1") == []


def test_a_check_leaves_nothing_behind(storage: StoragePort) -> None:
    storage.check()
    assert storage.find("*") == []


def test_spark_finds_a_key_below_the_root(storage: StoragePort) -> None:
    assert storage.url(Key("landing/x")) == storage.url(Key()) + "/landing/x"


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keys=st.sets(KEYS, max_size=4), patterns=st.lists(PATTERNS, min_size=1, max_size=3))
def test_patterns_match_as_on_a_disk(
    storage: StoragePort, tmp_path_factory: pytest.TempPathFactory, keys: set[str], patterns: list[str]
) -> None:
    """For any files, a local disk is the model of every other storage."""
    files = {key for key in keys if not any(other.startswith(f"{key}/") for other in keys)}
    model = LocalStorage(tmp_path_factory.mktemp("model"))
    for each in (storage, model):
        for left in each.find("*"):
            each.remove(left)
        for key in files:
            each.replace(Key(key), key.encode())
    for pattern in patterns:
        assert storage.find(pattern) == model.find(pattern)
