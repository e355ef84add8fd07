"""All engines of the benchmark give the same bytes, so that their times can be compared."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools.benchmarks.compare import ANSWER_FILES

ENGINES = Path(__file__).parents[2] / "tools" / "benchmarks" / "engines"
KOPI = Path(sys.executable).with_name("kopi")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("engines") / "data"
    subprocess.run([KOPI, "generate", "--out", folder, "--scale", "0.001", "--seed", "11"], check=True)
    return folder


def answers(engine: str, data: Path, out: Path) -> dict[str, str]:
    subprocess.run([sys.executable, ENGINES / f"{engine}_answers.py", data, out], check=True)
    return {file: (out / file).read_text() for file in ANSWER_FILES}


@pytest.fixture(scope="module")
def expected(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return answers("duckdb", data, tmp_path_factory.mktemp("duckdb"))


def test_every_answer_has_rows(expected: dict[str, str]):
    assert all(len(text.splitlines()) > 1 for text in expected.values())


@pytest.mark.long
@pytest.mark.parametrize("engine", ["polars", "pandas", "pyspark"])
def test_answers_as_duckdb_does(engine: str, data: Path, expected: dict[str, str], tmp_path: Path):
    assert answers(engine, data, tmp_path) == expected
