"""Many clients at once at one warm service: rows per second against those of a single client."""

import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from tools.benchmarks.measure import CommandError
from tools.benchmarks.service import KOPI, Service, rows_in

CROWDS = (1, 4, 16)


def measure_clients(
    service: Service, data: Path, rounds: int, announce: Callable[[str], None]
) -> dict[str, Any]:
    """Runs crowds of clients in turns, each client with the same data; returns medians by crowd."""
    seconds: dict[int, list[float]] = {clients: [] for clients in CROWDS}
    for number in range(1, rounds + 1):
        for clients in CROWDS:
            announce(f"round {number} of {rounds}: {clients} client{'s' if clients > 1 else ''} at once")
            seconds[clients].append(_run_crowd(service, data, clients))
    return summarize(seconds, rows_in(data))


def summarize(seconds: dict[int, list[float]], rows: int) -> dict[str, Any]:
    """`rows` are those of one client."""
    speeds = {clients: clients * rows / median(waits) for clients, waits in seconds.items()}
    crowds = [
        {
            "clients": clients,
            "seconds": waits,
            "rows_per_second": speeds[clients],
            "ratio": speeds[clients] / speeds[1],
        }
        for clients, waits in seconds.items()
    ]
    return {"rows_of_a_client": rows, "crowds": crowds}


def _run_crowd(service: Service, data: Path, clients: int) -> float:
    """Seconds until the last client has its answers. Raises CommandError if one of them fails."""
    with tempfile.TemporaryDirectory(prefix="kopitiam-bench-out-") as out:
        started = time.perf_counter()
        submits = [
            subprocess.Popen(
                [str(KOPI), "submit", str(data), "--server", service.url, "--out", f"{out}/{number}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for number in range(clients)
        ]
        try:
            errors = [submit.communicate()[1] for submit in submits]
        finally:
            for submit in submits:
                submit.kill()
        elapsed = time.perf_counter() - started
    for submit, error in zip(submits, errors, strict=True):
        if submit.returncode != 0:
            raise CommandError(f"one of {clients} clients: exit code {submit.returncode}\n{error}")
    return elapsed
