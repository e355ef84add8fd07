"""One fleet on six machines for all tests of this folder; before each test all its nodes are alive."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from host_fleets import HostFleet, running

from kopitiam.synthetic import Profile, generate
from sampling import IS_FULL

_SCALE = 0.0005  # 7,300 transactions
_STORM_SCALE = 0.05 if IS_FULL else _SCALE


@pytest.fixture(scope="package")
def shared_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostFleet]:
    with running(HostFleet(tmp_path_factory.mktemp("machines"))) as fleet:
        yield fleet


@pytest.fixture
def fleet(shared_fleet: HostFleet) -> Iterator[HostFleet]:
    shared_fleet.await_whole()
    shared_fleet.notes.clear()
    yield shared_fleet
    sys.stdout.write("\n")


@pytest.fixture(scope="session")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated") / "sales"
    generate(folder, _SCALE, seed=11)
    return folder


@pytest.fixture(scope="session")
def four_folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Data of four clients, half of it of the wild profile; in the quick suite two clients have the same."""
    top = tmp_path_factory.mktemp("clients")
    profiles = (Profile.REAL, Profile.WILD) * (2 if IS_FULL else 1)
    for number, profile in enumerate(profiles):
        generate(top / str(number), _STORM_SCALE, seed=20 + number, profile=profile)
    folders = sorted(top.iterdir())
    return folders * (4 // len(folders))
