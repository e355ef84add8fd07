"""Many writers at once, in threads and in processes of their own, one of them killed."""

import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kopitiam.contracts.batches import lane_of
from kopitiam.contracts.errors import TableSealed
from kopitiam.contracts.runs import LogEntry
from kopitiam.registry import Registry, chunks, open_registry
from waiting import PATIENCE_SECONDS

SPAWN = multiprocessing.get_context("spawn")
PLENTY = 10**9
SHARDS = 3


@pytest.fixture
def start() -> Any:
    """Starts a function in its own process; processes that still run after the test are killed."""
    started: list[Any] = []

    def starting(target: Callable[..., None], *args: Any) -> Any:
        process = SPAWN.Process(target=target, args=args, daemon=True)
        process.start()
        started.append(process)
        return process

    yield starting
    for process in started:
        process.kill()
        process.join()


def join_all(processes: list[Any]) -> None:
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * len(processes)


def register_many(url: str, home: Path, run: str, first: int, count: int) -> None:
    registry = open_registry(url, home)

    def register(number: int) -> None:
        outcome = registry.register_chunk(run, "users", number, digest="d", rows=1, bytes=1, rejected=0)
        assert outcome.outcome == "stored"

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(register, range(first, first + count)))
    registry.close()


def follow(registry: Registry, lane: int, total: int) -> list[LogEntry]:
    """Reads as the pipeline does: only entries after the last number that it has read."""
    seen: list[LogEntry] = []
    while len(seen) < total:
        head = registry.log_head(lane, len(seen), 7, PLENTY)
        for entry in registry.read_span(lane, len(seen), head):
            assert entry.sequence == len(seen) + 1, "a number was not there when a larger one was"
            seen.append(entry)
        assert len(seen) == head, "the reader was sent past an entry that it could not see"
    return seen


@pytest.mark.long
def test_followers_of_the_log_miss_nothing_while_processes_and_threads_write(
    registry, place, open_run, start
) -> None:
    own, theirs = open_run(shards=SHARDS), open_run(shards=SHARDS)
    each = 60
    totals = Counter(lane_of(number, SHARDS) for number in (*range(each), *range(2 * each)))
    writers = [start(register_many, place.url, place.home, run, 0, each) for run in (own, theirs)]
    with ThreadPoolExecutor(len(totals)) as pool:
        followers = [pool.submit(follow, registry, lane, total) for lane, total in totals.items()]
        register_many(place.url, place.home, theirs, each, each)
        join_all(writers)
        entries = [entry for follower in followers for entry in follower.result()]

    assert Counter((entry.run, entry.number) for entry in entries) == Counter(
        [(own, number) for number in range(each)] + [(theirs, number) for number in range(2 * each)]
    )
    assert {lane: registry.last_sequence(lane) for lane in totals} == totals
    assert registry.end_table(own, "users", each, each).sealed
    assert registry.end_table(theirs, "users", 2 * each, 2 * each).sealed


def test_threads_of_one_process_write_without_gaps(registry, open_run, put) -> None:
    run = open_run(shards=SHARDS)
    numbers = range(40 * SHARDS)
    totals = Counter(lane_of(number, SHARDS) for number in numbers)
    with ThreadPoolExecutor(5 + len(totals)) as pool:
        followers = {lane: pool.submit(follow, registry, lane, total) for lane, total in totals.items()}
        list(pool.map(lambda number: put(run, number), numbers))
        for lane, follower in followers.items():
            of_lane = {number for number in numbers if lane_of(number, SHARDS) == lane}
            assert {entry.number for entry in follower.result()} == of_lane


def test_the_same_chunk_from_ten_threads_is_stored_once(registry, open_run, put) -> None:
    run = open_run()
    ready = threading.Barrier(10)

    def registering(_: int) -> str:
        ready.wait()
        return put(run, 0).outcome

    with ThreadPoolExecutor(10) as pool:
        assert Counter(pool.map(registering, range(10))) == {"stored": 1, "same": 9}
    assert registry.table_states(run)["users"].rows == 10
    assert registry.last_sequence(0) == 1


def test_different_bytes_under_one_number_at_once_are_stored_once(registry, open_run, put) -> None:
    run = open_run()
    ready = threading.Barrier(6)

    def registering(index: int) -> str:
        ready.wait()
        return put(run, 0, digest=str(index)).outcome

    with ThreadPoolExecutor(6) as pool:
        assert Counter(pool.map(registering, range(6))) == {"stored": 1, "conflict": 5}


def test_an_end_and_a_late_chunk_never_both_succeed(registry, open_run, put) -> None:
    for _ in range(15):
        run = open_run()
        put(run, 0)
        ready = threading.Barrier(2)

        def late_chunk(run: str = run, ready: threading.Barrier = ready) -> bool:
            ready.wait()
            try:
                return put(run, 1).outcome == "stored"
            except TableSealed:
                return False

        with ThreadPoolExecutor(1) as pool:
            is_stored = pool.submit(late_chunk)
            ready.wait()
            ended = registry.end_table(run, "users", 1, 10)
            assert ended.sealed is not is_stored.result()
        assert ended.sealed or ended.extra == ((1, 1),)
        assert registry.table_states(run)["users"].sealed is ended.sealed


def test_the_ends_of_all_tables_at_once_seal_the_run_once(registry, open_run) -> None:
    run = open_run()
    tables = list(registry.table_states(run))
    with ThreadPoolExecutor(len(tables)) as pool:
        assert all(ended.sealed for ended in pool.map(lambda t: registry.end_table(run, t, 0, 0), tables))
    assert registry.get_run(run).state == "sealed"


def register_and_hang(url: str, home: Path, run: str, has_written: Any) -> None:
    take_sequence = chunks.take_sequence

    def take_and_hang(*args: Any) -> int:
        take_sequence(*args)
        has_written.set()
        threading.Event().wait()
        raise AssertionError("unreachable")

    chunks.take_sequence = take_and_hang
    open_registry(url, home).register_chunk(run, "users", 0, digest="d", rows=1, bytes=1, rejected=0)


def test_a_writer_killed_in_its_transaction_leaves_no_trace(registry, place, open_run, put, start) -> None:
    run = open_run()
    has_written = SPAWN.Event()
    writer = start(register_and_hang, place.url, place.home, run, has_written)
    assert has_written.wait(60)
    before = registry.table_states(run)["users"]
    assert (before.chunks, registry.last_sequence(0)) == (0, 0)  # readers neither see it nor wait for it

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(put, run, 0)
        writer.kill()
        registered = waiting.result(PATIENCE_SECONDS)
    assert (registered.outcome, registered.chunk.sequence) == ("stored", 1)
    assert registry.table_states(run)["users"].chunks == 1


def open_at_once(url: str, home: Path, ready: Any) -> None:
    ready.wait()
    registry = open_registry(url, home)
    registry.check()
    registry.close()


@pytest.mark.long
def test_a_fresh_registry_may_be_opened_by_several_processes_at_once(place, start) -> None:
    ready = SPAWN.Barrier(3)
    join_all([start(open_at_once, place.url, place.home, ready) for _ in range(3)])


def open_with_key(url: str, home: Path, ready: Any, opened: Any) -> None:
    registry = open_registry(url, home)
    ready.wait()
    run = registry.open_run({}, "", "anna", idempotency_key="k", lease_seconds=60, shards=1).run
    opened.put(run.run)


@pytest.mark.long
def test_a_key_used_by_several_processes_at_once_opens_one_run(registry, place, start) -> None:
    ready, opened = SPAWN.Barrier(3), SPAWN.Queue()
    processes = [start(open_with_key, place.url, place.home, ready, opened) for _ in range(3)]
    runs = {opened.get(timeout=60) for _ in processes}
    join_all(processes)
    assert runs == {run.run for run in registry.list_runs(None, 10)}
    assert len(runs) == 1
