"""The worker that answers sealed runs: what the registry knows counts, and one run's trouble is its own."""

import csv
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kopitiam.contracts.questions import Questions
from kopitiam.contracts.runs import Run, RunState
from kopitiam.contracts.tables import TABLES
from kopitiam.landing.layout import Home
from kopitiam.landing.writer import encode
from kopitiam.pipeline.worker import Watch, Worker
from kopitiam.registry.registry import Registry, open_registry

NOON = "2024-03-01 12:00:00"
SALES = {
    "stores": [(1, "North")],
    "menu_items": [(1, "Latte")],
    "users": [(7, "1990-01-01")],
    "transactions": [("a", 1, 7, "80", NOON), ("b", 1, 7, "90.5", NOON)],
    "transaction_items": [(1, 2, "16", NOON)],
}


class Pipeline:
    """A worker over a registry and a home of its own."""

    def __init__(self, path: Path, spark: SparkSession, normal_form) -> None:
        self.home, self.registry = Home(path), open_registry("sqlite", path)
        self._normal_form = normal_form
        session: Future[SparkSession] = Future()
        session.set_result(spark)
        self.on_step: Callable[[str], object] = lambda _: None
        (path / "scratch").mkdir()
        watch = Watch(on_step=lambda step: self.on_step(step) and None)
        self.worker = Worker("pipeline-1", self.registry, self.home, session, path / "scratch", watch)

    def put(self, run: Run, table: str, number: int, rows, is_registered: bool = True) -> Path:
        data = encode(TABLES[table], self._normal_form(table, rows))
        file = self.home.chunk(run.run, table, number % run.shards, number)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        if is_registered:
            figures = {"digest": "d", "rows": len(rows), "bytes": len(data), "rejected": 0}
            self.registry.register_chunk(run.run, table, number, **figures)
        return file

    def sealed_run(self, shards: int = 1) -> Run:
        """One row a chunk, and every table with its END."""
        registry: Registry = self.registry
        questions = Questions().to_dict()
        run = registry.open_run(
            questions, "", "me", idempotency_key=None, lease_seconds=60, shards=shards
        ).run
        for table, rows in SALES.items():
            for number, row in enumerate(rows):
                self.put(run, table, number, [row])
            registry.end_table(run.run, table, len(rows), len(rows))
        return run

    def work_once(self) -> None:
        for run in self.registry.runs_in(RunState.SEALED, RunState.FINAL):
            self.worker._take(run)

    def state(self, run: Run) -> RunState:
        return self.registry.get_run(run.run).state

    def large_sales(self, run: Run) -> list[list[str]]:
        published = self.registry.results(run.run)
        assert published is not None
        path = self.home.attempt(run.run, published.attempt) / "results_query_1.csv"
        return list(csv.reader(path.open(encoding="utf-8")))[1:]


@pytest.fixture
def pipeline(spark, normal_form, tmp_path):
    made = Pipeline(tmp_path, spark, normal_form)
    yield made
    made.registry.close()


def test_a_sealed_run_is_answered_and_what_led_to_it_is_gone(pipeline):
    run = pipeline.sealed_run(shards=2)

    pipeline.work_once()

    assert pipeline.state(run) is RunState.DONE
    assert pipeline.large_sales(run) == [["a", "80.0"], ["b", "90.5"]]
    assert pipeline.home.landing_folders(run.run) == []
    assert pipeline.registry.chunks(run.run, "transactions") == []


def test_a_file_that_was_never_acknowledged_does_not_count(pipeline):
    run = pipeline.sealed_run()
    pipeline.put(run, "transactions", 2, [("c", 1, 7, "99", NOON)], is_registered=False)

    pipeline.work_once()

    assert [sale for sale, _ in pipeline.large_sales(run)] == ["a", "b"]


@pytest.mark.parametrize("harm", [Path.unlink, lambda file: file.write_bytes(b"PAR1 no more PAR1")])
def test_a_chunk_that_vanished_or_broke_fails_its_own_run_only(pipeline, harm):
    poisoned, sound = pipeline.sealed_run(), pipeline.sealed_run()
    harm(pipeline.home.chunk(poisoned.run, "transactions", 0, 0))

    pipeline.work_once()

    assert pipeline.state(poisoned) is RunState.FAILED
    reason = pipeline.registry.get_run(poisoned.run).error or ""
    assert reason.startswith("Spark failed: ")
    assert "chunk-00000.parquet" in reason
    assert "\n" not in reason
    assert pipeline.registry.results(poisoned.run) is None
    assert pipeline.large_sales(sound) == [["a", "80.0"], ["b", "90.5"]]


def test_a_run_ended_while_it_is_answered_leaves_no_answers(pipeline):
    run = pipeline.sealed_run()
    pipeline.on_step = lambda _: pipeline.registry.force_end(run.run, "cancelled")

    pipeline.work_once()

    assert pipeline.state(run) is RunState.ENDED
    assert pipeline.registry.results(run.run) is None
    assert list(pipeline.home.results(run.run).glob("attempt=*")) == []


def test_a_run_whose_worker_died_is_taken_up_by_its_next_life(pipeline):
    run = pipeline.sealed_run()
    pipeline.registry.claim_final(run.run, "pipeline-1")
    left_behind = pipeline.home.attempt(run.run, "cut-short")
    left_behind.mkdir(parents=True)

    pipeline.work_once()

    assert pipeline.state(run) is RunState.DONE
    assert not left_behind.exists()
