"""The fault power-cut: rebuilds the home as it was on disk at some moment, and starts the service on it.

Only synced bytes survive, under names whose folder was synced. Real disks lose less.
"""

import contextlib
import hashlib
import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
from sales import Sales, Upload
from services import SHARDS, Service

from catalog_tables import TABLES
from kopitiam.contracts.api import CSV
from kopitiam.contracts.layout import Home
from tools.reliability.measurements import Measurement, at_least, at_most, none_of
from tools.reliability.recorded_syncs import Disk
from tools.reliability.scenes import CHUNK_ROWS, Account, Session, fetch, serving
from tools.reliability.shims import compile_shim


@dataclass(frozen=True)
class _Chunk:
    """An acknowledged chunk, with the digest of its file at that moment."""

    table: str
    number: int
    text: str
    path: Path
    digest: str | None


def power_cuts(session: Session) -> Iterator[Measurement]:
    """Records a run from upload to answers, then cuts the power at acknowledgements and at random syncs."""
    folder, chance = session.new_folder("power-cut"), random.Random(session.seed)
    sales = session.sales("power-cut", session.seed + 8)
    disk, home, acknowledged, run = _recorded(folder, sales)
    marks = [position for position in disk.acknowledgements() if position]
    count = session.pick(16, 2)
    moments = [(mark, False) for mark in (marks[-1], *chance.sample(marks, min(count // 2 - 1, len(marks))))]
    moments += [(chance.randrange(marks[0], len(disk.events)), True) for _ in range(count // 2)]
    lost, wrong, starts, account, ready = 0, 0, 0, Account(), list[float]()
    details = list[str]()
    for moment, is_torn in moments:
        shutil.rmtree(home)
        disk.rebuild(moment, home, chance if is_torn else None)
        with _started(folder, home, ready) as service:
            starts += service is not None
            if service is None:
                details.append(f"no start after a cut at event {moment}")
                continue
            due = acknowledged[: sum(mark <= moment for mark in marks) - 1]  # the first one opened the run
            missing, differing = _check(service, run, due)
            lost, wrong = lost + missing, wrong + differing
            session.say(f"cut at event {moment} of {len(disk.events)}: {missing} of {len(due)} chunks lost")
            if is_torn:
                _finish(service, sales, run, folder / f"answers-{moment}", account)
    yield Measurement(
        "power cut: syncs replayed, everything else lost",
        f"{len(moments)} cuts, {sum(is_torn for _, is_torn in moments)} of them inside a sync; "
        f"{len(acknowledged)} acknowledged chunks, {len(disk.events)} syncs and acknowledgements",
        session.seed,
        (
            none_of("acknowledged chunks lost", lost),
            none_of("acknowledged chunks with other bytes", wrong),
            at_least("starts after a cut", starts, len(moments)),
            at_most("slowest start to ready", max(ready, default=0), 60, "s"),
            *account.figures(),
        ),
        notes=(*details, *account.complaints),
    )


def _recorded(folder: Path, sales: Sales) -> tuple[Disk, Path, list[_Chunk], str]:
    """Serves one run under the recorder. Returns its disk, home, acknowledged chunks and run id."""
    recorded, home = folder / "recorded", folder / "home"
    recorded.mkdir()
    home.mkdir()
    settings = {
        "LD_PRELOAD": str(compile_shim("record_syncs", folder)),
        "KOPI_SYNCS_OF": str(home),
        "KOPI_SYNCS_TO": str(recorded),
    }
    acknowledged = []
    root = home.stat().st_ino
    with serving(folder, **settings) as service:
        upload = Upload(service, folder / "sent")
        for table in TABLES:
            for number, text in enumerate(sales.texts(table, CHUNK_ROWS)):
                upload.send(table, text)
                path = Home(home).chunk(upload.run, table, number % SHARDS, number)
                acknowledged.append(_Chunk(table, number, text, path, _digest(path)))
        upload.end()
        fetch(service, upload.run, folder / "answers")
        service.kill()
    shutil.rmtree(folder / "temporary")
    return Disk(recorded, root), home, acknowledged, upload.run


@contextlib.contextmanager
def _started(folder: Path, home: Path, ready: list[float]) -> Iterator[Service | None]:
    """Starts the service on the rebuilt home; yields None if it does not start."""
    shutil.rmtree(folder / "temporary", ignore_errors=True)
    with serving(home.parent, starts=False) as service:
        began = time.monotonic()
        try:
            service.start()
        except AssertionError:
            yield None
            return
        ready.append(time.monotonic() - began)
        yield service


def _check(service: Service, run: str, due: list[_Chunk]) -> tuple[int, int]:
    """Counts acknowledged chunks that are missing, and those with other bytes.

    A chunk must be both on disk and in the registry. Once the run is done, its chunks have been cleaned up.
    """
    status = service.http.get(f"/api/v1/runs/{run}")
    if status.status_code != 200:
        return len(due), 0
    if status.json()["state"] == "done":
        return 0, 0
    digests = {(chunk.table, chunk.number): _digest(chunk.path) for chunk in due}
    known = {table: _registered(service, run, table) for table in {chunk.table for chunk in due}}
    lost = sum(
        digests[chunk.table, chunk.number] is None or chunk.number not in known[chunk.table] for chunk in due
    )
    differing = sum(digests[chunk.table, chunk.number] not in (None, chunk.digest) for chunk in due)
    if lost and service.status(run)["state"] == "done":  # cleaned up meanwhile
        return 0, 0
    return lost, differing


def _registered(service: Service, run: str, table: str) -> set[int]:
    chunks = service.http.get(f"/api/v1/runs/{run}/tables/{table}/chunks").json()["chunks"]
    return {chunk["number"] for chunk in chunks}


def _digest(path: Path) -> str | None:
    """SHA-256 of the file, or None if there is no file."""
    with contextlib.suppress(FileNotFoundError):
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return None


def _finish(service: Service, sales: Sales, run: str, out: Path, account: Account) -> None:
    """Sends the missing chunks and END as a client does, then checks the answers."""
    if service.status(run)["state"] == "open":
        for table in TABLES:
            texts = sales.texts(table, CHUNK_ROWS)
            for number, text in enumerate(texts):
                path = f"/api/v1/runs/{run}/tables/{table}/chunks/{number}"
                service.http.put(path, content=text.encode(), headers={"Content-Type": CSV})
            figures = {"chunks": len(texts), "rows": len(sales.rows[table])}
            with contextlib.suppress(httpx.TransportError):
                service.http.post(f"/api/v1/runs/{run}/tables/{table}/end", json=figures)
    answers = fetch(service, run, out)
    account.add(sales, service.status(run), answers)
