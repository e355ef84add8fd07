"""Kills the service at every crash point of the pipeline, again and again on the same home: every run is
answered exactly, no chunk is counted twice, and only the answers remain.
"""

import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from sales import FEW, FolderClient, Sales, answers_in, make_sales, stages_of
from services import (
    ANSWER_SECONDS,
    CHUNKS_PER_BATCH,
    SMALL_BATCHES,
    TIDY_SECONDS,
    Service,
    batches_on_disk,
    left_of,
    until,
)

from kopitiam.pipeline.compaction import FAN_IN
from kopitiam.system.crash_points import POINTS
from kopitiam.verification import verify
from sampling import IS_FULL

# As a run passes them. The others are of gateways and monitors, and killed there.
OF_PIPELINE = [
    point
    for point in POINTS
    if point.startswith(("batch.", "merge.", "barrier.", "final.", "results.", "cleanup."))
]
SEED = 48
CHAIN_SECONDS = 2400  # for all processes together, on a busy machine
SETTINGS = SMALL_BATCHES | {"KOPI_GATEWAY__LEASE_SECONDS": str(CHAIN_SECONDS)}
CHUNK_ROWS = 200
CROWDED_CHUNK_ROWS = 6
# Enough batches of transactions that their partials are merged on the way, and again if that was cut short:
# a quarter of them are of a year that no question covers, and leave no partials.
CROWDED = FEW | {
    "transactions": (FAN_IN + 2) * CHUNKS_PER_BATCH * CROWDED_CHUNK_ROWS * 3 // 2,
    "users": 10,
    "transaction_items": 20,
}
# Where the tests of the stream, of merging and of the final step die too, with Spark's session left alive.
# Two of those die here as well: over a batch that is committed, and over answers that are published.
SEEN_ELSEWHERE = {
    *("batch.begun", "batch.read", "batch.written", "batch.unreported", "batch.checkpointed"),
    *("merge.written", "merge.committed", "final.claimed", "results.written"),
    *("cleanup.files", "cleanup.done"),
}
# A run that was published when its pipeline died is tidied up after by a gateway, and passes no more points.
OF_A_RUN_OF_THEIR_OWN = {"results.announced", "cleanup.files", "cleanup.done"}


def at_points_of_its_own() -> list[tuple[str, bool]]:
    return _in_order([point for point in OF_PIPELINE if point not in SEEN_ELSEWHERE])


def in_order() -> list[tuple[str, bool]]:
    return _in_order(OF_PIPELINE)


def _in_order(points: list[str]) -> list[tuple[str, bool]]:
    """Crash points, and whether a run is sent at each."""
    return [(point, life == 0 or point in OF_A_RUN_OF_THEIR_OWN) for life, point in enumerate(points)]


def in_any_order() -> list[tuple[str, bool]]:
    """All points in random order, with a run for each, so that crashes hit the work that others left.

    The first batch of a new checkpoint is a separate case: its start offset is not written yet.
    """
    chance = random.Random(SEED)
    return [(point, True) for point in ("batch.committed", *chance.sample(OF_PIPELINE, len(OF_PIPELINE)))]


ORDERS = [in_order, in_any_order] if IS_FULL else [at_points_of_its_own]


@pytest.fixture
def service(tmp_path: Path, environment: dict[str, str]) -> Iterator[Service]:
    served = Service(tmp_path / "service" / "home", environment | SETTINGS)
    yield served
    served.end()


class Sender:
    """A client whose service was killed during its run."""

    def __init__(self, folder: Path, seed: int, is_crowded: bool) -> None:
        self.label = folder.name
        self.chunk_rows = CROWDED_CHUNK_ROWS if is_crowded else CHUNK_ROWS
        self.sales: Sales = make_sales(folder, seed, CROWDED if is_crowded else FEW)
        self.out = folder / "answers"

    def work(self, client: FolderClient) -> str:
        run = client.send(self.sales, self.chunk_rows, label=self.label)
        client.fetch(run, self.out)
        return run

    def check(self, service: Service, run: str) -> None:
        """Check the answers and the counts of the stages."""
        sales = self.sales
        assert answers_in(self.out) == sales.answers
        assert verify(sales.folder, self.out).differences == ()
        status = service.status(run)
        chunks = sales.chunks(self.chunk_rows)
        assert (status["state"], status["label"]) == ("done", self.label)
        assert status["stages"] == stages_of(chunks, sales.answers)
        assert {name: (table["chunks"], table["rows"]) for name, table in status["tables"].items()} == {
            name: (len(rows), sum(map(len, rows))) for name, rows in chunks.items()
        }
        assert status["rejected"] == 2
        until(lambda: left_of(service.home, run) == {f"rejected/run={run}"}, TIDY_SECONDS)


@pytest.mark.long
@pytest.mark.timeout(CHAIN_SECONDS)
@pytest.mark.parametrize("order", ORDERS)
def test_a_service_killed_at_every_point_of_the_pipeline_answers_every_run_exactly(
    service: Service, tmp_path: Path, order: Callable[[], list[tuple[str, bool]]]
) -> None:
    lives = order()
    merges = {life for life, (point, _) in enumerate(lives) if point.startswith("merge.")}
    senders = {
        life: Sender(tmp_path / f"{life}-{point}", life, is_crowded=life in merges or (merges and life == 0))
        for life, (point, sends) in enumerate(lives)
        if sends
    }
    with ThreadPoolExecutor(len(senders)) as threads, closing(FolderClient(service, CHAIN_SECONDS)) as client:
        working: dict[int, Future[str]] = {}
        for life, (point, _) in enumerate(lives):
            service.begin(KOPI_CRASH_AT=point)  # which may be passed before it takes any call
            if life in senders:
                working[life] = threads.submit(senders[life].work, client)
            assert service.has_died(ANSWER_SECONDS), f"not at {point}"
        service.start()
        for life, work in working.items():
            senders[life].check(service, work.result(ANSWER_SECONDS))
    assert batches_on_disk(service.home) == []
