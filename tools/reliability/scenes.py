"""What all faults use: the session, a service to damage, timed calls, and the check of answers."""

import contextlib
import io
import math
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from sales import FEW, FolderClient, Sales, answers_in, make_sales
from services import ANSWER_SECONDS, ENVIRONMENT, SMALL_BATCHES, Service, until

from tools.reliability.measurements import Figure, at_most, none_of

OVER = frozenset({"done", "failed", "ended"})
CHUNK_ROWS = 100
# Prefixes of crash points that only monitors of a fleet reach: `kopi serve` has one leader and no nodes.
ONLY_MONITOR_POINTS = ("epoch.", "revival.")
LONG_LEASE = {"KOPI_GATEWAY__LEASE_SECONDS": "3600"}
_MEGABYTE = 1e6


@dataclass(frozen=True)
class Session:
    """Settings of one run of the harness: its folder, its seed, and how many repetitions to make."""

    folder: Path
    seed: int
    is_sample: bool = False
    runs: int = 500
    clients: int = 32
    minutes: float = 10.0
    run_minutes: float = math.inf  # time limit of the fault many-runs
    say: Callable[[str], None] = print

    def pick(self, full: int, sample: int) -> int:
        return sample if self.is_sample else full

    def new_folder(self, name: str) -> Path:
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def sales(self, name: str, seed: int, counts: Mapping[str, int] = FEW) -> Sales:
        return make_sales(self.new_folder(f"sales/{name}"), seed, counts)


@contextlib.contextmanager
def serving(folder: Path, *, starts: bool = True, **settings: str) -> Iterator[Service]:
    """Runs `kopi serve` with its home in `folder`, and ends all its processes afterwards."""
    service = Service(folder / "home", ENVIRONMENT | SMALL_BATCHES | LONG_LEASE | settings)
    try:
        if starts:
            service.start()
        yield service
    finally:
        with contextlib.redirect_stdout(io.StringIO()):  # `end` prints the log, which is kept in its file
            service.end()


@dataclass
class Account:
    """Counts lost and duplicate rows, wrong answers and failures of runs that must succeed."""

    rows_lost: int = 0
    rows_double: int = 0
    wrong_answers: int = 0
    wrongly_ended: int = 0
    finished: int = 0
    complaints: list[str] = field(default_factory=list)

    def add(self, sales: Sales, status: Mapping[str, Any], answers: Mapping[str, bytes] | None) -> None:
        """Checks one run. A run without answers counts as wrongly ended if it is over."""
        if status["state"] != "done" or answers is None:
            self.wrongly_ended += status["state"] in OVER
            self.complaints.append(f"run is {status['state']}: {status['error']}")
            return
        self.finished += 1
        for table, rows in sales.rows.items():
            stored = status["tables"][table]["rows"]
            self.rows_lost += max(0, len(rows) - stored)
            self.rows_double += max(0, stored - len(rows))
        expected, actual = (Counter(texts["1"].splitlines()) for texts in (sales.answers, answers))
        self.rows_lost += (expected - actual).total()
        self.rows_double += (actual - expected).total()
        self.wrong_answers += sum(answers[name] != content for name, content in sales.answers.items())

    def figures(self) -> tuple[Figure, ...]:
        return (
            none_of("rows lost", self.rows_lost),
            none_of("rows double", self.rows_double),
            none_of("wrong answers", self.wrong_answers),
            none_of("runs wrongly ended", self.wrongly_ended),
        )


def fetch(service: Service, run: str, out: Path, seconds: float = ANSWER_SECONDS) -> dict[str, bytes] | None:
    """Waits until the run is over and returns its answers, or None if it has none."""
    await_over(service, run, seconds)
    if service.status(run)["state"] != "done":
        return None
    with contextlib.closing(FolderClient(service, seconds)) as client:
        client.fetch(run, out)
    return answers_in(out)


def await_over(service: Service, run: str, seconds: float = ANSWER_SECONDS) -> str:
    """Waits until the run is over and returns its state."""
    until(lambda: state_of(service, run) in OVER, seconds)
    return str(state_of(service, run))


def state_of(service: Service, run: str) -> str | None:
    """The state of the run, or None while the service does not answer."""
    with contextlib.suppress(httpx.TransportError):
        response = service.http.get(f"/api/v1/runs/{run}")
        if response.status_code == 200:
            return str(response.json()["state"])
    return None


def is_ready(service: Service, seconds: float = 5) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return service.http.get("/readyz", timeout=seconds).status_code == 200
    return False


def seconds_until(condition: Callable[[], object], most: float) -> float | None:
    """Seconds until the condition was true, or None if it was not within `most` seconds."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > most:
            return None
        time.sleep(0.05)
    return time.monotonic() - begun


class Calls:
    """Times the calls of a well-behaved client and counts them by status; a broken connection is status 0."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.statuses: Counter[int] = Counter()
        self._lock = threading.Lock()

    def make(self, call: Callable[[], httpx.Response]) -> httpx.Response | None:
        begun, response = time.monotonic(), None
        with contextlib.suppress(httpx.TransportError):
            response = call()
        with self._lock:
            self.longest = max(self.longest, time.monotonic() - begun)
            self.statuses[response.status_code if response else 0] += 1
        return response

    def insist(self, call: Callable[[], httpx.Response], seconds: float = ANSWER_SECONDS) -> httpx.Response:
        """Repeats the call while the service is unreachable or busy (429, 503), as a client does."""
        deadline = time.monotonic() + seconds
        while True:
            response = self.make(call)
            if response is not None and response.status_code not in (429, 502, 503, 504, 507):
                return response
            assert time.monotonic() < deadline, f"no answer within {seconds:.0f} s"
            time.sleep(0.2)


class MemoryWatch:
    """Samples the memory of all processes of a service ten times a second while the block runs. Pages that
    several processes share count once (the sum of proportional set sizes)."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.python_megabytes = 0.0
        self.jvm_megabytes = 0.0

    def __enter__(self) -> "MemoryWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(0.1):
            used = {True: 0.0, False: 0.0}
            for process in family(self._service):
                with contextlib.suppress(psutil.Error):
                    used[_is_java(process)] += process.memory_full_info().pss / _MEGABYTE
            self.python_megabytes = max(self.python_megabytes, used[False])
            self.jvm_megabytes = max(self.jvm_megabytes, used[True])

    def figures(self, python_most: float, jvm_most: float) -> tuple[Figure, ...]:
        return (
            at_most("peak memory of Python", self.python_megabytes, python_most, "MB"),
            at_most("peak memory of the JVM", self.jvm_megabytes, jvm_most, "MB"),
        )


def java_process(service: Service) -> psutil.Process | None:
    """Spark's JVM: the largest Java process of the service."""
    processes = [process for process in family(service) if _is_java(process)]
    return max(processes, key=_resident, default=None)


def family(service: Service) -> list[psutil.Process]:
    """All processes of the service that are running."""
    if service.process is None:
        return []
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(service.process.pid)
        return [root, *root.children(recursive=True)]
    return []


def _is_java(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.name() == "java"
    return False


def _resident(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.Error):
        return int(process.memory_info().rss)
    return 0


def files_in(folder: Path) -> dict[str, bytes]:
    """Content of every file below the folder, by relative path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
