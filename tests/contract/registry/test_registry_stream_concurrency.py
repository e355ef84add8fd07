"""Several pipelines that commit batches of the same runs while clients send, end and are ended."""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest

from catalog_tables import TABLES
from kopitiam.contracts.batches import Batch, Partial, Processed
from kopitiam.contracts.errors import ForeignCheckpoint, RunOver
from kopitiam.contracts.progress import Volume
from kopitiam.contracts.runs import LogEntry, RunState
from kopitiam.registry import Fence, Registry, open_registry, transactions

SHARDS = 3
CHUNKS = 24  # of each run
RUNS = 6


@pytest.fixture(autouse=True)
def deadlocks_are_seen(monkeypatch) -> None:
    """The registry normally retries after a deadlock; here a deadlock fails the test."""
    monkeypatch.setattr(transactions, "ROLLED_BACK", set())


def in_any_order(runs: Iterable[str], seed: int) -> list[str]:
    runs = list(runs)
    random.Random(seed).shuffle(runs)
    return runs


def batch_of(query: str, number: int, shard: int, span: tuple[int, int], entries: list[LogEntry]) -> Batch:
    """A batch as a pipeline makes it, with the runs in any order."""
    rows: Counter[str] = Counter()
    chunks: Counter[str] = Counter()
    for entry in entries:
        rows[entry.run] += entry.rows
        chunks[entry.run] += 1
    runs = in_any_order(chunks, seed=100 * shard + number)
    return Batch(
        query,
        number,
        {shard: span},
        tuple(Processed(run, "users", shard, chunks[run], rows[run]) for run in runs),
        tuple(Partial(run, f"{query}/{number}/{run}", 0, rows[run]) for run in runs),
    )


def run_pipeline(registry: Registry, shard: int, is_over: Callable[[], bool]) -> None:
    """Commit batches until all chunks are sent and processed."""
    query, number = f"pipeline-{shard}", 0
    fence = Fence(query, registry.take_over(query, "life", 600), "life")
    after = 0
    while True:
        is_last = is_over()
        upto = registry.log_head(shard, after, 5, 10**9)
        if upto == after and is_last:
            return
        batch = batch_of(query, number, shard, (after, upto), registry.read_span(shard, after, upto))
        assert registry.commit_batch(batch, fence).outcome == "committed"
        assert registry.commit_batch(batch, fence).outcome == "repeated"
        number, after = number + 1, upto


def send(put, run: str) -> int:
    """The number of chunks that were stored before the run was ended."""
    for number in range(CHUNKS):
        try:
            put(run, number)
        except RunOver:
            return number
    return CHUNKS


@pytest.mark.long
def test_pipelines_clients_and_force_end_do_not_deadlock(registry, open_run, put) -> None:
    runs = [open_run(shards=SHARDS) for _ in range(RUNS)]
    ended = set(runs[::3])
    is_sent = threading.Event()

    def end_by_force(run: str) -> None:
        while registry.table_states(run)["users"].chunks < CHUNKS // 2:
            pass
        assert registry.force_end(run, "enough")

    with ThreadPoolExecutor(SHARDS) as of_pipelines, ThreadPoolExecutor(RUNS + len(ended)) as of_clients:
        pipelines = [
            of_pipelines.submit(run_pipeline, registry, shard, is_sent.is_set) for shard in range(SHARDS)
        ]
        try:
            endings = [of_clients.submit(end_by_force, run) for run in ended]
            sent = dict(zip(runs, of_clients.map(lambda run: send(put, run), runs), strict=True))
            for ending in endings:
                ending.result()
            for run in set(runs) - ended:
                for table in TABLES:
                    expected = (CHUNKS, 10 * CHUNKS) if table == "users" else (0, 0)
                    assert registry.end_table(run, table, *expected).sealed
        finally:
            is_sent.set()
        for pipeline in pipelines:
            pipeline.result()

    assert registry.positions(range(SHARDS)) == {
        shard: registry.last_sequence(shard) for shard in range(SHARDS)
    }
    views = {view.run: view for view in registry.snapshots()}
    assert set(views) == set(runs) - ended
    for view in views.values():
        assert view.processed == {"users": view.expected["users"]}
        assert view.pending == 0
    for run in runs:
        counted = sum(registry.progress(run).get("users", {}).values(), Volume())
        assert sum(partial.rows for partial in registry.partials(run)) == counted.rows
        assert counted.chunks == sent[run] if run not in ended else counted.chunks <= sent[run]
    assert {registry.get_run(run).state for run in ended} == {RunState.ENDED}


def test_batches_that_share_runs_in_any_order_are_all_committed(registry, open_run, put) -> None:
    runs = [open_run(shards=SHARDS) for _ in range(20)]
    for number in range(SHARDS * 10):
        put(runs[0], number)
    start = threading.Barrier(SHARDS)

    def committing(shard: int) -> None:
        start.wait()
        for number in range(10):
            order = in_any_order(runs, seed=10 * shard + number)
            processed = tuple(Processed(run, "users", shard, 1, 10) for run in order)
            registry.commit_batch(Batch(f"q-{shard}", number, {shard: (number, number + 1)}, processed))

    with ThreadPoolExecutor(SHARDS) as pool:
        list(pool.map(committing, range(SHARDS)))
    for run in runs:
        assert registry.progress(run) == {"users": dict.fromkeys(range(SHARDS), Volume(10, 100))}


def test_one_batch_committed_by_many_at_once_counts_once(registry, open_run, put) -> None:
    run = open_run()
    put(run, 0)
    start = threading.Barrier(6)
    batch = Batch("q", 0, {0: (0, 1)}, (Processed(run, "users", 0, 1, 10),), (Partial(run, "p/1"),))

    def committing(_: int) -> str:
        start.wait()
        return registry.commit_batch(batch).outcome

    with ThreadPoolExecutor(6) as pool:
        assert Counter(pool.map(committing, range(6))) == {"committed": 1, "repeated": 5}
    assert registry.progress(run) == {"users": {0: Volume(1, 10)}}


def test_of_several_queries_of_one_shard_one_makes_progress(registry, open_run, put) -> None:
    run = open_run(shards=2)
    rounds, queries = 10, 6
    for number in range(2 * rounds):
        put(run, number)
    start = threading.Barrier(queries)

    def committing(index: int, at: int) -> bool:
        spans = dict.fromkeys((0, 1) if index % 2 else (1, 0), (at, at + 1))
        processed = tuple(Processed(run, "users", shard, 1, 10) for shard in spans)
        start.wait()
        try:
            registry.commit_batch(Batch(f"q-{index}", at, spans, processed))
        except ForeignCheckpoint:
            return False
        return True

    with ThreadPoolExecutor(queries) as pool:
        for at in range(rounds):
            assert sum(pool.map(committing, range(queries), [at] * queries)) == 1
    assert registry.progress(run) == {"users": dict.fromkeys(range(2), Volume(rounds, 10 * rounds))}


@pytest.mark.long
def test_nothing_is_counted_of_a_run_once_it_was_ended(registry, open_run, put) -> None:
    rounds, feeding = 5, open_run()
    for number in range(rounds):
        put(feeding, number)
    start = threading.Barrier(2)

    def committing(number: int, runs: list[str]) -> None:
        processed = tuple(Processed(run, "users", 0, 1, 10) for run in runs)
        partials = tuple(Partial(run, f"p/{run}") for run in runs)
        start.wait()
        registry.commit_batch(Batch("q", number, {0: (number, number + 1)}, processed, partials))

    def told(run: str) -> tuple[object, object]:
        return registry.progress(run), registry.partials(run)

    def told_at_end(run: str) -> tuple[object, object]:
        registry.force_end(run, "enough")
        return told(run)

    with ThreadPoolExecutor(1) as pool:
        for number in range(rounds):
            runs = [open_run() for _ in range(10)]
            commit = pool.submit(committing, number, runs)
            start.wait()
            at_end = {run: told_at_end(run) for run in runs}
            commit.result()
            assert {run: told(run) for run in runs} == at_end


@pytest.mark.long
def test_a_concurrent_merge_and_batch_of_one_run_lose_no_partial(place, registry, open_run, put) -> None:
    run = open_run()
    for number in range(20):
        put(run, number)
    merging = open_registry(place.url, place.home)  # another process would have its own, too
    is_done = threading.Event()

    def merge() -> None:
        for number in range(10**6):
            if is_done.is_set():
                return
            known = merging.partials(run)
            if len(known) > 1:
                merged = Partial(run, f"merge/{number}", 1, sum(partial.rows for partial in known))
                assert merging.replace_partials(run, [partial.path for partial in known], merged)

    with ThreadPoolExecutor(1) as pool:
        merger = pool.submit(merge)
        try:
            for number in range(20):
                processed = (Processed(run, "users", 0, 1, 10),)
                partials = (Partial(run, f"p/{number}", 0, 10),)
                registry.commit_batch(Batch("q", number, {0: (number, number + 1)}, processed, partials))
        finally:
            is_done.set()
        merger.result()
    merging.close()
    assert sum(partial.rows for partial in registry.partials(run)) == 200
