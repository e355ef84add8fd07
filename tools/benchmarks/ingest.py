"""Ingest: from CSVs to durable chunks at a gateway, against pyarrow alone reading and writing the same."""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from tools.benchmarks.measure import measure
from tools.benchmarks.service import run_client, running_gateway

ENGINES = Path(__file__).parent / "engines"


def compare_ingest(data: Path, rounds: int, announce: Callable[[str], None]) -> dict[str, Any]:
    """In turns; the ratio of medians, and where the time of Kopitiam's last round went."""
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
            peak = max(peak, _resident(service.process))
    seconds = [run.wall_seconds for run in ours]
    return {
        "baseline_seconds": baseline,
        "seconds": seconds,
        "ratio": median(seconds) / median(baseline),
        "shares": ours[-1].shares,
        "client_peak_bytes": ours[-1].peak_bytes,
        "gateway_bytes": peak,
    }


def _resident(process: psutil.Process) -> int:
    """The gateway and its examiners."""
    return sum(member.memory_info().rss for member in (process, *process.children(recursive=True)))
