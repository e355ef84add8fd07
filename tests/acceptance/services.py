"""A real `kopi serve` that can be killed and restarted on the same home and port; the traces of a run."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import psutil

from catalog_tables import TABLES
from kopitiam.bus.private_broker import free_port
from kopitiam.registry.registry import connect_registry
from trees import paths_below
from waiting import eventually as until  # its tests take it from here

KOPI = Path(sys.executable).with_name("kopi")
# Taken before a Spark session in this process may choose a Java. Settings of the caller stay out. Services of
# tests are short-lived: a warm-up would only take time.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("KOPI_")}
ENVIRONMENT["KOPI_PIPELINE__WARM_UP"] = "false"
# For short lives on tiny data: several small batches for a run, and no time spent on the better compiler.
SHARDS, CHUNKS_PER_BATCH = 2, 4
SMALL_BATCHES = {
    "KOPI_PIPELINE__SHARDS": str(SHARDS),
    "KOPI_PIPELINE__MAX_CHUNKS_PER_BATCH": str(CHUNKS_PER_BATCH),
    "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1",
}
READY_SECONDS = 400
ANSWER_SECONDS = 480
TIDY_SECONDS = 180
END_SECONDS = 120


class Service:
    """A service process; it and its children are recognized by their own folder for temporary files."""

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        self.home = home
        self.environment = dict(environment)
        self.log = home.parent / "service.log"
        self._temporary = home.parent / "temporary"
        self._temporary.mkdir(parents=True)
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        # No connection is kept: the next call may be for the next life.
        no_keeping = httpx.Limits(max_keepalive_connections=0)
        self.http = httpx.Client(base_url=self.url, timeout=60, limits=no_keeping, trust_env=False)
        self.process: subprocess.Popen[bytes] | None = None
        self.settings: dict[str, str] = {}

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self, **settings: str) -> None:
        """Start the service and wait until it is ready for calls."""
        self.begin(**settings)
        until(self._is_ready, READY_SECONDS)

    def begin(self, **settings: str) -> None:
        """Start the service; these settings override its own."""
        self.settings = settings
        argv = [KOPI, "serve", "--home", self.home, "--port", str(self._port)]
        environment = self.environment | settings | {"TMPDIR": str(self._temporary)}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(argv, env=environment, stdout=log, stderr=log)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        assert self.has_died(END_SECONDS)

    def has_died(self, seconds: float) -> bool:
        """Kill the service with SIGKILL; all processes that it started must end too."""
        assert self.process is not None
        code = self.process.wait(seconds)
        until(lambda: not self.processes(), END_SECONDS)
        return code == -signal.SIGKILL

    def stop(self) -> int:
        """Stop the service with a signal; return the exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(END_SECONDS)

    def restart(self, **settings: str) -> None:
        if self.is_alive:
            assert self.stop() == 0
        self.start(**settings)

    def end(self) -> None:
        """Stop the service for good; print its output if a test has failed."""
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        if self.process is not None:
            self.process.wait()
            sys.stdout.write(self.log.read_text(encoding="utf-8"))
        self.http.close()

    def processes(self) -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if self._is_mine(process)]

    def status(self, run: str) -> dict[str, Any]:
        response = self.http.get(f"/api/v1/runs/{run}")
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found

    def durable_chunks(self, run: str) -> int:
        return sum(table["chunks"] for table in self.status(run)["tables"].values())

    def expected_chunks(self, run: str) -> int:
        return sum(table["expected_chunks"] for table in self.status(run)["tables"].values())

    def outcomes(self, outcome: str) -> int:
        """Return how many chunks the gateway has answered in this way since its start."""
        text = self.http.get("/metrics").text
        found = re.findall(
            rf'^kopitiam_chunks_total{{outcome="{outcome}",[^}}]*}} (\S+)$', text, re.MULTILINE
        )
        return int(sum(map(float, found)))

    def _is_ready(self) -> bool:
        assert self.is_alive, self.log.read_text(encoding="utf-8")
        with contextlib.suppress(httpx.TransportError):
            return self.http.get("/readyz").status_code == 200
        return False

    def _is_mine(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get("TMPDIR") == str(self._temporary)
        except psutil.Error:
            return False


class Watcher:
    """Collects the events of a run until it is over."""

    def __init__(self, service: Service, run: str) -> None:
        self._seen: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._listen, args=(service, run), daemon=True)
        self._thread.start()

    def seen(self) -> list[dict[str, Any]]:
        self._thread.join(ANSWER_SECONDS)
        return self._seen

    def _listen(self, service: Service, run: str) -> None:
        with service.http.stream("GET", f"/api/v1/runs/{run}/events", timeout=ANSWER_SECONDS) as events:
            for line in events.iter_lines():
                if line.startswith("data: "):
                    self._seen.append(json.loads(line.removeprefix("data: ")))


def left_of(home: Path, run: str) -> set[str]:
    """Return every file, folder and registry row of a run."""
    on_disk = {str(path.relative_to(home)) for path in paths_below(home) if run in path.name}
    answers = {str(path.relative_to(home)) for path in (home / "results" / f"run={run}").glob("*")}
    with contextlib.closing(connect_registry("sqlite", home)) as registry:
        chunks = {f"{table} chunk {c.number}" for table in TABLES for c in registry.chunks(run, table)}
        partials = {partial.path for partial in registry.partials(run)}
        published = registry.results(run)
    if published is not None:
        answers ^= {f"results/run={run}/attempt={published.attempt}"}  # there, and nothing beside it
        on_disk ^= {f"results/run={run}"}
    return on_disk | answers | chunks | partials


def batches_on_disk(home: Path) -> list[Path]:
    """Return the folders of partials of all runs."""
    return list(home.glob("partials/pipeline=*/*"))
