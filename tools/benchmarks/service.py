"""Starts a private service or gateway for a benchmark, reads its log, and times a client's run at it."""

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
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from tools.benchmarks.measure import TAIL_LINES, CommandError, cpu_by_part, measure

CLIENT = Path(__file__).parent / "engines" / "kopi_client.py"
GATEWAY = CLIENT.with_name("gateway_alone.py")
KOPI = Path(sys.executable).with_name("kopi")
READY_SECONDS = 60
STEPS = {"check": "check", "sync": "fsync", "register": "registry"}


@dataclass(frozen=True)
class Service:
    url: str
    process: psutil.Process
    log: Path  # JSON lines, mixed with Spark's own

    @property
    def log_bytes(self) -> int:
        return self.log.stat().st_size

    def log_after(self, position: int) -> str:
        """The log from this byte on."""
        with self.log.open("rb") as content:
            content.seek(position)
            return content.read().decode(errors="replace")


@dataclass(frozen=True)
class ClientRun:
    run: str
    wall_seconds: float
    peak_bytes: int
    cpu_seconds: dict[str, float]  # of the client and of each part of the service
    seconds: dict[str, float]  # of the client's own steps, summed over threads
    gateway: dict[str, float]  # of the gateway's steps, likewise

    @property
    def shares(self) -> dict[str, float]:
        """Seconds by step from CSV to durable; HTTP is the time of sending less the gateway's own steps."""
        http = max(0.0, self.seconds["send"] - sum(self.gateway.values()))
        return {step: self.seconds[step] for step in ("parse", "encode")} | {"HTTP": http} | self.gateway


def run_client(data: Path, service: Service, out: Path | None = None) -> ClientRun:
    """Submits the data: until its answers are in `out`, or without it until all chunks are durable.

    No other client may upload meanwhile: the figures of the service are differences of its counters.
    """
    before, cpu_before = _gateway_seconds(service.url), cpu_by_part(service.process)
    with tempfile.TemporaryDirectory(prefix="kopitiam-bench-") as scratch:
        figures = Path(scratch) / "figures.json"
        command = [sys.executable, str(CLIENT), str(data), service.url, str(figures)]
        whole = measure([*command, str(out)] if out else command)
        client: dict[str, Any] = json.loads(figures.read_text())
    after, cpu_after = _gateway_seconds(service.url), cpu_by_part(service.process)
    gateway = {name: after.get(step, 0.0) - before.get(step, 0.0) for step, name in STEPS.items()}
    cpu = {"client": whole.cpu_seconds} | {part: cpu_after[part] - cpu_before[part] for part in cpu_after}
    return ClientRun(client["run"], whole.seconds, client["peak_bytes"], cpu, client["seconds"], gateway)


def rows_in(data: Path) -> int:
    """The rows of all CSV files of a folder, without their headers; the files have no quoted line breaks."""
    count = 0
    for file in data.rglob("*.csv"):
        with file.open("rb") as content:
            count += sum(block.count(b"\n") for block in iter(partial(content.read, 1 << 20), b"")) - 1
    return count


def _gateway_seconds(url: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        text = answer.read().decode()
    sums = re.findall(r'^kopitiam_chunk_seconds_sum\{step="(\w+)"\} (\S+)$', text, re.MULTILINE)
    return {step: float(seconds) for step, seconds in sums}


def running_service() -> AbstractContextManager[Service]:
    """Runs `kopi serve`, ready to take chunks."""
    return _running(
        lambda home, port: [
            *(str(KOPI), "serve", "--home", home, "--port", port),
            *("--verbose", "--log-json"),
        ]
    )


def running_version(environment: dict[str, str]) -> AbstractContextManager[Service]:
    """Runs `kopi serve` of the package that this environment imports."""
    return _running(
        lambda home, port: [sys.executable, "-m", "kopitiam", "serve", "--home", home, "--port", port],
        environment,
    )


def running_gateway() -> AbstractContextManager[Service]:
    """Runs a gateway alone: no pipeline competes for the CPU."""
    return _running(lambda home, port: [sys.executable, str(GATEWAY), home, port])


@contextlib.contextmanager
def _running(
    command: Callable[[str, str], list[str]], environment: dict[str, str] | None = None
) -> Iterator[Service]:
    """Runs the command on a free port with a temporary home."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="kopitiam-bench-", ignore_cleanup_errors=True) as folder:
        home, log = Path(folder) / "home", Path(folder) / "service.log"
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                command(str(home), str(port)), stdout=subprocess.DEVNULL, stderr=stderr, env=environment
            )
        try:
            service = Service(f"http://127.0.0.1:{port}", psutil.Process(process.pid), log)
            _wait_until_ready(service, process)
            yield service
        finally:
            process.terminate()
            process.wait()


def _wait_until_ready(service: Service, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{service.url}/readyz"):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    tail = service.log_after(0).splitlines()[-TAIL_LINES:]
    raise CommandError("\n".join([f"not ready within {READY_SECONDS} s", *tail]))
