"""A service of the benchmark's own, what it tells about its work, and what a client's run at it took."""

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
from pathlib import Path
from typing import Any

import psutil

from tools.benchmarks.measure import TAIL_LINES, CommandError, measure

CLIENT = Path(__file__).parent / "engines" / "kopi_client.py"
GATEWAY = CLIENT.with_name("gateway_alone.py")
KOPI = Path(sys.executable).with_name("kopi")
READY_SECONDS = 60
STEPS = {"check": "check", "sync": "fsync", "register": "registry"}


@dataclass(frozen=True)
class Service:
    url: str
    process: psutil.Process
    log: Path  # JSON lines among Spark's own

    @property
    def log_bytes(self) -> int:
        return self.log.stat().st_size

    def told(self, after: int) -> str:
        """What was logged when so many bytes had been."""
        with self.log.open("rb") as content:
            content.seek(after)
            return content.read().decode(errors="replace")


@dataclass(frozen=True)
class ClientRun:
    run: str
    wall_seconds: float
    peak_bytes: int
    seconds: dict[str, float]  # of the client's own steps, summed over threads
    gateway: dict[str, float]  # the same of the gateway's

    @property
    def shares(self) -> dict[str, float]:
        """Client to durable; what sending takes beyond the gateway's own steps is HTTP's."""
        http = max(0.0, self.seconds["send"] - sum(self.gateway.values()))
        return {step: self.seconds[step] for step in ("parse", "encode")} | {"HTTP": http} | self.gateway


def run_client(data: Path, url: str, out: Path | None = None) -> ClientRun:
    """Up to the answers in `out`, or else until all is durable. Nobody else may upload meanwhile."""
    before = _gateway_seconds(url)
    with tempfile.TemporaryDirectory(prefix="kopitiam-bench-") as scratch:
        figures = Path(scratch) / "figures.json"
        command = [sys.executable, str(CLIENT), str(data), url, str(figures)]
        whole = measure([*command, str(out)] if out else command)
        found: dict[str, Any] = json.loads(figures.read_text())
    after = _gateway_seconds(url)
    gateway = {word: after.get(step, 0.0) - before.get(step, 0.0) for step, word in STEPS.items()}
    return ClientRun(found["run"], whole.seconds, found["peak_bytes"], found["seconds"], gateway)


def _gateway_seconds(url: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        text = answer.read().decode()
    found = re.findall(r'^kopitiam_chunk_seconds_sum\{step="(\w+)"\} (\S+)$', text, re.MULTILINE)
    return {step: float(seconds) for step, seconds in found}


def running_service() -> AbstractContextManager[Service]:
    """All in one process, Spark included, ready to take chunks."""
    return _running(
        lambda home, port: [
            *(str(KOPI), "serve", "--home", home, "--port", port),
            *("--verbose", "--log-json"),
        ]
    )


def running_version(environment: dict[str, str]) -> AbstractContextManager[Service]:
    """A service like `running_service`, of the package that this environment finds."""
    return _running(
        lambda home, port: [sys.executable, "-m", "kopitiam", "serve", "--home", home, "--port", port],
        environment,
    )


def running_gateway() -> AbstractContextManager[Service]:
    """Nobody else: what becomes durable there is not worked on beside it."""
    return _running(lambda home, port: [sys.executable, str(GATEWAY), home, port])


@contextlib.contextmanager
def _running(
    command: Callable[[str, str], list[str]], environment: dict[str, str] | None = None
) -> Iterator[Service]:
    """On a free port and in a home of its own."""
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
    tail = service.told(after=0).splitlines()[-TAIL_LINES:]
    raise CommandError("\n".join(["it did not get ready", *tail]))
