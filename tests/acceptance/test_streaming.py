"""The pipeline as a stream, seen from outside: provisional answers, progress, concurrent runs, and runs that
are ended by force.
"""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sales import (
    BEFORE_BARRIER,
    BEHIND_BARRIER,
    Sales,
    Upload,
    answers_in,
    make_sales,
    processed_chunks,
    stages_of,
)
from services import (
    ANSWER_SECONDS,
    ENVIRONMENT,
    SMALL_BATCHES,
    TIDY_SECONDS,
    Service,
    Watcher,
    batches_on_disk,
    left_of,
    until,
)

from catalog_tables import TABLES
from kopitiam.questions.catalog import builtin

CHUNK_ROWS = 100
SMALL_TABLES = ("stores", "menu_items", "users")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The service of all tests of this module; each test starts it as needed."""
    served = Service(tmp_path_factory.mktemp("streaming") / "home", ENVIRONMENT | SMALL_BATCHES)
    yield served
    served.end()


@pytest.fixture
def service(house: Service) -> Service:
    """Start the service with its own settings."""
    if house.settings or not house.is_alive:
        house.restart()
    return house


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Sales:
    return make_sales(tmp_path_factory.mktemp("sales"), seed=1)


def check_done(upload: Upload) -> None:
    """Check that answers are exact, each chunk is counted once, and only the answers remain."""
    status = upload.await_end()
    answers = upload.expected()
    assert upload.answers() == answers
    assert status["stages"] == stages_of(upload.chunks, answers)
    until(lambda: not left_of(upload.service.home, upload.run), TIDY_SECONDS)


@pytest.mark.long
def test_provisional_answers_are_marked_and_equal_those_over_the_received_chunks(
    service: Service, sales: Sales, tmp_path: Path, kopi: Callable[..., Any]
) -> None:
    upload = Upload(service, tmp_path / "sent")
    upload.send_all(sales, CHUNK_ROWS, SMALL_TABLES)
    upload.send("transactions", *sales.texts("transactions", CHUNK_ROWS)[:2])
    upload.send("transaction_items", *sales.texts("transaction_items", CHUNK_ROWS)[:2])
    upload.await_processed()

    expected = upload.expected()
    whole = {"processed": upload.rows, "durable": upload.rows, "expected": None}
    assert upload.answers(provisional=True) == expected
    for name in builtin():
        content = upload.result(f"{name}.json", provisional=True).json()
        table = pq.read_table(pa.BufferReader(upload.result(f"{name}.parquet", provisional=True).content))
        assert (content["provisional"], content["coverage"]) == (True, whole)
        assert content["count"] == len(content["rows"]) == table.num_rows == expected[name].count(b"\n") - 1
    summary = upload.result("summary.json", provisional=True).json()
    assert (summary["coverage"], summary["rows"]["used"]) == (whole, upload.rows)

    asking = ("status", upload.run, "--answers", "--server", service.url)
    shown = kopi(*asking)
    assert (shown.code, shown.stderr) == (0, "")
    assert f"provisional: {upload.rows:,} rows of the {upload.rows:,} received so far (100%)" in shown.stdout
    content = json.loads(kopi(*asking, "--json").stdout)
    assert (content["run"], content["summary"]["coverage"]) == (upload.run, whole)
    assert len(content["answers"]["3"]) == expected["3"].count(b"\n") - 1


def test_provisional_answers_become_the_final_ones(
    service: Service, sales: Sales, tmp_path: Path, kopi: Callable[..., Any]
) -> None:
    upload = Upload(service, tmp_path / "sent")
    upload.send_all(sales, CHUNK_ROWS, [*SMALL_TABLES, "transactions"])
    early = upload.result("summary.json", provisional=True).json()["coverage"]
    assert (early["durable"], early["expected"]) == (upload.rows, None)
    assert 0 <= early["processed"] <= upload.rows
    upload.send_all(sales, CHUNK_ROWS, ["transaction_items"])
    upload.await_processed()
    assert upload.answers(provisional=True) == sales.answers
    upload.end()

    def are_final() -> bool:
        answer = upload.result("3.json", provisional=True)
        assert answer.status_code == 200, answer.text
        content = answer.json()
        whole = {"processed": upload.rows, "durable": upload.rows, "expected": upload.rows}
        assert (content["provisional"], content.get("coverage")) in ((True, whole), (False, None))
        return not content["provisional"]

    until(are_final, ANSWER_SECONDS)
    check_done(upload)
    assert upload.answers(provisional=True) == upload.answers() == sales.answers
    shown = kopi("status", upload.run, "--answers", "--server", service.url).stdout
    assert "rows read =" in shown
    assert "provisional" not in shown


@pytest.mark.long
def test_provisional_answers_are_empty_before_the_first_chunk(service: Service, tmp_path: Path) -> None:
    upload = Upload(service, tmp_path / "sent")
    for name, answer in builtin().items():
        content = upload.result(f"{name}.json", provisional=True).json()
        assert (content["provisional"], content["count"], content["rows"]) == (True, 0, [])
        assert content["coverage"] == {"processed": 0, "durable": 0, "expected": None}
        assert upload.result(f"{name}.csv", provisional=True).text == ",".join(answer.shown) + "\n"
    upload.end()
    upload.await_end()
    assert upload.result("1.json", provisional=True).json()["provisional"] is False


@pytest.mark.long
def test_every_stage_and_shard_progresses_to_its_expected_count(
    service: Service, sales: Sales, tmp_path: Path
) -> None:
    upload = Upload(service, tmp_path / "sent")
    watcher = Watcher(service, upload.run)
    upload.send_all(sales, CHUNK_ROWS)
    upload.await_processed()
    upload.end()
    done = upload.await_end()
    seen = watcher.seen()

    expected = stages_of(upload.chunks, upload.expected())
    assert done["stages"] == seen[-1]["stages"] == expected
    nothing = {"expected": 0, "processed": 0, "rows": 0, "rows_out": 0}
    assert expected["check_menu_items"]["1"] == {"role": "check"} | nothing
    for before, after in pairwise(seen):
        for stage, shards in expected.items():
            for shard, whole in shards.items():
                earlier, later = before["stages"][stage][shard], after["stages"][stage][shard]
                assert earlier["processed"] <= later["processed"] <= whole["processed"]
                assert earlier["rows"] <= later["rows"] <= done["stages"][stage][shard]["rows"]
                assert earlier["rows_out"] <= later["rows_out"] <= done["stages"][stage][shard]["rows_out"]
                assert earlier["expected"] in {None, later["expected"]}
                assert later["expected"] in {None, whole["expected"]}
    assert len({processed_chunks(status) for status in seen}) > 2  # none, all, and some in between
    states = list(dict.fromkeys(status["state"] for status in seen))
    assert states[0] == "open"
    assert states[-1] == "done"


def test_a_status_has_the_names_that_others_rely_on(
    service: Service, sales: Sales, tmp_path: Path, kopi: Callable[..., Any]
) -> None:
    upload = Upload(service, tmp_path / "sent")
    upload.send_all(sales, CHUNK_ROWS, SMALL_TABLES)
    upload.await_processed()
    content = json.loads(kopi("status", upload.run, "--json", "--server", service.url).stdout)
    assert content == upload.status()
    assert content.keys() >= {"run", "label", "state", "tables", "stages", "rejected", "unmatched", "error"}
    assert list(content["tables"]) == list(TABLES)
    for table in content["tables"].values():
        assert table.keys() >= {"chunks", "rows", "expected_chunks", "expected_rows", "sealed"}
    assert list(content["stages"]) == [*BEFORE_BARRIER, *BEHIND_BARRIER]
    assert content["stages"]["check_users"]["0"] == {
        "role": "check",
        "expected": None,
        "processed": 1,
        "rows": 60,
        "rows_out": 60,
    }
    nothing = {"role": "publish", "expected": 1, "processed": 0, "rows": 0, "rows_out": 0}
    assert content["stages"]["server_results"] == {"0": nothing}
    shown = kopi("status", upload.run, "--server", service.url).stdout
    assert all(stage in shown for stage in content["stages"])
    upload.cancel()


@pytest.mark.long
def test_a_small_run_is_answered_while_a_large_one_keeps_coming(
    service: Service, sales: Sales, tmp_path: Path, kopi: Callable[..., Any]
) -> None:
    large = Upload(service, tmp_path / "large")
    large.send_all(sales, CHUNK_ROWS, SMALL_TABLES)
    is_enough = threading.Event()

    def keep_sending() -> None:
        """Keep a backlog of chunks in the pipeline."""
        for text in cycle(sales.texts("transactions", 10)):
            until(lambda: is_enough.is_set() or large.waiting() < 60, ANSWER_SECONDS)
            if is_enough.is_set():
                return
            large.send("transactions", text)

    with ThreadPoolExecutor(1) as sender:
        sending = sender.submit(keep_sending)
        try:
            until(lambda: large.waiting() >= 50, ANSWER_SECONDS)
            before = len(large.chunks["transactions"])
            small = kopi("submit", sales.folder, "--server", service.url, "--out", tmp_path / "answers")
            assert small.code == 0, small.stderr
            assert answers_in(tmp_path / "answers") == sales.answers
            assert large.status()["state"] == "open"
            assert len(large.chunks["transactions"]) > before
            assert large.waiting() >= 20, "the small one did not wait for it"
        finally:
            is_enough.set()
        sending.result(ANSWER_SECONDS)
    large.send_all(sales, CHUNK_ROWS, ["transaction_items"])
    large.end()
    check_done(large)


@pytest.mark.long
def test_a_run_ended_by_force_leaves_nothing_and_does_not_affect_other_runs(
    service: Service, sales: Sales, tmp_path: Path, kopi: Callable[..., Any]
) -> None:
    doomed, other = Upload(service, tmp_path / "doomed"), Upload(service, tmp_path / "other")
    doomed.send_all(sales, CHUNK_ROWS, SMALL_TABLES)
    other.send_all(sales, CHUNK_ROWS)
    assert doomed.result("3.json", provisional=True).status_code == 200
    for text in cycle(sales.texts("transactions", 10)):
        doomed.send("transactions", text)
        if doomed.status()["stages"]["agg_tpv"]["0"]["processed"] and doomed.waiting():
            break
    doomed.cancel()
    assert doomed.put("transactions", 9999, sales.texts("transactions", 10)[0]).status_code == 410
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
    until(lambda: not batches_on_disk(service.home), TIDY_SECONDS)
    status = kopi("status", doomed.run, "--answers", "--server", service.url)
    assert (status.code, "ended" in status.stderr) == (1, True)


@pytest.mark.long
def test_a_run_whose_client_is_lost_is_ended_and_does_not_affect_other_runs(
    house: Service, sales: Sales, tmp_path: Path
) -> None:
    house.restart(KOPI_GATEWAY__LEASE_SECONDS="10")
    lost = Upload(house, tmp_path / "lost")
    lost.send_all(sales, CHUNK_ROWS, ["stores", "transactions"])
    other = Upload(house, tmp_path / "other")
    other.send_all(sales, CHUNK_ROWS)

    def is_ended() -> bool:
        """Read the state from the list of runs: a status request would renew the lease."""
        states = {run["run"]: run["state"] for run in house.http.get("/api/v1/runs").json()["runs"]}
        return other.waiting() == 0 and states[lost.run] == "ended"

    until(is_ended, ANSWER_SECONDS)
    other.end()
    check_done(other)
    assert "client lost" in lost.await_end("ended")["error"]
    assert lost.put("stores", 1, sales.texts("stores", CHUNK_ROWS)[0]).status_code == 410
    until(lambda: not left_of(house.home, lost.run), TIDY_SECONDS)
