"""Damage to the home while the service is down: a damaged chunk fails only its own run, a damaged checkpoint
does no harm, and a registry restored from a backup accepts again the chunks that it does not know.
"""

import random
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from sales import FolderClient, Sales, Upload, answers_in, make_sales, stages_of
from services import (
    ANSWER_SECONDS,
    ENVIRONMENT,
    READY_SECONDS,
    SHARDS,
    SMALL_BATCHES,
    TIDY_SECONDS,
    Service,
    batches_on_disk,
    left_of,
    until,
)

from kopitiam.contracts.layout import Home
from sampling import sampled

CHUNK_ROWS = 100


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    served = Service(tmp_path_factory.mktemp("damaged") / "home", ENVIRONMENT | SMALL_BATCHES)
    yield served
    served.end()


@pytest.fixture
def service(house: Service) -> Service:
    """A service that is stopped."""
    if house.is_alive:
        house.stop()
    return house


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Sales:
    return make_sales(tmp_path_factory.mktemp("sales"), seed=2)


def check_done(service: Service, sales: Sales, run: str, out: Path) -> None:
    with closing(FolderClient(service)) as client:
        client.fetch(run, out)
    assert answers_in(out) == sales.answers
    assert service.status(run)["stages"] == stages_of(sales.chunks(CHUNK_ROWS), sales.answers)
    until(lambda: left_of(service.home, run) == {f"rejected/run={run}"}, TIDY_SECONDS)


def missing(file: Path) -> None:
    file.unlink()


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def short_of_a_row(file: Path) -> None:
    rows = pq.read_table(file, partitioning=None).slice(1)
    pq.write_table(rows, file)


def broken_inside(file: Path) -> None:
    """Damage the pages of a Parquet file and keep its footer."""
    content = bytearray(file.read_bytes())
    content[4:204] = bytes(200)
    file.write_bytes(content)


DAMAGES: list[tuple[Callable[[Path], None], str, int]] = [
    (missing, "transactions", 2),
    (cut_short, "transaction_items", 1),
    (short_of_a_row, "users", 0),
    (broken_inside, "transactions", 3),
]


@pytest.mark.long
def test_a_damaged_chunk_fails_its_run_by_name_and_no_other(
    service: Service, sales: Sales, tmp_path: Path
) -> None:
    labels = [damage.__name__ for damage, _, _ in DAMAGES]
    *doomed, sound = send_while_nothing_is_processed(service, sales, [*labels, "sound"])
    for run, (damage, table, number) in zip(doomed, DAMAGES, strict=True):
        damage(Home(service.home).chunk(run, table, number % SHARDS, number))
    service.start()
    check_done(service, sales, sound, tmp_path / "answers")
    for run, (_, table, number) in zip(doomed, DAMAGES, strict=True):
        until(lambda run=run: service.status(run)["state"] == "failed", ANSWER_SECONDS)
        error = service.status(run)["error"]
        assert re.search(rf"{table} chunk {number} |table={table}/.*/chunk-{number:05d}", error), error
        refused = service.http.get(f"/api/v1/runs/{run}/results/1.csv", params={"provisional": True})
        assert (refused.status_code, error in refused.json()["message"]) == (409, True)
        until(lambda run=run: left_of(service.home, run) == {f"rejected/run={run}"}, TIDY_SECONDS)
    until(lambda: not batches_on_disk(service.home), TIDY_SECONDS)


def send_while_nothing_is_processed(service: Service, sales: Sales, labels: list[str]) -> list[str]:
    """Kill the service during its first batch. Spark is slow, so usually one attempt is enough."""
    with ThreadPoolExecutor(len(labels)) as threads, closing(FolderClient(service)) as client:
        sending = [threads.submit(client.send, sales, CHUNK_ROWS, label) for label in labels]
        while not all(each.done() for each in sending):
            service.start(KOPI_CRASH_AT="batch.begun")
            assert service.has_died(ANSWER_SECONDS)
        return [each.result() for each in sending]


def deleted(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)


def filled_with_rubbish(checkpoint: Path) -> None:
    chance = random.Random(7)
    for file in sorted(path for path in checkpoint.rglob("*") if path.is_file()):
        file.write_bytes(chance.randbytes(64))


def with_an_empty_offset(checkpoint: Path) -> None:
    """Damage the last file as a power cut may do."""
    offsets = checkpoint / "offsets"
    last = max(int(path.name) for path in offsets.iterdir() if path.name.isdigit())
    (offsets / f".{last}.crc").unlink()
    (offsets / str(last)).write_bytes(b"")


def with_rubbish_as_metadata(checkpoint: Path) -> None:
    (checkpoint / ".metadata.crc").unlink()
    (checkpoint / "metadata").write_text("rubbish", encoding="utf-8")


def without_commits(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint / "commits")


RUINS = sampled(
    [deleted, filled_with_rubbish, with_an_empty_offset, with_rubbish_as_metadata, without_commits], 1
)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_damaged_checkpoint_is_rebuilt_from_the_registry(
    service: Service, sales: Sales, tmp_path: Path
) -> None:
    """The service is killed after its second batch each time, and its checkpoint is damaged."""
    with ThreadPoolExecutor(len(RUINS)) as threads, closing(FolderClient(service)) as client:
        sending = []
        for ruin in RUINS:
            service.start(KOPI_CRASH_AT="batch.committed:2")
            sending.append(threads.submit(client.send, sales, CHUNK_ROWS, ruin.__name__))
            assert service.has_died(ANSWER_SECONDS)
            (checkpoint,) = (service.home / "checkpoints").iterdir()
            ruin(checkpoint)
        service.start()
        runs = [each.result(ANSWER_SECONDS) for each in sending]
    for run in runs:
        check_done(service, sales, run, tmp_path / run)


@pytest.mark.long
def test_a_registry_restored_from_a_backup_accepts_again_the_chunks_it_does_not_know(
    service: Service, sales: Sales, tmp_path: Path, kopi: Callable[..., Any]
) -> None:
    service.start()
    upload = Upload(service, tmp_path / "sent")
    upload.send_all(sales, CHUNK_ROWS, ["stores", "menu_items", "users", "transactions"])
    upload.await_processed()
    registry = service.home / "registry.sqlite"
    back_up(registry, tmp_path / "backup.sqlite")
    upload.send_all(sales, CHUNK_ROWS, ["transaction_items"])
    upload.await_processed()  # by batches, and a checkpoint, that the back-up has not seen
    service.restart()
    service.kill()
    for file in service.home.glob("registry.sqlite*"):
        file.unlink()
    before = files_of_runs(service.home)
    check_refused(service, "is missing, though")
    shutil.copy(tmp_path / "backup.sqlite", registry)
    check_refused(service, "older than the files there")
    assert files_of_runs(service.home) == before
    adopted = kopi("adopt", "--home", service.home, "--yes", "--json")
    assert (adopted.code, adopted.stderr) == (0, "")

    service.start()

    assert upload.waiting() == len(upload.chunks["transaction_items"])
    for number, text in enumerate(sales.texts("transaction_items", CHUNK_ROWS)):
        assert upload.put("transaction_items", number, text).status_code == 201
    upload.end()
    assert upload.await_end()["stages"] == stages_of(upload.chunks, sales.answers)
    assert upload.answers() == sales.answers
    until(lambda: not left_of(service.home, upload.run), TIDY_SECONDS)
    until(lambda: not batches_on_disk(service.home), TIDY_SECONDS)


def check_refused(service: Service, why: str) -> None:
    log_size = service.log.stat().st_size
    service.begin()
    assert service.process is not None and service.process.wait(READY_SECONDS) == 2
    lines = service.log.read_text(encoding="utf-8")[log_size:].splitlines()
    (line,) = [line for line in lines if "[warning" not in line]  # of the life before, and of open files
    assert line.startswith("kopi: ") and why in line


def files_of_runs(home: Path) -> set[Path]:
    return {path for path in home.rglob("*") if "run=" in str(path) and path.is_file()}


def back_up(registry: Path, target: Path) -> None:
    """As `sqlite3 registry.sqlite ".backup target"`, while the service runs."""
    with closing(sqlite3.connect(registry)) as live, closing(sqlite3.connect(target)) as kept:
        live.backup(kept)
