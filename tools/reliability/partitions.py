"""The fault partition: drops the packets between `kopi serve` and PostgreSQL, in a network namespace."""

import contextlib
import csv
import ctypes
import io
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from sales import Upload
from services import Service

from debian import can_install, install, skip_or_fail
from kopitiam.fleet.services.postgresql import PostgreSQL
from kopitiam.system.settings import load_settings
from tools.reliability.measurements import Measurement, at_least, at_most, none_of
from tools.reliability.scenes import (
    CHUNK_ROWS,
    Account,
    Calls,
    Session,
    fetch,
    is_ready,
    seconds_until,
    serving,
)

T = TypeVar("T")
_CLONE_NEWNET = 0x40000000
_MOST_CALL_SECONDS = 20.0
_RECOVER_SECONDS = 60.0


def partition(session: Session) -> Iterator[Measurement]:
    """Drops all packets to and from PostgreSQL for a while; a client keeps calling."""
    yield _inside_namespace(lambda drop: _measure(session, drop))


def _measure(session: Session, drop: Callable[[int], contextlib.AbstractContextManager[None]]) -> Measurement:
    folder, calls, account = session.new_folder("partition"), Calls(), Account()
    sales, seconds = session.sales("partition", session.seed + 12), session.pick(60, 30)
    with (
        _postgresql(folder / "database", session.folder) as url,
        serving(folder, KOPI_REGISTRY__URL=url) as service,
    ):
        upload = Upload(service, folder / "sent")
        upload.send_all(sales, CHUNK_ROWS, ["stores", "menu_items", "users"])
        port = urlsplit(url).port
        assert port is not None
        began = time.monotonic()
        with drop(port):
            notice = seconds_until(lambda: not is_ready(service, 60), seconds)
            _call_until(began + seconds, calls, service, upload, sales.texts("transactions", CHUNK_ROWS)[0])
        during, ends = dict(calls.statuses), int(not service.is_alive)
        began = time.monotonic()
        if not service.is_alive:
            service.start()
        back = seconds_until(lambda: is_ready(service, 60), _RECOVER_SECONDS + 60)
        upload.chunks["transactions"].clear()
        for table in ("transactions", "transaction_items"):
            for number, text in enumerate(sales.texts(table, CHUNK_ROWS)):
                response = calls.insist(lambda t=table, n=number, x=text: upload.put(t, n, x))
                assert response.status_code in (200, 201), response.text
                upload.chunks[table].append(list(csv.DictReader(io.StringIO(text))))
        upload.end()
        answers = fetch(service, upload.run, folder / "answers")
        account.add(sales, upload.status(), answers)
    return Measurement(
        "partition to PostgreSQL",
        f"once, {seconds} s, {sum(during.values())} calls meanwhile",
        session.seed,
        (
            at_most("longest call", calls.longest, _MOST_CALL_SECONDS, "s"),
            at_least("calls answered 503", during.get(503, 0), 1),
            none_of("times the service ended", ends),
            at_most("to notice", notice if notice is not None else seconds, _MOST_CALL_SECONDS, "s"),
            at_most("to recover", back if back is not None else _RECOVER_SECONDS + 60, _RECOVER_SECONDS, "s"),
            *account.figures(),
        ),
        notes=tuple(account.complaints),
    )


def _call_until(deadline: float, calls: Calls, service: Service, upload: Upload, text: str) -> None:
    """Reads the status of the run and sends a chunk, repeatedly; at least once each."""
    while True:
        calls.make(lambda: service.http.get(f"/api/v1/runs/{upload.run}", timeout=240))
        calls.make(lambda: upload.put("transactions", 0, text))
        if time.monotonic() > deadline:
            return
        time.sleep(0.5)


@contextlib.contextmanager
def _postgresql(folder: Path, top: Path) -> Iterator[str]:
    folder.mkdir(parents=True)
    for place in (folder, *folder.parents):  # PostgreSQL does not run as root, and must reach its data
        if place.is_relative_to(top):
            place.chmod(place.stat().st_mode | 0o011)
    config = folder / "fleet.toml"
    config.write_text(f'home = "{folder / "home"}"\n[nodes]\nservices = ["postgresql"]\n')
    database = PostgreSQL(load_settings(config))
    database.start()
    try:
        url = database.url()
        assert url is not None
        yield url
    finally:
        database.stop()


def _inside_namespace(work: Callable[[Callable[[int], contextlib.AbstractContextManager[None]]], T]) -> T:
    """Runs `work` in a thread whose network is a namespace with a loopback device only."""
    for program, package in (("ip", "iproute2"), ("nft", "nftables")):
        if shutil.which(program) is None and can_install():
            install(package, is_there=lambda p=program: shutil.which(p) is not None)
        if shutil.which(program) is None:
            skip_or_fail(f"{program} is not installed")
    name = f"kopi-{os.getpid()}"
    added = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if added.returncode:
        skip_or_fail(f"no network namespace: {added.stderr.strip()}")
    outcome: list[T] = []
    failures: list[BaseException] = []

    def enter_and_work() -> None:
        try:
            with Path(f"/var/run/netns/{name}").open() as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
            outcome.append(work(_dropping))
        except BaseException as error:
            failures.append(error)

    try:
        _run("ip", "netns", "exec", name, "ip", "link", "set", "lo", "up")
        thread = threading.Thread(target=enter_and_work)
        thread.start()
        thread.join()
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=False)
    if failures:
        raise failures[0]
    return outcome[0]


@contextlib.contextmanager
def _dropping(port: int) -> Iterator[None]:
    """Drops packets to and from the port, in the network namespace of the calling thread."""
    rules = f"""table inet partition {{
        chain cut {{ type filter hook input priority 0; tcp dport {port} drop; tcp sport {port} drop; }}
    }}"""
    subprocess.run(["nft", "-f", "-"], input=rules, text=True, check=True)
    try:
        yield
    finally:
        _run("nft", "delete", "table", "inet", "partition")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
