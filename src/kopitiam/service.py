"""Gateway and pipeline in one process, on one home folder that survives it.

The Spark session comes from outside: whoever is in a hurry starts it before this module is even loaded.
"""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from kopitiam.contracts.api import Node
from kopitiam.contracts.config import Settings
from kopitiam.gateway.app import close_gateway, open_gateway
from kopitiam.gateway.context import Gateway
from kopitiam.gateway.janitor import keep_tidy
from kopitiam.gateway.server import serving
from kopitiam.landing.layout import Home
from kopitiam.pipeline.worker import UNWATCHED, Watch, Worker
from kopitiam.registry.registry import open_registry

_FINISHING_SECONDS = 1.0  # what is not done by then is done again by the next life
GATEWAY, PIPELINE = "gateway-1", "pipeline-1"


@dataclass(frozen=True)
class Service:
    url: str


@contextlib.contextmanager
def service(
    settings: Settings, session: Future[SparkSession], scratch: Path, watch: Watch = UNWATCHED
) -> Iterator[Service]:
    """Open for clients while the block lasts. Leaving it hands work back: the next life takes it up again."""
    with contextlib.closing(open_registry(settings.registry.url, settings.home)) as registry:
        gateway = open_gateway(GATEWAY, settings, registry)
        try:
            worker = Worker(PIPELINE, registry, Home(settings.home), session, scratch, watch)
            with _threads(worker, gateway), serving(gateway) as url:
                gateway.nodes[:] = [_node(GATEWAY, "gateway", url), _node(PIPELINE, "pipeline", None)]
                yield Service(url)
        finally:
            close_gateway(gateway)


@contextlib.contextmanager
def _threads(worker: Worker, gateway: Gateway) -> Iterator[None]:
    threads = [
        threading.Thread(target=worker.work, name=PIPELINE, daemon=True),
        threading.Thread(target=keep_tidy, args=(gateway, worker.stopping), name="janitor", daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        worker.stopping.set()
        if worker.session.done() and worker.session.exception() is None:
            with contextlib.suppress(Py4JError, OSError):
                worker.session.result().sparkContext.cancelAllJobs()
            for thread in threads:
                thread.join(_FINISHING_SECONDS)


def _node(name: str, kind: str, url: str | None) -> Node:
    return Node.model_validate(
        {
            "name": name,
            "kind": kind,
            "pid": os.getpid(),
            "url": url,
            "state": "alive",
            "since": time.time(),
            "epoch": None,
            "leader": False,
        }
    )
