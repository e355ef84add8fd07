"""`python -m tools.reliability`: runs faults, shows progress, writes docs/reliability.md."""

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psutil

from kopitiam import __version__
from tools.reliability.faults import FAULTS, run_fault
from tools.reliability.measurements import Measurement, Verdict
from tools.reliability.report import Origin, render
from tools.reliability.scenes import Session

_PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


def main() -> int:
    """0 if no target was missed, else 1."""
    arguments = _arguments()
    begun, measurements = time.monotonic(), list[Measurement]()
    with _workspace(arguments.keep) as folder:
        session = Session(
            folder,
            arguments.seed,
            arguments.sample,
            arguments.runs,
            arguments.clients,
            arguments.minutes,
            lambda words: print(f"    {words}", flush=True),
        )
        names = arguments.only or list(FAULTS)
        for position, name in enumerate(names, start=1):
            print(f"[{position}/{len(names)}] {name}: {FAULTS[name].summary}", flush=True)
            for measurement in run_fault(name, session):
                measurements.append(measurement)
                _show(measurement)
            page = render(measurements, _origin(arguments, time.monotonic() - begun))
            if arguments.out is not None:
                arguments.out.write_text(page, encoding="utf-8")
    missed = sum(each.verdict is Verdict.MISSED for each in measurements)
    where = f", {arguments.out} is written" if arguments.out else ""
    print(f"{len(measurements)} measurements, {missed} missed{where}")
    return 1 if missed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.reliability", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=FAULTS, metavar="NAME", help=f"of {', '.join(FAULTS)}")
    parser.add_argument("--sample", action="store_true", help="few repetitions of everything")
    parser.add_argument("--seed", type=int, default=1, help="of every random choice [default: 1]")
    parser.add_argument("--runs", type=int, default=500, help="one after another [default: 500]")
    parser.add_argument("--clients", type=int, default=32, help="at once [default: 32]")
    parser.add_argument("--minutes", type=float, default=10, help="of the clients [default: 10]")
    parser.add_argument("--out", type=Path, default=None, metavar="FILE", help="the page to write")
    parser.add_argument("--keep", type=Path, default=None, metavar="DIR", help="keep homes and logs here")
    given = parser.parse_args()
    if given.out is None and given.only is None and not given.sample:
        given.out = _PAGE
    return given


@contextlib.contextmanager
def _workspace(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.absolute()
    else:
        with tempfile.TemporaryDirectory(prefix="kopi-reliability-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)


def _origin(arguments: argparse.Namespace, seconds: float) -> Origin:
    return Origin(
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        __version__,
        os.cpu_count() or 1,
        psutil.virtual_memory().total / 1e9,
        seconds,
        arguments.sample,
        f"seed {arguments.seed}",
        tuple(name for name in FAULTS if arguments.only and name not in arguments.only),
    )


def _show(measurement: Measurement) -> None:
    figures = "; ".join(figure.measured for figure in measurement.figures)
    print(f"    {measurement.verdict.value}: {measurement.fault}, {measurement.times}: {figures}")
    for words in (*measurement.missed, *measurement.notes, *filter(None, [measurement.skipped])):
        print(f"      {words}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
