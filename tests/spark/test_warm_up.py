"""The warm-up of an engine: it runs the plans of a real run, leaves no trace, and gives way to clients."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pipelines import Pipeline
from pyspark.sql import SparkSession

from kopitiam.runtime import warm_up
from kopitiam.runtime.warm_up import warm_up_beside
from waiting import eventually

DONE, CANCELLED = "the warm-up of Spark is done", "the warm-up of Spark was cancelled"


class Worker:
    """The part of a pipeline's worker that a warm-up uses, on the session of the tests."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, scratch: Path) -> None:
        self.ready, self.stopping = Future[None](), threading.Event()
        session = Future[SparkSession]()
        session.set_result(spark)
        self.node = SimpleNamespace(session=session, registry=pipeline.registry, scratch=scratch)


@pytest.fixture
def pipeline(make_pipeline: Callable[..., Pipeline]) -> Pipeline:
    return make_pipeline()


@pytest.fixture
def worker(spark: SparkSession, pipeline: Pipeline, tmp_path: Path) -> Worker:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return Worker(spark, pipeline, scratch)


def outcomes(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage().partition(" after ")[0]
        for record in caplog.records
        if record.name == warm_up.__name__
    ]


def warmed(worker: Any, caplog: pytest.LogCaptureFixture) -> str:
    """Warms the engine up, and returns how that ended."""
    with caplog.at_level(logging.INFO, logger=warm_up.__name__):
        warm_up_beside(worker)
        worker.ready.set_result(None)
        eventually(lambda: outcomes(caplog))
    return outcomes(caplog)[0]


def test_a_warm_up_compiles_the_code_of_a_run_and_leaves_no_trace(
    worker: Worker, pipeline: Pipeline, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = spark.sparkContext._jsc.sc().dagScheduler().nextJobId()
    assert warmed(worker, caplog) == DONE
    assert spark.sparkContext._jsc.sc().dagScheduler().nextJobId() > jobs
    assert pipeline.registry.list_runs(None, 10) == []
    assert list(worker.node.scratch.iterdir()) == []


def test_a_run_of_a_client_cancels_the_warm_up(
    worker: Worker,
    pipeline: Pipeline,
    spark: SparkSession,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: Any,
) -> None:
    process = warm_up._process

    def process_when_a_client_has_come(*arguments: Any) -> None:
        pipeline.open()
        process(*arguments)

    monkeypatch.setattr(warm_up, "_process", process_when_a_client_has_come)
    assert warmed(worker, caplog) == CANCELLED
    assert list(spark.sparkContext.statusTracker().getActiveJobsIds()) == []
    assert list(worker.node.scratch.iterdir()) == []


def test_there_is_no_warm_up_beside_an_unfinished_run(
    worker: Worker, pipeline: Pipeline, monkeypatch: Any
) -> None:
    pipeline.open()
    made_up: list[Any] = []
    monkeypatch.setattr(warm_up, "_run_made_up", lambda *arguments: made_up.append(arguments))
    worker.ready.set_result(None)
    warm_up._warm_up(worker)  # type: ignore[arg-type]
    assert made_up == []


def test_a_worker_that_stops_before_it_is_ready_is_not_waited_for(worker: Worker) -> None:
    worker.stopping.set()
    warm_up._warm_up(worker)  # type: ignore[arg-type]
    assert not worker.ready.done()
