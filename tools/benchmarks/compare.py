"""Runs contenders in turns, each once per round, so that noise of the machine affects all alike.

The answers of each run are compared byte for byte with those of the reference contender.
"""

import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from tools.benchmarks.measure import CommandError, Measurement, cpu_by_part, measure

ANSWER_FILES = tuple(f"results_query_{name}.csv" for name in ("1", "2_1", "2_2", "3", "4"))
READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Contender:
    """A contender by key and name, and the command that answers the questions about a data folder into an
    output folder."""

    key: str
    name: str
    argv: Callable[[Path, Path], list[str]]
    answer_files: tuple[str, ...] = ANSWER_FILES
    service: psutil.Process | None = None  # a running process that does part of the work: its CPU counts too


@dataclass(frozen=True)
class Run:
    measurement: Measurement
    cpu_seconds: float
    digests: dict[str, str | None]  # by answer file; None where the file is missing


@dataclass(frozen=True)
class Standing:
    """Figures of one contender over all rounds. One that failed has an error and the rounds before it."""

    key: str
    name: str
    seconds: tuple[float, ...]
    cpu_seconds: tuple[float, ...]
    peak_bytes: int
    ratio: float | None  # of its median to the reference's
    agrees: bool | None  # with the reference; None: it writes no answers, or failed
    differing_files: tuple[str, ...] = ()
    error: str | None = None

    @property
    def median_seconds(self) -> float | None:
        return median(self.seconds) if self.seconds else None

    @property
    def median_cpu_seconds(self) -> float | None:
        return median(self.cpu_seconds) if self.cpu_seconds else None

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "name": self.name,
            "seconds": list(self.seconds),
            "median_seconds": self.median_seconds,
            "min_seconds": min(self.seconds, default=None),
            "max_seconds": max(self.seconds, default=None),
            "cpu_seconds": list(self.cpu_seconds),
            "median_cpu_seconds": self.median_cpu_seconds,
            "ratio": self.ratio,
            "peak_bytes": self.peak_bytes,
            "agrees": self.agrees,
            "differing_files": list(self.differing_files),
            "error": self.error,
        }


@dataclass(frozen=True)
class Comparison:
    data: str
    rounds: int
    reference: str
    standings: tuple[Standing, ...]

    def __getitem__(self, name: str) -> Standing:
        return next(standing for standing in self.standings if standing.name == name)

    @property
    def is_sound(self) -> bool:
        """No contender failed or gave other answers than the reference."""
        return not any(standing.error or standing.agrees is False for standing in self.standings)

    def to_json(self) -> dict[str, Any]:
        return {
            "data": self.data,
            "rounds": self.rounds,
            "reference": self.reference,
            "is_sound": self.is_sound,
            "standings": [standing.to_json() for standing in self.standings],
        }


def compare(
    data: Path,
    rounds: int,
    contenders: list[Contender],
    reference: str = "DuckDB",
    announce: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Runs all contenders in turns. One that fails is left out of later rounds.

    Raises CommandError if the reference fails, ValueError if there are no rounds.
    """
    if rounds < 1:
        raise ValueError(f"{rounds} rounds: expected at least 1")
    _bring_into_page_cache(data)
    runs: dict[str, list[Run]] = {contender.name: [] for contender in contenders}
    errors: dict[str, str] = {}
    for number in range(1, rounds + 1):
        for contender in contenders:
            if contender.name in errors:
                continue
            announce(f"round {number} of {rounds}: {contender.name}")
            try:
                runs[contender.name].append(_run(contender, data))
            except CommandError as failure:
                if contender.name == reference:
                    raise
                errors[contender.name] = str(failure)
    standings = tuple(_standing(c, runs[c.name], runs[reference], errors.get(c.name)) for c in contenders)
    return Comparison(str(data), rounds, reference, standings)


def _standing(contender: Contender, runs: list[Run], reference: list[Run], error: str | None) -> Standing:
    seconds = tuple(run.measurement.seconds for run in runs)
    differing = _differing_files(contender, runs, reference[0])
    has_answers = bool(contender.answer_files and runs and not error)
    return Standing(
        contender.key,
        contender.name,
        seconds,
        cpu_seconds=tuple(run.cpu_seconds for run in runs),
        peak_bytes=max((run.measurement.peak_bytes for run in runs), default=0),
        ratio=None if error else median(seconds) / median(run.measurement.seconds for run in reference),
        agrees=not differing if has_answers else None,
        differing_files=differing,
        error=error,
    )


def _differing_files(contender: Contender, runs: list[Run], reference: Run) -> tuple[str, ...]:
    """Files that differ from the reference in any round."""
    return tuple(
        file
        for file in contender.answer_files
        if any(run.digests[file] is None or run.digests[file] != reference.digests.get(file) for run in runs)
    )


def _run(contender: Contender, data: Path) -> Run:
    with tempfile.TemporaryDirectory(prefix="kopitiam-bench-out-") as scratch:
        out = Path(scratch) / "answers"
        before = _service_cpu_seconds(contender)
        measurement = measure(contender.argv(data, out))
        cpu_seconds = measurement.cpu_seconds + _service_cpu_seconds(contender) - before
        return Run(measurement, cpu_seconds, {file: _digest(out / file) for file in contender.answer_files})


def _service_cpu_seconds(contender: Contender) -> float:
    return sum(cpu_by_part(contender.service).values()) if contender.service else 0.0


def _digest(file: Path) -> str | None:
    if not file.is_file():
        return None
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _bring_into_page_cache(data: Path) -> None:
    """Reads all files once, or the first contender alone would read from a cold disk."""
    for file in data.rglob("*.csv"):
        with file.open("rb", buffering=0) as content:
            while content.read(READ_BYTES):
                pass
