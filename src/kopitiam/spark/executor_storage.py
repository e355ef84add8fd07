"""Proves that every executor of a cluster sees the storage, when it starts and when a job has failed.

An executor on a machine without the storage would fail the jobs of runs that are sound, or write files that
only its machine has. The proof is a Spark job with one task for each executor, which reads a file that this
driver wrote. An executor that fails is named and dismissed; no run fails for it.
"""

import logging
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from kopitiam.contracts.errors import ServiceError, Unavailable
from kopitiam.spark.jobs import SPARK_ERRORS, first_line
from kopitiam.storage.port import Key, StoragePort

PROOF_SECONDS = 30.0
_RETRY_SECONDS = 60.0  # until a machine without the storage gets another chance
_NO_LIMIT = 2**31 - 1
_MOST_TASKS = 10_000  # attempts that are read from Spark's list
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Proof:
    """Executors that read the file, and those that failed, with the reason."""

    sound: frozenset[str]
    blind: Mapping[str, str]


class ExecutorStorage:
    """The executors of one session, and whether each has proved that it sees the storage."""

    def __init__(
        self,
        spark: SparkSession,
        storage: StoragePort,
        name: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`name` is that of the pipeline, whose file is replaced by each of its processes."""
        self._spark, self._storage, self._clock = spark, storage, clock
        self._key = Key(f"probe-{name}")  # Spark reads no hidden files
        self._token = ""
        self._sound: set[str] = set()
        self._reason_by_host: dict[str, str] = {}
        self._dismissed_at: float | None = None
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="executor-storage")

    @property
    def alarm(self) -> str | None:
        """The machines whose executors do not see the storage; None if there are none."""
        hosts = sorted(self._reason_by_host)
        return f"executors on {', '.join(hosts)} do not see the storage, and are not used" if hosts else None

    def check_new(self) -> None:
        """Let executors prove themselves that have not done so. Raises ServiceError if none sees the storage.

        Called at the start and every few seconds.
        """
        with self._lock:
            self._readmit()
            executors = executors_of(self._spark)
            self._sound &= executors.keys()
            unproved = {name: host for name, host in executors.items() if name not in self._sound}
            blind = self._prove(unproved) if unproved else {}
            if blind and blind.keys() == executors.keys():
                name, reason = next(iter(blind.items()))
                master = self._spark.sparkContext.master
                raise ServiceError(
                    f"spark.master {master}: no executor sees the storage; on {executors[name]}: {reason}"
                )

    def require_all(self) -> None:
        """Let all executors prove themselves again, after a job has failed. Raises Unavailable if one does
        not see the storage: then that may be the cause."""
        with self._lock:
            executors = executors_of(self._spark)
            self._sound.clear()
            if blind := self._prove(executors):
                hosts = ", ".join(sorted({executors[name] for name in blind}))
                raise Unavailable(f"executors on {hosts} do not see the storage")

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _prove(self, executors: Mapping[str, str]) -> Mapping[str, str]:
        """Returns the executors that failed, with the reasons."""
        if not self._token:
            self._token = secrets.token_hex(16)
            self._storage.replace(self._key, f"{self._token}\n".encode())
        proof = self._thread.submit(self._run, executors).result()
        self._sound |= proof.sound
        for name in proof.sound & executors.keys():
            self._reason_by_host.pop(executors[name], None)
        for name, reason in proof.blind.items():
            host = executors[name]
            _log.error("executor %s on %s does not see the storage, and is not used: %s", name, host, reason)
            self._reason_by_host[host] = reason
        if proof.blind:
            self._dismiss(proof.blind)
        return proof.blind

    def _run(self, executors: Mapping[str, str]) -> Proof:
        """Run the job on a thread of its own, whose job group is not that of the caller."""
        context, group = self._spark.sparkContext, f"executor-storage-{uuid.uuid4().hex}"
        context.setJobGroup(group, "proof that executors see the storage")
        giving_up = threading.Timer(PROOF_SECONDS, self._cancel, [group])
        giving_up.daemon = True
        giving_up.start()
        lines: dict[str, str] = {}
        try:
            lines = self._read(executors)
        except SPARK_ERRORS as error:
            _log.info("executors: %s", first_line(error))
        finally:
            giving_up.cancel()
        return self._proof(group, {name for name, line in lines.items() if line != self._token})

    def _read(self, executors: Mapping[str, str]) -> dict[str, str]:
        """The line that each executor read. Each task prefers its executor, and reads the file there with
        Spark's own libraries."""
        jvm, jsc = self._spark.sparkContext._jvm, self._spark.sparkContext._jsc
        assert jvm is not None and jsc is not None
        as_scala = jvm.scala.jdk.javaapi.CollectionConverters.asScala
        pairs = jvm.java.util.ArrayList()
        for name, host in executors.items():
            places = jvm.java.util.ArrayList()
            places.add(f"executor_{host}_{name}")
            pairs.add(jvm.scala.Tuple2(name, as_scala(places).toSeq()))
        any_class = getattr(getattr(jvm, "scala.reflect.ClassTag$"), "MODULE$").AnyRef()
        pinned = jsc.sc().makeRDD(as_scala(pairs).toSeq(), any_class).toJavaRDD()
        files = jsc.textFile(",".join([self._storage.url(self._key)] * len(executors)), 1)
        return {str(pair._1()): str(pair._2()) for pair in pinned.zip(files).collect()}

    def _proof(self, group: str, misled: set[str]) -> Proof:
        """A task may have run on another executor than its own, which was busy or lost: that one has proved
        nothing yet. Executors that are lost by now are neither sound nor blind."""
        sound, blind = set[str](), dict.fromkeys(misled, "it has another file there")
        for executor, status, reason in self._tasks(group):
            if status == "SUCCESS":
                sound.add(executor)
            elif status == "FAILED":
                blind.setdefault(executor, reason)
        living = executors_of(self._spark).keys()
        blind = {name: reason for name, reason in blind.items() if name in living}
        return Proof(frozenset(sound - blind.keys()) & living, blind)

    def _tasks(self, group: str) -> Iterator[tuple[str, str, str]]:
        """Executor, status and error of each attempt at a task of the group."""
        context = self._spark.sparkContext
        java: Any = context._jsc.sc()
        java.listenerBus().waitUntilEmpty()
        store, tracker = java.statusStore(), context.statusTracker()
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info else ():
                tasks = store.taskList(stage, 0, _MOST_TASKS)
                for task in map(tasks.apply, range(tasks.size())):
                    error = task.errorMessage()
                    text = str(error.get()).partition("\n")[0] if error.isDefined() else ""
                    yield str(task.executorId()), str(task.status()), text

    def _cancel(self, group: str) -> None:
        """An executor behind a broken network does not answer."""
        try:
            self._spark.sparkContext.cancelJobGroup(group)
        except (Py4JError, OSError) as error:
            _log.info("the proof of executors is not cancelled: %s", error)

    def _dismiss(self, blind: Mapping[str, str]) -> None:
        """Return executors to the cluster. A standalone master would start others on the same machines at
        once, so their number is limited for a while."""
        context: Any = self._spark.sparkContext._jsc
        self._limit(len(self._sound))
        self._dismissed_at = self._clock()
        for name in blind:
            context.sc().killAndReplaceExecutor(name)

    def _readmit(self) -> None:
        if self._dismissed_at is not None and self._clock() - self._dismissed_at > _RETRY_SECONDS:
            self._dismissed_at = None
            self._limit(_NO_LIMIT)

    def _limit(self, executors: int) -> None:
        context, jvm = self._spark.sparkContext, self._spark.sparkContext._jvm
        if str(context.master).startswith("spark://"):
            nothing = getattr(getattr(jvm, "scala.collection.immutable.Map$"), "MODULE$").empty()
            context._jsc.sc().requestTotalExecutors(executors, 0, nothing)


def executors_of(spark: SparkSession) -> dict[str, str]:
    """The live executors of a cluster, without the driver, with their machines. An executor that has just
    registered has none yet, and is left out."""
    context: Any = spark.sparkContext._jsc
    known = context.sc().statusStore().executorList(True)
    places = {str(each.id()): str(each.hostPort()) for each in map(known.apply, range(known.size()))}
    return {name: place.rpartition(":")[0] for name, place in places.items() if place and name != "driver"}
