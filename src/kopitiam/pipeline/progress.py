"""How far Spark is, asked of Spark from time to time."""

import contextlib
import threading
from collections.abc import Callable, Iterator

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

_ASK_EVERY_SECONDS = 0.25


@contextlib.contextmanager
def tasks_reported(spark: SparkSession, on_tasks: Callable[[int, int], None]) -> Iterator[None]:
    """While the block runs, `on_tasks` hears of the finished and all tasks of the stages under way."""
    is_over = threading.Event()

    def report() -> None:
        tracker = spark.sparkContext.statusTracker()
        with contextlib.suppress(Py4JError, OSError):
            while not is_over.wait(_ASK_EVERY_SECONDS):
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
                known = [stage for stage in stages if stage is not None]
                if known:
                    on_tasks(sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known))

    reporter = threading.Thread(target=report, name="spark-progress", daemon=True)
    reporter.start()
    try:
        yield
    finally:
        is_over.set()
        reporter.join()
