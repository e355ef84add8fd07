"""The fault registry-moved: the service starts without its registry, or with the registry of another home."""

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from sales import Upload
from services import END_SECONDS, Service

from tools.reliability.measurements import Measurement, at_least, at_most, none_of
from tools.reliability.scenes import CHUNK_ROWS, Account, Session, fetch, is_ready, serving

_REGISTRY = "registry.sqlite*"  # the database and its journal files
_DATA = ("landing", "partials", "results", "rejected")
_WAIT_SECONDS = 40


def moved_and_swapped(session: Session) -> Iterator[Measurement]:
    """Starts the service without its registry, then with that of another home, then with its own again."""
    folder = session.new_folder("registry-moved")
    sales = session.sales("registry-moved", session.seed + 2)
    with serving(folder / "other") as other:
        Upload(other, folder / "sent-other").send_all(sales, CHUNK_ROWS, ["stores"])
    with serving(folder / "own") as service:
        done, upload = (Upload(service, folder / f"sent-{name}") for name in ("done", "open"))
        done.send_all(sales, CHUNK_ROWS)
        upload.send_all(sales, CHUNK_ROWS)
        done.end()
        fetch(service, done.run, folder / "answers-done")
        service.stop()
        kept = _files(service.home)
        for fault, spoil in (("moved away", _nothing), ("swapped", _from(other.home))):
            yield _started_with(session, service, fault, spoil, kept)
        account, begun = Account(), time.monotonic()
        service.start()
        recovered = time.monotonic() - begun
        upload.end()
        answers = fetch(service, upload.run, folder / "answers-open")
        account.add(sales, upload.status(), answers)
        account.add(sales, done.status(), done.answers())
    yield Measurement(
        "the registry put back",
        "once, after both",
        session.seed,
        (at_most("to recover", recovered, 60, "s"), *account.figures()),
    )


def _started_with(
    session: Session, service: Service, fault: str, spoil: Callable[[Path], None], kept: set[str]
) -> Measurement:
    """Measures one start without the own registry, and puts the own registry back afterwards."""
    safe = service.home.parent / "safe"
    safe.mkdir()
    for file in service.home.glob(_REGISTRY):
        shutil.move(file, safe / file.name)
    spoil(service.home)
    logged = service.log.stat().st_size
    service.begin()
    assert service.process is not None
    began, is_serving = time.monotonic(), False
    while service.process.poll() is None and time.monotonic() - began < _WAIT_SECONDS and not is_serving:
        is_serving = is_ready(service)
        time.sleep(0.1)
    seconds = time.monotonic() - began
    if is_serving:
        time.sleep(5)  # a janitor that removes files does so soon after the start
        service.stop()
    with contextlib.suppress(Exception):
        service.process.wait(END_SECONDS)
    code = service.process.returncode
    lines = service.log.read_bytes()[logged:].decode("utf-8", "replace").strip().splitlines()
    removed = len(kept - _files(service.home))
    for file in service.home.glob(_REGISTRY):
        file.unlink()
    for file in safe.iterdir():
        shutil.move(file, service.home / file.name)
    safe.rmdir()
    is_refused = not is_serving and code not in (None, 0)
    return Measurement(
        f"registry {fault} while the service is down",
        "once",
        session.seed,
        (
            at_least("starts refused", int(is_refused), 1),
            at_most("lines said by kopi", sum(line.startswith("kopi:") for line in lines), 1),
            none_of("tracebacks shown", sum("Traceback" in line for line in lines)),
            none_of("files removed", removed),
            at_most("to notice", seconds, 30, "s"),
        ),
        notes=tuple(f"exit code {code}: {line[:200]}" for line in lines) if is_refused else (),
    )


def _nothing(home: Path) -> None:
    del home


def _from(other: Path) -> Callable[[Path], None]:
    def copy(home: Path) -> None:
        for file in other.glob(_REGISTRY):
            shutil.copy(file, home / file.name)

    return copy


def _files(home: Path) -> set[str]:
    """Data files that a registry accounts for."""
    return {
        str(path.relative_to(home))
        for name in _DATA
        for path in (home / name).rglob("*")
        if path.is_file() and not path.name.startswith((".", "_"))
    }
