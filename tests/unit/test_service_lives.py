"""A pipeline's lives in one process: one engine after the other, given up only where somebody waits."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kopitiam.bus.memory import MemoryBus
from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import EngineDied, RegistryUnavailable, StreamStuck
from kopitiam.registry import Registry, open_registry
from kopitiam.runtime import serve
from kopitiam.runtime.serve import PIPELINE, _Pipeline
from kopitiam.system.health import Health

SOON_SECONDS = 20


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + SOON_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to pass in time"
        time.sleep(0.005)


class Engine:
    """Without a Spark in it."""

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


class Life:
    """What a worker meets: troubles in turn, then nothing."""

    troubles: ClassVar[list[Exception]] = []
    lives: ClassVar[list["Life"]] = []

    def __init__(self, node: Any) -> None:
        self.node, self.blamed = node, []
        self.reason: str | None = None
        self._stopping = threading.Event()
        Life.lives.append(self)

    def work(self) -> None:
        if Life.troubles:
            raise Life.troubles.pop(0)
        self._stopping.wait()

    def stop(self) -> None:
        self._stopping.set()

    def vouch(self) -> str | None:
        return self.reason

    def blame(self, reason: str) -> None:
        self.blamed.append(reason)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with closing(open_registry("sqlite", tmp_path)) as opened:
        yield opened


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "Worker", Life)
    monkeypatch.setattr(serve, "_MOST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(serve, "_WAITING_SECONDS", 0.01)
    Life.troubles, Life.lives = [], []


def lives(registry: Registry, home: Path, is_patient: bool = True) -> _Pipeline:
    engine: Any = Engine()
    return _Pipeline(
        Settings(home=home, monitor={"heartbeat_seconds": 0.02}),  # type: ignore[arg-type]
        registry,
        MemoryBus(),
        range(1),
        engine,
        home / "scratch",
        Health(),
        is_patient,
    )


@contextmanager
def at_work(pipeline: _Pipeline) -> Iterator[None]:
    threads = [threading.Thread(target=each) for each in (pipeline.work, pipeline.watch)]
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


def test_an_engine_that_died_is_replaced_and_the_next_life_has_a_new_epoch(registry, tmp_path) -> None:
    pipeline = lives(registry, tmp_path)
    Life.troubles = [EngineDied("Spark's process died; nothing is lost") for _ in range(6)]
    with at_work(pipeline):
        until(lambda: len(Life.lives) == 7)
        assert pipeline.engine.starts == 7
        assert [life.node.fence.epoch for life in Life.lives] == list(range(1, 8))
        reason = "Spark's process died; nothing is lost; Spark is being started again"
        assert pipeline.health.trouble == reason
        until(lambda: alarm(registry) == reason)
        pipeline.health.got_on()
        until(lambda: alarm(registry) is None)


def test_a_registry_that_is_away_is_waited_for_with_the_same_engine(registry, tmp_path) -> None:
    pipeline = lives(registry, tmp_path)
    Life.troubles = [RegistryUnavailable("registry: away") for _ in range(6)]
    with at_work(pipeline):
        until(lambda: len(Life.lives) == 7)
        assert pipeline.engine.starts == 1
        assert "waits for the registry" in (pipeline.health.trouble or "")


def test_an_engine_that_answers_no_more_is_killed_once_and_its_work_blamed(registry, tmp_path) -> None:
    pipeline = lives(registry, tmp_path)
    with at_work(pipeline):
        until(lambda: Life.lives)
        (life,) = Life.lives
        life.reason = "Spark's process has answered nothing for 20 s"
        until(lambda: pipeline.engine.kills)
        until(lambda: alarm(registry) == life.reason)  # some looks later
        assert (pipeline.engine.kills, life.blamed) == (1, [life.reason])


def test_where_somebody_waits_a_stream_that_is_stuck_is_told_at_once(registry, tmp_path) -> None:
    pipeline = lives(registry, tmp_path, is_patient=False)
    Life.troubles = [StreamStuck("the stream failed 5 times in a row")]
    with pytest.raises(StreamStuck):
        pipeline.work()


def test_where_somebody_waits_engines_that_die_without_progress_are_given_up(registry, tmp_path) -> None:
    pipeline = lives(registry, tmp_path, is_patient=False)
    Life.troubles = [EngineDied("Spark's process died") for _ in range(9)]
    with pytest.raises(EngineDied):
        pipeline.work()
    assert len(Life.lives) == 4  # three for the attempts of a run, and one that fails it
