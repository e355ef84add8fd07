"""Local storage: files are durable on return, and never changed."""

import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from kopitiam.storage import local
from kopitiam.storage.local import LocalStorage
from kopitiam.storage.port import AlreadyWritten, Key
from kopitiam.system import files


def keep_once(body: Path, path: Path) -> bool:
    return LocalStorage(path.parent).keep_once(body, Key(path.name), "any")


@pytest.fixture
def write_once(tmp_path_factory):
    """Store bytes by `keep_once`, as a gateway stores a body."""
    bodies, numbers = tmp_path_factory.mktemp("bodies"), itertools.count()

    def write(path: Path, data: bytes) -> bool:
        body = bodies / f"{next(numbers)}.body"
        body.write_bytes(data)
        return keep_once(body, path)

    return write


@pytest.fixture
def calls(monkeypatch):
    """The system calls, in order; they are also executed."""
    made = []
    real_fsync, real_link = os.fsync, os.link

    def fsync(descriptor):
        made.append(("fsync", str(Path(f"/proc/self/fd/{descriptor}").readlink())))
        real_fsync(descriptor)

    def link(source, target):
        made.append(("link", str(source), str(target)))
        real_link(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", link)
    return made


def test_a_file_is_synced_then_linked_then_its_folder_is_synced(tmp_path, calls, write_once):
    assert write_once(tmp_path / "chunk", b"rows")
    (_, temporary), (_, source, target), folder_sync = calls
    assert [call[0] for call in calls] == ["fsync", "link", "fsync"]
    assert temporary == source != target == str(tmp_path / "chunk")  # the body first, then its name
    assert folder_sync == ("fsync", str(tmp_path))
    assert (tmp_path / "chunk").read_bytes() == b"rows"


def test_new_folders_are_synced_into_their_parents(tmp_path, calls, write_once):
    assert write_once(tmp_path / "a" / "b" / "chunk", b"rows")
    assert calls[:2] == [("fsync", str(tmp_path)), ("fsync", str(tmp_path / "a"))]
    assert calls[-1] == ("fsync", str(tmp_path / "a" / "b"))


def test_the_same_bytes_again_change_nothing_and_are_durable(tmp_path, calls, write_once):
    assert write_once(tmp_path / "chunk", b"rows") is True
    calls.clear()
    assert write_once(tmp_path / "chunk", b"rows") is False
    assert calls[-1] == ("fsync", str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["chunk"]


def test_other_bytes_are_refused_and_the_first_stay(tmp_path, write_once):
    write_once(tmp_path / "chunk", b"rows")
    with pytest.raises(AlreadyWritten, match="chunk"):
        write_once(tmp_path / "chunk", b"other rows")
    assert (tmp_path / "chunk").read_bytes() == b"rows"
    assert [path.name for path in tmp_path.iterdir()] == ["chunk"]


def test_a_failure_leaves_nothing_behind(tmp_path, monkeypatch, write_once):
    def fail(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        write_once(tmp_path / "chunk", b"rows")
    assert list(tmp_path.iterdir()) == []


def test_the_original_file_stays(tmp_path):
    (tmp_path / "body").write_bytes(b"rows")
    assert keep_once(tmp_path / "body", tmp_path / "folder" / "chunk")
    assert (tmp_path / "body").samefile(tmp_path / "folder" / "chunk")


@pytest.mark.parametrize("attempt", range(5))
def test_of_many_writers_at_once_exactly_one_is_first(tmp_path, attempt, write_once):
    gate = Barrier(8)

    def write(_):
        gate.wait(60)
        return write_once(tmp_path / "new" / "folder" / "chunk", b"rows" * 1000)

    with ThreadPoolExecutor(8) as writers:
        news = list(writers.map(write, range(8)))
    assert sorted(news) == [False] * 7 + [True]
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == ["chunk"]


def test_of_many_writers_of_different_bytes_one_wins_and_the_others_are_refused(tmp_path, write_once):
    gate = Barrier(4)

    def write(number):
        gate.wait(60)
        try:
            return write_once(tmp_path / "chunk", bytes([number]) * 1000)
        except AlreadyWritten:
            return None

    with ThreadPoolExecutor(4) as writers:
        outcome = list(writers.map(write, range(4)))
    assert outcome.count(True) == 1
    assert outcome.count(None) == 3
    assert (tmp_path / "chunk").read_bytes() == bytes([outcome.index(True)]) * 1000


def test_a_settled_folder_and_every_folder_above_it_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = set[Path]()
    for module in (local, files):
        monkeypatch.setattr(module, "sync", synced.add)
    batch = tmp_path / "home/partials/pipeline=pipeline-1/batch=1"
    (batch / "run=a").mkdir(parents=True)  # as Spark does
    (batch / "run=a/part-0.parquet").write_bytes(b"rows")

    LocalStorage(tmp_path / "home").settle(Key("partials/pipeline=pipeline-1/batch=1"))

    above = {tmp_path / "home", tmp_path / "home/partials", batch.parent}
    assert synced == above | {batch, batch / "run=a", batch / "run=a/part-0.parquet"}


def test_a_file_removed_during_the_comparison_is_written_again(tmp_path, monkeypatch, write_once):
    """As an orphan is, when the registry has settled on another body."""
    path, compare = tmp_path / "chunk", local.filecmp.cmp
    assert write_once(path, b"orphan")

    def cmp(*files, shallow):
        path.unlink(missing_ok=True)
        return compare(*files, shallow=shallow)

    monkeypatch.setattr(local.filecmp, "cmp", cmp)
    assert write_once(path, b"rows")
    assert path.read_bytes() == b"rows"
