"""Ingest: from CSVs to durable chunks at a gateway, against pyarrow alone reading and writing the same."""

import contextlib
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks.measure import CommandError, measure

ENGINES = Path(__file__).parent / "engines"
KOPI = Path(sys.executable).with_name("kopi")
READY_SECONDS = 60
STEPS = {"check": "check", "sync": "fsync", "register": "registry"}


def compare_ingest(data: Path, rounds: int, announce: Callable[[str], None]) -> dict[str, Any]:
    """In turns; the ratio of medians, and where the time of Kopitiam's last round went."""
    baseline, ours, last = [], [], {}
    with running_service() as (url, process):
        peak = 0
        for number in range(1, rounds + 1):
            announce(f"round {number} of {rounds}: pyarrow alone")
            with tempfile.TemporaryDirectory(prefix="kopitiam-bench-") as out:
                command = [sys.executable, str(ENGINES / "arrow_landing.py"), str(data), f"{out}/landed"]
                baseline.append(measure(command).seconds)
            announce(f"round {number} of {rounds}: client to durable")
            last = _ingest(data, url)
            ours.append(last["seconds"])
            peak = max(peak, _resident(process))
    return {
        "baseline_seconds": baseline,
        "seconds": ours,
        "ratio": median(ours) / median(baseline),
        "shares": {step: last[step] for step in ("parse", "encode", "HTTP", "check", "fsync", "registry")},
        "client_peak_bytes": last["peak_bytes"],
        "gateway_bytes": peak,
    }


def _ingest(data: Path, url: str) -> dict[str, float]:
    """Thread-seconds of each step; what sending takes beyond the gateway's own steps is HTTP's."""
    before = _gateway_seconds(url)
    with tempfile.TemporaryDirectory(prefix="kopitiam-bench-") as scratch:
        figures = Path(scratch) / "figures.json"
        whole = measure([sys.executable, str(ENGINES / "kopi_ingest.py"), str(data), url, str(figures)])
        found: dict[str, float] = json.loads(figures.read_text()) | {"seconds": whole.seconds}
    after = _gateway_seconds(url)
    at_gateway = {word: after.get(step, 0.0) - before.get(step, 0.0) for step, word in STEPS.items()}
    return found | at_gateway | {"HTTP": max(0.0, found["send"] - sum(at_gateway.values()))}


def _gateway_seconds(url: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        text = answer.read().decode()
    found = re.findall(r'^kopitiam_chunk_seconds_sum\{step="(\w+)"\} (\S+)$', text, re.MULTILINE)
    return {step: float(seconds) for step, seconds in found}


@contextlib.contextmanager
def running_service() -> Iterator[tuple[str, psutil.Process]]:
    """A `kopi serve` on a free port and a home of its own, ready to take chunks."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="kopitiam-bench-", ignore_cleanup_errors=True) as home:
        process = subprocess.Popen(
            [str(KOPI), "serve", "--home", home, "--port", str(port)], stdout=subprocess.DEVNULL
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_ready(url, process)
            yield url, psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait()


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/readyz"):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise CommandError("kopi serve did not get ready")


def _resident(process: psutil.Process) -> int:
    """The gateway and its examiners; Spark's JVM is not the gateway's."""
    family = [process, *process.children(recursive=True)]
    return sum(member.memory_info().rss for member in family if "java" not in member.name())
