"""Nodes as detached processes: starting, freezing, killing and stopping small real processes."""

import json
import os
import signal
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from kopitiam.contracts.errors import ConfigError, ServiceError
from kopitiam.fleet import processes
from kopitiam.fleet.home import FleetHome, ProcessRecord, read_record, recorded_names, write_record
from kopitiam.fleet.processes import Program, is_running, launch, process_state, processes_of, stop
from kopitiam.system import logs
from kopitiam.system.files import locked
from kopitiam.system.logs import SPARK_LOG, KeptLogs
from waiting import eventually

pytestmark = pytest.mark.slow

SLEEP = "import time; time.sleep(60)"
PARENT_OF_ONE = f"import subprocess, sys; subprocess.run([sys.executable, '-c', '{SLEEP}'])"
IGNORES_SIGTERM = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    f"print('ignoring SIGTERM', flush=True); {SLEEP}"
)


def record_of(home, name="pipeline-1") -> ProcessRecord:
    record = read_record(home, name)
    assert record is not None
    return record


def freeze(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: process_state(psutil.Process(pid)) == "frozen")


def test_launch_writes_a_record_of_the_process(home, program):
    begun = time.time()
    launched = launch(home, program())
    written = json.loads(home.record("pipeline-1").read_text())
    assert written["pid"] == launched.pid
    assert abs(written["created"] - psutil.Process(launched.pid).create_time()) < 0.1
    assert written["command"] == list(program().command())
    assert begun <= written["started_at"] <= time.time()
    assert is_running(home, "pipeline-1")


def test_launching_a_running_node_changes_nothing(home, program):
    first = launch(home, program())
    before = home.record("pipeline-1").read_bytes()
    again = launch(home, program())
    assert (again.pid, again.child) == (first.pid, None)
    assert home.record("pipeline-1").read_bytes() == before
    assert [process.pid for process in processes_of(home, "pipeline-1")] == [first.pid]


def test_concurrent_launches_of_a_node_start_it_once(home, program):
    with ThreadPoolExecutor(8) as pool:
        pids = {launched.pid for launched in pool.map(lambda _: launch(home, program()), range(8))}
    assert [process.pid for process in processes_of(home, "pipeline-1")] == list(pids)


def test_a_dead_node_is_launched_again(home, program):
    first = launch(home, program())
    first.child.kill()
    first.child.wait()
    assert not is_running(home, "pipeline-1")
    second = launch(home, program())
    assert second.pid != first.pid
    assert record_of(home).pid == second.pid


def test_a_zombie_process_counts_as_dead(home, program):
    first = launch(home, program())
    os.kill(first.pid, signal.SIGKILL)
    eventually(lambda: psutil.Process(first.pid).status() == psutil.STATUS_ZOMBIE)
    assert not is_running(home, "pipeline-1")
    assert launch(home, program()).pid != first.pid


def test_a_process_that_reuses_the_pid_is_not_taken_for_the_node(home, program):
    unrelated = subprocess.Popen(["sleep", "60"])
    try:
        write_record(home, "pipeline-1", "pipeline", unrelated.pid, ["sleep", "60"])
        written = json.loads(home.record("pipeline-1").read_text())
        home.record("pipeline-1").write_text(json.dumps(written | {"created": written["created"] - 60}))
        assert not is_running(home, "pipeline-1")
        assert launch(home, program()).pid != unrelated.pid
        stop(home, "pipeline-1")
        assert unrelated.poll() is None
    finally:
        unrelated.kill()
        unrelated.wait()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}'])
def test_an_unreadable_record_is_treated_as_missing(home, program, content):
    home.nodes.mkdir(parents=True)
    home.record("pipeline-1").write_text(content)
    assert read_record(home, "pipeline-1") is None
    launched = launch(home, program())
    assert record_of(home).pid == launched.pid
    assert recorded_names(home) == ["pipeline-1"]


@pytest.mark.parametrize("name", ["pipeline-1", "monitor-1"])
def test_a_frozen_node_without_a_port_is_replaced_and_not_killed(home, program, name):
    frozen = launch(home, program(name=name))
    freeze(frozen.pid)
    fresh = launch(home, program(name=name))
    assert fresh.pid != frozen.pid
    assert record_of(home, name).pid == fresh.pid
    assert process_state(psutil.Process(frozen.pid)) == "frozen"


def test_stopping_a_node_also_ends_the_frozen_process_that_it_replaced(home, program):
    frozen = launch(home, program())
    freeze(frozen.pid)
    fresh = launch(home, program())
    assert stop(home, "pipeline-1")
    assert [process_state(psutil.Process(pid)) for pid in (frozen.pid, fresh.pid)] == ["gone", "gone"]


@pytest.mark.parametrize("name", ["gateway-1", "service-1"])
def test_a_frozen_node_that_holds_a_port_is_killed_first(home, program, name):
    frozen = launch(home, program(name=name))
    freeze(frozen.pid)
    fresh = launch(home, program(name=name))
    assert fresh.pid != frozen.pid
    assert process_state(psutil.Process(frozen.pid)) == "gone"


def test_orphans_of_a_dead_node_are_ended_before_it_is_launched_again(home, program):
    launched = launch(home, program(PARENT_OF_ONE))
    eventually(lambda: len(processes_of(home, "pipeline-1")) == 2)
    [orphan] = [process for process in processes_of(home, "pipeline-1") if process.pid != launched.pid]
    launched.child.kill()
    launched.child.wait()
    launch(home, program())
    assert process_state(orphan) == "gone"


def test_a_node_that_exits_at_once_raises_its_exit_code_and_last_line(home, program):
    launched = launch(home, program("import sys; print('no disk', file=sys.stderr); sys.exit(1)"))
    with pytest.raises(ServiceError, match=r"^pipeline-1: ended with exit code 1: no disk$"):
        launched.raise_if_ends_within(20)


def test_exit_code_2_of_a_node_raises_a_config_error(home, program):
    launched = launch(home, program("raise SystemExit(2)"))
    with pytest.raises(ConfigError, match="pipeline-1: ended with exit code 2: no output") as caught:
        launched.raise_if_ends_within(20)
    assert caught.value.exit_code == 2


def test_the_error_has_the_last_log_lines_of_this_process_only(home, program):
    launch(home, program("print('an earlier process'); raise SystemExit(1)")).child.wait()
    launched = launch(home, program("[print('line', n) for n in range(9)]; raise SystemExit(3)"))
    with pytest.raises(ServiceError) as caught:
        launched.raise_if_ends_within(20)
    assert str(caught.value).splitlines()[1:] == [f"  line {n}" for n in range(4, 9)]


def test_a_node_that_is_killed_at_once_raises_the_signal(home, program):
    launched = launch(home, program("import os; os.kill(os.getpid(), 9)"))
    with pytest.raises(ServiceError, match="was ended by signal 9"):
        launched.raise_if_ends_within(20)


def test_a_node_that_keeps_running_raises_nothing(home, program):
    launched = launch(home, program())
    launched.raise_if_ends_within(0.1)
    assert is_running(home, "pipeline-1")


def test_a_node_that_has_joined_the_fleet_is_waited_for_no_longer(home, program):
    launched = launch(home, program())
    home.joined_mark("pipeline-1").write_text(str(launched.pid))
    begun = time.monotonic()
    launched.raise_if_ends_within(60, lambda: home.has_joined("pipeline-1", launched.pid))
    assert time.monotonic() - begun < 60
    assert not home.has_joined("pipeline-1", launched.pid + 1), "an earlier process of this node"
    stop(home, "pipeline-1")
    assert not home.joined_mark("pipeline-1").exists()


def test_waiting_for_a_running_node_fails_when_that_node_ends(home, program):
    first = launch(home, program("print('shutting down', flush=True); import time; time.sleep(60)"))
    eventually(lambda: b"shutting" in home.log("pipeline-1").read_bytes())
    again = launch(home, program())
    first.child.kill()
    first.child.wait()
    with pytest.raises(ServiceError, match=r"^pipeline-1: has ended: shutting down$"):
        again.wait_until_ready(lambda: False, seconds=60)


def test_a_node_that_is_not_ready_in_time_raises_its_last_log_line(home, program):
    launched = launch(home, program(IGNORES_SIGTERM))
    eventually(lambda: b"ignoring" in home.log("pipeline-1").read_bytes())
    with pytest.raises(ServiceError, match=r"^pipeline-1: not ready after 0 s: ignoring SIGTERM$"):
        launched.wait_until_ready(lambda: False, seconds=0)


def test_a_missing_program_raises_a_config_error_of_one_line(home):
    with pytest.raises(ConfigError, match=r"^pipeline-1: cannot run /no/where: No such file or directory$"):
        launch(home, Program("pipeline-1", "pipeline", lambda: ("/no/where",)))


def test_stopping_ends_a_node_with_its_children_and_leaves_only_the_log(home, program):
    launched = launch(home, program(PARENT_OF_ONE))
    eventually(lambda: len(processes_of(home, "pipeline-1")) == 2)
    group = processes_of(home, "pipeline-1")
    assert stop(home, "pipeline-1")
    assert launched.child.wait() == -signal.SIGTERM
    assert [process_state(process) for process in group] == ["gone", "gone"]
    assert list(home.nodes.iterdir()) == []
    assert home.log("pipeline-1").exists()


def test_stopping_runs_the_sigterm_handler_of_the_node(home, program, tmp_path):
    result = tmp_path / "result"
    code = f"""
import pathlib, signal, time
def on_sigterm(*_):
    pathlib.Path({str(result)!r}).write_text("done")
    raise SystemExit(0)
signal.signal(signal.SIGTERM, on_sigterm)
print("ready", flush=True)
time.sleep(60)
"""
    launch(home, program(code))
    eventually(lambda: b"ready" in home.log("pipeline-1").read_bytes())
    assert stop(home, "pipeline-1")
    assert result.read_text() == "done"


def test_a_node_that_ignores_sigterm_is_killed(home, program, monkeypatch):
    monkeypatch.setattr(processes, "STOP_SECONDS", 0.2)
    launched = launch(home, program(IGNORES_SIGTERM))
    eventually(lambda: b"ignoring" in home.log("pipeline-1").read_bytes())
    assert stop(home, "pipeline-1")
    assert launched.child.wait() == -signal.SIGKILL


def test_stopping_a_frozen_node_does_not_wait_for_it(home, program):
    frozen = launch(home, program())
    freeze(frozen.pid)
    begun = time.monotonic()
    assert stop(home, "pipeline-1")
    assert time.monotonic() - begun < processes.STOP_SECONDS / 2
    assert frozen.child.wait() == -signal.SIGKILL


def test_a_node_without_a_record_is_stopped(home, program):
    launched = launch(home, program())
    home.record("pipeline-1").unlink()
    assert stop(home, "pipeline-1")
    assert launched.child.wait() == -signal.SIGKILL
    assert list(home.nodes.iterdir()) == []


def test_stopping_a_node_that_does_not_run_changes_nothing(home, program):
    assert not stop(home, "pipeline-1")
    assert not home.path.exists()
    launch(home, program())
    assert stop(home, "pipeline-1")
    assert not stop(home, "pipeline-1")


def test_stopping_a_dead_node_removes_its_record_and_lock(home, program):
    launched = launch(home, program())
    launched.child.kill()
    launched.child.wait()
    assert not stop(home, "pipeline-1")
    assert list(home.nodes.iterdir()) == []


@pytest.mark.parametrize("is_killed", [False, True])
def test_stopping_a_node_removes_its_temporary_files_and_no_others(home, program, is_killed):
    launched = launch(home, program(name="gateway-1"))
    own, others = (
        [
            home.path / "scratch" / name / "4711",
            home.path / "incoming" / name / "3",
            home.service(name) / "scratch",
        ]
        for name in ("gateway-1", "gateway-2")
    )
    for folder in (*own, *others):
        folder.mkdir(parents=True)
        (folder / "half.parquet").write_bytes(b"half")
    if is_killed:
        launched.child.kill()
        launched.child.wait()
    assert stop(home, "gateway-1") is not is_killed
    assert [folder for folder in own if folder.exists()] == []
    assert all((folder / "half.parquet").exists() for folder in others)


def test_a_node_has_its_own_session_and_inherits_the_environment_but_no_open_files(
    home, program, tmp_path, monkeypatch
):
    monkeypatch.setenv("KOPI_INHERITED", "inherited")
    output = tmp_path / "output"
    code = f"""
import json, os, pathlib, sys
descriptors = [os.readlink(f"/proc/self/fd/{{n}}") for n in os.listdir("/proc/self/fd") if n in "012"]
others = [n for n in os.listdir("/proc/self/fd") if int(n) > 2]
pathlib.Path({str(output)!r}).write_text(json.dumps(
    [os.getsid(0) == os.getpid(), sys.stdin.read(), len(others), os.environ["KOPI_INHERITED"], descriptors]))
"""
    with (tmp_path / "open").open("w") as kept:
        os.set_inheritable(kept.fileno(), True)
        launch(home, program(code)).child.wait()
    is_session_leader, read, others, variable, descriptors = json.loads(output.read_text())
    log = str(home.log("pipeline-1"))
    assert (is_session_leader, read, variable) == (True, "", "inherited")
    assert sorted(descriptors) == sorted(["/dev/null", log, log])
    assert others == 1  # the folder that is being listed


def test_a_large_log_is_rotated_at_the_next_launch(home, program, monkeypatch):
    monkeypatch.setattr(logs, "MOST_BYTES", 10)
    log = home.log("pipeline-1")
    for word in ("first generation", "second generation", "third generation"):
        launch(home, program(f"print('{word}')")).child.wait()
    assert log.read_text() == "third generation\n"
    assert log.with_name("pipeline-1.log.1").read_text() == "second generation\n"
    assert len(list(log.parent.iterdir())) == 2


def test_a_small_log_is_appended_to(home, program):
    for word in ("one", "two"):
        launch(home, program(f"print('{word}')")).child.wait()
    assert home.log("pipeline-1").read_text() == "one\ntwo\n"


def test_a_lock_that_is_not_released_in_time_raises_a_service_error(tmp_path: Path):
    path = tmp_path / "node-1.lock"
    with (
        locked(path),
        pytest.raises(ServiceError, match="node-1: another kopi process holds the lock"),
        locked(path, seconds=0.1),
    ):
        pass


def test_a_lock_whose_file_was_removed_by_its_holder_is_created_again(tmp_path: Path):
    path = tmp_path / "node-1.lock"

    def take() -> bool:
        with locked(path):
            return path.exists()

    with ThreadPoolExecutor(1) as pool:
        with locked(path):
            waiting = pool.submit(take)
            path.unlink()
        assert waiting.result(20)


ENDLESS = """
import itertools, subprocess, sys
child = "import itertools\\nfor n in itertools.count(): print(f'child {n} ' + 'x' * 100, flush=True)"
subprocess.Popen([sys.executable, "-c", child])
for n in itertools.count():
    print(f"parent {n} " + "x" * 100, flush=True)
"""


def test_the_log_of_a_running_node_and_its_children_is_rotated(home, program):
    most = 50_000
    launched = launch(home, program(ENDLESS))
    older = launched.log.with_name("pipeline-1.log.1")
    with logs.rotating_logs(home.path, most):
        eventually(older.exists)
        first = older.read_bytes()
        eventually(lambda: older.exists() and older.read_bytes() != first)
    assert launched.child.poll() is None
    assert older.stat().st_size > most
    assert b"\0" not in older.read_bytes()  # they append after the rotation, not at the old offset
    assert {b"parent", b"child"} <= set(older.read_bytes().split())
    assert stat.S_IMODE(older.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "scratch_of",
    [lambda home: home / "scratch", lambda home: FleetHome(home, "h1").process_scratch("pipeline-1", 4711)],
)
def test_the_log_of_a_running_spark_is_rotated(tmp_path: Path, scratch_of):
    """Spark appends, as here, in `kopi serve` and in each pipeline of a fleet."""
    log = scratch_of(tmp_path) / SPARK_LOG
    log.parent.mkdir(parents=True)
    with logs.rotating_logs(tmp_path, 1_000), log.open("ab", buffering=0) as spark:
        spark.write(b"first " * 200)
        eventually(lambda: log.stat().st_size == 0)
        spark.write(b"then\n")
        assert log.read_bytes() == b"then\n"
    assert log.with_name("spark.log.1").read_bytes() == b"first " * 200


def test_a_kept_log_is_not_rotated(tmp_path: Path):
    folder, node = tmp_path / "logs", tmp_path / "logs" / "pipeline-1.log"
    (tmp_path / SPARK_LOG).write_bytes(b"x" * 5_000)
    kept = KeptLogs(folder, "pipeline-1").keep(tmp_path)
    assert kept is not None
    node.write_bytes(b"x" * 5_000)
    with logs.rotating_logs(tmp_path, 1_000):
        eventually(lambda: node.stat().st_size == 0)
    assert kept.stat().st_size == 5_000


def test_last_lines_are_found_after_a_log_was_rotated(tmp_path):
    log = tmp_path / "node.log"
    log.write_text("kopi: this is why\n")
    assert logs.last_lines(log, since=10_000).strip() == "kopi: this is why"
