"""The Spark session: started quietly and in the background, ended for good."""

import contextlib
import os
import socketserver
import sys
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from kopitiam.contracts.errors import RunFailed
from kopitiam.pipeline.class_archive import use_option
from kopitiam.pipeline.java import Java, find_java

_FIXED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Otherwise rows are sorted by folder before they are written.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
    "spark.scheduler.mode": "FAIR",  # a small final step beside a large batch
    "spark.sql.streaming.pollingDelay": "100ms",
    # The driver lists a few folders quicker than a Spark job would.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    # A mark in the folder of a batch would outlive the partials in it.
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
}
_ON_THIS_MACHINE = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_MOST_MEMORY_MB = 4096
_KILL_AGAIN_SECONDS = 0.05


@dataclass(frozen=True)
class SparkOptions:
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    java_options: str = ""
    is_verbose: bool = False
    stop_seconds: float = 2  # to leave in order; after that the JVM is killed, which harms nothing


@contextlib.contextmanager
def spark_session(options: SparkOptions, workspace: Path) -> Iterator[Future[SparkSession]]:
    """A session that is on its way while other work goes on; whatever happens, no JVM outlives the block.

    `workspace` takes Spark's scratch files and, unless verbose, what it would write to the terminal.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="spark-start") as starter:
        coming = starter.submit(_start, options, workspace)
        try:
            yield coming
            if coming.done():
                starter.submit(_stop, coming.result()).result(options.stop_seconds)
        except TimeoutError:
            pass
        finally:
            # A killed JVM breaks off what it was saying, and pyspark's servers would mourn on the terminal.
            socketserver.BaseServer.handle_error = _say_nothing  # type: ignore[method-assign,assignment]
            while not coming.done():  # a JVM may be born after the first try
                _kill(workspace)
                wait([coming], timeout=_KILL_AGAIN_SECONDS)
            _kill(workspace)


def _say_nothing(_server: object, _request: object, _client: object) -> None:
    pass


def _start(options: SparkOptions, workspace: Path) -> SparkSession:
    java = find_java()
    os.environ.update(java.environment)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # where the source of the stream is installed
    log = workspace / "spark.log"
    conf = SparkConf(loadDefaults=False).setAll(list(_settings(options, java, workspace).items()))
    with log.open("ab") as sink, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pyspark warns of a pandas that nothing here uses
        try:
            output = {} if options.is_verbose else {"stdout": sink, "stderr": sink}
            gateway = launch_gateway(conf, output)  # type: ignore[no-untyped-call]
        except PySparkRuntimeError:
            raise RunFailed(f"Spark did not start with the Java in {java.home}: {_last_line(log)}") from None
        return SparkSession(SparkContext(conf=conf, gateway=gateway))


def _stop(spark: SparkSession) -> None:
    gateway = spark.sparkContext._gateway
    spark.stop()
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM leaves when this pipe closes
        gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None


def _kill(workspace: Path) -> None:
    """The JVM is known by its scratch folder, since it may not have reported for work yet."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any(str(workspace) in argument for argument in child.cmdline()):
                child.kill()  # and not waited for: pyspark wants to see how its process ended
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None


def _settings(options: SparkOptions, java: Java, workspace: Path) -> dict[str, str]:
    cores = psutil.cpu_count() or 1
    memory = min(_MOST_MEMORY_MB, psutil.virtual_memory().total // 2**21)
    java_options = (
        f"-Djava.io.tmpdir={workspace} -XX:+UseParallelGC -XX:-UsePerfData",
        use_option(java),
        options.java_options,
    )
    settings = {
        "spark.app.name": "kopitiam",
        "spark.master": options.master,
        "spark.driver.memory": f"{memory}m",
        "spark.driver.extraJavaOptions": " ".join(filter(None, java_options)),
        "spark.local.dir": str(workspace),
        "spark.sql.warehouse.dir": str(workspace / "warehouse"),
        "spark.sql.shuffle.partitions": str(2 * cores),
        **_FIXED,
    }
    if options.master.startswith("local"):
        settings |= _ON_THIS_MACHINE
    return settings | dict(options.conf)


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
