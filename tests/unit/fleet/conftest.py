"""A separate home for every test. Processes started in it are killed after the test."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from kopitiam.contracts.config import NodeSection, Settings
from kopitiam.fleet.home import FleetHome
from kopitiam.fleet.processes import NODE_VARIABLE, Program

HOST = "h1"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[FleetHome]:
    yield FleetHome(tmp_path / "home", HOST)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(NODE_VARIABLE, "").startswith(str(tmp_path)):
                process.kill()


@pytest.fixture
def settings(home: FleetHome) -> Settings:
    return Settings(home=home.path, node=NodeSection(host=HOST))


@pytest.fixture
def program() -> Callable[..., Program]:
    """Makes the program of a node that runs this Python code, by default a sleep."""

    def make(code: str = "import time; time.sleep(60)", name: str = "pipeline-1") -> Program:
        kind = name.partition("-")[0]
        return Program(name, kind, lambda: (sys.executable, "-c", code))  # type: ignore[arg-type]

    return make
