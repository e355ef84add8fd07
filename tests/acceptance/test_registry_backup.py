"""Backup and restore of the fleet's own PostgreSQL, as docs/operations.md describes it."""

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kopitiam.contracts.errors import RunNotFound
from kopitiam.contracts.runs import RunState
from kopitiam.fleet.services import find_service
from kopitiam.fleet.services.postgresql import find_binaries
from kopitiam.registry import open_registry
from kopitiam.registry.registry import Registry
from kopitiam.system.settings import load_settings

Do = Callable[..., Any]


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "fleet.toml"
    made.write_text(f'home = "{tmp_path / "home"}"\n[nodes]\nservices = ["postgresql"]\n')
    yield made
    find_service("postgresql", load_settings(made)).stop()


@pytest.fixture
def do(config: Path, kopi: Callable[..., Any]) -> Do:
    def do(*words: str) -> Any:
        done = kopi(*words, "--config", config, "--json")
        assert (done.code, done.stderr) == (0, "")
        return json.loads(done.stdout)

    return do


@pytest.mark.long
def test_a_restored_registry_equals_its_backup(config: Path, do: Do, tmp_path: Path) -> None:
    home, dump = tmp_path / "home", tmp_path / "backup.dump"
    do("node", "start", "postgresql")
    url = json.loads((home / "services" / "postgresql" / "address.json").read_text())["url"]
    programs = find_binaries(home / "services" / "postgresql" / "data")
    with contextlib.closing(open_registry(url, home)) as registry:
        kept, ended_later = opened(registry, "kept"), opened(registry, "ended later")
        run(programs / "pg_dump", "--format=custom", f"--file={dump}", url)
        lost = opened(registry, "lost")
        registry.move(ended_later, RunState.ENDED)

    assert do("cluster", "down") == {"stopped": ["postgresql"]}
    do("node", "start", "postgresql")
    restoring = ("--clean", "--if-exists", "--single-transaction", f"--dbname={url}")
    run(programs / "pg_restore", *restoring, dump)
    assert do("adopt", "--yes")["unknown"] == []

    with contextlib.closing(open_registry(url, home)) as registry:
        assert [registry.get_run(name).state for name in (kept, ended_later)] == [RunState.OPEN] * 2
        with pytest.raises(RunNotFound):
            registry.get_run(lost)
        assert registry.get_run(opened(registry, "new")).label == "new"


def opened(registry: Registry, label: str) -> str:
    return registry.open_run({}, label, "owner", idempotency_key=None, lease_seconds=60, shards=1).run.run


def run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
