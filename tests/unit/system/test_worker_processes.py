"""Worker processes: started when needed, replaced when they die, bounded in memory and time."""

import sys
import threading

import psutil
import pytest

from kopitiam.contracts.errors import Unavailable
from kopitiam.system.worker_processes import WorkerProcesses, WorkersDied
from waiting import eventually

pytestmark = pytest.mark.slow

SERVE = """
import os, resource, time
from kopitiam.system.worker_processes import serve_requests

def handle(order):
    print("said by a library")
    if order.get("die") and not os.path.exists(order["die"]):
        open(order["die"], "w").close()
        os.kill(os.getpid(), 9)
    if order.get("always"):
        os.kill(os.getpid(), 9)
    if order.get("fill"):
        bytearray(order["fill"])
    time.sleep(order.get("sleep", 0))
    return {"echo": order.get("text"), "pid": os.getpid()}

serve_requests(handle, seconds=SECONDS, limit=resource.RLIMIT_DATA, memory_bytes=64 << 20, idle_seconds=IDLE)
"""


@pytest.fixture
def workers():
    pools = []

    def start(count=1, *, seconds=20, idle=None, is_eager=False):
        code = SERVE.replace("SECONDS", str(seconds)).replace("IDLE", str(idle))
        pools.append(WorkerProcesses(lambda: (sys.executable, "-c", code), count, is_eager=is_eager))
        return pools[-1]

    yield start
    for pool in pools:
        pool.close()


def test_workers_start_with_the_first_order_and_stay(workers):
    pool = workers()
    assert pool.pids == set()
    first = pool.ask({"text": "שלום ☕"})
    assert first["echo"] == "שלום ☕"
    assert pool.ask({})["pid"] == first["pid"]
    assert workers(2, is_eager=True).pids


def test_a_worker_that_dies_is_replaced_and_its_order_retried(workers, tmp_path):
    pool = workers()
    assert pool.ask({"die": str(tmp_path / "once"), "text": "done"})["echo"] == "done"


def test_an_order_that_kills_twice_is_deadly_and_the_next_one_is_done(workers):
    pool = workers()
    with pytest.raises(WorkersDied):
        pool.ask({"always": True})
    assert pool.ask({"text": "fine"})["echo"] == "fine"


def test_an_order_that_takes_too_long_is_deadly(workers):
    pool = workers(seconds=1)
    with pytest.raises(WorkersDied):
        pool.ask({"sleep": 60})


@pytest.mark.skipif(not psutil.LINUX, reason="memory is bounded on Linux")
def test_an_order_that_takes_too_much_memory_is_deadly(workers):
    pool = workers()
    assert pool.ask({"fill": 8 << 20})["pid"]
    with pytest.raises(WorkersDied):
        pool.ask({"fill": 512 << 20})


def test_an_idle_worker_ends_and_is_started_again(workers):
    pool = workers(idle=0.2)
    pid = pool.ask({})["pid"]
    eventually(lambda: not pool.pids)
    assert pool.ask({})["pid"] != pid


def test_no_worker_outlives_the_pool_even_if_it_is_busy(workers):
    pool = workers()
    failed = []

    def ask():
        try:
            pool.ask({"sleep": 60})
        except Unavailable as error:
            failed.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    eventually(lambda: pool.pids)
    [pid] = pool.pids
    pool.close()
    asking.join(20)
    assert failed
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
