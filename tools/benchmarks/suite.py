"""The whole benchmark: generates the data once, runs all contenders in turns, and checks the limits."""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tools.benchmarks.clients import measure_clients
from tools.benchmarks.compare import Comparison, Contender, compare
from tools.benchmarks.ingest import compare_ingest
from tools.benchmarks.limits import limits_of
from tools.benchmarks.measure import measure
from tools.benchmarks.months import measure_months
from tools.benchmarks.service import KOPI, Service, running_service
from tools.benchmarks.streaming import measure_streaming

ENGINES = Path(__file__).parent / "engines"
CACHE = Path(tempfile.gettempdir()) / "kopitiam-bench"
PARTS = ("service", "streaming", "ingest", "wild", "clients", "months")
WARM_UPS = 3  # until Java's compiler has compiled most of the code
WILD_SEED = 3  # ids and amounts at their bounds, 10,000 items, long names, shuffled, one month


def _engine(key: str, name: str) -> Contender:
    script = str(ENGINES / f"{key}_answers.py")
    return Contender(key, name, lambda data, out: [sys.executable, script, str(data), str(out)])


DUCKDB = _engine("duckdb", "DuckDB")
KOPI_ANALYZE = Contender(
    "kopi", "kopi analyze", lambda data, out: [str(KOPI), "analyze", str(data), "--out", str(out)]
)
BARE_SPARK = Contender(
    "bare_spark", "bare Spark", lambda *_: [sys.executable, str(ENGINES / "bare_spark.py")], answer_files=()
)
CONTENDERS = (
    DUCKDB,
    _engine("polars", "Polars"),
    _engine("pandas", "pandas"),
    _engine("pyspark", "plain PySpark"),
    KOPI_ANALYZE,
)


def run_suite(
    scale: float,
    seed: int,
    rounds: int,
    data: Path | None = None,
    only: list[str] | None = None,
    *,
    sample: Path | None = None,
    cache: Path = CACHE,
    announce: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Returns the figures, ready for JSON; `ok`: all answers agree and all limits that count are met.

    `data` replaces the generated data, and `scale` is then its size. DuckDB, the reference, always runs, even
    if `only` does not name it. Raises ValueError if `only` names an unknown contender.
    """
    contenders, parts = choose(only)
    data = data or generated_data(scale, seed, cache, announce)
    tenth = generated_data(scale / 10, seed, cache, announce) if parts & {"streaming", "clients"} else data
    comparisons: dict[str, Comparison | None] = dict.fromkeys(("comparison", "wild", "sample"))
    measured: dict[str, Any] = dict.fromkeys(("streaming", "clients", "months", "ingest"))
    with contextlib.ExitStack() as stack:
        ours = [contender for contender in contenders if contender is KOPI_ANALYZE]
        service = None
        if parts - {"ingest", "wild"}:
            service = stack.enter_context(running_service())
            warm = _warm_service(service, data, announce)
            if "service" in parts:
                contenders, ours = [*contenders, warm], [*ours, warm]
        comparisons["comparison"] = compare(data, rounds, contenders, DUCKDB.name, announce)
        if "wild" in parts and ours:
            wild = generated_data(scale, WILD_SEED, cache, announce, profile="wild")
            comparisons["wild"] = compare(wild, rounds, ours, ours[0].name, announce)
        if service and "streaming" in parts:
            measured["streaming"] = measure_streaming(service, data, tenth, rounds, announce)
        if service and "clients" in parts:
            measured["clients"] = measure_clients(service, tenth, rounds, announce)
        if service and "months" in parts:
            measured["months"] = measure_months(service, data, rounds, announce)
    if "ingest" in parts:
        measured["ingest"] = compare_ingest(data, rounds, announce)
    if sample and KOPI_ANALYZE in contenders:
        comparisons["sample"] = start_up_comparison(sample, rounds, announce)
    return _result(scale, seed, comparisons, measured)


def _result(
    scale: float, seed: int, comparisons: dict[str, Comparison | None], measured: dict[str, Any]
) -> dict[str, Any]:
    figures = {name: comparison and comparison.to_json() for name, comparison in comparisons.items()}
    result = {"scale": scale, "seed": seed, "cores": os.cpu_count(), **figures, **measured}
    limits = limits_of(result)
    agree = all(comparison.is_sound for comparison in comparisons.values() if comparison)
    return result | {
        "limits": [limit.to_json() for limit in limits],
        "ok": agree and all(limit.is_met for limit in limits if limit.counts),
    }


def choose(only: list[str] | None) -> tuple[list[Contender], set[str]]:
    """The contenders and the parts that `only` names; all of them without it. DuckDB is always among them."""
    known = [*(contender.key for contender in CONTENDERS), *PARTS]
    if unknown := sorted(set(only or ()) - set(known)):
        raise ValueError(f"unknown contender {', '.join(unknown)}: expected some of {', '.join(known)}")
    contenders = [c for c in CONTENDERS if not only or c.key in only or c is DUCKDB]
    return contenders, {part for part in PARTS if not only or part in only}


def _warm_service(service: Service, data: Path, announce: Callable[[str], None]) -> Contender:
    """A contender that submits to the running service, after warm-up submits."""

    def submit(folder: Path, out: Path) -> list[str]:
        return [str(KOPI), "submit", str(folder), "--server", service.url, "--out", str(out)]

    for number in range(1, WARM_UPS + 1):
        announce(f"warming the service up, {number} of {WARM_UPS}")
        with tempfile.TemporaryDirectory(prefix="kopitiam-bench-") as scratch:
            measure(submit(data, Path(scratch) / "answers"))
    return Contender("service", "kopi submit, warm", submit, service=service.process)


def generated_data(
    scale: float, seed: int, cache: Path, announce: Callable[[str], None], profile: str = "real"
) -> Path:
    """The folder of generated data; generated now if it is not in the cache.

    A folder is renamed into place when it is complete, so that a failed attempt is never taken for data.
    """
    folder = cache / f"{profile}-scale-{scale:g}-seed-{seed}"
    if folder.is_dir():
        return folder
    announce(f"generating {profile} data at scale {scale:g}")
    unfinished = cache / f"{folder.name}.unfinished-{os.getpid()}"
    cache.mkdir(parents=True, exist_ok=True)
    flags = ["--scale", str(scale), "--seed", str(seed), "--profile", profile]
    try:
        measure([str(KOPI), "generate", "--out", str(unfinished), *flags])
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def start_up_comparison(sample: Path, rounds: int, announce: Callable[[str], None]) -> Comparison:
    """Compares Kopitiam with a bare Spark session on a few thousand rows, where the start dominates."""
    contenders = [BARE_SPARK, replace(KOPI_ANALYZE, answer_files=())]
    return compare(sample, rounds, contenders, BARE_SPARK.name, announce)
