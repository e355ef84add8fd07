"""One fleet for all tests of this folder; before each test all its nodes are alive."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleets import Fleet, adopting

from kopitiam.synthetic import generate
from kopitiam_chaos.observer import RegistryObserver
from rabbitmq_server import ensure_installed

SERVICES = ("postgresql", "rabbitmq")
_SCALE = 0.0001  # 1,460 transactions


@pytest.fixture(scope="package")
def shared_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    ensure_installed()
    with adopting():
        fleet = Fleet(tmp_path_factory.mktemp("fleet"), SERVICES)
        try:
            yield fleet
        finally:
            fleet.end()


@pytest.fixture
def fleet(shared_fleet: Fleet) -> Iterator[Fleet]:
    """The shared fleet with all nodes alive and an empty list of notes."""
    if not any(shared_fleet.pids().values()):
        shared_fleet.up()
    shared_fleet.await_whole()
    shared_fleet.notes.clear()
    yield shared_fleet
    sys.stdout.write("\n")


@pytest.fixture
def observer(fleet: Fleet) -> Iterator[RegistryObserver]:
    with RegistryObserver(fleet.settings) as observer:
        yield observer


@pytest.fixture(scope="session")
def small_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated") / "small"
    generate(folder, _SCALE, seed=11)
    return folder
