"""The Spark session: started quietly and in the background, ended for good."""

import contextlib
import os
import shlex
import socketserver
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from py4j.java_gateway import JavaGateway
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from kopitiam.contracts.errors import RunFailed
from kopitiam.spark.executors import (
    await_executor,
    is_cluster,
    open_session,
    patience_for_executor,
    patience_to_register,
    patience_with,
    require_reachable,
)
from kopitiam.spark.installation import spark_home, use_options
from kopitiam.spark.java import Java, find_java
from kopitiam.system.logs import SPARK_LOG, KeptLogs

_ESCAPED = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_ESCAPED_IN_KEYS = str.maketrans({" ": "\\ ", ":": "\\:", "=": "\\=", "#": "\\#", "!": "\\!"})


def as_properties(conf: Mapping[str, str]) -> str:
    """In Java's own spelling, where a backslash or a line's end has a meaning."""
    return "".join(f"{_key(name)}={value.translate(_ESCAPED)}\n" for name, value in conf.items())


def _key(name: str) -> str:
    return name.translate(_ESCAPED).translate(_ESCAPED_IN_KEYS)


_FIXED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Spark estimates a table by the size of its files, where a dictionary holds a text once for all its rows.
    # Only measured bytes make a broadcast: our own (`sizes`), or those of a shuffle that is done.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.autoBroadcastJoinThreshold": "10MB",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Otherwise rows are sorted by folder before they are written.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
    # Or the union of what single tasks made would be the work of one task.
    "spark.sql.unionOutputPartitioning": "false",
    # All that is generated stays: what is generated anew runs slowly at first. The default is 100.
    "spark.sql.codegen.cache.maxEntries": "2000",
    "spark.sql.codegen.useIdInClassName": "false",  # so that equal code is compiled once
    "spark.scheduler.mode": "FAIR",  # a small final step beside a large batch
    "spark.sql.streaming.pollingDelay": "100ms",
    # The driver lists a few folders quicker than a Spark job would.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    # A mark in the folder of a batch would outlive the partials in it.
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    # The default, INT96, is read back in nanoseconds, which do not reach the years 1 and 9999.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Chunks of earlier versions are LZ4_RAW: to filter by a dictionary of more than 8 KiB of them fails
    # (apache/parquet-java#3478). Statistics already skip what such a filter would skip here.
    "spark.hadoop.parquet.filter.dictionary.enabled": "false",
    # Of a client's file these cannot be compared with its values, and wrong ones would lose rows.
    "spark.hadoop.parquet.filter.columnindex.enabled": "false",
    "spark.hadoop.parquet.filter.bloom.enabled": "false",
}
_ON_THIS_MACHINE = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_ON_A_CLUSTER = {"spark.task.maxFailures": "8"}  # an executor that is lost counts as a failure of its tasks
_JAVA_OPTIONS = ("-XX:+UseParallelGC", "-XX:-UsePerfData")
_COMPILE_LIGHTLY = ("-XX:TieredStopAtLevel=1",)
# Ten times the defaults: of all that Spark runs, only the hottest is worth an optimizing compiler's time.
_COMPILE_LATER = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
_MOST_MEMORY_MB = 4096
_KILL_AGAIN_SECONDS = 0.05
_DYING_SECONDS = 2.0  # after a SIGKILL
_LOOK_SECONDS = 0.005
_TAKE_LEAVE_SECONDS = 2.0
_SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"


@dataclass(frozen=True)
class SparkOptions:
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    java_options: str = ""
    is_brief: bool = False  # the JVM will be gone before its optimizing compiler has paid for itself
    is_verbose: bool = False
    patience_seconds: float | None = None  # for a cluster to give a first executor
    stop_seconds: float | None = None  # to leave in order; then the JVM is killed, which harms nothing


@contextlib.contextmanager
def spark_session(options: SparkOptions, workspace: Path) -> Iterator[Future[SparkSession]]:
    """A session that is on its way while other work goes on; whatever happens, no JVM outlives the block.

    `workspace` takes Spark's scratch files and, unless verbose, what it would write to the terminal.
    """
    with spark_engine(options, workspace) as engine:
        yield engine.session


class SparkEngine:
    """Spark's process and the session in it. One that died, or answers no more, makes way for another."""

    def __init__(self, options: SparkOptions, workspace: Path, logs: KeptLogs | None) -> None:
        self._options, self._workspace, self._logs = options, workspace, logs
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="spark-start")
        self._leaving = threading.Event()
        self._lock = threading.Lock()
        self._is_closed = False
        self.kept_log: Path | None = None  # what the last one that ended badly has said
        self.session = self._begin()

    def restart(self) -> "Future[SparkSession]":
        self._end()
        with self._lock:
            if not self._is_closed:
                self._leaving.clear()
                self.session = self._begin()
        return self.session

    def kill(self) -> None:
        """Kills the process at once; calls that wait for its answer fail."""
        _kill(self._workspace)

    def keep_log(self) -> Path | None:
        """The log of a life that ended badly; where it is kept, if it could be."""
        if self._logs is not None and (kept := self._logs.keep(self._workspace)):
            self.kept_log = kept
            return kept
        return None

    def close(self, is_in_order: bool) -> None:
        with self._lock:
            self._is_closed = True
        try:
            if is_in_order and (patience := _patience_to_stop(self._options)) and self.session.done():
                self._starter.submit(_stop, self.session.result()).result(patience)
        except TimeoutError:
            pass
        finally:
            self._end()
            self._starter.shutdown()

    def _begin(self) -> "Future[SparkSession]":
        return self._starter.submit(_start, self._options, self._workspace, self._leaving)

    def _end(self) -> None:
        self._leaving.set()
        while not self.session.done():  # a JVM may be born after the first try
            _kill(self._workspace)
            wait([self.session], timeout=_KILL_AGAIN_SECONDS)
        _kill(self._workspace)


@contextlib.contextmanager
def spark_engine(
    options: SparkOptions, workspace: Path, logs: KeptLogs | None = None
) -> Iterator[SparkEngine]:
    """As `spark_session`, for callers that start another session when one has died."""
    # When the JVM is killed, pyspark's servers would print tracebacks to the terminal.
    socketserver.BaseServer.handle_error = _say_nothing  # type: ignore[method-assign,assignment]
    engine = SparkEngine(options, workspace, logs)
    try:
        yield engine
    except BaseException:
        engine.close(is_in_order=False)
        raise
    engine.close(is_in_order=True)


def _say_nothing(_server: object, _request: object, _client: object) -> None:
    pass


def _start(options: SparkOptions, workspace: Path, leaving: threading.Event) -> SparkSession:
    begun, least = time.monotonic(), patience_with(options.master, options.patience_seconds)
    require_reachable(options.master, least, leaving)
    java = find_java()
    os.environ.update(java.environment)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # where the source of the stream is installed
    conf = SparkConf(loadDefaults=False).setAll(list(_settings(options, java, workspace).items()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pyspark warns of a pandas that nothing here uses
        gateway = _launch(conf, java, options, workspace)
        spark = open_session(conf, gateway, patience_to_register(least, time.monotonic() - begun))
    if is_cluster(options.master):
        await_executor(spark, patience_for_executor(least, time.monotonic() - begun))
    return spark


def _launch(conf: SparkConf, java: Java, options: SparkOptions, workspace: Path) -> JavaGateway:
    """The settings may hold secrets, which a command line would show to everybody on this machine."""
    log, told = workspace / SPARK_LOG, workspace / "spark.properties"
    told.unlink(missing_ok=True)
    with open(told, "x", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write(as_properties(dict(conf.getAll())))
    with log.open("ab") as sink, _submitting("--properties-file", str(told), "--load-spark-defaults"):
        try:
            output = {} if options.is_verbose else {"stdout": sink, "stderr": sink}
            return launch_gateway(None, output)  # type: ignore[no-untyped-call]
        except PySparkRuntimeError:
            raise RunFailed(f"Spark did not start with the Java in {java.home}: {_last_line(log)}") from None
        finally:
            told.unlink(missing_ok=True)


@contextlib.contextmanager
def _submitting(*arguments: str) -> Iterator[None]:
    """With these in front of what the environment tells pyspark to start Spark with."""
    told = {
        _SUBMIT_ARGUMENTS: f"{shlex.join(arguments)} {os.environ.get(_SUBMIT_ARGUMENTS, 'pyspark-shell')}"
    }
    if home := spark_home():
        told["SPARK_HOME"] = str(home)
    before = {name: os.environ[name] for name in told if name in os.environ}
    os.environ.update(told)
    try:
        yield
    finally:
        for name in told:
            del os.environ[name]
        os.environ.update(before)


def _patience_to_stop(options: SparkOptions) -> float:
    """A cluster is told, so that it takes its executors back; here nobody has to be."""
    if options.stop_seconds is not None:
        return options.stop_seconds
    return _TAKE_LEAVE_SECONDS if is_cluster(options.master) else 0


def _stop(spark: SparkSession) -> None:
    gateway = spark.sparkContext._gateway
    spark.stop()
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM leaves when this pipe closes
        gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None


def _kill(workspace: Path) -> None:
    """The JVM is known by its scratch folder, since it may not have reported for work yet. When it is gone,
    nobody writes there any more."""
    killed = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any(str(workspace) in argument for argument in child.cmdline()):
                child.kill()
                killed.append(child)
    deadline = time.monotonic() + _DYING_SECONDS
    while any(map(_is_dying, killed)) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _is_dying(process: psutil.Process) -> bool:
    """Looked at, and not waited for: pyspark wants to see how its process ended."""
    try:
        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def _settings(options: SparkOptions, java: Java, workspace: Path) -> dict[str, str]:
    cores = psutil.cpu_count() or 1
    memory = min(_MOST_MEMORY_MB, psutil.virtual_memory().total // 2**21)
    driver_options = (_java_options(java, str(workspace), options.is_brief), options.java_options)
    settings = {
        "spark.app.name": "kopitiam",
        "spark.master": options.master,
        "spark.driver.memory": f"{memory}m",
        "spark.driver.extraJavaOptions": " ".join(filter(None, driver_options)),
        "spark.local.dir": str(workspace),
        "spark.sql.warehouse.dir": str(workspace / "warehouse"),
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.hadoop.fs.permissions.umask-mode": _umask(),  # Hadoop has one of its own
        **_FIXED,
    }
    if is_cluster(options.master):
        # An executor works in a folder of its own, which goes with it.
        settings |= {"spark.executor.extraJavaOptions": _java_options(java, "."), **_ON_A_CLUSTER}
    else:
        settings |= _ON_THIS_MACHINE
    return settings | dict(options.conf)


def _umask() -> str:
    mask = os.umask(0o077)
    os.umask(mask)
    return f"{mask:03o}"


def _java_options(java: Java, temporary: str, is_brief: bool = False) -> str:
    compiling = _COMPILE_LIGHTLY if is_brief else _COMPILE_LATER
    return shlex.join((f"-Djava.io.tmpdir={temporary}", *_JAVA_OPTIONS, *compiling, *use_options(java)))


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
