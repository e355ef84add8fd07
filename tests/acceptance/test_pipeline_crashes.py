"""Killed at every point of the pipeline, one life after the other on the same home: every run that was sent
meanwhile is answered to the byte, nothing is counted twice, and nothing is left but the answers.
"""

import os
import random
from collections.abc import Iterator
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

from kopitiam.contracts.crash_points import POINTS
from kopitiam.pipeline.compaction import FAN_IN
from kopitiam.verification import verify

OF_PIPELINE = [point for point in POINTS if not point.startswith("chunk.")]
ALWAYS = ["batch.written", "batch.committed", "barrier.opened", "results.published"]
SEED = 48
CHAIN_SECONDS = 2400  # all lives together, on a machine that has other things to do
SETTINGS = SMALL_BATCHES | {"KOPI_GATEWAY__LEASE_SECONDS": str(CHAIN_SECONDS)}
CHUNK_ROWS = 200
# So many chunks of transactions that their partials are merged on the way.
CROWDED = FEW | {"transactions": FAN_IN * CHUNKS_PER_BATCH * 10, "users": 10, "transaction_items": 20}
CROWDED_CHUNK_ROWS = 10


def chosen_points() -> list[str]:
    """In any order, so that a life may die over what the life before it left.

    The first batch of a new checkpoint is a case of its own: nobody has written down where it began.
    """
    chance = random.Random(SEED)
    if os.environ.get("KOPI_TEST_FULL"):
        return ["batch.committed", *chance.sample(OF_PIPELINE, len(OF_PIPELINE))]
    others = [point for point in OF_PIPELINE if point not in ALWAYS]
    return chance.sample([*ALWAYS, chance.choice(others)], len(ALWAYS) + 1)


@pytest.fixture
def service(tmp_path: Path, environment: dict[str, str]) -> Iterator[Service]:
    served = Service(tmp_path / "service" / "home", environment | SETTINGS)
    yield served
    served.end()


class Sender:
    """A client that was there when the service died at a point."""

    def __init__(self, point: str, folder: Path, seed: int) -> None:
        is_crowded = point.startswith("merge.")
        self.point = point
        self.label = folder.name
        self.chunk_rows = CROWDED_CHUNK_ROWS if is_crowded else CHUNK_ROWS
        self.sales: Sales = make_sales(folder, seed, CROWDED if is_crowded else FEW)
        self.out = folder / "answers"

    def work(self, client: FolderClient) -> str:
        run = client.send(self.sales, self.chunk_rows, label=self.label)
        client.fetch(run, self.out)
        return run

    def check(self, service: Service, run: str) -> None:
        """The answers, and the account of how they came about."""
        sales = self.sales
        assert answers_in(self.out) == sales.answers
        assert verify(sales.folder, self.out).differences == ()
        status = service.status(run)
        chunks = sales.chunks(self.chunk_rows)
        assert (status["state"], status["label"]) == ("done", self.label)
        assert status["stages"] == stages_of(chunks, sales.answers)
        assert {name: (table["chunks"], table["rows"]) for name, table in status["tables"].items()} == {
            name: (len(rows), sum(rows)) for name, rows in chunks.items()
        }
        assert status["rejected"] == 2
        until(lambda: left_of(service.home, run) == {f"rejected/run={run}"}, TIDY_SECONDS)


@pytest.mark.timeout(CHAIN_SECONDS)
def test_a_service_killed_at_any_point_of_the_pipeline_answers_every_run_exactly(
    service: Service, tmp_path: Path
) -> None:
    points = chosen_points()
    senders = [Sender(point, tmp_path / f"{n}-{point}", seed=n) for n, point in enumerate(points)]
    with ThreadPoolExecutor(len(senders)) as threads, closing(FolderClient(service, CHAIN_SECONDS)) as client:
        working: list[Future[str]] = []
        for sender in senders:
            service.start(KOPI_CRASH_AT=sender.point)
            working.append(threads.submit(sender.work, client))
            assert service.has_died(ANSWER_SECONDS), f"not at {sender.point}"
        service.start()
        for sender, work in zip(senders, working, strict=True):
            sender.check(service, work.result(ANSWER_SECONDS))
    assert batches_on_disk(service.home) == []
