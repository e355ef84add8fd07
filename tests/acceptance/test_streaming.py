"""The pipeline as a stream, seen from outside: answers so far, progress, many runs at once, runs that are
ended by force, chunks that are damaged, and a checkpoint that is lost.
"""

import contextlib
import json
import os
import random
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sales import FolderClient, Sales, Upload, answers_in, make_sales, processed_chunks, stages_of
from services import ANSWER_SECONDS, Service, batches_on_disk, left_of, until

from kopitiam.contracts.questions import ANSWERS
from kopitiam.contracts.stages import BEFORE_BARRIER, BEHIND_BARRIER
from kopitiam.contracts.tables import TABLES
from kopitiam.landing.layout import Home
from kopitiam.landing.writer import encode

SHARDS = 2
SETTINGS = {"KOPI_PIPELINE__SHARDS": str(SHARDS), "KOPI_PIPELINE__MAX_CHUNKS_PER_BATCH": "4"}
CHUNK_ROWS = 100
TIDY_SECONDS = 20
SMALL_TABLES = ("stores", "menu_items", "users")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service for all tests of this module; not started yet."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KOPI_")}
    served = Service(tmp_path_factory.mktemp("streaming") / "home", environment | SETTINGS)
    yield served
    sys.stdout.write(served.log.read_text(encoding="utf-8"))
    served.end()


@pytest.fixture
def service(house: Service) -> Service:
    """In a life without settings of its own."""
    if house.settings and is_alive(house):
        house.stop()
    if not is_alive(house):
        house.start()
    return house


def is_alive(house: Service) -> bool:
    return house.process is not None and house.process.poll() is None


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Sales:
    return make_sales(tmp_path_factory.mktemp("sales"), seed=1)


@pytest.fixture
def client(house: Service) -> Iterator[FolderClient]:
    with contextlib.closing(FolderClient(house)) as opened:
        yield opened


def check_done(upload: Upload) -> None:
    """Exact, each chunk counted once, and nothing left but the answers."""
    status = upload.await_end()
    answers = upload.expected()
    assert upload.answers() == answers
    assert status["stages"] == stages_of(upload.chunks, SHARDS, answers)
    until(lambda: not left_of(upload.service.home, upload.run), TIDY_SECONDS)


def test_answers_so_far_are_marked_and_equal_those_to_the_chunks_that_have_come(
    service: Service, sales: Sales, tmp_path: Path, kopi: Callable[..., Any]
) -> None:
    upload = Upload(service, tmp_path / "sent")
    upload.send_all(sales, CHUNK_ROWS, SMALL_TABLES)
    upload.send("transactions", *sales.texts("transactions", CHUNK_ROWS)[:2])
    upload.send("transaction_items", *sales.texts("transaction_items", CHUNK_ROWS)[:2])
    upload.await_processed()
    whole = {"processed": upload.rows, "durable": upload.rows, "expected": None}

    expected = upload.expected()
    assert upload.answers(provisional=True) == expected
    for name in ANSWERS:
        told = upload.result(f"{name}.json", provisional=True).json()
        table = pq.read_table(pa.BufferReader(upload.result(f"{name}.parquet", provisional=True).content))
        assert (told["provisional"], told["coverage"]) == (True, whole)
        assert told["count"] == len(told["rows"]) == table.num_rows == expected[name].count(b"\n") - 1
    summary = upload.result("summary.json", provisional=True).json()
    assert (summary["coverage"], summary["rows"]["used"]) == (whole, upload.rows)

    shown = kopi("status", upload.run, "--answers", "--server", service.url)
    assert (shown.code, shown.stderr) == (0, "")
    assert f"provisional: {upload.rows:,} rows of the {upload.rows:,} that have come (100%)" in shown.stdout
    told = json.loads(kopi("status", upload.run, "--answers", "--json", "--server", service.url).stdout)
    assert (told["run"], told["summary"]["coverage"]) == (upload.run, whole)
    assert len(told["answers"]["3"]) == expected["3"].count(b"\n") - 1

    upload.send("transactions", *sales.texts("transactions", CHUNK_ROWS)[2:])
    early = upload.result("summary.json", provisional=True).json()["coverage"]
    assert whole["processed"] <= early["processed"] <= early["durable"] <= upload.rows
    upload.send("transaction_items", *sales.texts("transaction_items", CHUNK_ROWS)[2:])
    upload.end()
    late = upload.result("summary.json", provisional=True).json()
    assert late.get("coverage", {"expected": upload.rows})["expected"] == upload.rows
    check_done(upload)
    assert upload.answers(provisional=True) == upload.answers() == sales.answers
    final = upload.result("3.json", provisional=True).json()
    assert (final["provisional"], "coverage" in final) == (False, False)
    last = kopi("status", upload.run, "--answers", "--server", service.url).stdout
    assert "rows read =" in last
    assert "provisional" not in last


def test_before_the_first_chunk_the_answers_so_far_are_empty(service: Service, tmp_path: Path) -> None:
    upload = Upload(service, tmp_path / "sent")
    for name, answer in ANSWERS.items():
        told = upload.result(f"{name}.json", provisional=True).json()
        assert (told["provisional"], told["count"], told["rows"]) == (True, 0, [])
        assert told["coverage"] == {"processed": 0, "durable": 0, "expected": None}
        assert upload.result(f"{name}.csv", provisional=True).text == ",".join(answer.columns) + "\n"
    upload.end()
    upload.await_end()
    assert upload.result("1.json", provisional=True).json()["provisional"] is False


class Watcher:
    """Listens to the events of a run until it is over."""

    def __init__(self, upload: Upload) -> None:
        self.seen: list[dict[str, Any]] = []
        self._path = f"/api/v1/runs/{upload.run}/events"
        self._http = upload.service.http
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        with self._http.stream("GET", self._path, timeout=ANSWER_SECONDS) as events:
            for line in events.iter_lines():
                if line.startswith("data: "):
                    self.seen.append(json.loads(line.removeprefix("data: ")))

    def wait(self) -> list[dict[str, Any]]:
        self._thread.join(ANSWER_SECONDS)
        return self.seen


def test_every_stage_and_shard_is_seen_to_grow_to_what_it_expects(
    service: Service, sales: Sales, tmp_path: Path, kopi: Callable[..., Any]
) -> None:
    upload = Upload(service, tmp_path / "sent")
    watcher = Watcher(upload)
    upload.send_all(sales, CHUNK_ROWS)
    upload.await_processed()
    upload.end()
    done = upload.await_end()
    seen = watcher.wait()

    expected = stages_of(upload.chunks, SHARDS, upload.expected())
    assert done["stages"] == seen[-1]["stages"] == expected
    assert expected["join_items"]["1"] == {"expected": 0, "processed": 0, "rows": 0}
    for before, after in pairwise(seen):
        for stage, shards in after["stages"].items():
            for shard, work in shards.items():
                earlier = before["stages"][stage][shard]
                assert earlier["processed"] <= work["processed"] <= expected[stage][shard]["processed"]
                assert earlier["rows"] <= work["rows"] <= expected[stage][shard]["rows"]
                assert earlier["expected"] in {None, work["expected"]}
    counts = {processed_chunks(status) for status in seen}
    assert len(counts) > 2, counts  # nothing, all, and something in between
    states = list(dict.fromkeys(status["state"] for status in seen))
    assert states in (["open", "sealed", "final", "done"], ["open", "final", "done"], ["open", "done"])

    told = json.loads(kopi("status", upload.run, "--json", "--server", service.url).stdout)
    assert told == upload.status()
    assert told.keys() >= {"run", "label", "state", "tables", "stages", "rejected", "unmatched", "error"}
    assert list(told["tables"]) == list(TABLES)
    for table in told["tables"].values():
        assert table.keys() >= {"chunks", "rows", "expected_chunks", "expected_rows", "sealed"}
    assert list(told["stages"]) == [*BEFORE_BARRIER, *BEHIND_BARRIER]
    shown = kopi("status", upload.run, "--server", service.url).stdout
    assert all(stage in shown for stage in told["stages"])


def test_a_small_run_is_answered_while_a_large_one_keeps_coming(
    service: Service, sales: Sales, tmp_path: Path, kopi: Callable[..., Any], tiny_folder: Path
) -> None:
    large = Upload(service, tmp_path / "large")
    large.send_all(sales, CHUNK_ROWS, SMALL_TABLES)
    is_enough = threading.Event()

    def keep_sending() -> None:
        """Always something to do for the pipeline, and never a mountain."""
        texts = sales.texts("transactions", 10)
        while not is_enough.is_set():
            for text in texts:
                until(lambda: large.waiting() < 8 or is_enough.is_set(), ANSWER_SECONDS)
                if is_enough.is_set():
                    return
                large.send("transactions", text)

    with ThreadPoolExecutor(1) as sender:
        sending = sender.submit(keep_sending)
        try:
            until(lambda: large.waiting() >= 4, ANSWER_SECONDS)
            before = len(large.chunks["transactions"])
            small = kopi("submit", sales.folder, "--server", service.url, "--out", tmp_path / "answers")
            assert small.code == 0, small.stderr
            assert answers_in(tmp_path / "answers") == sales.answers
            assert large.status()["state"] == "open"
            assert len(large.chunks["transactions"]) > before
        finally:
            is_enough.set()
        sending.result(ANSWER_SECONDS)
    large.send("transaction_items", *sales.texts("transaction_items", CHUNK_ROWS))
    large.end()
    check_done(large)


def test_a_run_ended_by_force_in_the_pipeline_leaves_nothing_and_no_other_run_notices(
    service: Service, sales: Sales, tmp_path: Path, kopi: Callable[..., Any]
) -> None:
    doomed, other = Upload(service, tmp_path / "doomed"), Upload(service, tmp_path / "other")
    for table in TABLES:
        for text in sales.texts(table, CHUNK_ROWS // 2):
            doomed.send(table, text)
        other.send(table, *sales.texts(table, CHUNK_ROWS))
    assert doomed.result("3.json", provisional=True).status_code == 200
    assert doomed.waiting() > 0
    doomed.cancel()
    assert doomed.put("transactions", 99, sales.texts("transactions", CHUNK_ROWS)[0]).status_code == 410
    for file in ("1.csv", "3.json", "4.parquet", "summary.json"):
        assert doomed.result(file, provisional=True).status_code == 410
    other.end()
    check_done(other)
    third = Upload(service, tmp_path / "third")
    third.send_all(sales, CHUNK_ROWS)
    third.end()
    check_done(third)
    assert doomed.await_end("ended")["error"] == "cancelled"
    until(lambda: not left_of(service.home, doomed.run), TIDY_SECONDS)
    assert batches_on_disk(service.home) == []
    asked = kopi("status", doomed.run, "--answers", "--server", service.url)
    assert (asked.code, "ended" in asked.stderr) == (1, True)


def test_a_run_whose_client_is_lost_is_ended_and_no_other_run_notices(
    house: Service, sales: Sales, tmp_path: Path
) -> None:
    if is_alive(house):
        house.stop()
    house.start(KOPI_GATEWAY__LEASE_SECONDS="3")
    lost, other = Upload(house, tmp_path / "lost"), Upload(house, tmp_path / "other")
    lost.send_all(sales, CHUNK_ROWS, ["stores", "transactions"])
    other.send_all(sales, CHUNK_ROWS)
    # The client of the other run lives: it asks how far it is.
    until(lambda: other.waiting() == 0 and _is_over(house, lost.run), ANSWER_SECONDS)
    other.end()
    check_done(other)
    assert lost.await_end("ended")["error"] == "client lost for longer than its lease"
    assert lost.put("stores", 1, sales.texts("stores", CHUNK_ROWS)[0]).status_code == 410
    until(lambda: not left_of(house.home, lost.run), TIDY_SECONDS)


def _is_over(house: Service, run: str) -> bool:
    """Told by the list of runs, since asking for the run itself would renew its lease."""
    listed = house.http.get("/api/v1/runs").json()["runs"]
    return any(found["run"] == run and found["state"] == "ended" for found in listed)


def lost(file: Path) -> None:
    file.unlink()


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def short_of_a_row(file: Path) -> None:
    table = pq.read_table(file, partitioning=None)
    pq.write_table(table.slice(1), file)


def broken_inside(file: Path) -> None:
    """The footer is sound, the pages are not."""
    content = bytearray(file.read_bytes())
    content[4:204] = bytes(200)
    file.write_bytes(content)


DAMAGES: list[tuple[Callable[[Path], None], str, int]] = [
    (lost, "transactions", 2),
    (cut_short, "transaction_items", 1),
    (short_of_a_row, "users", 0),
    (broken_inside, "transactions", 3),
]


def test_a_damaged_chunk_fails_its_run_by_name_and_no_other(
    house: Service, client: FolderClient, sales: Sales, tmp_path: Path
) -> None:
    labels = [damage.__name__ for damage, _, _ in DAMAGES] + ["sound"]
    *doomed, sound = send_while_nothing_is_processed(house, client, sales, labels)
    for run, (damage, table, number) in zip(doomed, DAMAGES, strict=True):
        damage(Home(house.home).chunk(run, table, number % SHARDS, number))
    house.start()
    client.fetch(sound, tmp_path / "answers")
    assert answers_in(tmp_path / "answers") == sales.answers
    assert house.status(sound)["stages"] == stages_of(sales.chunks(CHUNK_ROWS), SHARDS, sales.answers)
    for run, (damage, table, number) in zip(doomed, DAMAGES, strict=True):
        until(lambda run=run: house.status(run)["state"] == "failed", ANSWER_SECONDS)
        error = house.status(run)["error"]
        assert re.search(rf"{table} chunk {number} |table={table}/.*chunk-{number:05d}", error), error
        refused = house.http.get(f"/api/v1/runs/{run}/results/1.csv", params={"provisional": True})
        assert (refused.status_code, error in refused.text) == (409, True)
        until(lambda run=run: left_of(house.home, run) == {f"rejected/run={run}"}, TIDY_SECONDS)
    assert batches_on_disk(house.home) == []


def send_while_nothing_is_processed(
    house: Service, client: FolderClient, sales: Sales, labels: list[str]
) -> list[str]:
    """The service is dead in the end. A life dies over its first batch; as a rule one is enough."""
    if is_alive(house):
        house.stop()
    with ThreadPoolExecutor(len(labels)) as threads:
        sending = [threads.submit(client.send, sales, CHUNK_ROWS, label) for label in labels]
        while not all(each.done() for each in sending):
            house.start(KOPI_CRASH_AT="batch.begun")
            assert house.has_died(ANSWER_SECONDS)
        return [each.result() for each in sending]


def deleted(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)


def filled_with_rubbish(checkpoint: Path) -> None:
    chance = random.Random(7)
    for file in sorted(path for path in checkpoint.rglob("*") if path.is_file()):
        file.write_bytes(chance.randbytes(64))


def last_offset_is_empty(checkpoint: Path) -> None:
    """As a power cut may leave it."""
    offsets = checkpoint / "offsets"
    last = max(int(path.name) for path in offsets.iterdir() if path.name.isdigit())
    (offsets / str(last)).write_bytes(b"")
    (offsets / f".{last}.crc").unlink()


def metadata_is_rubbish(checkpoint: Path) -> None:
    (checkpoint / "metadata").write_text("rubbish")
    (checkpoint / ".metadata.crc").unlink()


def commits_are_gone(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint / "commits")


def a_file_instead_of_a_folder(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)
    checkpoint.write_text("rubbish")


RUINS = [deleted, filled_with_rubbish]
MORE_RUINS = [last_offset_is_empty, metadata_is_rubbish, commits_are_gone, a_file_instead_of_a_folder]


def test_a_ruined_checkpoint_is_made_anew_from_the_registry(
    house: Service, client: FolderClient, sales: Sales, tmp_path: Path
) -> None:
    ruins = [*RUINS, *MORE_RUINS] if os.environ.get("KOPI_TEST_FULL") else RUINS
    if is_alive(house):
        house.stop()
    with ThreadPoolExecutor(len(ruins)) as threads:
        working = []
        for ruin in ruins:
            house.start(KOPI_CRASH_AT="batch.committed:2")
            working.append(threads.submit(client.send, sales, CHUNK_ROWS, ruin.__name__))
            assert house.has_died(ANSWER_SECONDS)
            (checkpoint,) = (house.home / "checkpoints").iterdir()
            ruin(checkpoint)
        house.start()
        for work in working:
            run = work.result(ANSWER_SECONDS)
            out = tmp_path / run
            client.fetch(run, out)
            assert answers_in(out) == sales.answers
            assert house.status(run)["stages"] == stages_of(sales.chunks(CHUNK_ROWS), SHARDS, sales.answers)
            until(lambda run=run: left_of(house.home, run) == {f"rejected/run={run}"}, TIDY_SECONDS)
