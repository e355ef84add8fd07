"""The Spark engine: a JVM and its session, started in the background, restarted, killed and stopped.

Also connects a live session to the storage. Settings are in `settings`, a cluster's executors in `executors`.
"""

import contextlib
import os
import shlex
import socketserver
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import psutil
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from kopitiam.contracts.errors import ConfigError, RunFailed
from kopitiam.spark.executors import (
    await_executor,
    open_session,
    patience_for_executor,
    patience_with,
    require_reachable,
)
from kopitiam.spark.installation import Java, find_java, lean_spark_home
from kopitiam.spark.jobs import first_line
from kopitiam.spark.settings import SparkOptions, as_properties, is_cluster, spark_settings
from kopitiam.storage.port import Key, StoragePort
from kopitiam.system.logs import SPARK_LOG, KeptLogs

_KILL_AGAIN_SECONDS = 0.05
_EXIT_SECONDS = 2.0  # after a SIGKILL
_POLL_SECONDS = 0.005
_STOP_SECONDS = 2.0  # to give executors back to a cluster
_SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"


@contextlib.contextmanager
def spark_session(options: SparkOptions, workspace: Path) -> Iterator[Future[SparkSession]]:
    """Starts a session in the background. Its JVM ends with the block, however the block ends.

    `workspace` takes Spark's scratch files and, unless verbose, its log.
    """
    with spark_engine(options, workspace) as engine:
        yield engine.session


class SparkEngine:
    """Spark's JVM and the session in it. A JVM that died or does not answer can be replaced."""

    def __init__(self, options: SparkOptions, workspace: Path, logs: KeptLogs | None) -> None:
        self._options, self._workspace, self._logs = options, workspace, logs
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="spark-start")
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._is_closed = False
        self.kept_log: Path | None = None  # of the last JVM that failed
        self.session = self._begin()

    def restart(self) -> "Future[SparkSession]":
        """Kills the JVM and starts another, unless the engine is closed. Returns the new session."""
        self._end()
        with self._lock:
            if not self._is_closed:
                self._stopping.clear()
                self.session = self._begin()
        return self.session

    def kill(self) -> None:
        """Kills the JVM at once; calls that wait for its answer fail."""
        _kill(self._workspace)

    def keep_log(self) -> Path | None:
        """Keeps the log of a JVM that failed. Returns where; None if there is none, or no room for it."""
        if self._logs is not None and (kept := self._logs.keep(self._workspace)):
            self.kept_log = kept
            return kept
        return None

    def close(self, is_in_order: bool) -> None:
        """Stops Spark, in order if there is time for it, and kills the JVM otherwise."""
        with self._lock:
            self._is_closed = True
        try:
            if is_in_order and (seconds := _stop_seconds(self._options)) and self.session.done():
                self._starter.submit(_stop, self.session.result()).result(seconds)
        except TimeoutError:
            pass
        finally:
            self._end()
            self._starter.shutdown()

    def _begin(self) -> "Future[SparkSession]":
        return self._starter.submit(_start, self._options, self._workspace, self._stopping)

    def _end(self) -> None:
        self._stopping.set()
        while not self.session.done():  # a JVM may start after the first kill
            _kill(self._workspace)
            wait([self.session], timeout=_KILL_AGAIN_SECONDS)
        _kill(self._workspace)


@contextlib.contextmanager
def spark_engine(
    options: SparkOptions, workspace: Path, logs: KeptLogs | None = None
) -> Iterator[SparkEngine]:
    """As `spark_session`, for callers that restart Spark. `logs` keeps the logs of JVMs that died."""
    # When the JVM is killed, pyspark's servers would print tracebacks to the terminal.
    socketserver.BaseServer.handle_error = _ignore_error  # type: ignore[method-assign,assignment]
    engine = SparkEngine(options, workspace, logs)
    try:
        yield engine
    except BaseException:
        engine.close(is_in_order=False)
        raise
    engine.close(is_in_order=True)


def _ignore_error(_server: object, _request: object, _client: object) -> None:
    pass


def _start(options: SparkOptions, workspace: Path, stopping: threading.Event) -> SparkSession:
    begun, least = time.monotonic(), patience_with(options.master, options.patience_seconds)
    require_reachable(options.master, least, stopping)
    java = find_java()
    os.environ.update(java.environment)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # kopitiam is installed there
    conf = SparkConf(loadDefaults=False).setAll(list(spark_settings(options, java, workspace).items()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pyspark warns about the pandas version, which is not used
        gateway = _launch(conf, java, options, workspace)
        spark = open_session(conf, gateway, least)
    if is_cluster(options.master):
        await_executor(spark, patience_for_executor(least, time.monotonic() - begun))
    return spark


def _launch(conf: SparkConf, java: Java, options: SparkOptions, workspace: Path) -> JavaGateway:
    """Passes the settings in a private file: a command line would show secrets to all users."""
    log, properties = workspace / SPARK_LOG, workspace / "spark.properties"
    properties.unlink(missing_ok=True)
    with open(properties, "x", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write(as_properties(dict(conf.getAll())))
    with log.open("ab") as sink, _submitting("--properties-file", str(properties), "--load-spark-defaults"):
        try:
            output = {} if options.is_verbose else {"stdout": sink, "stderr": sink}
            return launch_gateway(None, output)  # type: ignore[no-untyped-call]
        except PySparkRuntimeError:
            raise RunFailed(f"Spark did not start with the Java in {java.home}: {_last_line(log)}") from None
        finally:
            properties.unlink(missing_ok=True)


@contextlib.contextmanager
def _submitting(*arguments: str) -> Iterator[None]:
    """Adds arguments for spark-submit to the environment, in front of those that are there."""
    variables = {
        _SUBMIT_ARGUMENTS: f"{shlex.join(arguments)} {os.environ.get(_SUBMIT_ARGUMENTS, 'pyspark-shell')}"
    }
    if home := lean_spark_home():
        variables["SPARK_HOME"] = str(home)
    before = {name: os.environ[name] for name in variables if name in os.environ}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
        os.environ.update(before)


def _stop_seconds(options: SparkOptions) -> float:
    """Only a cluster needs an orderly stop: it takes its executors back."""
    if options.stop_seconds is not None:
        return options.stop_seconds
    return _STOP_SECONDS if is_cluster(options.master) else 0


def _stop(spark: SparkSession) -> None:
    gateway = spark.sparkContext._gateway
    spark.stop()
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM ends when this pipe closes
        gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None


def _kill(workspace: Path) -> None:
    """Kills the JVM, and returns when it is dead and writes to the workspace no more. It is found by the
    workspace in its command line, since it may not have connected yet."""
    killed = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any(str(workspace) in argument for argument in child.cmdline()):
                child.kill()
                killed.append(child)
    deadline = time.monotonic() + _EXIT_SECONDS
    while any(map(_is_alive, killed)) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _is_alive(process: psutil.Process) -> bool:
    """Does not reap the process: pyspark reads its exit code."""
    try:
        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "its log is empty"


def connect_storage(spark: SparkSession, storage: StoragePort, conf: Mapping[str, str]) -> None:
    """Sets Hadoop's options for a shared storage on the live session, so that keys are in no command line and
    in no list of settings.

    Writes and deletes a probe file, since Spark has its own libraries and rights. Raises ConfigError if that
    fails.
    """
    if not storage.is_shared:
        return
    context, url = spark.sparkContext, storage.url(Key())
    assert context._jsc is not None and context._jvm is not None
    hadoop = context._jsc.hadoopConfiguration()
    for name, value in conf.items():
        hadoop.set(name, value)
    try:
        probe = context._jvm.org.apache.hadoop.fs.Path(storage.url(Key(f".probe-{uuid.uuid4().hex}")))
        files = probe.getFileSystem(hadoop)
        files.create(probe).close()
        files.delete(probe, False)
    except Py4JJavaError as error:
        reason = first_line(error)
        is_missing = url.startswith("s3a:") and "S3AFileSystem not found" in reason
        hint = "; hadoop-aws is missing from spark.jars and spark.jars.packages" if is_missing else ""
        raise ConfigError(f"storage.url: Spark cannot use {url}: {reason}{hint}") from None
