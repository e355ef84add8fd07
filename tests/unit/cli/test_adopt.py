"""`kopi adopt`: lists runs that the registry does not know, and changes nothing without confirmation."""

import contextlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kopitiam.cli.app import app
from kopitiam.contracts.errors import ConfigError, RegistryRefused
from kopitiam.contracts.layout import Home
from kopitiam.contracts.runs import new_run_id
from kopitiam.landing.recognition import Premises, read_mark
from kopitiam.registry import open_registry
from kopitiam.runtime.home import exclusive_home
from kopitiam.storage.local import LocalStorage


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """That of most people; `kopi adopt` changes that of its process, which is the tests' process here."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def start(home: Path) -> None:
    """As a service does."""
    with contextlib.closing(open_registry("sqlite", home)) as registry:
        Premises(home, LocalStorage(home)).recognize(registry)


@pytest.fixture
def lost(tmp_path: Path) -> tuple[Path, str]:
    """A home without its registry, and the run that is in it."""
    home, run = tmp_path / "home", new_run_id()
    start(home)
    chunk = Home(home).chunk(run, "users", 0, 0)
    chunk.parent.mkdir(parents=True)
    chunk.write_bytes(b"rows")
    (home / "registry.sqlite").unlink()
    return home, run


def test_nothing_changes_without_confirmation(lost: tuple[Path, str]) -> None:
    home, run = lost
    before = read_mark(LocalStorage(home))
    shown = CliRunner().invoke(app, ["adopt", "--home", str(home)])
    assert isinstance(shown.exception, ConfigError)
    assert run in shown.output
    assert read_mark(LocalStorage(home)) == before
    with pytest.raises(RegistryRefused, match="is missing"):
        start(home)


def test_a_new_registry_is_adopted_and_then_used(lost: tuple[Path, str]) -> None:
    home, run = lost
    done = CliRunner().invoke(app, ["adopt", "--home", str(home), "--yes", "--json"])
    assert (done.exit_code, json.loads(done.output)["unknown"]) == (0, [run])
    start(home)
    assert list(Home(home).landing.rglob("chunk-*"))


def test_a_home_in_use_is_not_touched(lost: tuple[Path, str]) -> None:
    home, _ = lost
    with exclusive_home(home):
        refused = CliRunner().invoke(app, ["adopt", "--home", str(home), "--yes"])
    assert isinstance(refused.exception, ConfigError)
    assert not (home / "registry.sqlite").exists()


def test_a_new_registry_is_readable_by_its_owner_only(lost: tuple[Path, str]) -> None:
    home, _ = lost
    home.chmod(0o755)
    assert CliRunner().invoke(app, ["adopt", "--home", str(home), "--yes"]).exit_code == 0
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (home, *home.iterdir())}
    assert {name: mode for name, mode in modes.items() if mode & 0o077} == {}
    assert modes["registry.sqlite"] == 0o600
