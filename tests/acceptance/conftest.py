"""Runs `kopi` as a real process in its own environment, and reads its answers back."""

import csv
import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from services import ENVIRONMENT, KOPI

from kopitiam.questions.catalog import builtin

DEADLINE_SECONDS = 500

Rows = list[tuple[str, ...]]


@dataclass(frozen=True)
class Run:
    code: int
    stdout: str
    stderr: str


@pytest.fixture
def environment() -> dict[str, str]:
    """The environment of `kopi`; tests may change it."""
    return dict(ENVIRONMENT)


@pytest.fixture(scope="session")
def kopi(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """Runs `kopi` to its end, in an empty working folder; a keyword `env` replaces the environment."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")

    def run(*arguments: object, env: Mapping[str, str] = ENVIRONMENT) -> Run:
        done = subprocess.run(
            [KOPI, *map(str, arguments)],
            env=env,
            cwd=elsewhere,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        return Run(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def answers_in() -> Callable[[Path], dict[str, Rows]]:
    """Return the rows of each CSV in a folder of answers, and check its header."""

    def read(folder: Path) -> dict[str, Rows]:
        return {
            name: _rows(folder / answer.file_name("csv"), answer.shown) for name, answer in builtin().items()
        }

    return read


def _rows(path: Path, columns: tuple[str, ...]) -> Rows:
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = (tuple(row) for row in csv.reader(file))
    assert header == columns
    return rows


@pytest.fixture(scope="session")
def is_verified(kopi: Callable[..., Run]) -> Callable[[Path, Path], bool]:
    """Return whether the independent check finds every answer and all row counts equal."""

    def check(data: Path, answers: Path) -> bool:
        run = kopi("verify", data, answers)
        equal = [line for line in run.stdout.splitlines() if line.endswith(": equal")]
        assert (run.code, run.stderr, len(equal)) == (0, "", len(builtin())), run.stdout + run.stderr
        return True

    return check


@dataclass(frozen=True)
class Analyzed:
    run: Run
    out: Path

    def contents(self) -> dict[str, bytes]:
        """The bytes of every answer file, without the summary, which has a duration."""
        return {file.name: file.read_bytes() for file in self.out.iterdir() if file.name != "summary.json"}

    def summary(self) -> dict[str, Any]:
        """The content of the summary without its duration."""
        content = json.loads((self.out / "summary.json").read_text(encoding="utf-8"))
        return {name: value for name, value in content.items() if name != "seconds"}


@pytest.fixture(scope="session")
def analyze_tiny(
    kopi: Callable[..., Run], tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Analyzed]:
    """Analyzes the tiny generated folder, with the flags given, into a new folder."""

    def analyze(*flags: str, env: Mapping[str, str] = ENVIRONMENT) -> Analyzed:
        out = tmp_path_factory.mktemp("tiny") / "answers"
        return Analyzed(kopi("analyze", tiny_folder, "--out", out, *flags, env=env), out)

    return analyze


@pytest.fixture(scope="session")
def tiny_analyzed(analyze_tiny: Callable[..., Analyzed]) -> Analyzed:
    """The answers that other ways to the same question must equal."""
    return analyze_tiny()
