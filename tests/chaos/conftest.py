"""One fleet for all tests of this folder, whole again before each of them."""

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
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    ensure_installed()
    with adopting():
        made = Fleet(tmp_path_factory.mktemp("fleet"), SERVICES)
        try:
            yield made
        finally:
            made.end()


@pytest.fixture
def fleet(house: Fleet) -> Iterator[Fleet]:
    """Whole; what a test tells begins with its own words."""
    if not any(house.pids().values()):
        house.up()
    house.await_whole()
    house.told.clear()
    yield house
    sys.stdout.write("\n")


@pytest.fixture
def witness(fleet: Fleet) -> Iterator[RegistryObserver]:
    with RegistryObserver(fleet.settings) as watching:
        yield watching


@pytest.fixture(scope="session")
def small_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated") / "small"
    generate(folder, _SCALE, seed=11)
    return folder
