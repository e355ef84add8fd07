"""The whole benchmark: data made once, all contenders in turns, and the bars that Kopitiam is held to."""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.compare import Comparison, Contender, compare
from benchmarks.ingest import compare_ingest, running_service
from benchmarks.measure import measure
from benchmarks.report import Bar

ENGINES = Path(__file__).parent / "engines"
KOPI = Path(sys.executable).with_name("kopi")
CACHE = Path(tempfile.gettempdir()) / "kopitiam-bench"
DUCKDB_BAR = 6.0
BARE_SPARK_BAR = 1.5
INGEST_BAR = 1.6
FULL_SCALE = 1.0
SERVICE, INGEST = "service", "ingest"  # parts of the suite that need a running `kopi serve`


def _engine(name: str, script: str) -> Contender:
    return Contender(name, lambda data, out: [sys.executable, str(ENGINES / script), str(data), str(out)])


KOPI_ANALYZE = Contender(
    "kopi analyze", lambda data, out: [str(KOPI), "analyze", str(data), "--out", str(out)]
)
BARE_SPARK = Contender(
    "bare Spark", lambda *_: [sys.executable, str(ENGINES / "bare_spark.py")], answer_files=()
)
CONTENDERS = {
    "duckdb": _engine("DuckDB", "duckdb_answers.py"),
    "polars": _engine("Polars", "polars_answers.py"),
    "pandas": _engine("pandas", "pandas_answers.py"),
    "pyspark": _engine("plain PySpark", "pyspark_answers.py"),
    "kopi": KOPI_ANALYZE,
}


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
    """The figures, ready for JSON; `ok` says that all answers agree and all bars that count are met.

    `data` takes the place of generated data, and `scale` then tells its size. DuckDB, which the others are
    measured by, runs whatever `only` names.
    """
    contenders = choose_contenders(only)
    if data is None:
        data = generated_data(scale, seed, cache, announce)
    with contextlib.ExitStack() as services:
        if not only or SERVICE in only:
            url, _ = services.enter_context(running_service())
            contenders.append(_warm_service(url, data, announce))
        comparison = compare(data, rounds, contenders, CONTENDERS["duckdb"].name, announce)
    ingest = compare_ingest(data, rounds, announce) if not only or INGEST in only else None
    has_kopi = KOPI_ANALYZE in contenders
    on_sample = start_up_comparison(sample, rounds, announce) if sample and has_kopi else None
    bars = _bars(comparison, on_sample, scale) if has_kopi else []
    if ingest:
        counts = scale >= FULL_SCALE
        bars.append(Bar("client to durable, × pyarrow alone", ingest["ratio"], INGEST_BAR, counts=counts))
    sound = all(part.is_sound for part in (comparison, on_sample) if part)
    return {
        "scale": scale,
        "seed": seed,
        "cores": os.cpu_count(),
        "comparison": comparison.to_json(),
        "sample": on_sample.to_json() if on_sample else None,
        "ingest": ingest,
        "bars": [bar.to_json() for bar in bars],
        "ok": sound and all(bar.is_met for bar in bars if bar.counts),
    }


def choose_contenders(only: list[str] | None) -> list[Contender]:
    known = [*CONTENDERS, SERVICE, INGEST]
    if unknown := sorted(set(only or ()) - set(known)):
        raise ValueError(f"unknown contender {', '.join(unknown)}: want some of {', '.join(known)}")
    return [c for key, c in CONTENDERS.items() if not only or key in only or key == "duckdb"]


def _warm_service(url: str, data: Path, announce: Callable[[str], None]) -> Contender:
    """Upload to answers, durably, at a service that has seen such data before."""

    def submit(folder: Path, out: Path) -> list[str]:
        return [str(KOPI), "submit", str(folder), "--server", url, "--out", str(out)]

    announce("warming the service up")
    with tempfile.TemporaryDirectory(prefix="kopitiam-bench-") as scratch:
        measure(submit(data, Path(scratch) / "answers"))
    return Contender("kopi submit, warm", submit)


def generated_data(scale: float, seed: int, cache: Path, announce: Callable[[str], None]) -> Path:
    """Renamed into place when whole, so that a broken-off attempt is never taken for data."""
    folder = cache / f"scale-{scale:g}-seed-{seed}"
    if folder.is_dir():
        return folder
    announce(f"generating data at scale {scale:g}")
    unfinished = cache / f"{folder.name}.unfinished-{os.getpid()}"
    cache.mkdir(parents=True, exist_ok=True)
    try:
        measure([str(KOPI), "generate", "--out", str(unfinished), "--scale", str(scale), "--seed", str(seed)])
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def start_up_comparison(sample: Path, rounds: int, announce: Callable[[str], None]) -> Comparison:
    """On a few thousand rows Kopitiam's time is what Spark costs to start, and what it adds to that."""
    contenders = [BARE_SPARK, replace(KOPI_ANALYZE, answer_files=())]
    return compare(sample, rounds, contenders, BARE_SPARK.name, announce)


def _bars(comparison: Comparison, on_sample: Comparison | None, scale: float) -> list[Bar]:
    ratio = comparison[KOPI_ANALYZE.name].ratio
    bars = [Bar("kopi analyze, cold, × DuckDB", ratio, DUCKDB_BAR, counts=scale >= FULL_SCALE)]
    if on_sample:
        bars.append(
            Bar(
                "kopi analyze on the sample, × bare Spark", on_sample[KOPI_ANALYZE.name].ratio, BARE_SPARK_BAR
            )
        )
    return bars
