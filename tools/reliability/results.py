"""Results of faults as JSON, kept between runs of the harness: the page may come from several runs."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tools.reliability.measurements import Figure, Measurement


@dataclass(frozen=True)
class Result:
    """What one fault measured in one run, and the circumstances; nothing that identifies the machine."""

    fault: str  # its name in the catalog
    is_full: bool  # False: a sample, with few repetitions
    date: str
    version: str
    seed: int
    cores: int
    memory_gigabytes: float
    load: float | None  # processes that wanted a core in the minute before the fault began
    seconds: float | None  # None, like the load: not recorded
    measurements: tuple[Measurement, ...]


def load_results(file: Path) -> dict[str, Result]:
    """By fault; none if there is no file."""
    if not file.exists():
        return {}
    return {each["fault"]: _result(each) for each in json.loads(file.read_text(encoding="utf-8"))}


def save_results(file: Path, results: Iterable[Result]) -> None:
    text = json.dumps([asdict(result) for result in results], indent=1, ensure_ascii=False)
    beside = file.with_suffix(".new")
    beside.write_text(text + "\n", encoding="utf-8")
    beside.replace(file)


def merge(known: dict[str, Result], new: Result, *, may_replace_full: bool = False) -> bool:
    """The newest result of a fault counts. A sample does not replace a full result unless it may: then False,
    and nothing changed."""
    old = known.get(new.fault)
    if old is not None and old.is_full and not new.is_full and not may_replace_full:
        return False
    known[new.fault] = new
    return True


def _result(fields: dict[str, Any]) -> Result:
    made = Result(**fields)
    return replace(made, measurements=tuple(_measurement(each) for each in fields["measurements"]))


def _measurement(fields: dict[str, Any]) -> Measurement:
    figures = tuple(Figure(**figure) for figure in fields["figures"])
    return Measurement(**fields | {"figures": figures, "notes": tuple(fields["notes"])})
