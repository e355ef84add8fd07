"""A cluster that gives no executor is reported within seconds, and never waited for without end."""

import contextlib
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from kopitiam.contracts.errors import ServiceError
from kopitiam.spark import executors
from kopitiam.spark.executors import (
    await_executor,
    await_idle,
    patience_for_executor,
    patience_with,
    require_reachable,
    watch_over,
)
from kopitiam.spark.settings import is_cluster

MASTER = "spark://127.0.0.1:7077"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(executors, "_POLL_SECONDS", 0.001)
    monkeypatch.setattr(executors, "_WATCH_SECONDS", 0.001)
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def session(executors=lambda: 0, is_stopped=lambda: False):
    """The parts of a Spark session that are read; Spark counts the driver among the executors."""
    context = SimpleNamespace(
        isStopped=is_stopped,
        getExecutorMemoryStatus=lambda: SimpleNamespace(size=lambda: 1 + executors()),
    )
    java = SimpleNamespace(sc=lambda: context)
    return SimpleNamespace(sparkContext=SimpleNamespace(master=MASTER, applicationId="app-1", _jsc=java))


def in_turn(*values):
    """Returns one value after the other, and then always the last one."""
    rest = list(values)
    return lambda: rest.pop(0) if len(rest) > 1 else rest[0]


def test_only_a_cluster_has_executors_of_its_own():
    masters = ("local", "local[*]", "local[2]", MASTER, "yarn", "k8s://https://host")
    assert [is_cluster(master) for master in masters] == [False, False, False, True, True, True]


def test_a_master_that_takes_connections_is_reachable():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        require_reachable(f"spark://127.0.0.1:{port}", 0, threading.Event())
        require_reachable(f"spark://127.0.0.1:1,127.0.0.1:{port}", 0, threading.Event())
        require_reachable(f"k8s://https://127.0.0.1:{port}", 0, threading.Event())
        require_reachable(f"k8s://127.0.0.1:{port}", 0, threading.Event())


@pytest.mark.parametrize(
    ("master", "why"),
    [
        ("spark://127.0.0.1:1", "Connection refused"),
        ("spark://127.0.0.1:port", "expected spark://host:port"),
        ("k8s://https://127.0.0.1:1", "Connection refused"),
        ("k8s://127.0.0.1:1", "Connection refused"),
        ("k8s://https://127.0.0.1:port", "expected https://host:port"),
    ],
)
def test_an_unreachable_master_is_reported_in_one_line(master, why):
    with pytest.raises(ServiceError, match=f"^spark.master {master}: cannot be reached: {why}$"):
        require_reachable(master, 0.01, threading.Event())


def test_a_stopping_process_does_not_wait_for_a_master():
    stopping = threading.Event()
    stopping.set()
    begun = time.monotonic()
    with pytest.raises(ServiceError, match="cannot be reached"):
        require_reachable("spark://127.0.0.1:1", 60, stopping)
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("master", ["local[*]", "yarn"])
def test_a_master_without_an_address_is_not_connected_to(master):
    require_reachable(master, 0, threading.Event())


def test_a_cluster_behind_a_proxy_is_not_connected_to(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    require_reachable("k8s://https://127.0.0.1:1", 0, threading.Event())


def test_an_unreachable_kubernetes_is_reported_sooner_than_a_missing_executor(monkeypatch):
    monkeypatch.setattr(executors, "PATIENCE_SECONDS", 0.01)
    with pytest.raises(ServiceError, match="cannot be reached"):
        require_reachable("k8s://https://127.0.0.1:1", 300, threading.Event())


def test_an_executor_is_waited_for():
    await_executor(session(in_turn(0, 0, 1)), seconds=10)


def test_a_cluster_without_an_executor_is_reported_in_one_line():
    line = f"^spark.master {MASTER}: no executor within 0 s: wrong secret, no workers, or no free cores$"
    with pytest.raises(ServiceError, match=line):
        await_executor(session(), seconds=0.02)


def test_lost_executors_that_are_replaced_in_time_are_no_failure():
    failure = Future()
    counts = in_turn(2, 0, 1, 0, 0, 1, None)

    def executors_now():
        now = counts()
        if now is None and not failure.done():
            failure.set_exception(ServiceError("something else"))
        return now or 0

    with pytest.raises(ServiceError, match=r"^something else$"):
        watch_over(session(executors_now), failure, lost_seconds=10)


def test_an_application_ends_when_all_executors_stay_lost():
    begun = time.monotonic()
    with pytest.raises(ServiceError, match="no executor within 0 s"):
        watch_over(session(in_turn(1, 0)), Future(), lost_seconds=0.05)
    assert time.monotonic() - begun >= 0.05


def test_an_application_ends_when_its_master_ended_it():
    line = f"^spark.master {MASTER}: has ended this application: its executors keep failing$"
    with pytest.raises(ServiceError, match=line):
        watch_over(session(lambda: 1, in_turn(False, True)), Future(), lost_seconds=10)
    with pytest.raises(ServiceError, match=line):
        await_executor(session(is_stopped=in_turn(False, True)), seconds=10)


def test_yarn_and_kubernetes_get_more_time_for_an_executor():
    assert [patience_with(master) for master in (MASTER, "yarn", "k8s://https://host")] == [45, 300, 300]
    assert [patience_with(master, 7) for master in (MASTER, "yarn")] == [7, 7]


@pytest.mark.parametrize("so_far", [0, 3, 6, 10, 14])
def test_an_executor_gets_more_time_after_a_slow_start(so_far):
    assert patience_for_executor(15, so_far) == max(15, 3 * so_far)


def test_a_configured_patience_is_used():
    assert patience_for_executor(300, 20) == 300


@pytest.fixture
def child():
    """Starts Python programs that end with their test."""
    with contextlib.ExitStack() as ending:

        def start(program):
            process = subprocess.Popen([sys.executable, "-c", program])
            ending.callback(process.wait)
            ending.callback(process.kill)
            return process.pid

        yield start


def test_a_process_that_only_waits_is_idle(child):
    assert await_idle(child("import time; time.sleep(600)"), 0.5, threading.Event())


def test_a_process_that_works_is_not_idle_however_long_it_takes(child):
    done = threading.Event()
    threading.Timer(2, done.set).start()
    assert not await_idle(child("while True: pass"), 0.5, done)


def test_a_process_that_has_ended_is_not_idle():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert not await_idle(ended.pid, 60, threading.Event())


def test_an_application_ends_when_its_master_has_forgotten_it_and_executors_are_gone():
    counts, answers, asked = in_turn(1, 0), in_turn(True, False, True, True), []

    def is_forgotten(application):
        asked.append(application)
        return answers()

    line = f"^spark.master {MASTER}: does not know this application any more$"
    with pytest.raises(ServiceError, match=line):
        watch_over(session(counts), Future(), lost_seconds=60, is_forgotten=is_forgotten)
    assert asked == ["app-1"] * 4
