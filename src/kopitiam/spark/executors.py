"""The executors of a cluster. Without one nothing is ever computed, and Spark itself would wait for ever: for
a master that does not know the secret, for workers that are not there, for cores that others have.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future, wait
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies_environment

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from kopitiam.contracts.errors import RunFailed, ServiceError
from kopitiam.spark.jobs import first_line, is_stopped
from kopitiam.spark.settings import is_cluster

PATIENCE_SECONDS = 15.0
PATIENCE_FOR_OTHERS_SECONDS = 300.0  # YARN and Kubernetes may have to make room first
WRONG_SECRET_SECONDS = 29.0  # from the beginning; a master that does not know it says nothing
LOST_SECONDS = 60.0  # longer than a worker takes to be revived, and to start an executor
_LOOK_SECONDS = 0.1
_WATCH_SECONDS = 2.0
_CONNECT_SECONDS = 5.0
_AN_EXECUTOR_TAKES = 3  # times as long as the driver, if all start at once on a busy machine
_PORTS = {"spark": 7077, "https": 443, "http": 80}


def patience_with(master: str, wanted_seconds: float | None = None) -> float:
    if wanted_seconds is not None:
        return wanted_seconds
    return PATIENCE_SECONDS if master.startswith("spark://") else PATIENCE_FOR_OTHERS_SECONDS


def patience_to_register(least: float, so_far: float) -> float:
    """With a master, by whoever has waited so long for a JVM."""
    return max(least, min(_AN_EXECUTOR_TAKES * so_far, WRONG_SECRET_SECONDS - so_far))


def patience_for_executor(least: float, so_far: float) -> float:
    """With a master that has said yes."""
    return max(least, _AN_EXECUTOR_TAKES * so_far)


def require_reachable(master: str, seconds: float, leaving: threading.Event) -> None:
    """One of the masters takes connections, or will soon: it may be on its way back."""
    if master.startswith("spark://"):
        places = [f"spark://{place}" for place in master.removeprefix("spark://").split(",")]
    elif master.startswith("k8s://") and not getproxies_environment():
        place = master.removeprefix("k8s://")
        places = [place if "://" in place else f"https://{place}"]
        seconds = min(seconds, PATIENCE_SECONDS)  # those who make room first answer while they do
    else:
        return
    until = time.monotonic() + seconds
    while (trouble := _trouble_to_reach(places)) is not None:
        if leaving.wait(_LOOK_SECONDS) or time.monotonic() > until:
            raise ServiceError(f"spark.master {master}: cannot be reached: {trouble}")


def open_session(conf: SparkConf, gateway: JavaGateway, seconds: float) -> SparkSession:
    """The JVM does not survive a cluster's master that says neither yes nor no in this time."""
    master = str(conf.get("spark.master"))
    too_late, context = threading.Event(), None

    def give_up() -> None:
        too_late.set()
        gateway.proc.kill()

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    if is_cluster(master):
        timer.start()
    try:
        context = SparkContext(conf=conf, gateway=gateway)
        return SparkSession(context)
    except (Py4JError, OSError) as error:
        if too_late.is_set():
            raise _no_executor(master, seconds) from None
        if context is not None and is_cluster(master):
            raise _ended(master) from None
        if isinstance(error, Py4JJavaError):
            raise RunFailed(f"Spark did not start: {first_line(error)}") from None
        raise
    finally:
        timer.cancel()


def await_executor(spark: SparkSession, seconds: float) -> None:
    until = time.monotonic() + seconds
    while count_executors(spark) == 0:
        if is_stopped(spark):
            raise _ended(spark.sparkContext.master)
        if time.monotonic() > until:
            raise _no_executor(spark.sparkContext.master, seconds)
        time.sleep(_LOOK_SECONDS)


def watch_over(spark: SparkSession, trouble: "Future[None]", lost_seconds: float) -> None:
    """Until there is trouble, which is raised. An application that its master has forgotten is trouble."""
    seen = time.monotonic()
    while not wait([trouble], _WATCH_SECONDS).done:
        if is_stopped(spark):
            raise _ended(spark.sparkContext.master)
        if count_executors(spark):
            seen = time.monotonic()
        elif time.monotonic() - seen > lost_seconds:
            raise _no_executor(spark.sparkContext.master, lost_seconds)
    trouble.result()


def count_executors(spark: SparkSession) -> int:
    with contextlib.suppress(Py4JError, OSError, AttributeError):  # a context that is being stopped
        return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1  # the driver is one
    return 0


def _no_executor(master: str | None, seconds: float) -> ServiceError:
    why_not = "wrong secret, no workers, or no free cores"
    return ServiceError(f"spark.master {master}: no executor within {seconds:.0f} s: {why_not}")


def _ended(master: str | None) -> ServiceError:
    """A master ends an application whose executors fail one after the other."""
    return ServiceError(f"spark.master {master}: has ended this application: its executors do not last")


def _trouble_to_reach(places: Iterable[str]) -> str | None:
    trouble = None
    for place in map(urlsplit, places):
        try:
            socket.create_connection(_address(place), _CONNECT_SECONDS).close()
        except ValueError:
            trouble = f"want {place.scheme}://host:port"
        except OSError as error:
            trouble = error.strerror or str(error)
        else:
            return None
    return trouble


def _address(place: SplitResult) -> tuple[str | None, int]:
    return place.hostname, place.port or _PORTS[place.scheme]
