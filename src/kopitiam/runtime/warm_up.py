"""A made-up run on a new Spark engine, so that the first client does not wait while Java loads and compiles
the code of a batch and of the answers.

It has a registry, a storage and a folder of its own: no run, figure or answer of the service shows it.
"""

import contextlib
import logging
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

from kopitiam.bus.memory import MemoryBus
from kopitiam.client.folder import open_folder
from kopitiam.client.upload import upload
from kopitiam.contracts.errors import Unavailable
from kopitiam.contracts.runs import RunState
from kopitiam.pipeline.batches import BatchWork
from kopitiam.pipeline.finalize import Finalizer
from kopitiam.pipeline.reporting import Stopwatch
from kopitiam.pipeline.source import Descriptors
from kopitiam.pipeline.worker import PipelineWorker
from kopitiam.questions.question_set import QuestionSet
from kopitiam.registry.records import Fence
from kopitiam.registry.registry import Registry, create_temporary_registry
from kopitiam.runtime.local_calls import LocalCalls
from kopitiam.spark.jobs import cancel_jobs
from kopitiam.spark.settings import is_cluster
from kopitiam.storage.local import TemporaryStorage
from kopitiam.synthetic import generate
from kopitiam.system.crash_points import armed_point

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "warm-up"
_SCALE = 0.0005
_POLL_SECONDS = 0.25
_A_DAY = 86_400.0
_LANE = 0  # of all chunks: there is one shard, and few chunks
_UNFINISHED = (RunState.OPEN, RunState.SEALED, RunState.FINAL)
_log = logging.getLogger(__name__)


def warm_up_beside(worker: PipelineWorker) -> None:
    """Warms the engine of this worker up on another thread, as soon as the worker is ready.

    There is no warm-up while the registry has unfinished runs, on a cluster, whose executors see no local
    folder, and in a process that is to crash at a given point.
    """
    threading.Thread(target=_warm_up, args=(worker,), name=NAME, daemon=True).start()


def _warm_up(worker: PipelineWorker) -> None:
    while not worker.ready.done():
        if worker.stopping.wait(_POLL_SECONDS):
            return
    node = worker.node
    spark = node.session.result()
    if is_cluster(str(spark.sparkContext.master)) or armed_point() or not _is_idle(node.registry):
        return
    begun = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix=f"{NAME}-", dir=node.scratch) as folder:
            is_done = _run_made_up(spark, Path(folder), worker)
        outcome = "is done" if is_done else "was cancelled"
        _log.info("the warm-up of Spark %s after %.1f s", outcome, time.monotonic() - begun)
    except Exception as error:  # clients are served without it
        _log.info("the warm-up of Spark failed: %s", error)


def _run_made_up(spark: "SparkSession", folder: Path, worker: PipelineWorker) -> bool:
    """Answers the questions of the catalog about generated data. Returns False if it was cancelled: a client
    has opened a run, or the worker stops."""
    cancelled = threading.Event()
    with (
        contextlib.closing(create_temporary_registry(folder)) as registry,
        ThreadPoolExecutor(1, thread_name_prefix=NAME) as thread,
    ):
        run = _open_run(registry)
        steps = thread.submit(_process, spark, registry, run, folder, cancelled)
        while not steps.done():
            wait([steps], _POLL_SECONDS)
            if worker.stopping.is_set() or not _is_idle(worker.node.registry):
                cancelled.set()
                cancel_jobs(spark, run)  # at each poll: the next job may just have begun
        if not cancelled.is_set():
            steps.result()
    return not cancelled.is_set()


def _open_run(registry: Registry) -> str:
    questions = QuestionSet.of_catalog().to_dict()
    opened = registry.open_run(questions, NAME, "", idempotency_key=None, lease_seconds=_A_DAY, shards=1)
    return opened.run.run


def _process(
    spark: "SparkSession", registry: Registry, run: str, folder: Path, cancelled: threading.Event
) -> None:
    """One batch with all chunks, and provisional answers, whose plans are those of final ones."""
    storage, fence = TemporaryStorage(folder), Fence(NAME, registry.take_over(NAME, NAME, _A_DAY), NAME)
    generate(folder / "data", scale=_SCALE, seed=1)
    with contextlib.closing(MemoryBus()) as bus:
        upload(
            LocalCalls(registry, storage, bus, shards=1),
            open_folder(folder / "data", QuestionSet.of_catalog().tables),
            run,
        )
    work = BatchWork(NAME, spark, registry, storage, fence, cancelled)
    head = registry.last_sequence(_LANE)
    chunks = Descriptors({_LANE: (0, head)}, tuple(registry.read_span(_LANE, 0, head)))
    batch = work.process(NAME, 0, chunks, Stopwatch())
    if not cancelled.is_set():
        registry.commit_batch(batch, fence)
        Finalizer(work, folder).provide(run)


def _is_idle(registry: Registry) -> bool:
    """Whether the pipeline has nothing to do."""
    try:
        return not any(registry.count_runs(state) for state in _UNFINISHED)
    except Unavailable:
        return False
