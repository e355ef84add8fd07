"""The faults many-runs and many-clients: measure what grows in a service under lasting load."""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil
from sales import Sales
from services import ANSWER_SECONDS, Service

from tools.reliability.measurements import Figure, Measurement, at_least, at_most, slope_per
from tools.reliability.scenes import Account, Calls, Session, await_over, family, serving
from trees import files_below

_TINY = {"users": 20, "transactions": 40, "transaction_items": 40}
_TINY_CHUNK_ROWS = 1000
_SETTINGS = {
    "KOPI_GATEWAY__KEEP_RESULTS_HOURS": "0.02",  # 72 s: results expire during the measurement
    "KOPI_SPARK__CONF": '{"spark.driver.memory": "1g"}',  # a heap that soon reaches its limit
}


@dataclass(frozen=True)
class _Bound:
    """Allowed growth of a quantity per 100 runs, in the second half of the measurement."""

    unit: str
    most: float


# Noise: a JVM's heap and Python's arenas move by tens of megabytes between samples.
_BOUNDS = {
    "memory of Python": _Bound("MB", 8.0),
    "memory of the JVM": _Bound("MB", 30.0),
    "descriptors": _Bound("", 4.0),
    "threads": _Bound("", 4.0),
    "files": _Bound("", 40.0),
    "registry rows": _Bound("", 200.0),
    "log bytes": _Bound("", 50_000.0),
}


def _sample(service: Service) -> dict[str, float]:
    """Memory, descriptors, threads, files and rows that the service holds now."""
    held = dict.fromkeys(_BOUNDS, 0.0)
    for process in family(service):
        with contextlib.suppress(psutil.Error):
            kind = "the JVM" if process.name() == "java" else "Python"
            held[f"memory of {kind}"] += process.memory_info().rss / 1e6
            held["descriptors"] += process.num_fds()
            held["threads"] += process.num_threads()
    files = list(files_below(service.home))
    held["files"] = len(files)
    logs = [service.log, *(path for path in files if path.suffix == ".log")]
    held["log bytes"] = sum(_size(path) for path in logs)
    held["registry rows"] = _registry_rows(service.home / "registry.sqlite")
    return held


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0


def _registry_rows(registry: Path) -> int:
    with contextlib.closing(sqlite3.connect(f"file:{registry}?mode=ro", uri=True, timeout=20)) as database:
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return sum(database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for (name,) in tables)


def _growth(samples: list[tuple[float, dict[str, float]]]) -> list[Figure]:
    """Slope of each quantity per 100 runs, over the second half of the runs."""
    second_half = samples[len(samples) // 2 :]
    return [
        Figure(
            f"growth of {name} in 100 runs",
            round(slope_per([(done, held[name]) for done, held in second_half], 100), 1),
            bound.unit,
            most=bound.most,
        )
        for name, bound in _BOUNDS.items()
    ]


def many_runs(session: Session) -> Iterator[Measurement]:
    """Submits one small run after another; each waits for the answers of the one before."""
    folder, account, samples = session.new_folder("many-runs"), Account(), []
    sales, seconds = session.sales("tiny", session.seed + 13, _TINY), list[float]()
    with serving(folder, **_SETTINGS) as service:
        every, deadline = max(1, session.runs // 50), time.monotonic() + 60 * session.run_minutes
        for done in range(1, session.runs + 1):
            if (began := time.monotonic()) > deadline:
                break
            _one_run(service, folder / "sent", sales, account)
            seconds.append(time.monotonic() - began)
            if done % every == 0:
                samples.append((float(done), _sample(service)))
            if done % max(1, session.runs // 10) == 0:
                session.say(f"{done} runs, {sum(seconds) / done:.1f} s each")
    typical = sorted(seconds)[len(seconds) // 2]
    yield Measurement(
        "small runs one after another",
        f"{len(seconds)} runs, {sum(seconds) / 60:.1f} minutes",
        session.seed,
        (
            at_least("runs answered exactly", account.finished - account.wrong_answers, len(seconds)),
            *account.figures(),
            Figure("median of a run", typical, "s"),
            at_most("slowest run", max(seconds), 120, "s"),
            *_bounded(_growth(samples), samples),
        ),
        notes=(_held(samples), *account.complaints[:5]),
    )


def many_clients(session: Session) -> Iterator[Measurement]:
    """Many clients at once submit one small run after another until the time is over."""
    folder, account, samples = session.new_folder("many-clients"), Account(), []
    sales, calls, lock = session.sales("tiny", session.seed + 13, _TINY), Calls(), threading.Lock()
    failures = list[str]()
    with serving(folder, **_SETTINGS) as service:
        deadline = time.monotonic() + session.minutes * 60

        def work(number: int) -> None:
            while time.monotonic() < deadline:
                mine = Account()
                try:
                    _one_run(service, folder / f"sent-{number}", sales, mine, calls)
                except Exception as error:  # a client that fails is a figure, not the end
                    with lock:
                        failures.append(f"{type(error).__name__}: {error}"[:200])
                    continue
                with lock:
                    _merge(account, mine)

        with ThreadPoolExecutor(session.clients) as threads:
            working = [threads.submit(work, number) for number in range(session.clients)]
            while not all(future.done() for future in working):
                time.sleep(max(1.0, session.minutes * 60 / 60))
                samples.append((float(account.finished), _sample(service)))
                if len(samples) % 6 == 0:
                    session.say(f"{account.finished} runs, {len(failures)} failures")
    yield Measurement(
        "clients at once",
        f"{session.clients} clients, {session.minutes:g} minutes, {account.finished} runs",
        session.seed,
        (
            *account.figures(),
            at_most("runs that failed for a client", len(failures), 0),
            at_most("longest call", calls.longest, 30, "s"),
            *_bounded(_growth(samples), samples),
        ),
        notes=(_held(samples), *sorted(set(failures))[:5], *account.complaints[:5]),
    )


def _bounded(figures: list[Figure], samples: Sequence[tuple[float, object]]) -> list[Figure]:
    """Drops the targets if there are few samples: while the service warms up, everything grows."""
    if len(samples) >= 20 and samples[-1][0] >= 200:
        return figures
    return [Figure(figure.name, figure.value, figure.unit) for figure in figures]


def _held(samples: list[tuple[float, dict[str, float]]]) -> str:
    if not samples:
        return "no samples"
    first, last = samples[0][1], samples[-1][1]
    changes = [
        f"{name} {first[name]:,.0f} → {last[name]:,.0f} {_BOUNDS[name].unit}".strip() for name in _BOUNDS
    ]
    return f"first and last of {len(samples)} samples: " + "; ".join(changes)


def _one_run(
    service: Service, sent: Path, sales: Sales, account: Account, calls: Calls | None = None
) -> None:
    """Opens a run, sends its tables, waits for the answers and reads them."""
    calls = calls or Calls()
    opened = calls.insist(lambda: service.http.post("/api/v1/runs", json={"label": sent.name}))
    assert opened.status_code == 201, opened.text
    run, path = opened.json()["run"], f"/api/v1/runs/{opened.json()['run']}"
    for table, rows in sales.rows.items():
        texts = sales.texts(table, _TINY_CHUNK_ROWS)
        for number, text in enumerate(texts):
            place = f"{path}/tables/{table}/chunks/{number}"
            headers = {"Content-Type": "text/csv"}
            stored = calls.insist(
                lambda p=place, x=text, h=headers: service.http.put(p, content=x.encode(), headers=h)
            )
            assert stored.status_code in (200, 201), stored.text
        figures = {"chunks": len(texts), "rows": len(rows)}
        ended = calls.insist(lambda t=table, f=figures: service.http.post(f"{path}/tables/{t}/end", json=f))
        assert ended.status_code == 200, ended.text
    state = await_over(service, run, ANSWER_SECONDS)
    status = service.status(run)
    answers = None
    if state == "done":
        answers = {
            name: calls.insist(lambda n=name: service.http.get(f"{path}/results/{n}.csv")).content
            for name in sales.answers
        }
    account.add(sales, status, answers)


def _merge(account: Account, more: Account) -> None:
    for name in ("rows_lost", "rows_double", "wrong_answers", "wrongly_ended", "finished"):
        setattr(account, name, getattr(account, name) + getattr(more, name))
    account.complaints.extend(more.complaints)
