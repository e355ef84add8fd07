"""A running pipeline: its reports to the barrier, the messages that it handles, and Force End during a
job."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager

import pytest
from chunked_sales import cut, plain, rows_into_stages, sales
from pipelines import FOR_LONG, Pipeline, answers_in
from plans import CATALOG

from kopitiam.bus.memory import MemoryBus
from kopitiam.contracts.messages import (
    PROGRESS_TOPICS,
    PROVISIONAL_QUEUE,
    ForceEnd,
    ProvisionalWanted,
    TableEnd,
    WorkerEnd,
    WorkerStats,
    end_topic,
)
from kopitiam.contracts.progress import total_by_shard
from kopitiam.contracts.runs import RunState
from kopitiam.pipeline import partials
from kopitiam.pipeline.worker import PipelineNode, PipelineWorker
from kopitiam.registry import Fence
from kopitiam.supervision.coordinator import Coordinator
from waiting import eventually

CHUNKS = cut(sales(seed=4), rows_a_chunk=20)


@pytest.fixture
def bus() -> Iterator[MemoryBus]:
    with closing(MemoryBus()) as opened:
        yield opened


@contextmanager
def running(pipeline: Pipeline, bus: MemoryBus) -> Iterator[PipelineWorker]:
    session: Future = Future()
    session.set_result(pipeline.work.spark)
    node = PipelineNode(
        name=pipeline.work.pipeline,
        registry=pipeline.registry,
        connect=pipeline.stream.connect,
        bus=bus,
        storage=pipeline.storage,
        hadoop={},
        session=session,
        scratch=pipeline.finalizer.scratch,
        checkpoint=pipeline.checkpoint,
        bounds=pipeline.stream.bounds,
        fence=pipeline.fence,
    )
    worker = PipelineWorker(node)
    thread = threading.Thread(target=worker.work)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join()


@contextmanager
def leading(pipeline: Pipeline, bus: MemoryBus) -> Iterator[None]:
    fence = Fence("leader", pipeline.registry.take_over("leader", "monitor-1", FOR_LONG), "monitor-1")
    leader = Coordinator(pipeline.registry, bus, fence)
    leader.start()
    try:
        yield
    finally:
        leader.stop()


def publish_ends(pipeline: Pipeline, bus: MemoryBus, run: str) -> None:
    """Ends a run as the gateway does."""
    for table, shards in pipeline.registry.expectations(run).items():
        volumes = {shard: (volume.chunks, volume.rows) for shard, volume in shards.items()}
        bus.publish(end_topic(table), TableEnd(run=run, table=table, shards=volumes))


@pytest.mark.long
def test_every_shard_of_every_stage_reports_its_progress_and_its_end(make_pipeline, bus):
    pipeline = make_pipeline(shards=3)  # of which the third has no chunk at all
    messages: list[WorkerStats | WorkerEnd] = []
    bus.subscribe(PROGRESS_TOPICS, messages.append)
    run = pipeline.open()
    for chunk in CHUNKS:
        pipeline.put(run, chunk)
    with running(pipeline, bus):
        eventually(lambda: pipeline.positions() == pipeline.log_ends())
        bus.send(PROVISIONAL_QUEUE, ProvisionalWanted(run=run))
        provisional = eventually(lambda: pipeline.registry.provisional(run))
        assert answers_in(pipeline.home.provisional(run, provisional.attempt)) == plain(CHUNKS)
        assert all(isinstance(report, WorkerStats) and report.expected is None for report in messages)
        before_the_end = {
            (report.stage, report.shard): (report.processed, report.rows) for report in messages
        }

        pipeline.seal(run)
        with leading(pipeline, bus):
            publish_ends(pipeline, bus, run)
            eventually(lambda: pipeline.state(run) is RunState.DONE)
            eventually(lambda: messages[-1].stage == "server_results")

    expected, rows_in = pipeline.registry.expectations(run), rows_into_stages(CHUNKS, shards=3)
    due = {
        (stage, shard): (volume.chunks, rows_in[stage, shard])
        for stage in CATALOG.stages.before_barrier
        for shard, volume in total_by_shard(expected, CATALOG.stages.tables_of(stage)).items()
    }
    assert len(due) == 3 * len(CATALOG.stages.before_barrier)
    assert (0, 0) in due.values()
    assert before_the_end == {worker: figures for worker, figures in due.items() if worker[1] < 2}
    *reports, last = messages
    ends = {
        (report.stage, report.shard): (report.processed, report.rows)
        for report in reports
        if isinstance(report, WorkerEnd)
    }
    assert ends == due
    for report in reports:  # absolute, and never more than expected
        assert (report.processed, report.rows) == due[report.stage, report.shard]
    answers = plain(CHUNKS)
    assert pipeline.answers(run) == answers
    count = sum(map(len, answers.values()))
    assert last == WorkerEnd(run=run, stage="server_results", shard=0, processed=1, rows=count)


@pytest.mark.long
def test_force_end_cancels_a_running_job_and_the_other_run_of_the_batch_is_exact(
    make_pipeline, bus, spark, monkeypatch
):
    pipeline = make_pipeline()
    ended, other = pipeline.upload(CHUNKS), pipeline.upload(CHUNKS)
    endless = spark.range(0, 10**15, 1, 2).where("xxhash64(id) = xxhash64(id + 1)")
    write, batches = partials.write, []

    def write_slowly(some, target):
        some = list(some)
        batches.append(target)
        if len(batches) == 1:
            nothing = endless.selectExpr("'' AS run", "id AS store_id", "id AS half", "id AS amount")
            some = [(k, frame.unionByName(nothing) if k == "tpv" else frame) for k, frame in some]
        write(some, target)

    def is_busy():
        tracker = spark.sparkContext.statusTracker()
        stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
        return batches and any(stage and stage.numActiveTasks for stage in stages)

    monkeypatch.setattr(partials, "write", write_slowly)
    with running(pipeline, bus):
        eventually(is_busy)
        assert pipeline.positions() == {0: 0}

        pipeline.registry.force_end(ended, "cancelled")
        bus.broadcast(ForceEnd(runs=(ended,), reason="cancelled"))

        eventually(lambda: pipeline.positions() == pipeline.log_ends())

    assert len(batches) == 2  # the second one without the run that ended
    assert pipeline.registry.progress(ended) == {}
    assert not any(f"run={ended}" in file for file in pipeline.files())
    pipeline.finish(other)
    assert pipeline.answers(other) == plain(CHUNKS)
