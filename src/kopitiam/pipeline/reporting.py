"""What a pipeline tells the barrier: how far each shard of each stage is, in absolute figures."""

import logging
from collections.abc import Iterable, Iterator

from kopitiam.bus.port import BusPort
from kopitiam.contracts.errors import RunNotFound, Unavailable
from kopitiam.contracts.messages import WorkerEnd, WorkerStats, progress_topic
from kopitiam.contracts.stages import (
    STAGES_OF_TABLE,
    Volume,
    expected_by_stage,
    processed_by_stage,
)
from kopitiam.registry.port import RegistryPort

_log = logging.getLogger(__name__)


def report(
    bus: BusPort, registry: RegistryPort, run: str, tables: Iterable[str], shards: Iterable[int]
) -> None:
    """Of the stages that these tables feed. What is lost on the way is found by reconciliation."""
    try:
        account = registry.account(run)
        expected, processed = expected_by_stage(account.expected), processed_by_stage(account.processed)
        for stage in dict.fromkeys(stage for table in tables for stage in STAGES_OF_TABLE[table]):
            for shard in shards:
                if shard < account.figures.run.shards:
                    want = expected.get(stage, {}).get(shard)
                    done = processed[stage].get(shard, Volume())
                    for message in _messages(run, stage, shard, want, done):
                        bus.publish(progress_topic(stage, shard), message)
    except RunNotFound:
        return
    except Unavailable as error:
        _log.warning("run %s: progress is not told: %s", run, error, extra={"run": run})


def report_answers(bus: BusPort, run: str, rows: int) -> None:
    """Publishing is a stage too: its end tells the gateways, and through them the clients."""
    try:
        bus.publish(
            progress_topic("server_results", 0),
            WorkerEnd(run=run, stage="server_results", shard=0, processed=1, rows=rows),
        )
    except Unavailable as error:
        _log.warning("run %s: its end is not told: %s", run, error, extra={"run": run})


def _messages(
    run: str, stage: str, shard: int, want: Volume | None, done: Volume
) -> Iterator[WorkerStats | WorkerEnd]:
    yield WorkerStats(
        run=run,
        stage=stage,
        shard=shard,
        expected=want.chunks if want else None,
        processed=done.chunks,
        rows=done.rows,
    )
    if want and done.chunks == want.chunks:
        yield WorkerEnd(run=run, stage=stage, shard=shard, processed=done.chunks, rows=done.rows)
