"""Contenders take turns; medians, ratios, and reports of those that differ or fail."""

import json
import sys
from pathlib import Path

import pytest

from tools.benchmarks import compare as comparing
from tools.benchmarks.compare import ANSWER_FILES, Contender, compare
from tools.benchmarks.measure import CommandError, Measurement

WRITE_ANSWERS = """
import pathlib, sys
out = pathlib.Path(sys.argv[1])
out.mkdir()
for file in sys.argv[3:]:
    (out / file).write_text(sys.argv[2])
"""


def silent(name: str) -> Contender:
    return Contender(name, name, lambda *_: [name], answer_files=())


def writer(name: str, text: str, files: tuple[str, ...] = ANSWER_FILES) -> Contender:
    return Contender(name, name, lambda _, out: [sys.executable, "-c", WRITE_ANSWERS, str(out), text, *files])


def failing(name: str) -> Contender:
    return Contender(name, name, lambda *_: [sys.executable, "-c", "import sys; sys.exit('no more memory')"])


@pytest.fixture
def scripted_seconds(monkeypatch):
    """Replaces real processes: each command takes the next of the seconds written for it."""

    def script(**seconds: list[float]) -> list[str]:
        order: list[str] = []
        remaining = {name: iter(values) for name, values in seconds.items()}

        def measure(argv: list[str]) -> Measurement:
            order.append(argv[0])
            return Measurement(next(remaining[argv[0]]), peak_bytes=1000 * len(order), cpu_seconds=1.0)

        monkeypatch.setattr(comparing, "measure", measure)
        return order

    return script


def test_every_contender_runs_once_per_round(tmp_path: Path, scripted_seconds):
    order = scripted_seconds(a=[1, 1], b=[1, 1], c=[1, 1])

    compare(tmp_path, 2, [silent("a"), silent("b"), silent("c")], reference="a")

    assert order == ["a", "b", "c", "a", "b", "c"]


def test_the_ratio_is_that_of_the_medians(tmp_path: Path, scripted_seconds):
    scripted_seconds(quick=[2.0, 9.0, 1.0], slow=[3.0, 5.0, 100.0])

    result = compare(tmp_path, 3, [silent("quick"), silent("slow")], reference="quick")

    assert result["quick"].median_seconds == 2.0
    assert result["quick"].ratio == 1.0
    assert result["slow"].ratio == 2.5
    assert result["slow"].to_json()["min_seconds"] == 3.0
    assert result["slow"].to_json()["max_seconds"] == 100.0


def test_the_peak_is_the_highest_of_all_rounds(tmp_path: Path, scripted_seconds):
    scripted_seconds(a=[1, 1, 1])

    assert compare(tmp_path, 3, [silent("a")], reference="a")["a"].peak_bytes == 3000


def test_equal_answers_agree(tmp_path: Path):
    result = compare(tmp_path, 2, [writer("DuckDB", "75.0"), writer("other", "75.0")])

    assert result["other"].agrees
    assert result.is_sound


def test_one_different_byte_is_noticed_and_the_files_are_named(tmp_path: Path):
    result = compare(tmp_path, 1, [writer("DuckDB", "75.0"), writer("other", "75.1")])

    assert result["other"].agrees is False
    assert result["other"].differing_files == ANSWER_FILES
    assert not result.is_sound


def test_a_missing_answer_is_a_difference(tmp_path: Path):
    result = compare(tmp_path, 1, [writer("DuckDB", "75.0"), writer("other", "75.0", ANSWER_FILES[1:])])

    assert result["other"].differing_files == ANSWER_FILES[:1]


def test_a_failing_contender_is_reported_and_the_others_go_on(tmp_path: Path):
    result = compare(tmp_path, 2, [failing("broken"), writer("DuckDB", "75.0")])

    assert "exit code 1" in result["broken"].error
    assert "no more memory" in result["broken"].error
    assert result["broken"].ratio is None
    assert len(result["DuckDB"].seconds) == 2
    assert not result.is_sound


def test_a_failing_reference_ends_the_comparison(tmp_path: Path):
    with pytest.raises(CommandError, match="no more memory"):
        compare(tmp_path, 1, [failing("DuckDB"), writer("other", "75.0")])


def test_at_least_one_round(tmp_path: Path):
    with pytest.raises(ValueError, match="at least 1"):
        compare(tmp_path, 0, [])


def test_the_result_is_ready_for_json(tmp_path: Path):
    result = compare(tmp_path, 1, [writer("DuckDB", "75.0"), failing("broken")])

    assert json.loads(json.dumps(result.to_json()))["standings"][0]["name"] == "DuckDB"
