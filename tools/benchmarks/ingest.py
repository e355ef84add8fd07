"""Compares the way from CSV files to durable chunks at a gateway with pyarrow alone."""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from tools.benchmarks.measure import measure
from tools.benchmarks.service import run_client, running_gateway

BASELINE = Path(__file__).parent / "engines" / "arrow_landing.py"


def compare_ingest(data: Path, rounds: int, announce: Callable[[str], None]) -> dict[str, Any]:
    """Runs both in turns. Returns the ratio of medians, and where the time of Kopitiam's last round went."""
    baseline, ours = [], []
    with running_gateway() as service:
        peak = 0
        for number in range(1, rounds + 1):
            announce(f"round {number} of {rounds}: pyarrow alone")
            with tempfile.TemporaryDirectory(prefix="kopitiam-bench-") as out:
                command = [sys.executable, str(BASELINE), str(data), f"{out}/landed"]
                baseline.append(measure(command).seconds)
            announce(f"round {number} of {rounds}: client to durable")
            ours.append(run_client(data, service))
            peak = max(peak, _resident_bytes(service.process))
    seconds = [run.wall_seconds for run in ours]
    return {
        "baseline_seconds": baseline,
        "seconds": seconds,
        "ratio": median(seconds) / median(baseline),
        "shares": ours[-1].shares,
        "client_peak_bytes": ours[-1].peak_bytes,
        "gateway_peak_bytes": peak,
    }


def _resident_bytes(gateway: psutil.Process) -> int:
    """Memory of the gateway and its examiners."""
    return sum(process.memory_info().rss for process in (gateway, *gateway.children(recursive=True)))
