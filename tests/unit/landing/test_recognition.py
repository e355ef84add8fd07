"""Home, storage and registry know each other: what does not belong together is refused."""

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from kopitiam.contracts.errors import RegistryRefused, RegistryUnavailable
from kopitiam.contracts.layout import Home, Identity
from kopitiam.contracts.runs import new_run_id
from kopitiam.landing.recognition import Premises, read_mark
from kopitiam.registry import Registry, open_registry
from kopitiam.storage.local import LocalStorage


@contextlib.contextmanager
def opened(home: Path) -> Iterator[Registry]:
    with contextlib.closing(open_registry("sqlite", home, is_checked=True)) as registry:
        yield registry


def premises(home: Path, storage: Path | None = None) -> Premises:
    if storage is None:
        return Premises(home, LocalStorage(home))
    return Premises(home, LocalStorage(storage), f"file://{storage}")


def start(home: Path, storage: Path | None = None) -> None:
    """As a service does."""
    with opened(home) as registry:
        premises(home, storage).recognize(registry)
        registry.take_over("gateway-1", "anna", 10)


def leave_a_run(home: Path) -> Path:
    chunk = Home(home).chunk(new_run_id(), "users", 0, 0)
    chunk.parent.mkdir(parents=True)
    chunk.write_bytes(b"rows")
    return chunk


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """That a service has used before."""
    start(tmp_path / "home")
    return tmp_path / "home"


def test_each_start_advances_the_mark_in_registry_and_home(home: Path) -> None:
    start(home)
    with opened(home) as registry:
        assert read_mark(LocalStorage(home)) == registry.identity()
        assert registry.identity().mark == 2


def test_a_missing_registry_is_refused_and_not_recreated(home: Path) -> None:
    (home / "registry.sqlite").rename(home / "elsewhere")
    with pytest.raises(
        RegistryRefused, match=r"registry\.sqlite: is missing.*put it back.*kopi adopt"
    ) as refused:
        start(home)
    assert (refused.value.exit_code, "\n" in str(refused.value)) == (2, False)
    assert not list(home.glob("registry.sqlite*"))
    (home / "elsewhere").rename(home / "registry.sqlite")
    start(home)


def test_a_missing_registry_of_an_earlier_version_is_refused_where_there_are_runs(tmp_path: Path) -> None:
    leave_a_run(tmp_path)
    with pytest.raises(RegistryRefused, match="is missing"):
        start(tmp_path)


def test_a_new_registry_is_refused_where_there_are_runs(tmp_path: Path) -> None:
    """As with a `registry.url` that was changed, or storage of another fleet that carries no mark."""
    leave_a_run(tmp_path / "storage")
    with pytest.raises(RegistryRefused, match="the registry is new and has none of them"):
        start(tmp_path / "home", tmp_path / "storage")


def test_a_registry_of_another_home_is_refused(home: Path, tmp_path: Path) -> None:
    start(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "registry.sqlite", home / "registry.sqlite")
    with pytest.raises(RegistryRefused, match="belongs to another registry"):
        start(home)


def test_a_registry_older_than_its_home_is_refused_until_it_is_adopted(home: Path, tmp_path: Path) -> None:
    shutil.copy(home / "registry.sqlite", tmp_path / "backup")
    start(home)
    shutil.copy(tmp_path / "backup", home / "registry.sqlite")
    with pytest.raises(RegistryRefused, match=r"older than the files there \(mark 1 of 2\)"):
        start(home)
    with opened(home) as registry:
        assert premises(home).adopt(registry).mark == 3
    start(home)


def test_storage_of_another_registry_is_refused(tmp_path: Path) -> None:
    start(tmp_path / "ours", tmp_path / "our storage")
    start(tmp_path / "theirs", tmp_path / "their storage")
    with pytest.raises(RegistryRefused, match=r"file://.*their storage: belongs to another registry"):
        start(tmp_path / "ours", tmp_path / "their storage")


def test_storage_that_is_not_mounted_is_refused(tmp_path: Path) -> None:
    start(tmp_path / "home", tmp_path / "storage")
    with pytest.raises(RegistryRefused, match=r"does not carry the mark of the registry.*mount it"):
        start(tmp_path / "home", tmp_path / "empty")


def test_another_machine_of_the_fleet_has_a_home_of_its_own(tmp_path: Path) -> None:
    start(tmp_path / "home", tmp_path / "storage")
    with opened(tmp_path / "home") as registry:
        premises(tmp_path / "second home", tmp_path / "storage").recognize(registry)
    assert read_mark(LocalStorage(tmp_path / "second home")) is not None


def test_a_home_of_an_earlier_version_is_accepted(home: Path) -> None:
    leave_a_run(home)
    (home / "registry.json").unlink()
    with contextlib.closing(sqlite3.connect(home / "registry.sqlite")) as registry, registry:
        registry.execute("UPDATE identity SET mark = 0")
    start(home)
    assert read_mark(LocalStorage(home)) is not None


def test_a_mark_is_in_storage_before_the_registry_counts_it(tmp_path: Path) -> None:
    """A life that is killed in between is followed by others."""

    class Killed(Exception):
        pass

    with opened(tmp_path) as registry:

        class Doomed:
            identity = registry.identity

            def advance_mark(self, beyond: int = 0) -> None:
                registry.advance_mark(beyond)
                raise Killed

        for _ in range(2):
            with pytest.raises(Killed):
                premises(tmp_path).recognize(Doomed())
        premises(tmp_path).recognize(registry)
        assert registry.identity().mark == 3


@pytest.mark.parametrize("is_first", [False, True])
def test_nodes_that_start_at_once_do_not_refuse_each_other(tmp_path: Path, is_first: bool) -> None:
    with opened(tmp_path) as registry:
        if not is_first:
            premises(tmp_path).recognize(registry)

        class Overtaken:
            """Between two looks of one node, another one starts."""

            advance_mark = registry.advance_mark

            def identity(self) -> Identity:
                found = registry.identity()
                premises(tmp_path).recognize(registry)
                return found

        premises(tmp_path).recognize(Overtaken())
        assert read_mark(LocalStorage(tmp_path)) == registry.identity()


def test_a_malformed_mark_is_refused(home: Path) -> None:
    (home / "registry.json").write_text("{}")
    with pytest.raises(RegistryRefused, match=r"registry\.json: cannot be parsed"):
        start(home)


def test_a_registry_moved_away_while_in_use_is_neither_used_nor_recreated(home: Path) -> None:
    with opened(home) as registry:
        (home / "registry.sqlite").rename(home / "elsewhere")
        for call in (registry.check, registry.identity, registry.advance_mark):
            with pytest.raises(RegistryUnavailable, match="was moved away or replaced while in use"):
                call()
        assert not (home / "registry.sqlite").exists()
        (home / "elsewhere").rename(home / "registry.sqlite")
        registry.check()


def pages_of(home: Path, *tables: str) -> list[int]:
    with contextlib.closing(sqlite3.connect(home / "registry.sqlite")) as registry:
        registry.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        wanted = ", ".join(f"'{table}'" for table in tables)
        found = registry.execute(f"SELECT rootpage FROM sqlite_master WHERE name IN ({wanted})")
        return [row[0] for row in found]


def test_a_registry_with_overwritten_pages_is_refused(home: Path) -> None:
    pages = pages_of(home, "chunks", "partials")
    with (home / "registry.sqlite").open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * 4096)
            file.write(b"\xa5" * 4096)
    with pytest.raises(
        RegistryRefused, match=r"registry\.sqlite: is damaged .*restore its back-up"
    ) as refused:
        start(home)
    assert "\n" not in str(refused.value)


def test_a_registry_with_dangling_foreign_keys_is_refused(home: Path) -> None:
    with contextlib.closing(sqlite3.connect(home / "registry.sqlite")) as registry, registry:
        registry.execute("INSERT INTO partials (path, run, level, rows) VALUES ('p', 'nobody', 0, 1)")
    with pytest.raises(RegistryRefused, match="a row of partials belongs to no row of runs"):
        start(home)
