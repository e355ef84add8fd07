"""Shows how the plans and tasks of a batch and of a final step depend on the number of cores.

    kopi generate --out data --scale 0.02
    python -m tools.benchmarks.cores data --master 'local[64]'
    python -m tools.benchmarks.cores data --master 'local-cluster[16,1,512]'

`local-cluster[W,C,M]` is a standalone cluster of W executors with C cores and M MB each, which Spark starts
itself. Prints for a batch of all chunks, and for the final step of the largest question: the nodes of the
plan and its scans of files, the milliseconds to make it, its jobs, its tasks and those of each executor.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession

from kopitiam.pipeline import batch_frames, partials
from kopitiam.pipeline.answering import cut_for
from kopitiam.pipeline.batch_frames import Share
from kopitiam.pipeline.compiler.answers import AnswerPlan, merged_groups
from kopitiam.pipeline.compiler.ranking import ranked_groups
from kopitiam.spark.jobs import size_shuffles
from kopitiam.spark.session import spark_session
from kopitiam.spark.settings import SparkOptions
from kopitiam.storage.local import LocalStorage
from tools.benchmarks.codecs import CATALOG
from tools.benchmarks.counters import landed_share

WARM_UPS, ROUNDS = 2, 3
CHUNK_ROWS = 4_096  # so that there are more chunks than cores
GROUP = "measured"
# The plan with the most groups: that of customers.
LARGEST = next(plan for plan in CATALOG.partials if "user_id" in {getattr(k, "name", "") for k in plan.kept})
ANSWER = AnswerPlan(CATALOG.by_name[next(iter(LARGEST.questions))], LARGEST, CATALOG.parameters)


@dataclass(frozen=True)
class Work:
    """The tasks of each job and of each executor."""

    by_job: tuple[int, ...]
    by_executor: tuple[int, ...]


def measured(spark: SparkSession, action: Callable[[], object]) -> Work:
    context, tracker = spark.sparkContext, spark.sparkContext.statusTracker()
    context.setJobGroup(GROUP, GROUP)
    before, known = tasks_by_executor(spark), set(tracker.getJobIdsForGroup(GROUP))
    action()
    after = tasks_by_executor(spark)
    jobs = [tracker.getJobInfo(job) for job in sorted(set(tracker.getJobIdsForGroup(GROUP)) - known)]
    stages = [[tracker.getStageInfo(stage) for stage in job.stageIds] for job in jobs if job is not None]
    return Work(
        tuple(sum(info.numCompletedTasks for info in infos if info is not None) for infos in stages),
        tuple(tasks - before.get(name, 0) for name, tasks in after.items()),
    )


def tasks_by_executor(spark: SparkSession) -> dict[str, int]:
    """The tasks of each executor since its start. The driver of a cluster runs none."""
    assert spark.sparkContext._jsc is not None
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    listed = context.statusStore().executorList(False)
    tasks = {executor.id(): executor.totalTasks() for executor in map(listed.apply, range(listed.size()))}
    return {name: count for name, count in tasks.items() if len(tasks) == 1 or name != "driver"}


@dataclass(frozen=True)
class Planned:
    frame: DataFrame
    nodes: int
    scans: int
    seconds: float


def planned(make: Callable[[], DataFrame]) -> Planned:
    """The frame, the nodes of the plan that Spark begins with, and the seconds to make both."""
    begun = time.monotonic()
    frame = make()
    assert frame._jdf is not None
    nodes = frame._jdf.queryExecution().executedPlan().treeString().splitlines()
    scans = sum("FileScan" in node for node in nodes)
    return Planned(frame, len(nodes), scans, time.monotonic() - begun)


def show(name: str, plans: list[Planned], work: Work) -> None:
    milliseconds = 1_000 * median(plan.seconds for plan in plans[WARM_UPS:])
    plan = plans[-1]
    print(f"{name}: {plan.nodes} nodes with {plan.scans} scans, planned in {milliseconds:.0f} ms")
    print(f"  tasks of each job {work.by_job}, of each executor {work.by_executor}")


def final_groups(spark: SparkSession, home: Path, files: list[Path]) -> DataFrame:
    frame = partials.read(spark, str(home), LARGEST, list(map(str, files)))
    merge = merged_groups(ANSWER, {}, cut_for(spark.sparkContext.defaultParallelism))
    return frame.transform(merge).transform(ranked_groups(ANSWER))


def measure(spark: SparkSession, storage: LocalStorage, share: Share, home: Path) -> None:
    batches, finals = [], []
    for number in range(WARM_UPS + ROUNDS):
        size_shuffles(spark)  # executors of a cluster come one after another
        target = home / "pipeline=p" / f"batch={number}"
        batches.append(planned(lambda: partials.union(batch_frames.frames(spark, storage, [share]))))
        writer = batches[-1].frame.write.partitionBy("run", "kind")
        written = measured(spark, partial(writer.parquet, str(target)))
        files = list(target.glob(f"run=*/kind={LARGEST.name}/part-*"))
        finals.append(planned(partial(final_groups, spark, home, files)))
        answered = measured(spark, finals[-1].frame.toArrow)
    print(f"{spark.sparkContext.defaultParallelism} cores, {len(share.chunks)} chunks")
    show("batch", batches, written)
    show("final step", finals, answered)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--master", default="local[2]")
    arguments = parser.parse_args()
    options = SparkOptions(arguments.master, {"spark.executor.memory": "512m"})
    with (
        tempfile.TemporaryDirectory(prefix="kopitiam-cores-") as folder,
        spark_session(options, Path(folder)) as session,
    ):
        home = Path(folder, "home")
        storage = LocalStorage(home)
        share = landed_share(arguments.data, storage, home, CHUNK_ROWS)
        measure(session.result(), storage, share, home / "partials")


if __name__ == "__main__":
    main()
