"""The suite: its contenders, its data, and its limits."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from tools.benchmarks import compare as comparing
from tools.benchmarks import suite
from tools.benchmarks.measure import CommandError, Measurement
from tools.benchmarks.service import Service

MAKES_DATA = '#!/bin/sh\nmkdir "$3" && echo "$@" > "$3/arguments"\n'
BREAKS_OFF = '#!/bin/sh\nmkdir "$3" && echo "disk full" >&2 && exit 1\n'


@pytest.fixture
def kopi(tmp_path: Path, monkeypatch):
    """Replaces `kopi` by the given script."""

    def stand_in(script: str) -> None:
        file = tmp_path / "kopi"
        file.write_text(script)
        file.chmod(0o755)
        monkeypatch.setattr(suite, "KOPI", file)

    return stand_in


@pytest.fixture
def seconds_by_command(monkeypatch):
    """Each process takes the seconds given for a word of its command."""

    def script(**seconds: float) -> None:
        def measure(argv: list[str]) -> Measurement:
            return Measurement(next(s for word, s in seconds.items() if word in " ".join(argv[:2])), 1, 2.0)

        monkeypatch.setattr(comparing, "measure", measure)
        monkeypatch.setattr(comparing, "_digest", lambda file: file.name)

    return script


@pytest.fixture
def service(monkeypatch):
    """Replaces the service; `ratio` is that of END to answers, all of the data to a tenth."""

    def stand_in(ratio: float) -> None:
        running = nullcontext(Service("http://kopi", process=None, log=Path("log")))
        monkeypatch.setattr(suite, "running_service", lambda: running)
        monkeypatch.setattr(suite, "measure", lambda argv: Measurement(1.0, 1, 1.0))
        monkeypatch.setattr(suite, "generated_data", lambda scale, *_, **__: Path(f"scale-{scale:g}"))
        measured = {"end_to_answers": {"ratio": ratio, "share": 0.05}}
        monkeypatch.setattr(suite, "measure_streaming", lambda *_: measured)

    return stand_in


def ignore(_: str) -> None:
    pass


def test_duckdb_always_runs():
    assert [c.name for c in suite.choose(["kopi"])[0]] == ["DuckDB", "kopi analyze"]
    assert suite.choose(None) == (list(suite.CONTENDERS), set(suite.PARTS))


def test_an_unknown_contender_is_refused_with_the_choices():
    with pytest.raises(ValueError, match=r"unknown contender excel: expected some of duckdb, .*kopi"):
        suite.choose(["excel"])


def test_data_is_generated_once_per_scale_and_seed(tmp_path: Path, kopi):
    kopi(MAKES_DATA)
    folder = suite.generated_data(0.01, 7, tmp_path / "cache", ignore)
    kopi("#!/bin/sh\nexit 1\n")

    assert suite.generated_data(0.01, 7, tmp_path / "cache", ignore) == folder
    assert (folder / "arguments").read_text().split()[3:7] == ["--scale", "0.01", "--seed", "7"]
    with pytest.raises(CommandError):
        suite.generated_data(0.01, 8, tmp_path / "cache", ignore)


def test_a_broken_off_generation_is_not_reused(tmp_path: Path, kopi):
    kopi(BREAKS_OFF)

    with pytest.raises(CommandError, match="disk full"):
        suite.generated_data(0.01, 7, tmp_path / "cache", ignore)

    assert not list((tmp_path / "cache").iterdir())


def test_the_duckdb_limit_counts_at_full_scale_only(tmp_path: Path, seconds_by_command):
    seconds_by_command(duckdb=1.0, analyze=7.0)

    small = suite.run_suite(0.1, 7, 1, data=tmp_path, only=["kopi"])
    full = suite.run_suite(1.0, 7, 1, data=tmp_path, only=["kopi"])

    assert small["ok"]
    assert not full["ok"]
    assert full["limits"][0]["value"] == 7.0


def test_the_limit_of_the_warm_service_is_a_multiple_of_duckdb(tmp_path: Path, seconds_by_command, service):
    service(ratio=1.0)
    seconds_by_command(duckdb=1.0, submit=4.5)

    small = suite.run_suite(0.1, 7, 1, data=tmp_path, only=["service"])
    full = suite.run_suite(1.0, 7, 1, data=tmp_path, only=["service"])

    assert small["ok"]
    assert not full["ok"]
    assert [(limit["name"], limit["value"], limit["is_met"]) for limit in full["limits"]] == [
        ("kopi submit, warm, × DuckDB", 4.5, False),
        ("kopi submit, warm, CPU seconds", 2.0, True),
    ]


def test_end_to_answers_is_compared_with_a_tenth_of_the_data(tmp_path: Path, seconds_by_command, service):
    service(ratio=3.5)
    seconds_by_command(duckdb=1.0)

    small = suite.run_suite(0.5, 7, 1, data=tmp_path, only=["streaming"])
    full = suite.run_suite(1.0, 7, 1, data=tmp_path, only=["streaming"])

    assert small["ok"]
    assert not full["ok"]
    assert small["limits"][1]["name"] == "END to answers, scale 0.5 against 0.05"
    assert [(limit["value"], limit["is_met"]) for limit in full["limits"]] == [(0.05, True), (3.5, False)]
    assert [standing["name"] for standing in full["comparison"]["standings"]] == ["DuckDB"]


def test_the_sample_is_compared_with_bare_spark(tmp_path: Path, seconds_by_command):
    seconds_by_command(duckdb=1.0, bare_spark=10.0, analyze=8.0)

    result = suite.run_suite(0.1, 7, 1, data=tmp_path, only=["kopi"], sample=tmp_path)

    assert result["limits"][-1]["value"] == pytest.approx(0.8)
    assert result["limits"][-1]["is_met"]
    assert result["sample"]["reference"] == "bare Spark"
    json.dumps(result)


def test_wild_data_is_compared_with_real_data_of_the_same_size(tmp_path: Path, seconds_by_command, service):
    service(ratio=1.0)
    seconds_by_command(duckdb=1.0, analyze=3.0)

    result = suite.run_suite(1.0, 7, 1, data=tmp_path, only=["kopi", "wild"])

    assert [standing["name"] for standing in result["wild"]["standings"]] == ["kopi analyze"]
    assert ("kopi analyze, wild data, × real data", 1.0) in [
        (limit["name"], limit["value"]) for limit in result["limits"]
    ]
