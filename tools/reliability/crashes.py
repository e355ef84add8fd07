"""The fault crash-points: kills `kopi serve` at each crash point and starts it again on the same home."""

import contextlib
import random
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from sales import FEW, FolderClient, Sales, answers_in
from services import CHUNKS_PER_BATCH, Service

from kopitiam.contracts.api import CSV
from kopitiam.pipeline.compaction import FAN_IN
from kopitiam.system.crash_points import POINTS
from tools.reliability.measurements import Measurement, at_most, none_of
from tools.reliability.scenes import (
    CHUNK_ROWS,
    ONLY_MONITOR_POINTS,
    Account,
    Session,
    serving,
    state_of,
)

_PATIENCE_SECONDS = 600.0  # clients keep trying this long, across restarts
_LIFE_SECONDS = 240.0
_GRACE_SECONDS = 15.0  # a point may be reached after the run has its answers
_READY_MOST_SECONDS = 60.0
_RECOVER_MOST_SECONDS = 120.0
_SMALL_CHUNK_ROWS = 6
# Enough batches of transactions that their partials are merged; a quarter of them leave no partials.
_MANY_BATCHES = FEW | {
    "transactions": (FAN_IN + 2) * CHUNKS_PER_BATCH * _SMALL_CHUNK_ROWS * 3 // 2,
    "users": 10,
    "transaction_items": 20,
}
# Points that `kopi serve` never reaches, by prefix.
_ELSEWHERE = dict.fromkeys(
    ONLY_MONITOR_POINTS, "only a monitor of a fleet reaches it, see its own row"
) | dict.fromkeys(
    ("files.", "file.", "data.", "garbage.", "purge."),
    "only data sets and deletions reach it: tests/gateway/test_gateway_data_crashes.py",
)


@dataclass(frozen=True)
class _Client:
    """Submits one run and cancels another; both survive restarts of the service."""

    service: Service
    sales: Sales
    chunk_rows: int
    label: str
    out: Path

    def submit(self) -> str:
        with contextlib.closing(FolderClient(self.service, _PATIENCE_SECONDS)) as client:
            run = client.send(self.sales, self.chunk_rows, self.label)
            client.fetch(run, self.out)
        return run

    def cancel(self) -> str:
        opened = self._insist(
            "POST", "/api/v1/runs", json={"label": "cancelled", "idempotency_key": f"{self.label}-cancel"}
        )
        run = str(opened.json()["run"])
        text = self.sales.texts("stores", 1)[0].encode()
        path = f"/api/v1/runs/{run}/tables/stores/chunks/0"
        self._insist("PUT", path, content=text, headers={"Content-Type": CSV})
        self._insist("DELETE", f"/api/v1/runs/{run}")
        return run

    def _insist(self, method: str, path: str, **rest: object) -> httpx.Response:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.TransportError):
                response = self.service.http.request(method, path, **rest)  # type: ignore[arg-type]
                if response.status_code < 500 and response.status_code != 429:
                    return response
            time.sleep(0.2)
        raise TimeoutError(f"{method} {path}")


def crash_points(session: Session) -> Iterator[Measurement]:
    """For each point: starts the service armed, awaits its crash, starts it again, awaits the answers."""
    folder, chance = session.new_folder("crash-points"), random.Random(session.seed)
    points = list(POINTS) if not session.is_sample else chance.sample(list(POINTS), 3)
    elsewhere = [point for point in points if _why_elsewhere(point)]
    tally = _Tally()
    with serving(folder, starts=False) as service, ThreadPoolExecutor(2) as threads:
        for position, point in enumerate(point for point in points if point not in elsewhere):
            client = _client(session, service, folder, position, point)
            _die_and_recover(service, point, client, threads, tally)
            session.say(f"{point}: answered {tally.recovered[-1]:.0f} s after the next start")
    yield Measurement(
        "kill -9 at each crash point of kopi serve",
        f"{len(points) - len(elsewhere) - len(tally.not_reached)} kills, "
        "a run and a cancelled run under way at each",
        session.seed,
        (
            *tally.account.figures(),
            none_of("cancelled runs not ended", tally.not_ended),
            at_most("slowest start to ready", max(tally.ready, default=0), _READY_MOST_SECONDS, "s"),
            at_most("to recover", max(tally.recovered, default=0), _RECOVER_MOST_SECONDS, "s"),
            none_of("points not reached without a reason", len(tally.not_reached)),
        ),
        notes=(
            *(f"`{point}` is not reached: {_why_elsewhere(point)}" for point in elsewhere),
            *(f"`{point}` is not reached" for point in tally.not_reached),
            *tally.account.complaints,
        ),
    )


@dataclass
class _Tally:
    account: Account = field(default_factory=Account)
    ready: list[float] = field(default_factory=list)
    recovered: list[float] = field(default_factory=list)
    not_reached: list[str] = field(default_factory=list)
    not_ended: int = 0


def _die_and_recover(
    service: Service, point: str, client: _Client, threads: ThreadPoolExecutor, tally: _Tally
) -> None:
    service.begin(KOPI_CRASH_AT=point)
    sending, cancelling = threads.submit(client.submit), threads.submit(client.cancel)
    if not _has_died(service, sending, cancelling):
        tally.not_reached.append(point)
        service.kill()
    began = time.monotonic()
    service.start()
    tally.ready.append(time.monotonic() - began)
    run, cancelled = sending.result(_LIFE_SECONDS), cancelling.result(_LIFE_SECONDS)
    tally.recovered.append(time.monotonic() - began)
    tally.account.add(client.sales, service.status(run), answers_in(client.out))
    tally.not_ended += state_of(service, cancelled) != "ended"
    service.stop()


def _client(session: Session, service: Service, folder: Path, position: int, point: str) -> _Client:
    is_merging = point.startswith("merge.")
    counts = _MANY_BATCHES if is_merging else FEW
    sales = session.sales(f"crash-{position}", session.seed + position, counts)
    rows = _SMALL_CHUNK_ROWS if is_merging else CHUNK_ROWS
    return _Client(service, sales, rows, f"crash-{position}", folder / f"answers-{position}")


def _has_died(service: Service, *clients: Future[str]) -> bool:
    """Whether the service crashed at the point; False if its clients are done and it still runs."""
    assert service.process is not None
    began, done_at = time.monotonic(), None
    while time.monotonic() - began < _LIFE_SECONDS:
        if service.process.poll() is not None:
            assert service.has_died(1), f"ended with code {service.process.returncode}"
            return True
        if done_at is None and all(client.done() for client in clients):
            done_at = time.monotonic()
        if done_at is not None and time.monotonic() - done_at > _GRACE_SECONDS:
            return False
        time.sleep(0.1)
    return False


def _why_elsewhere(point: str) -> str | None:
    return next((why for prefix, why in _ELSEWHERE.items() if point.startswith(prefix)), None)
