"""The whole benchmark: generates the data once, runs all contenders in turns, and checks the limits."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from tools.benchmarks.compare import Comparison, Contender, compare
from tools.benchmarks.measure import measure
from tools.benchmarks.report import Bar
from tools.benchmarks.service import run_client, running_gateway, running_service
from tools.benchmarks.streaming import measure_streaming

ENGINES = Path(__file__).parent / "engines"
KOPI = Path(sys.executable).with_name("kopi")
CACHE = Path(tempfile.gettempdir()) / "kopitiam-bench"
SERVICE_BAR = 4.0
DUCKDB_BAR = 6.0
BARE_SPARK_BAR = 1.5
INGEST_BAR = 1.6
END_BAR = 3.0
FULL_SCALE = 1.0
SERVICE, STREAMING, INGEST = PARTS = ("service", "streaming", "ingest")  # at a running service


def _engine(name: str, script: str) -> Contender:
    return Contender(name, lambda data, out: [sys.executable, str(ENGINES / script), str(data), str(out)])


WARM_SERVICE = "kopi submit, warm"
WARM_UPS = 3  # until Java's compiler has compiled most of the code
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
    """Returns the figures, ready for JSON; `ok`: all answers agree and all limits that count are met.

    `data` replaces the generated data, and `scale` is then its size. DuckDB, the reference, always runs, even
    if `only` does not name it. Raises ValueError if `only` names an unknown contender.
    """
    contenders = choose_contenders(only)
    parts = {part for part in PARTS if not only or part in only}
    data = data or generated_data(scale, seed, cache, announce)
    tenth = generated_data(scale / 10, seed, cache, announce) if STREAMING in parts else None
    comparison, streaming = _compared(
        data, tenth, rounds, contenders, has_service=SERVICE in parts, announce=announce
    )
    ingest = compare_ingest(data, rounds, announce) if INGEST in parts else None
    has_kopi = KOPI_ANALYZE in contenders
    on_sample = start_up_comparison(sample, rounds, announce) if sample and has_kopi else None
    bars = _bars(scale, comparison, on_sample, streaming, ingest)
    sound = all(part.is_sound for part in (comparison, on_sample) if part)
    return {
        "scale": scale,
        "seed": seed,
        "cores": os.cpu_count(),
        "comparison": comparison.to_json(),
        "sample": on_sample.to_json() if on_sample else None,
        "streaming": streaming,
        "ingest": ingest,
        "bars": [bar.to_json() for bar in bars],
        "ok": sound and all(bar.is_met for bar in bars if bar.counts),
    }


def choose_contenders(only: list[str] | None) -> list[Contender]:
    known = [*CONTENDERS, *PARTS]
    if unknown := sorted(set(only or ()) - set(known)):
        raise ValueError(f"unknown contender {', '.join(unknown)}: want some of {', '.join(known)}")
    return [c for key, c in CONTENDERS.items() if not only or key in only or key == "duckdb"]


def _compared(
    data: Path,
    tenth: Path | None,
    rounds: int,
    contenders: list[Contender],
    *,
    has_service: bool,
    announce: Callable[[str], None],
) -> tuple[Comparison, dict[str, Any] | None]:
    """Compares the contenders and a warm service; measures its streaming if there is a tenth of the data."""
    reference = CONTENDERS["duckdb"].name
    if not has_service and tenth is None:
        return compare(data, rounds, contenders, reference, announce), None
    with running_service() as service:
        warm = _warm_service(service.url, data, announce)
        all_contenders = [*contenders, warm] if has_service else contenders
        comparison = compare(data, rounds, all_contenders, reference, announce)
        return comparison, measure_streaming(service, data, tenth, rounds, announce) if tenth else None


def _warm_service(url: str, data: Path, announce: Callable[[str], None]) -> Contender:
    """A contender that submits to the running service, after warm-up submits."""

    def submit(folder: Path, out: Path) -> list[str]:
        return [str(KOPI), "submit", str(folder), "--server", url, "--out", str(out)]

    for number in range(1, WARM_UPS + 1):
        announce(f"warming the service up, {number} of {WARM_UPS}")
        with tempfile.TemporaryDirectory(prefix="kopitiam-bench-") as scratch:
            measure(submit(data, Path(scratch) / "answers"))
    return Contender(WARM_SERVICE, submit)


def generated_data(scale: float, seed: int, cache: Path, announce: Callable[[str], None]) -> Path:
    """The folder of generated data; generated now if it is not in the cache.

    A folder is renamed into place when it is complete, so that a failed attempt is never taken for data.
    """
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


def compare_ingest(data: Path, rounds: int, announce: Callable[[str], None]) -> dict[str, Any]:
    """Compares the way from CSV files to durable chunks at a gateway with pyarrow alone, in turns.

    Returns the ratio of medians, and where the time of Kopitiam's last round went.
    """
    baseline, ours = [], []
    with running_gateway() as service:
        peak = 0
        for number in range(1, rounds + 1):
            announce(f"round {number} of {rounds}: pyarrow alone")
            with tempfile.TemporaryDirectory(prefix="kopitiam-bench-") as out:
                command = [sys.executable, str(ENGINES / "arrow_landing.py"), str(data), f"{out}/landed"]
                baseline.append(measure(command).seconds)
            announce(f"round {number} of {rounds}: client to durable")
            ours.append(run_client(data, service.url))
            peak = max(peak, _resident_bytes(service.process))
    seconds = [run.wall_seconds for run in ours]
    return {
        "baseline_seconds": baseline,
        "seconds": seconds,
        "ratio": median(seconds) / median(baseline),
        "shares": ours[-1].shares,
        "client_peak_bytes": ours[-1].peak_bytes,
        "gateway_bytes": peak,
    }


def _resident_bytes(gateway: psutil.Process) -> int:
    """Memory of the gateway and its examiners."""
    return sum(process.memory_info().rss for process in (gateway, *gateway.children(recursive=True)))


def start_up_comparison(sample: Path, rounds: int, announce: Callable[[str], None]) -> Comparison:
    """Compares Kopitiam with a bare Spark session on a few thousand rows, where the start dominates."""
    contenders = [BARE_SPARK, replace(KOPI_ANALYZE, answer_files=())]
    return compare(sample, rounds, contenders, BARE_SPARK.name, announce)


def _bars(
    scale: float,
    comparison: Comparison,
    on_sample: Comparison | None,
    streaming: dict[str, Any] | None,
    ingest: dict[str, Any] | None,
) -> list[Bar]:
    """One limit for each part that was measured; most count at full size only."""
    counts = scale >= FULL_SCALE
    ratios = {standing.name: standing.ratio for standing in comparison.standings}
    bars = []
    if WARM_SERVICE in ratios:
        bars.append(Bar(f"{WARM_SERVICE}, × DuckDB", ratios[WARM_SERVICE], SERVICE_BAR, counts))
    if KOPI_ANALYZE.name in ratios:
        bars.append(Bar("kopi analyze, cold, × DuckDB", ratios[KOPI_ANALYZE.name], DUCKDB_BAR, counts))
    if on_sample:
        ratio = on_sample[KOPI_ANALYZE.name].ratio
        bars.append(Bar("kopi analyze on the sample, × bare Spark", ratio, BARE_SPARK_BAR))
    if streaming:
        name = f"END to answers, scale {scale:g} against {scale / 10:g}"
        bars.append(Bar(name, streaming["end_to_answers"]["ratio"], END_BAR, counts))
    if ingest:
        bars.append(Bar("client to durable, × pyarrow alone", ingest["ratio"], INGEST_BAR, counts))
    return bars
