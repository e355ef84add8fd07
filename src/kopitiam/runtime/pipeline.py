"""Of what a pipeline is made, alone or with everything else in one process."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kopitiam.bus.port import BusPort
from kopitiam.contracts.config import Settings
from kopitiam.pipeline.source import LogBounds
from kopitiam.pipeline.worker import PipelineNode
from kopitiam.registry.port import Fence, RegistryPort
from kopitiam.runtime.registry_address import RegistryAddress
from kopitiam.storage.open import hadoop_conf, open_storage
from kopitiam.system.health import LEAST_BOUND_SECONDS, Health

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Workplace:
    """What a pipeline works with on its machine."""

    session: "Future[SparkSession]"
    scratch: Path
    checkpoint: Path
    health: Health = field(default_factory=Health)


def pipeline_node(
    settings: Settings,
    shards: Sequence[int],
    registry: RegistryPort,
    bus: BusPort,
    *,
    fence: Fence,
    workplace: Workplace,
) -> PipelineNode:
    limits = settings.pipeline
    return PipelineNode(
        name=fence.name,
        registry=registry,
        connect=RegistryAddress(settings.registry.url, settings.home),
        bus=bus,
        storage=open_storage(settings),
        hadoop=hadoop_conf(settings),
        session=workplace.session,
        scratch=workplace.scratch,
        checkpoint=workplace.checkpoint,
        bounds=LogBounds(tuple(shards), limits.max_chunks_per_batch, limits.max_bytes_per_batch),
        fence=fence,
        health=workplace.health,
        answer_seconds=max(LEAST_BOUND_SECONDS, settings.monitor.timeout_seconds),
    )
