"""What a pipeline makes of what it is told, and when it is ready to be told: no Spark is needed for that."""

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
from kopitiam.contracts.errors import ConfigError, RegistryUnavailable
from kopitiam.contracts.layout import KEYS
from kopitiam.contracts.messages import ForceEnd, Message
from kopitiam.contracts.runs import RunState, new_run_id
from kopitiam.pipeline import worker
from kopitiam.pipeline.source import LogBounds
from kopitiam.pipeline.worker import PipelineNode, Worker
from kopitiam.registry import Fence, Registry, open_registry
from kopitiam.spark.failures import tag_of
from kopitiam.storage.local import LocalStorage

SOON_SECONDS = 10


class Fleet:
    """A registry, a home and a worker; of Spark only what is asked to be cancelled."""

    def __init__(self, path: Path, registry: Registry, bus: MemoryBus) -> None:
        self.registry, self.storage = registry, LocalStorage(path)
        self.cancelled: list[str] = []
        session: Future[Any] = Future()
        session.set_result(
            SimpleNamespace(sparkContext=SimpleNamespace(cancelJobsWithTag=self.cancelled.append))
        )
        self.worker = Worker(
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
                fence=Fence("pipeline-1", registry.enlist("pipeline-1", "a life", 60), "a life"),
            )
        )

    def run(self, *states: RunState) -> str:
        """One that has come so far, with a chunk and answers at rest."""
        opened = self.registry.open_run({}, "", "me", idempotency_key=None, lease_seconds=60, shards=1)
        run = opened.run.run
        for state in states:
            self.registry.move(run, state)
        self.storage.replace(KEYS.chunk(run, "users", 0, 0), b"a chunk")
        self.storage.replace(KEYS.attempt(run, "1") / "answer", b"an answer")
        return run

    def tell(self, run: str) -> None:
        self.worker._on_force_end(ForceEnd(runs=(run,), reason="somebody said so"))

    def at_rest(self, run: str) -> int:
        found = ("landing/*/*/*/*", "results/*/*/*")
        return sum(f"run={run}" in str(key) for pattern in found for key in self.storage.find(pattern))


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with closing(open_registry("sqlite", tmp_path)) as registry, closing(MemoryBus()) as bus:
        yield Fleet(tmp_path, registry, bus)


@pytest.mark.parametrize("state", [RunState.ENDED, RunState.FAILED])
def test_a_run_that_was_given_up_is_cancelled_and_cleared_away(fleet: Fleet, state: RunState):
    run, other = fleet.run(state), fleet.run()
    fleet.tell(run)
    assert fleet.cancelled == [tag_of(run)]
    assert (fleet.at_rest(run), fleet.at_rest(other)) == (0, 2)


@pytest.mark.parametrize("states", [(), (RunState.SEALED, RunState.FINAL, RunState.DONE)])
def test_a_message_alone_ends_no_run_and_takes_no_answers_away(fleet: Fleet, states: tuple[RunState, ...]):
    run = fleet.run(*states)
    fleet.tell(run)
    fleet.tell(new_run_id())
    assert (fleet.cancelled, fleet.at_rest(run)) == ([], 2)


def test_while_the_registry_is_away_nothing_is_cleared(fleet: Fleet, monkeypatch: pytest.MonkeyPatch):
    run = fleet.run(RunState.ENDED)

    def away(_: str) -> None:
        raise RegistryUnavailable("registry: away")

    monkeypatch.setattr(fleet.registry, "get_run", away)
    fleet.tell(run)
    assert (fleet.cancelled, fleet.at_rest(run)) == ([], 2)


def test_a_bus_that_is_away_holds_up_no_batch(fleet: Fleet, monkeypatch: pytest.MonkeyPatch):
    run = fleet.run()
    is_asked, is_back, told = threading.Event(), threading.Event(), queue.SimpleQueue[Message]()

    def publish(_: str, message: Message) -> None:
        is_asked.set()
        assert is_back.wait(SOON_SECONDS)
        told.put(message)

    monkeypatch.setattr(fleet.worker.node.bus, "publish", publish)
    fleet.worker._compaction = SimpleNamespace(compact=lambda _: None)
    for number in range(50):  # each would wait for the bus
        fleet.worker._on_committed(Batch("q", number, {0: (0, 1)}, (Processed(run, "users", 0, 1, 1),)))
    assert is_asked.wait(SOON_SECONDS)
    assert told.empty()
    is_back.set()
    assert told.get(timeout=SOON_SECONDS).run == run
    fleet.worker._reports.close()


def test_a_pipeline_whose_spark_cannot_use_the_storage_is_never_ready(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object) -> None:
        raise ConfigError("storage.url: Spark cannot use it")

    monkeypatch.setattr(worker, "show_storage", refuse)
    with pytest.raises(ConfigError):
        fleet.worker.work()
    assert not fleet.worker.ready.done()


def test_a_pipeline_that_listens_is_ready(fleet: Fleet, monkeypatch: pytest.MonkeyPatch):
    is_ready = []
    monkeypatch.setattr(worker.Stream, "run", lambda _: is_ready.append(fleet.worker.ready.done()))
    fleet.worker.work()
    assert is_ready == [True]
