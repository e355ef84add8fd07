"""Spark's failures: what they say, whose they are, and jobs that are cancelled with the run they are for."""

import contextlib
import re
from collections.abc import Iterable, Iterator

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kopitiam.contracts.errors import RunFailed, Unavailable

SPARK_FAILED = (PySparkException, Py4JJavaError)
_PATH = re.compile(r"(?:\b\w+:)?/{1,3}(?:[^\s:;,'\"\]\)/]+/)+[^\s:;,'\"\]\)]*")
_NO_ROOM = ("No space left on device", "Disk quota exceeded")


def failure_of(error: Exception) -> RunFailed | Unavailable:
    """The run's, unless a disk had no room. That is not to be asked of the disk: what was half written may
    have gone since."""
    told = f"{error}\n{getattr(error, '_stackTrace', '')}"  # the cause may stand far below the first line
    for reason in _NO_ROOM:
        if reason in told:
            return Unavailable(f"Spark failed: {reason}")
    return RunFailed(f"Spark failed: {why(error)}")


def why(error: Exception) -> str:
    """Its first line: what follows is for those who read the log."""
    message = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else str(error)
    return str(message).strip().partition("\n")[0]


def told(error: Exception) -> str:
    """The first line of the error, without paths of the server."""
    return _PATH.sub("…", why(error))


def is_stopped(spark: SparkSession) -> bool:
    """Then a failure says nothing about the data."""
    context = spark.sparkContext
    try:
        return context._jsc is None or bool(context._jsc.sc().isStopped())
    except (Py4JError, OSError):
        return True


def answer(spark: SparkSession) -> None:
    """Returns when Spark's process answers, which costs it nothing."""
    context = spark.sparkContext._jsc
    if context is not None:
        context.sc().isStopped()


@contextlib.contextmanager
def jobs_of(spark: SparkSession, runs: Iterable[str]) -> Iterator[None]:
    """Jobs that this thread starts here end when one of these runs is ended by force."""
    tags = [tag_of(run) for run in runs]
    for tag in tags:
        spark.sparkContext.addJobTag(tag)
    try:
        yield
    finally:
        with contextlib.suppress(Py4JError, OSError):  # a killed JVM has no tags left
            for tag in tags:
                spark.sparkContext.removeJobTag(tag)


def tag_of(run: str) -> str:
    return f"run-{run}"
