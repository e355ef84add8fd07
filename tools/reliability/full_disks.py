"""The fault full-disk, under one folder of the home. The service must report it, wait, and lose nothing."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sales import Sales, Upload
from services import ANSWER_SECONDS, Service

from catalog_tables import TABLES
from full_disk import fill, mounted
from tools.reliability.measurements import Measurement, at_least, at_most, none_of
from tools.reliability.scenes import CHUNK_ROWS, OVER, Account, Calls, Session, fetch, serving, state_of

_FULL_SECONDS = 25.0  # longer than three attempts take
_MOST_FULL_SECONDS = 120.0  # a busy machine may not need the disk sooner
_NOTICE_SECONDS = 30.0
_OTHERS = ("landing", "incoming", "partials", "results", "rejected", "checkpoints", "logs")
_REFUSALS = frozenset({429, 503, 507})


@dataclass(frozen=True)
class _Place:
    """A part of the home that is put on a small disk of its own."""

    name: str
    folders: tuple[str, ...]
    is_home: bool = False  # the home itself is the small disk; its data folders are elsewhere
    room_bytes: int = 8 << 20


_PLACES = (
    _Place("landing", ("landing", "incoming")),
    _Place("partials", ("partials",)),
    _Place("results", ("results",)),
    _Place("the checkpoint", ("checkpoints",)),
    _Place("the registry", (), is_home=True, room_bytes=96 << 20),  # room for Spark's scratch files too
)


def full_disks(session: Session) -> Iterator[Measurement]:
    """Fills the disk under one part of the home after another, each under its own service."""
    sales = session.sales("full-disk", session.seed + 11)
    for place in _PLACES[: session.pick(len(_PLACES), 1)]:
        folder = session.new_folder(f"full-disk-{place.name.split()[-1]}")
        with mounted(folder / "disk", place.room_bytes) as disk:
            _lay_out(folder / "home", disk, folder / "roomy", place)
            with serving(folder, starts=False) as service:
                yield _filled(session, service, disk, sales, place)


def _lay_out(home: Path, disk: Path, roomy: Path, place: _Place) -> None:
    """Makes the folders of the home links to the small disk, or to one with room."""
    if place.is_home:
        home.symlink_to(disk)
        for name in _OTHERS:
            (roomy / name).mkdir(parents=True)
            (disk / name).symlink_to(roomy / name)
        return
    home.mkdir()
    for name in place.folders:
        (disk / name).mkdir()
        (home / name).symlink_to(disk / name)


def _filled(session: Session, service: Service, disk: Path, sales: Sales, place: _Place) -> Measurement:
    """Fills the disk after half of the upload, empties it once the service has reported it, awaits answers.
    A full disk under results is needed, and noticed, only after the whole upload."""
    service.start()
    calls, account = Calls(), Account()
    upload = Upload(service, service.home.parent / "sent")
    pieces = [(table, n, text) for table in TABLES for n, text in enumerate(sales.texts(table, CHUNK_ROWS))]
    half = len(pieces) // 2
    for piece in pieces[:half]:
        assert _put(calls, upload, piece) is not None
    fill(disk / "ballast")
    began, notice, rest = time.monotonic(), None, pieces[half:]
    is_ended = False
    needed_at = None if place.name == "results" else began
    while time.monotonic() - began < (_FULL_SECONDS if notice is not None else _MOST_FULL_SECONDS):
        refusals = sum(calls.statuses[status] for status in _REFUSALS)
        if rest and _put(calls, upload, rest[0]) is not None:
            rest.pop(0)
        elif not rest and not is_ended:
            is_ended = _end(calls, upload)
        if is_ended and needed_at is None:
            needed_at = time.monotonic()
        is_reported = sum(calls.statuses[status] for status in _REFUSALS) > refusals
        ready = calls.make(lambda: service.http.get("/readyz"))
        if notice is None and (is_reported or ready is None or ready.status_code == 503):
            notice = time.monotonic() - (needed_at or began)
        time.sleep(0.3)
    full = time.monotonic() - began
    states = {state_of(service, upload.run)}
    broken = sum(count for status, count in calls.statuses.items() if status in (0, 500))
    (disk / "ballast").unlink()
    began = time.monotonic()
    recovered = _go_on(service, calls, upload, rest, is_ended)
    answers = fetch(service, upload.run, service.home.parent / "answers")
    account.add(sales, upload.status(), answers)
    session.say(f"{place.name}: said after {notice}, answered {recovered:.1f} s after there was room")
    return Measurement(
        f"full disk below {place.name}",
        f"once, for {full:.0f} s",
        session.seed,
        (
            at_least("said so (429, 503, 507 or not ready)", int(notice is not None), 1),
            at_most("to notice", notice if notice is not None else full, _NOTICE_SECONDS, "s"),
            none_of("calls that broke off or got 500", broken),
            none_of("runs over while it was full", len(states & OVER)),
            at_most("to recover", recovered, 120, "s"),
            at_most("longest call", calls.longest, 30, "s"),
            *account.figures(),
        ),
        notes=tuple(f"{place.name}: {complaint}" for complaint in account.complaints),
    )


def _put(calls: Calls, upload: Upload, piece: tuple[str, int, str]) -> int | None:
    """Sends the chunk. Returns its rows if it is stored, None if it was refused."""
    table, number, text = piece
    response = calls.make(lambda: upload.put(table, number, text))
    if response is None or response.status_code not in (200, 201):
        return None
    upload.chunks[table].append(response.json()["rows"])
    return int(response.json()["rows"])


def _end(calls: Calls, upload: Upload) -> bool:
    for table, rows in upload.chunks.items():
        path = f"/api/v1/runs/{upload.run}/tables/{table}/end"
        figures = {"chunks": len(rows), "rows": sum(rows)}
        response = calls.make(lambda p=path, f=figures: upload.service.http.post(p, json=f))
        if response is None or response.status_code != 200:
            return False
    return True


def _go_on(
    service: Service, calls: Calls, upload: Upload, rest: list[tuple[str, int, str]], is_ended: bool
) -> float:
    """Sends the rest of the upload and awaits the end of the run. Returns the seconds it took."""
    began = time.monotonic()
    while time.monotonic() - began < ANSWER_SECONDS:
        if not service.is_alive:
            with contextlib.suppress(AssertionError):
                service.start()
        if rest:
            if _put(calls, upload, rest[0]) is not None:
                rest.pop(0)
        elif not is_ended:
            is_ended = _end(calls, upload)
        elif state_of(service, upload.run) in OVER:
            break
        time.sleep(0.05)
    return time.monotonic() - began
