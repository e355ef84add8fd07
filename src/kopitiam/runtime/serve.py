"""Gateway, pipeline and barrier in one process, on one home folder that survives it.

The engine comes from outside, so that a caller can start it before this module is loaded. One that
dies or answers no more is replaced here, and the pipeline begins a new life on the next one.
"""

import contextlib
import functools
import logging
import os
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kopitiam.bus.memory import MemoryBus
from kopitiam.bus.port import BusPort
from kopitiam.contracts.batches import MOST_ATTEMPTS
from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import EngineDied, ServiceError, StaleEpoch, StreamStuck, Unavailable
from kopitiam.contracts.layout import Home
from kopitiam.contracts.messages import NodeKind
from kopitiam.contracts.nodes import NodeRecord
from kopitiam.gateway.app import close_gateway, open_gateway
from kopitiam.gateway.janitor import keep_tidy
from kopitiam.gateway.server import serving
from kopitiam.landing.recognition import Premises
from kopitiam.pipeline.worker import Worker
from kopitiam.registry.port import Fence, RegistryPort
from kopitiam.registry.registry import open_registry
from kopitiam.runtime.pipeline import Workplace, pipeline_node
from kopitiam.storage.open import open_storage
from kopitiam.supervision.coordinator import Coordinator
from kopitiam.system.health import Health
from kopitiam.system.threads import fail, working

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kopitiam.spark.session import SparkEngine

_FOR_EVER_SECONDS = 1e9  # nobody but this process can have the home, so no lease need run out
_MOST_PAUSE_SECONDS = 60.0  # before another engine, where the ones before got nowhere
_WAITING_SECONDS = 2.0
GATEWAY, PIPELINE, LEADER = "gateway-1", "pipeline-1", "monitor-1"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Service:
    url: str
    registry: RegistryPort
    trouble: Future[None]  # done when a part of the service can work no more, with the reason


@contextlib.contextmanager
def service(
    settings: Settings, engine: "SparkEngine", scratch: Path, *, is_patient: bool = True
) -> Iterator[Service]:
    """Open for clients while the block lasts. Leaving it hands work back: the next life takes it up again.

    A patient one tries for ever and says meanwhile that it is not ready; any other gives up, since there is
    somebody who waits for it.
    """
    with (
        contextlib.closing(open_registry(settings.registry.url, settings.home, is_checked=True)) as registry,
        contextlib.closing(MemoryBus()) as bus,
    ):
        Premises(settings.home, open_storage(settings), settings.storage.url).recognize(registry)
        front, health = _enlisted(registry, GATEWAY), Health()
        gateway = open_gateway(front, settings, registry, bus, health)
        # Runs that an earlier life took on end with the shards that they began with.
        shards = range(max(settings.pipeline.shards, registry.most_shards()))
        pipeline = _Pipeline(settings, registry, bus, shards, engine, scratch, health, is_patient)
        leader = _enlisted(registry, LEADER)
        coordinator = Coordinator(registry, bus, leader)
        stopping, trouble = threading.Event(), Future[None]()
        tidying = functools.partial(keep_tidy, gateway, stopping)
        stop = [stopping.set, pipeline.stop, coordinator.stop]
        is_over = functools.partial(fail, trouble, ServiceError("the gateway's server has ended"))
        try:
            with (
                working(pipeline.work, pipeline.watch, coordinator.run, tidying, stop=stop, trouble=trouble),
                serving(gateway, on_ended=is_over) as server,
            ):
                _report(registry, front, "gateway", server)
                _report(registry, leader, "monitor")
                yield Service(server, registry, trouble)
        finally:
            close_gateway(gateway)


@dataclass
class _Pipeline:
    """Its lives: one on each engine, each with an epoch of its own, so that what an earlier one still has in
    hand comes to nothing."""

    settings: Settings
    registry: RegistryPort
    bus: BusPort
    shards: range
    engine: "SparkEngine"
    scratch: Path
    health: Health
    is_patient: bool
    stopping: threading.Event = field(default_factory=threading.Event)
    _worker: Worker | None = None
    _fence: Fence | None = None
    _told: str | bool | None = False  # the alarm that is shown; False before anything is

    def work(self) -> None:
        fruitless = 0
        while not self.stopping.is_set():
            steps = self.health.steps
            try:
                self._live()
                return  # stopped on purpose, or Spark never started, which the caller learns from the session
            except Unavailable as error:
                if not self.is_patient:
                    raise
                _log.warning("%s; the pipeline begins again", error)
                self.health.trouble = "the pipeline waits for the registry or the storage"
                self.stopping.wait(_WAITING_SECONDS)
                continue
            except (EngineDied, StreamStuck) as error:
                if self.stopping.is_set():
                    return
                fruitless = 0 if self.health.steps > steps else fruitless + 1
                self._on_engine_lost(error, fruitless)
            self._begin_again(min(2.0**fruitless, _MOST_PAUSE_SECONDS) if fruitless else 0)

    def watch(self) -> None:
        """Spark's process is asked all the time. One that does not answer is killed: then another begins."""
        given_up: Worker | None = None
        while not self.stopping.wait(min(1.0, self.settings.monitor.heartbeat_seconds)):
            worker = self._worker
            self._tell()
            if worker is not given_up and worker is not None and (reason := worker.vouch()):
                given_up = worker
                _log.error("%s; it is killed, and another is started", reason)
                self.health.trouble = reason
                worker.blame(reason)
                self.engine.kill()

    def stop(self) -> None:
        self.stopping.set()
        if self._worker is not None:
            self._worker.stop()

    def _live(self) -> None:
        self._fence = _enlisted(self.registry, PIPELINE)
        checkpoint = Home(self.settings.home).checkpoint(PIPELINE, self.shards)
        workplace = Workplace(self.engine.session, self.scratch, checkpoint, self.health)
        node = pipeline_node(
            self.settings, self.shards, self.registry, self.bus, fence=self._fence, workplace=workplace
        )
        self._worker = worker = Worker(node)
        if self.stopping.is_set():
            return
        self._told = False
        try:
            worker.work()
        finally:
            worker.stop()

    def _on_engine_lost(self, error: ServiceError, fruitless: int) -> None:
        """Raises it where nobody should wait any longer."""
        kept = self.engine.keep_log()
        _log.error("%s%s", error, f"; what Spark said is kept in {kept}" if kept else "")
        has_died_enough = isinstance(error, EngineDied) and fruitless > MOST_ATTEMPTS
        if not self.is_patient and (has_died_enough or isinstance(error, StreamStuck)):
            raise error
        self.health.trouble = f"{error}; Spark is being started again"

    def _begin_again(self, pause_seconds: float) -> None:
        while not self.stopping.wait(pause_seconds):
            session: Future[SparkSession] = self.engine.restart()
            if (error := session.exception()) is None or self.stopping.is_set():
                return
            if not self.is_patient:
                raise error
            kept = self.engine.keep_log()
            _log.error("Spark does not start: %s; its log is kept in %s", error, kept)
            self.health.trouble = "Spark does not start; the operator's log says why"
            pause_seconds = _MOST_PAUSE_SECONDS

    def _tell(self) -> None:
        """What is wrong, as an alarm for every page that shows the nodes; and when it is over."""
        fence, alarm = self._fence, self.health.reason
        if fence is None or self._told == alarm:
            return
        try:
            _report(self.registry, fence, "pipeline", alarm=alarm)
            self._told = alarm
        except StaleEpoch:
            return  # the next life has begun meanwhile, and is reported at the next turn
        except Unavailable as error:
            _log.info("the pipeline's state is not told: %s", error)


def _enlisted(registry: RegistryPort, name: str) -> Fence:
    """A new life: whatever an earlier one still had in hand is ours now."""
    holder = uuid.uuid4().hex
    return Fence(name, registry.enlist(name, holder, _FOR_EVER_SECONDS), holder)


def _report(
    registry: RegistryPort, fence: Fence, kind: NodeKind, url: str | None = None, alarm: str | None = None
) -> None:
    node = NodeRecord(fence.name, kind, os.getpid(), url, "alive", registry.now(), fence.epoch, alarm)
    registry.report_node(replace(node, leader=kind == "monitor"), fence)
