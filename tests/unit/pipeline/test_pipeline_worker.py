"""How a pipeline handles messages and failed final steps, and when it is ready. Needs no Spark."""

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kopitiam.bus.memory import MemoryBus
from kopitiam.contracts.batches import Batch, Processed
from kopitiam.contracts.errors import ConfigError, RegistryUnavailable, Unavailable
from kopitiam.contracts.layout import KEYS
from kopitiam.contracts.messages import ForceEnd, Message
from kopitiam.contracts.runs import RunState, new_run_id
from kopitiam.pipeline import worker
from kopitiam.pipeline.source import LogBounds
from kopitiam.pipeline.worker import PipelineNode, PipelineWorker
from kopitiam.registry import Fence, Registry, open_registry
from kopitiam.spark.jobs import job_tag
from kopitiam.storage.local import LocalStorage
from kopitiam.system.health import Health

SOON_SECONDS = 10


class Fleet:
    """A registry, a storage and a worker; the Spark session only records which jobs are cancelled."""

    def __init__(self, path: Path, registry: Registry, bus: MemoryBus) -> None:
        self.registry, self.storage = registry, LocalStorage(path)
        self.cancelled: list[str] = []
        session: Future[Any] = Future()
        session.set_result(
            SimpleNamespace(
                sparkContext=SimpleNamespace(master="local[1]", cancelJobsWithTag=self.cancelled.append)
            )
        )
        self.worker = PipelineWorker(
            PipelineNode(
                name="pipeline-1",
                registry=registry,
                connect=lambda: registry,
                bus=bus,
                storage=self.storage,
                hadoop={},
                session=session,
                scratch=path,
                checkpoint=path / "checkpoint",
                bounds=LogBounds((0,), 1, 1),
                fence=Fence("pipeline-1", registry.take_over("pipeline-1", "holder", 60), "holder"),
            )
        )

    def run(self, *states: RunState) -> str:
        """A run that has passed these states, with a stored chunk and stored answers."""
        opened = self.registry.open_run({}, "", "me", idempotency_key=None, lease_seconds=60, shards=1)
        run = opened.run.run
        for state in states:
            self.registry.move(run, state)
        self.storage.replace(KEYS.chunk(run, "users", 0, 0), b"a chunk")
        self.storage.replace(KEYS.attempt(run, "1") / "answer", b"an answer")
        return run

    def force_end(self, run: str) -> None:
        self.worker._on_force_end(ForceEnd(runs=(run,), reason="a forged message"))

    def stored_files(self, run: str) -> int:
        patterns = ("landing/*/*/*/*", "results/*/*/*")
        return sum(f"run={run}" in str(key) for pattern in patterns for key in self.storage.find(pattern))


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with closing(open_registry("sqlite", tmp_path)) as registry, closing(MemoryBus()) as bus:
        yield Fleet(tmp_path, registry, bus)


@pytest.mark.parametrize("state", [RunState.ENDED, RunState.FAILED])
def test_jobs_of_an_ended_run_are_cancelled_and_its_files_removed(fleet: Fleet, state: RunState):
    run, other = fleet.run(state), fleet.run()
    fleet.force_end(run)
    assert fleet.cancelled == [job_tag(run)]
    assert (fleet.stored_files(run), fleet.stored_files(other)) == (0, 2)


@pytest.mark.parametrize("states", [(), (RunState.SEALED, RunState.FINAL, RunState.DONE)])
def test_a_message_alone_neither_ends_a_run_nor_removes_its_answers(
    fleet: Fleet, states: tuple[RunState, ...]
):
    run = fleet.run(*states)
    fleet.force_end(run)
    fleet.force_end(new_run_id())
    assert (fleet.cancelled, fleet.stored_files(run)) == ([], 2)


def test_nothing_is_removed_while_the_registry_is_unavailable(fleet: Fleet, monkeypatch: pytest.MonkeyPatch):
    run = fleet.run(RunState.ENDED)

    def fail(_: str) -> None:
        raise RegistryUnavailable("registry: unavailable")

    monkeypatch.setattr(fleet.registry, "get_run", fail)
    fleet.force_end(run)
    assert (fleet.cancelled, fleet.stored_files(run)) == ([], 2)


def test_an_unavailable_bus_delays_no_batch(fleet: Fleet, monkeypatch: pytest.MonkeyPatch):
    run = fleet.run()
    is_called, is_back, published = threading.Event(), threading.Event(), queue.SimpleQueue[Message]()

    def publish(_: str, message: Message) -> None:
        is_called.set()
        assert is_back.wait(SOON_SECONDS)
        published.put(message)

    monkeypatch.setattr(fleet.worker.node.bus, "publish", publish)
    fleet.worker._compaction = SimpleNamespace(compact=lambda _: None)
    for number in range(50):
        fleet.worker._on_committed(Batch("q", number, {0: (0, 1)}, (Processed(run, "users", 0, 1, 1),)))
    assert is_called.wait(SOON_SECONDS)
    assert published.empty()
    is_back.set()
    assert published.get(timeout=SOON_SECONDS).run == run
    fleet.worker._reports.close()


def test_a_pipeline_whose_spark_cannot_use_the_storage_is_never_ready(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object) -> None:
        raise ConfigError("storage.url: Spark cannot use it")

    monkeypatch.setattr(worker, "connect_storage", refuse)
    with pytest.raises(ConfigError):
        fleet.worker.work()
    assert not fleet.worker.ready.done()


def test_a_pipeline_that_listens_is_ready(fleet: Fleet, monkeypatch: pytest.MonkeyPatch):
    is_ready = []
    monkeypatch.setattr(worker.Stream, "run", lambda _: is_ready.append(fleet.worker.ready.done()))
    fleet.worker.work()
    assert is_ready == [True]


def test_a_final_step_without_disk_space_is_reported_without_paths_until_answers_are_published() -> None:
    outcomes: list[int | Unavailable] = [
        Unavailable("answers cannot be written: /srv/home/results: No room"),
        3,
    ]
    answered: list[tuple[str, int]] = []

    def finish(run: str) -> int:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Unavailable):
            raise outcome
        return outcome

    worker = PipelineWorker.__new__(PipelineWorker)
    worker.node = SimpleNamespace(health=Health())  # type: ignore[assignment]
    worker._finalizer = SimpleNamespace(finish=finish)  # type: ignore[assignment]
    worker._reports = SimpleNamespace(answers=lambda run, rows: answered.append((run, rows)))  # type: ignore[assignment]
    with pytest.raises(Unavailable):
        worker._finish("a-run")
    reason = worker.node.health.reason or ""
    assert reason.startswith("the final step waits to try again: answers cannot be written")
    assert "/srv" not in reason
    worker._finish("a-run")
    assert (worker.node.health.reason, answered) == (None, [("a-run", 3)])
