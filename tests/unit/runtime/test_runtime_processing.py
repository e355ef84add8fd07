"""A pipeline that is restarted in one process: one engine after the other, unless its client waits."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kopitiam.bus.memory import MemoryBus
from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import EngineDied, RegistryUnavailable, StreamStuck
from kopitiam.registry import Registry, open_registry
from kopitiam.runtime import processing
from kopitiam.runtime.processing import PIPELINE, RestartingPipeline
from kopitiam.storage.local import LocalStorage
from kopitiam.system.health import Health
from waiting import eventually

SOON_SECONDS = 20


class Engine:
    """An engine without Spark, which counts restarts and kills."""

    def __init__(self) -> None:
        self.session: Future[Any] = Future()
        self.session.set_result("a session")
        self.starts, self.kills = 1, 0

    def restart(self) -> Future[Any]:
        self.starts += 1
        return self.session

    def kill(self) -> None:
        self.kills += 1

    def keep_log(self) -> Path | None:
        return None


class Worker:
    """Raises one error for each start, as long as there are any; then waits to be stopped."""

    errors: ClassVar[list[Exception]] = []
    started: ClassVar[list["Worker"]] = []

    def __init__(self, node: Any) -> None:
        self.node, self.failures = node, []
        self.reason: str | None = None
        self._stopping = threading.Event()
        Worker.started.append(self)

    def work(self) -> None:
        if Worker.errors:
            raise Worker.errors.pop(0)
        self._stopping.wait()

    def stop(self) -> None:
        self._stopping.set()

    def failure_reason(self) -> str | None:
        return self.reason

    def fail_attempts(self, reason: str) -> None:
        self.failures.append(reason)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with closing(open_registry("sqlite", tmp_path)) as opened:
        yield opened


@pytest.fixture(autouse=True)
def doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processing, "PipelineWorker", Worker)
    monkeypatch.setattr(processing, "_MOST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(processing, "_RETRY_SECONDS", 0.01)
    Worker.errors, Worker.started = [], []


def restarting_pipeline(registry: Registry, home: Path, is_patient: bool = True) -> RestartingPipeline:
    engine: Any = Engine()
    return RestartingPipeline(
        Settings(home=home, monitor={"heartbeat_seconds": 0.02}, pipeline={"warm_up": False}),  # type: ignore[arg-type]
        registry,
        MemoryBus(),
        LocalStorage(home),
        range(1),
        engine,
        home / "scratch",
        Health(),
        is_patient,
    )


@contextmanager
def running(pipeline: RestartingPipeline) -> Iterator[None]:
    threads = [threading.Thread(target=work) for work in (pipeline.work, pipeline.watch)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        pipeline.stop()
        for thread in threads:
            thread.join(SOON_SECONDS)
            assert not thread.is_alive()


def alarm(registry: Registry) -> str | None:
    return {node.name: node.alarm for node in registry.nodes()}.get(PIPELINE)


def test_an_engine_that_died_is_replaced_and_the_pipeline_gets_a_new_epoch(registry, tmp_path) -> None:
    pipeline = restarting_pipeline(registry, tmp_path)
    Worker.errors = [EngineDied("Spark's process died; nothing is lost") for _ in range(6)]
    with running(pipeline):
        eventually(lambda: len(Worker.started) == 7)
        assert pipeline.engine.starts == 7
        assert [worker.node.fence.epoch for worker in Worker.started] == list(range(1, 8))
        reason = "Spark's process died; nothing is lost; Spark is being started again"
        assert pipeline.health.failure == reason
        eventually(lambda: alarm(registry) == reason)
        pipeline.health.record_progress()
        eventually(lambda: alarm(registry) is None)


def test_the_engine_stays_while_the_registry_is_unavailable(registry, tmp_path) -> None:
    pipeline = restarting_pipeline(registry, tmp_path)
    Worker.errors = [RegistryUnavailable("registry: away") for _ in range(6)]
    with running(pipeline):
        eventually(lambda: len(Worker.started) == 7)
        assert pipeline.engine.starts == 1
        assert "waits for the registry" in (pipeline.health.failure or "")


def test_an_engine_that_does_not_answer_is_killed_once_and_its_attempts_fail(registry, tmp_path) -> None:
    pipeline = restarting_pipeline(registry, tmp_path)
    with running(pipeline):
        eventually(lambda: Worker.started)
        (worker,) = Worker.started
        worker.reason = "Spark's process has answered nothing for 20 s"
        eventually(lambda: pipeline.engine.kills)
        eventually(lambda: alarm(registry) == worker.reason)  # several checks later
        assert (pipeline.engine.kills, worker.failures) == (1, [worker.reason])


def test_an_impatient_pipeline_fails_when_its_stream_is_stuck(registry, tmp_path) -> None:
    pipeline = restarting_pipeline(registry, tmp_path, is_patient=False)
    Worker.errors = [StreamStuck("the stream failed 5 times in a row")]
    with pytest.raises(StreamStuck):
        pipeline.work()


def test_an_impatient_pipeline_fails_when_engines_keep_dying_without_progress(registry, tmp_path) -> None:
    pipeline = restarting_pipeline(registry, tmp_path, is_patient=False)
    Worker.errors = [EngineDied("Spark's process died") for _ in range(9)]
    with pytest.raises(EngineDied):
        pipeline.work()
    assert len(Worker.started) == 4  # three for the attempts of a run, and one that fails it
