"""A pipeline node of a fleet, and how settings become a pipeline in any process.

Spark takes longest to start. `run_pipeline` therefore imports the registry, the bus and the pipeline itself
after Spark's JVM was launched.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from kopitiam.contracts.config import Settings
from kopitiam.contracts.layout import Home
from kopitiam.runtime.home import remove_crashed, scratch_folder
from kopitiam.system.health import LEAST_BOUND_SECONDS, Health
from kopitiam.system.logs import KeptLogs
from kopitiam.system.threads import run_threads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kopitiam.bus.port import BusPort
    from kopitiam.fleet.home import FleetHome
    from kopitiam.pipeline.worker import PipelineNode
    from kopitiam.registry.records import Fence
    from kopitiam.registry.registry import Registry
    from kopitiam.runtime.member import Member
    from kopitiam.spark.session import SparkEngine
    from kopitiam.storage.port import StoragePort


@dataclass(frozen=True)
class PipelineRuntime:
    """The resources of a pipeline on its machine."""

    session: "Future[SparkSession]"
    scratch: Path
    checkpoint: Path
    health: Health = field(default_factory=Health)


def pipeline_node(
    settings: Settings,
    shards: Sequence[int],
    registry: "Registry",
    bus: "BusPort",
    storage: "StoragePort",
    *,
    fence: "Fence",
    runtime: PipelineRuntime,
) -> "PipelineNode":
    """Everything that a pipeline for these shards needs."""
    from kopitiam.pipeline.source import LogBounds  # noqa: PLC0415
    from kopitiam.pipeline.worker import PipelineNode  # noqa: PLC0415
    from kopitiam.runtime.registry_address import RegistryAddress  # noqa: PLC0415
    from kopitiam.storage.open import hadoop_conf  # noqa: PLC0415

    limits = settings.pipeline
    return PipelineNode(
        name=fence.name,
        registry=registry,
        connect=RegistryAddress(settings.registry.url, settings.home),
        bus=bus,
        storage=storage,
        hadoop=hadoop_conf(settings),
        session=runtime.session,
        scratch=runtime.scratch,
        checkpoint=runtime.checkpoint,
        bounds=LogBounds(tuple(shards), limits.max_chunks_per_batch, limits.max_bytes_per_batch),
        fence=fence,
        health=runtime.health,
        answer_seconds=max(LEAST_BOUND_SECONDS, settings.monitor.timeout_seconds),
    )


def run_pipeline(settings: Settings, name: str, shards: tuple[int, ...], *, is_verbose: bool = False) -> None:
    """Runs a pipeline for these shards until the node fails, and raises the reason."""
    from kopitiam.fleet.home import FleetHome  # noqa: PLC0415
    from kopitiam.fleet.services import service_settings  # noqa: PLC0415
    from kopitiam.spark.s3a import spark_conf  # noqa: PLC0415
    from kopitiam.spark.session import spark_engine  # noqa: PLC0415
    from kopitiam.spark.settings import SparkOptions, is_cluster  # noqa: PLC0415
    from kopitiam.system.files import keep_private  # noqa: PLC0415

    keep_private(settings.home, settings.umask)
    settings = service_settings(settings)
    spark = settings.spark
    options = SparkOptions(
        spark.master, spark_conf(settings), is_verbose=is_verbose, patience_seconds=spark.patience_seconds
    )
    with _process_scratch(FleetHome.of(settings), name) as scratch:
        if is_cluster(spark.master):
            _end_earlier_engines(FleetHome.of(settings), scratch)
        with spark_engine(options, scratch) as engine:
            from kopitiam.runtime.member import member  # noqa: PLC0415

            with member(settings, name, "pipeline") as node:
                _work(node, shards, engine, scratch)


def _work(node: "Member", shards: tuple[int, ...], engine: "SparkEngine", scratch: Path) -> None:
    from kopitiam.fleet.home import FleetHome  # noqa: PLC0415
    from kopitiam.fleet.services.spark import forgotten_by_master  # noqa: PLC0415
    from kopitiam.pipeline.worker import PipelineWorker  # noqa: PLC0415
    from kopitiam.runtime.warm_up import warm_up_beside  # noqa: PLC0415
    from kopitiam.spark.executors import LOST_SECONDS, patience_with, watch_over  # noqa: PLC0415
    from kopitiam.spark.settings import is_cluster  # noqa: PLC0415
    from kopitiam.storage.open import open_storage  # noqa: PLC0415

    settings, fence, health = node.settings, node.membership.fence, Health()
    runtime = PipelineRuntime(engine.session, scratch, new_checkpoint(settings.home, shards, fence), health)
    worker = PipelineWorker(
        pipeline_node(
            settings, shards, node.registry, node.bus, open_storage(settings), fence=fence, runtime=runtime
        )
    )

    if settings.pipeline.warm_up:
        warm_up_beside(worker)

    def failure_reason() -> str | None:
        """Kills a JVM that does not answer, at once: threads that wait for it could not end."""
        if reason := worker.failure_reason():
            worker.fail_attempts(reason)
            engine.kill()
        return reason

    with run_threads(worker.work, stop=[worker.stop], failure=node.failure):
        node.membership.start(failure_reason=failure_reason, alarm=lambda: worker.alarm)
        session = engine.session.result()
        wait([worker.ready, node.failure], return_when=FIRST_COMPLETED)
        if worker.ready.done():
            FleetHome.of(settings).ready_mark(fence.name, os.getpid()).touch()
        if is_cluster(settings.spark.master):
            patience_seconds = patience_with(settings.spark.master, settings.spark.patience_seconds)
            lost_seconds = max(LOST_SECONDS, patience_seconds)
            watch_over(session, node.failure, lost_seconds, forgotten_by_master(settings))
        node.failure.result()


@contextlib.contextmanager
def _process_scratch(home: "FleetHome", name: str) -> Iterator[Path]:
    """A scratch folder for this process. Those of processes of this machine that have ended are removed."""
    scratch, logs = home.process_scratch(name, os.getpid()), KeptLogs(home.logs, name)
    scratch.parent.mkdir(parents=True, exist_ok=True)
    for folder, pid in _scratch_folders(home, scratch.parent):
        if not psutil.pid_exists(pid):
            remove_crashed(folder, logs)
    with scratch_folder(scratch, logs):
        yield scratch


def _end_earlier_engines(home: "FleetHome", scratch: Path) -> None:
    """Kills the JVMs of earlier processes of this node. A process that hangs would keep the cores that a
    cluster gave it; if it ever resumes, its stale epoch fences it."""
    for folder, pid in _scratch_folders(home, scratch.parent):
        if folder == scratch:
            continue
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(pid).children(recursive=True):
                if any(str(folder) in word for word in child.cmdline()):
                    child.kill()


def _scratch_folders(home: "FleetHome", parent: Path) -> list[tuple[Path, int]]:
    """The scratch folders of this machine with their processes."""
    return [(folder, pid) for folder in parent.iterdir() if (pid := home.pid_of_scratch(folder)) is not None]


def new_checkpoint(home: Path, shards: tuple[int, ...], fence: "Fence") -> Path:
    """The checkpoint folder of this epoch; those of earlier epochs are removed.

    Each epoch has its own, since a process that hangs may still write to an earlier one. The stream continues
    from the positions in the registry.
    """
    epoch = f"{fence.name}.{fence.epoch}-{fence.holder[:8]}"  # no name has a dot in it
    checkpoint = Home(home).checkpoint(epoch, shards)
    for old in checkpoint.parent.glob(f"{fence.name}.*"):
        shutil.rmtree(old, ignore_errors=True)
    return checkpoint
