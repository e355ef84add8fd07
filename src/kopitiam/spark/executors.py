"""Waiting for a cluster's master and executors, with a limit.

Spark itself waits for ever if the secret is wrong, if there are no workers, or if other applications have all
cores.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies_environment

import psutil
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from kopitiam.contracts.errors import RunFailed, ServiceError
from kopitiam.spark.jobs import first_line, is_stopped
from kopitiam.spark.settings import is_cluster

PATIENCE_SECONDS = 45.0  # Spark itself gives a registration up after 60 s, with an error that says less
PATIENCE_FOR_OTHERS_SECONDS = 300.0  # YARN and Kubernetes may have to allocate machines first
LOST_SECONDS = 150.0  # longer than it takes to revive a worker and start an executor, or than most cuts last
_POLL_SECONDS = 0.1
_WATCH_SECONDS = 2.0
_CONNECT_SECONDS = 5.0
_IDLE_CORES = 0.03  # a JVM that waits for an answer uses less, one that starts on a busy machine uses more
_EXECUTOR_START_FACTOR = 3  # an executor may take this many times as long as the driver on a busy machine
_PORTS = {"spark": 7077, "https": 443, "http": 80}


def patience_with(master: str, configured_seconds: float | None = None) -> float:
    """How long to wait for a first executor."""
    if configured_seconds is not None:
        return configured_seconds
    return PATIENCE_SECONDS if master.startswith("spark://") else PATIENCE_FOR_OTHERS_SECONDS


def patience_for_executor(least: float, so_far: float) -> float:
    """How long to wait for an executor after the registration."""
    return max(least, _EXECUTOR_START_FACTOR * so_far)


def require_reachable(master: str, seconds: float, stopping: threading.Event) -> None:
    """Waits until one of the masters accepts connections. Raises ServiceError after `seconds`, or if
    `stopping` is set."""
    if master.startswith("spark://"):
        places = [f"spark://{place}" for place in master.removeprefix("spark://").split(",")]
    elif master.startswith("k8s://") and not getproxies_environment():
        place = master.removeprefix("k8s://")
        places = [place if "://" in place else f"https://{place}"]
        seconds = min(seconds, PATIENCE_SECONDS)  # its API answers while it allocates machines
    else:
        return
    until = time.monotonic() + seconds
    while (reason := _unreachable_reason(places)) is not None:
        if stopping.wait(_POLL_SECONDS) or time.monotonic() > until:
            raise ServiceError(f"spark.master {master}: cannot be reached: {reason}")


def open_session(conf: SparkConf, gateway: JavaGateway, seconds: float) -> SparkSession:
    """Registers with the master. Kills the JVM and raises ServiceError if a cluster's master does not answer:
    when the JVM has only waited for `seconds`. A master does not answer a wrong secret."""
    master = str(conf.get("spark.master"))
    begun, done, too_late, context = time.monotonic(), threading.Event(), threading.Event(), None

    def give_up_when_idle() -> None:
        if await_idle(gateway.proc.pid, seconds, done):
            too_late.set()
            gateway.proc.kill()

    if is_cluster(master):
        threading.Thread(target=give_up_when_idle, name="registration", daemon=True).start()
    try:
        context = SparkContext(conf=conf, gateway=gateway)
        return SparkSession(context)
    except (Py4JError, OSError) as error:
        if too_late.is_set():
            raise _no_executor(master, time.monotonic() - begun) from None
        if context is not None and is_cluster(master):
            raise _ended(master) from None
        if isinstance(error, Py4JJavaError):
            raise RunFailed(f"Spark did not start: {first_line(error)}") from None
        raise
    finally:
        done.set()


def await_idle(pid: int, seconds: float, done: threading.Event) -> bool:
    """Whether the process used next to no CPU time for `seconds` before `done` was set. On a busy machine,
    where everything takes longer, a process that works is not taken for one that waits."""
    marked, used = time.monotonic(), 0.0
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        while not done.wait(_POLL_SECONDS):
            now, times = time.monotonic(), process.cpu_times()
            if times.user + times.system - used > _IDLE_CORES * seconds:
                marked, used = now, times.user + times.system
            elif now - marked > seconds:
                return True
    return False


def await_executor(spark: SparkSession, seconds: float) -> None:
    """Raises ServiceError if there is no executor within `seconds`, or if the master ended the
    application."""
    until = time.monotonic() + seconds
    while count_executors(spark) == 0:
        if is_stopped(spark):
            raise _ended(spark.sparkContext.master)
        if time.monotonic() > until:
            raise _no_executor(spark.sparkContext.master, seconds)
        time.sleep(_POLL_SECONDS)


def watch_over(
    spark: SparkSession,
    failure: "Future[None]",
    lost_seconds: float,
    is_forgotten: Callable[[str], bool] = lambda _: False,
) -> None:
    """Waits for `failure` and raises it. Raises ServiceError if the master ended the application, if it has
    had no executor for `lost_seconds`, or if it has none and `is_forgotten` says of its id, twice in a row,
    that the master does not know it."""
    last_seen, forgotten, context = time.monotonic(), 0, spark.sparkContext
    while not wait([failure], _WATCH_SECONDS).done:
        if is_stopped(spark):
            raise _ended(context.master)
        if count_executors(spark):
            last_seen, forgotten = time.monotonic(), 0
            continue
        if time.monotonic() - last_seen > lost_seconds:
            raise _no_executor(context.master, lost_seconds)
        forgotten = forgotten + 1 if is_forgotten(context.applicationId) else 0
        if forgotten > 1:
            raise ServiceError(f"spark.master {context.master}: does not know this application any more")
    failure.result()


def count_executors(spark: SparkSession) -> int:
    with contextlib.suppress(Py4JError, OSError, AttributeError):  # the context may be stopping
        return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1  # without the driver
    return 0


def _no_executor(master: str | None, seconds: float) -> ServiceError:
    causes = "wrong secret, no workers, or no free cores"
    return ServiceError(f"spark.master {master}: no executor within {seconds:.0f} s: {causes}")


def _ended(master: str | None) -> ServiceError:
    """A master ends an application whose executors fail one after the other."""
    return ServiceError(f"spark.master {master}: has ended this application: its executors keep failing")


def _unreachable_reason(places: Iterable[str]) -> str | None:
    reason = None
    for place in map(urlsplit, places):
        try:
            socket.create_connection(_address(place), _CONNECT_SECONDS).close()
        except ValueError:
            reason = f"expected {place.scheme}://host:port"
        except OSError as error:
            reason = error.strerror or str(error)
        else:
            return None
    return reason


def _address(place: SplitResult) -> tuple[str | None, int]:
    return place.hostname, place.port or _PORTS[place.scheme]
