"""`python -m tools.reliability`: runs faults, saves their results, and writes docs/reliability.md."""

import argparse
import contextlib
import math
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
from tools.reliability.report import render
from tools.reliability.results import Result, load_results, merge, save_results
from tools.reliability.scenes import Session

_DOCS = Path(__file__).parents[2] / "docs"
_RUNS, _CLIENTS, _MINUTES = 500, 32, 10.0  # of the full set


def main() -> int:
    """Returns the exit code: 0 if no target was missed, else 1."""
    arguments = _arguments()
    if arguments.page:
        _write_page(arguments.results, arguments.out)
        return 0
    results = list[Result]()
    with _workspace(arguments.keep) as folder:
        session = Session(
            folder,
            arguments.seed,
            arguments.sample,
            arguments.runs,
            arguments.clients,
            arguments.minutes,
            arguments.run_minutes,
            lambda text: print(f"    {text}", flush=True),
        )
        names = arguments.only or list(FAULTS)
        for position, name in enumerate(names, start=1):
            print(f"[{position}/{len(names)}] {name}: {FAULTS[name].summary}", flush=True)
            results.append(_run(name, session, arguments))
            if not arguments.trial:
                _keep(results[-1], arguments)
    measurements = [measurement for result in results for measurement in result.measurements]
    missed = sum(measurement.verdict is Verdict.MISSED for measurement in measurements)
    where = "" if arguments.trial else f", {arguments.out} is written"
    print(f"{len(measurements)} measurements, {missed} missed{where}")
    return 1 if missed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.reliability", description=__doc__)
    parser.add_argument(
        "--only",
        nargs="+",
        choices=FAULTS,
        metavar="NAME",
        help=f"run these faults only: {', '.join(FAULTS)}",
    )
    parser.add_argument("--sample", action="store_true", help="make few repetitions of everything")
    parser.add_argument("--seed", type=int, default=1, help="seed of every random choice [default: 1]")
    parser.add_argument("--runs", type=int, default=_RUNS, help=f"runs of many-runs [default: {_RUNS}]")
    parser.add_argument("--run-minutes", type=float, default=math.inf, help="time limit of many-runs")
    parser.add_argument(
        "--clients", type=int, default=_CLIENTS, help=f"clients of many-clients [default: {_CLIENTS}]"
    )
    parser.add_argument(
        "--minutes", type=float, default=_MINUTES, help=f"duration of many-clients [default: {_MINUTES:g}]"
    )
    parser.add_argument(
        *("--results", "-r"), type=Path, default=_DOCS / "reliability.json", help="file with the results"
    )
    parser.add_argument("--out", type=Path, default=_DOCS / "reliability.md", help="the page to write")
    parser.add_argument("--page", action="store_true", help="write the page from saved results, run nothing")
    parser.add_argument("--trial", action="store_true", help="save no results and write no page")
    parser.add_argument("--replace", action="store_true", help="let a sample replace a full result")
    parser.add_argument(
        "--keep", type=Path, default=None, metavar="DIR", help="keep homes and logs in this folder"
    )
    return parser.parse_args()


@contextlib.contextmanager
def _workspace(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.absolute()
    else:
        with tempfile.TemporaryDirectory(prefix="kopi-reliability-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)


def _run(name: str, session: Session, arguments: argparse.Namespace) -> Result:
    load, begun, measurements = os.getloadavg()[0], time.monotonic(), list[Measurement]()
    for measurement in run_fault(name, session):
        measurements.append(measurement)
        _show(measurement)
    return Result(
        name,
        _is_full(name, arguments),
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        __version__,
        arguments.seed,
        os.cpu_count() or 1,
        psutil.virtual_memory().total / 1e9,
        load,
        time.monotonic() - begun,
        tuple(measurements),
    )


def _is_full(name: str, arguments: argparse.Namespace) -> bool:
    if name == "many-runs":
        return bool(arguments.runs >= _RUNS and arguments.run_minutes == math.inf)
    if name == "many-clients":
        return bool(arguments.clients >= _CLIENTS and arguments.minutes >= _MINUTES)
    return not arguments.sample


def _keep(result: Result, arguments: argparse.Namespace) -> None:
    """Saves the result. Reads the file again first, since another harness may have written to it."""
    results = load_results(arguments.results)
    if not merge(results, result, may_replace_full=arguments.replace):
        print(f"    not saved: {result.fault} has a full result, and this is a sample (see --replace)")
        return
    save_results(arguments.results, results.values())
    _write_page(arguments.results, arguments.out)


def _write_page(results: Path, out: Path) -> None:
    summaries = {name: fault.summary for name, fault in FAULTS.items()}
    out.write_text(render(list(load_results(results).values()), summaries), encoding="utf-8")


def _show(measurement: Measurement) -> None:
    figures = "; ".join(figure.measured for figure in measurement.figures)
    print(f"    {measurement.verdict.value}: {measurement.fault}, {measurement.times}: {figures}")
    for text in (*measurement.missed, *measurement.notes, *filter(None, [measurement.skipped])):
        print(f"      {text}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
