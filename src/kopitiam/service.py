"""Gateway, pipeline and barrier in one process, on one home folder that survives it.

The Spark session comes from outside: whoever is in a hurry starts it before this module is even loaded.
"""

import contextlib
import functools
import os
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kopitiam.bus.memory import MemoryBus
from kopitiam.composition import Workplace, pipeline_node
from kopitiam.contracts.config import Settings
from kopitiam.contracts.messages import NodeKind
from kopitiam.contracts.nodes import NodeRecord
from kopitiam.gateway.app import close_gateway, open_gateway
from kopitiam.gateway.janitor import keep_tidy
from kopitiam.gateway.server import serving
from kopitiam.landing.layout import Home
from kopitiam.pipeline.worker import Worker
from kopitiam.registry.port import Fence, RegistryPort
from kopitiam.registry.registry import open_registry
from kopitiam.supervision.coordinator import Coordinator
from kopitiam.working import working

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FOR_EVER_SECONDS = 1e9  # nobody but this process can have the home, so no lease need run out
GATEWAY, PIPELINE, LEADER = "gateway-1", "pipeline-1", "monitor-1"


@dataclass(frozen=True)
class Service:
    url: str
    registry: RegistryPort
    trouble: Future[None]  # done when a part of the service can work no more, with the reason


@contextlib.contextmanager
def service(settings: Settings, session: "Future[SparkSession]", scratch: Path) -> Iterator[Service]:
    """Open for clients while the block lasts. Leaving it hands work back: the next life takes it up again."""
    with (
        contextlib.closing(open_registry(settings.registry.url, settings.home)) as registry,
        contextlib.closing(MemoryBus()) as bus,
    ):
        front = _enlisted(registry, GATEWAY)
        gateway = open_gateway(front, settings, registry, bus)
        # Runs that an earlier life took on end with the shards that they began with.
        shards = range(max(settings.pipeline.shards, registry.most_shards()))
        fence = _enlisted(registry, PIPELINE)
        checkpoint = Home(settings.home).checkpoint(PIPELINE, shards)
        workplace = Workplace(session, scratch, checkpoint)
        worker = Worker(pipeline_node(settings, shards, registry, bus, fence=fence, workplace=workplace))
        leader = _enlisted(registry, LEADER)
        coordinator = Coordinator(registry, bus, leader)
        stopping, trouble = threading.Event(), Future[None]()
        tidying = functools.partial(keep_tidy, gateway, stopping)
        stop = [stopping.set, worker.stop, coordinator.stop]
        try:
            with (
                working(worker.work, coordinator.run, tidying, stop=stop, trouble=trouble),
                serving(gateway) as url,
            ):
                registry.report_node(_node(front, "gateway", url))
                registry.report_node(_node(fence, "pipeline"))
                registry.report_node(replace(_node(leader, "monitor"), leader=True))
                yield Service(url, registry, trouble)
        finally:
            close_gateway(gateway)


def _enlisted(registry: RegistryPort, name: str) -> Fence:
    """A new life: whatever an earlier one still had in hand is ours now."""
    return Fence(name, registry.enlist(name, uuid.uuid4().hex, _FOR_EVER_SECONDS))


def _node(fence: Fence, kind: NodeKind, url: str | None = None) -> NodeRecord:
    return NodeRecord(fence.name, kind, os.getpid(), url, "alive", time.time(), fence.epoch)
