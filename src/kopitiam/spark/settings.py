"""Spark's settings: the options of a session, the defaults that answers depend on, and their file format.

Imports no pyspark: the fleet writes such files for Spark's daemons.
"""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from kopitiam.spark.installation import Java, use_options

_ESCAPED = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_ESCAPED_IN_KEYS = str.maketrans({" ": "\\ ", ":": "\\:", "=": "\\=", "#": "\\#", "!": "\\!"})
_FIXED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Spark estimates a table by the size of its files, where a dictionary holds a text once for all its rows.
    # Only measured bytes decide about a broadcast: our own, or those of a shuffle that has ended.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.autoBroadcastJoinThreshold": "10MB",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Otherwise rows are sorted by folder before they are written.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
    # Otherwise frames of a union that are partitioned alike would share their tasks, and leave cores idle.
    "spark.sql.unionOutputPartitioning": "false",
    # Files are read by one task for each core, whatever their size: each task writes files of its own.
    "spark.sql.files.maxPartitionBytes": "1t",
    # Keeps all generated code (the default is 100 classes): newly generated code runs slowly at first.
    "spark.sql.codegen.cache.maxEntries": "2000",
    "spark.sql.codegen.useIdInClassName": "false",  # so that equal code is compiled once
    # These pools start a thread for each task until they are full, even if others are idle. A task waits for
    # jobs and broadcasts, never for a task of its own pool; a pipeline runs up to 13 queries at once.
    "spark.sql.shuffleExchange.maxThreadThreshold": "16",
    "spark.sql.broadcastExchange.maxThreadThreshold": "16",
    "spark.sql.resultQueryStage.maxThreadThreshold": "16",
    "spark.scheduler.mode": "FAIR",  # a small final step runs beside a large batch
    "spark.sql.streaming.pollingDelay": "100ms",
    # The driver lists a few folders faster than a Spark job does.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    # A _SUCCESS file in the folder of a batch would outlive the partials in it.
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    # The default, INT96, is read back in nanoseconds, which do not reach the years 1 and 9999.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Chunks of earlier versions are LZ4_RAW: filtering them by a dictionary of more than 8 KiB fails
    # (apache/parquet-java#3478). Statistics already skip what such a filter would skip here.
    "spark.hadoop.parquet.filter.dictionary.enabled": "false",
    # A client's file may have a wrong column index or bloom filter, which would lose rows unnoticed.
    "spark.hadoop.parquet.filter.columnindex.enabled": "false",
    "spark.hadoop.parquet.filter.bloom.enabled": "false",
}
_ON_THIS_MACHINE = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_ON_A_CLUSTER = {
    "spark.task.maxFailures": "8",  # a lost executor counts as a failure of its tasks
    # Driver and executors that are cut off from each other notice it within a minute (the default is two);
    # executors then give their cores back.
    "spark.network.timeout": "60s",
    "spark.executor.heartbeatInterval": "5s",
}
_JAVA_OPTIONS = (
    "-XX:+UseParallelGC",
    "-XX:-UsePerfData",
    "-XX:MetaspaceSize=256m",  # otherwise loading Spark's classes causes several full collections
)
_COMPILE_LIGHTLY = ("-XX:TieredStopAtLevel=1",)
# Ten times the defaults: only the hottest code is worth the time of the optimizing compiler.
_COMPILE_LATER = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
_MOST_MEMORY_MB = 4096


@dataclass(frozen=True)
class SparkOptions:
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    java_options: str = ""
    is_brief: bool = False  # the JVM ends before its optimizing compiler has paid off
    is_verbose: bool = False  # Spark logs to the terminal
    patience_seconds: float | None = None  # until a cluster must have given a first executor
    stop_seconds: float | None = None  # for an orderly stop; then the JVM is killed, which loses nothing


def is_cluster(master: str) -> bool:
    return not master.startswith("local")


def spark_settings(options: SparkOptions, java: Java, workspace: Path) -> dict[str, str]:
    """All settings of a session. `options.conf` overrides the defaults here."""
    memory = min(_MOST_MEMORY_MB, psutil.virtual_memory().total // 2**21)
    driver_options = (_java_options(java, str(workspace), options.is_brief), options.java_options)
    settings = {
        "spark.app.name": "kopitiam",
        "spark.master": options.master,
        "spark.driver.memory": f"{memory}m",
        "spark.driver.extraJavaOptions": " ".join(filter(None, driver_options)),
        "spark.local.dir": str(workspace),
        "spark.sql.warehouse.dir": str(workspace / "warehouse"),
        "spark.hadoop.fs.permissions.umask-mode": _umask(),  # Hadoop does not use the umask of the process
        **_FIXED,
    }
    if is_cluster(options.master):
        # An executor's working folder is its own, and is removed with it.
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


def as_properties(conf: Mapping[str, str]) -> str:
    """The text of a Java properties file, in which backslashes and line ends are escaped."""
    return "".join(f"{_key(name)}={value.translate(_ESCAPED)}\n" for name, value in conf.items())


def _key(name: str) -> str:
    return name.translate(_ESCAPED).translate(_ESCAPED_IN_KEYS)
