"""Reads and writes the results of faults as JSON. A page may combine several runs of the harness."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.reliability.measurements import Figure, Measurement


@dataclass(frozen=True)
class Result:
    """Measurements of one fault, with date, version, seed and size of the machine, but not its name."""

    fault: str  # its name in the catalog
    is_full: bool  # False: a sample, with few repetitions
    date: str
    version: str
    seed: int
    cores: int
    memory_gigabytes: float
    load: float | None  # runnable processes in the minute before the fault began
    seconds: float | None  # None, like the load: not recorded
    measurements: tuple[Measurement, ...]


def load_results(file: Path) -> dict[str, Result]:
    """Results by fault name; empty if the file does not exist."""
    if not file.exists():
        return {}
    return {fields["fault"]: _result(fields) for fields in json.loads(file.read_text(encoding="utf-8"))}


def save_results(file: Path, results: Iterable[Result]) -> None:
    text = json.dumps([asdict(result) for result in results], indent=1, ensure_ascii=False)
    temporary = file.with_suffix(".new")
    temporary.write_text(text + "\n", encoding="utf-8")
    temporary.replace(file)


def merge(known: dict[str, Result], new: Result, *, may_replace_full: bool = False) -> bool:
    """Replaces the known result of the same fault. Returns False, and changes nothing, if a sample would
    replace a full result without `may_replace_full`."""
    old = known.get(new.fault)
    if old is not None and old.is_full and not new.is_full and not may_replace_full:
        return False
    known[new.fault] = new
    return True


def _result(fields: dict[str, Any]) -> Result:
    measurements = tuple(_measurement(measurement) for measurement in fields["measurements"])
    return Result(**fields | {"measurements": measurements})


def _measurement(fields: dict[str, Any]) -> Measurement:
    figures = tuple(Figure(**figure) for figure in fields["figures"])
    return Measurement(**fields | {"figures": figures, "notes": tuple(fields["notes"])})
