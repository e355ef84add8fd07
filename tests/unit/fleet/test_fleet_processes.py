"""Nodes as detached processes: small real ones, started, frozen, killed and stopped."""

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
from kopitiam.fleet.home import ProcessRecord, read_record, ready_mark, recorded_names, write_record
from kopitiam.fleet.processes import Program, is_running, launch, process_state, processes_of, stop
from kopitiam.system import logs
from kopitiam.system.files import locked
from kopitiam.system.logs import SPARK_LOG, KeptLogs
from waiting import eventually

SLEEP = "import time; time.sleep(60)"
PARENT_OF_ONE = f"import subprocess, sys; subprocess.run([sys.executable, '-c', '{SLEEP}'])"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); {SLEEP}"


def record_of(home, name="pipeline-1") -> ProcessRecord:
    record = read_record(home, name)
    assert record is not None
    return record


def freeze(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: process_state(psutil.Process(pid)) == "frozen")


def test_a_process_that_was_started_is_written_down(home, program):
    begun = time.time()
    launched = launch(home, program())
    written = json.loads(home.record("pipeline-1").read_text())
    assert written["pid"] == launched.pid
    assert abs(written["created"] - psutil.Process(launched.pid).create_time()) < 0.1
    assert written["command"] == list(program().command())
    assert begun <= written["started_at"] <= time.time()
    assert is_running(home, "pipeline-1")


def test_starting_again_what_runs_changes_nothing(home, program):
    first = launch(home, program())
    before = home.record("pipeline-1").read_bytes()
    again = launch(home, program())
    assert (again.pid, again.child) == (first.pid, None)
    assert home.record("pipeline-1").read_bytes() == before
    assert [process.pid for process in processes_of(home, "pipeline-1")] == [first.pid]


def test_many_who_start_a_node_at_once_start_it_once(home, program):
    with ThreadPoolExecutor(8) as pool:
        pids = {launched.pid for launched in pool.map(lambda _: launch(home, program()), range(8))}
    assert [process.pid for process in processes_of(home, "pipeline-1")] == list(pids)


def test_a_dead_node_is_started_anew(home, program):
    first = launch(home, program())
    first.child.kill()
    first.child.wait()
    assert not is_running(home, "pipeline-1")
    second = launch(home, program())
    assert second.pid != first.pid
    assert record_of(home).pid == second.pid


def test_a_dead_node_that_nobody_has_buried_counts_as_dead(home, program):
    first = launch(home, program())
    os.kill(first.pid, signal.SIGKILL)
    eventually(lambda: psutil.Process(first.pid).status() == psutil.STATUS_ZOMBIE)
    assert not is_running(home, "pipeline-1")
    assert launch(home, program()).pid != first.pid


def test_a_number_that_went_to_another_process_is_not_taken_for_the_node(home, program):
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        write_record(home, "pipeline-1", "pipeline", stranger.pid, ["sleep", "60"])
        written = json.loads(home.record("pipeline-1").read_text())
        home.record("pipeline-1").write_text(json.dumps(written | {"created": written["created"] - 60}))
        assert not is_running(home, "pipeline-1")
        assert launch(home, program()).pid != stranger.pid
        stop(home, "pipeline-1")
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}'])
def test_a_record_that_cannot_be_read_is_as_good_as_none(home, program, content):
    home.nodes.mkdir(parents=True)
    home.record("pipeline-1").write_text(content)
    assert read_record(home, "pipeline-1") is None
    launched = launch(home, program())
    assert record_of(home).pid == launched.pid
    assert recorded_names(home) == ["pipeline-1"]


@pytest.mark.parametrize("name", ["pipeline-1", "monitor-1"])
def test_a_frozen_node_without_a_port_is_replaced_and_left_alone(home, program, name):
    frozen = launch(home, program(name=name))
    freeze(frozen.pid)
    fresh = launch(home, program(name=name))
    assert fresh.pid != frozen.pid
    assert record_of(home, name).pid == fresh.pid
    assert process_state(psutil.Process(frozen.pid)) == "frozen"


def test_a_frozen_node_that_was_replaced_goes_when_its_successor_is_stopped(home, program):
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


def test_what_a_dead_node_left_behind_is_ended_before_it_starts_again(home, program):
    launched = launch(home, program(PARENT_OF_ONE))
    eventually(lambda: len(processes_of(home, "pipeline-1")) == 2)
    [orphan] = [process for process in processes_of(home, "pipeline-1") if process.pid != launched.pid]
    launched.child.kill()
    launched.child.wait()
    launch(home, program())
    assert process_state(orphan) == "gone"


def test_a_node_that_ends_at_once_says_why(home, program):
    launched = launch(home, program("import sys; print('no disk', file=sys.stderr); sys.exit(1)"))
    with pytest.raises(ServiceError, match=r"^pipeline-1: ended with exit code 1: no disk$"):
        launched.raise_if_ends_within(20)


def test_a_node_that_finds_its_settings_wrong_ends_with_the_code_for_that(home, program):
    launched = launch(home, program("raise SystemExit(2)"))
    with pytest.raises(ConfigError, match="pipeline-1: ended with exit code 2: no output") as caught:
        launched.raise_if_ends_within(20)
    assert caught.value.exit_code == 2


def test_only_the_last_words_of_this_life_are_told(home, program):
    launch(home, program("print('an earlier life'); raise SystemExit(1)")).child.wait()
    launched = launch(home, program("[print('line', n) for n in range(9)]; raise SystemExit(3)"))
    with pytest.raises(ServiceError) as caught:
        launched.raise_if_ends_within(20)
    assert str(caught.value).splitlines()[1:] == [f"  line {n}" for n in range(4, 9)]


def test_a_node_that_is_killed_in_its_first_moments_says_so(home, program):
    launched = launch(home, program("import os; os.kill(os.getpid(), 9)"))
    with pytest.raises(ServiceError, match="was ended by signal 9"):
        launched.raise_if_ends_within(20)


def test_a_node_that_lives_through_its_first_moments_is_left_to_itself(home, program):
    launched = launch(home, program())
    launched.raise_if_ends_within(0.1)
    assert is_running(home, "pipeline-1")


def test_a_node_that_ran_already_and_ends_is_not_waited_for(home, program):
    first = launch(home, program("print('I leave', flush=True); import time; time.sleep(60)"))
    eventually(lambda: b"leave" in home.log("pipeline-1").read_bytes())
    again = launch(home, program())
    first.child.kill()
    first.child.wait()
    with pytest.raises(ServiceError, match=r"^pipeline-1: has ended: I leave$"):
        again.wait_until_ready(lambda: False, seconds=60)


def test_a_node_that_is_not_ready_in_time_says_its_last_words(home, program):
    launched = launch(home, program(DEAF))
    eventually(lambda: b"deaf" in home.log("pipeline-1").read_bytes())
    with pytest.raises(ServiceError, match=r"^pipeline-1: not ready after 0 s: deaf$"):
        launched.wait_until_ready(lambda: False, seconds=0)


def test_a_program_that_is_not_there_is_refused_in_one_line(home):
    with pytest.raises(ConfigError, match=r"^pipeline-1: cannot run /no/where: No such file or directory$"):
        launch(home, Program("pipeline-1", "pipeline", lambda: ("/no/where",)))


def test_stopping_ends_the_whole_family_and_leaves_only_the_log(home, program):
    launched = launch(home, program(PARENT_OF_ONE))
    eventually(lambda: len(processes_of(home, "pipeline-1")) == 2)
    family = processes_of(home, "pipeline-1")
    assert stop(home, "pipeline-1")
    assert launched.child.wait() == -signal.SIGTERM
    assert [process_state(process) for process in family] == ["gone", "gone"]
    assert list(home.nodes.iterdir()) == []
    assert home.log("pipeline-1").exists()


def test_stopping_lets_a_node_finish_in_order(home, program, tmp_path):
    farewell = tmp_path / "farewell"
    code = f"""
import pathlib, signal, time
def leave(*_):
    pathlib.Path({str(farewell)!r}).write_text("done")
    raise SystemExit(0)
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
time.sleep(60)
"""
    launch(home, program(code))
    eventually(lambda: b"ready" in home.log("pipeline-1").read_bytes())
    assert stop(home, "pipeline-1")
    assert farewell.read_text() == "done"


def test_a_node_that_does_not_listen_is_killed(home, program, monkeypatch):
    monkeypatch.setattr(processes, "STOP_SECONDS", 0.2)
    launched = launch(home, program(DEAF))
    eventually(lambda: b"deaf" in home.log("pipeline-1").read_bytes())
    assert stop(home, "pipeline-1")
    assert launched.child.wait() == -signal.SIGKILL


def test_stopping_a_frozen_node_does_not_wait_for_it(home, program):
    frozen = launch(home, program())
    freeze(frozen.pid)
    begun = time.monotonic()
    assert stop(home, "pipeline-1")
    assert time.monotonic() - begun < processes.STOP_SECONDS / 2
    assert frozen.child.wait() == -signal.SIGKILL


def test_a_node_whose_record_is_lost_is_stopped_all_the_same(home, program):
    launched = launch(home, program())
    home.record("pipeline-1").unlink()
    assert stop(home, "pipeline-1")
    assert launched.child.wait() == -signal.SIGKILL
    assert list(home.nodes.iterdir()) == []


def test_stopping_what_does_not_run_changes_nothing(home, program):
    assert not stop(home, "pipeline-1")
    assert not home.path.exists()
    launch(home, program())
    assert stop(home, "pipeline-1")
    assert not stop(home, "pipeline-1")


def test_stopping_a_dead_node_removes_its_traces(home, program):
    launched = launch(home, program())
    launched.child.kill()
    launched.child.wait()
    assert not stop(home, "pipeline-1")
    assert list(home.nodes.iterdir()) == []


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_node_that_is_stopped_leaves_no_temporary_files_and_those_of_others_stay(home, program, is_killed):
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


def test_a_node_is_on_its_own(home, program, tmp_path, monkeypatch):
    monkeypatch.setenv("KOPI_TOLD", "as it was")
    told = tmp_path / "told"
    code = f"""
import json, os, pathlib, sys
descriptors = [os.readlink(f"/proc/self/fd/{{n}}") for n in os.listdir("/proc/self/fd") if n in "012"]
others = [n for n in os.listdir("/proc/self/fd") if int(n) > 2]
pathlib.Path({str(told)!r}).write_text(json.dumps(
    [os.getsid(0) == os.getpid(), sys.stdin.read(), len(others), os.environ["KOPI_TOLD"], descriptors]))
"""
    with (tmp_path / "open").open("w") as kept:
        os.set_inheritable(kept.fileno(), True)
        launch(home, program(code)).child.wait()
    is_leader, read, others, variable, descriptors = json.loads(told.read_text())
    log = str(home.log("pipeline-1"))
    assert (is_leader, read, variable) == (True, "", "as it was")
    assert sorted(descriptors) == sorted(["/dev/null", log, log])
    assert others == 1  # the folder that is being listed


def test_a_large_log_becomes_the_old_one_at_the_next_start(home, program, monkeypatch):
    monkeypatch.setattr(logs, "MOST_BYTES", 10)
    log = home.log("pipeline-1")
    for word in ("first generation", "second generation", "third generation"):
        launch(home, program(f"print('{word}')")).child.wait()
    assert log.read_text() == "third generation\n"
    assert log.with_name("pipeline-1.log.1").read_text() == "second generation\n"
    assert len(list(log.parent.iterdir())) == 2


def test_a_small_log_is_gone_on_with(home, program):
    for word in ("one", "two"):
        launch(home, program(f"print('{word}')")).child.wait()
    assert home.log("pipeline-1").read_text() == "one\ntwo\n"


def test_a_lock_that_another_has_is_waited_for_and_then_told(tmp_path: Path):
    path = tmp_path / "node-1.lock"
    with (
        locked(path),
        pytest.raises(ServiceError, match="node-1: another kopi is busy with it"),
        locked(path, seconds=0.1),
    ):
        pass


def test_a_lock_whose_file_was_removed_by_its_holder_is_taken_anew(tmp_path: Path):
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


def test_the_log_of_a_node_that_lives_and_of_its_children_stays_small(home, program):
    most = 50_000
    launched = launch(home, program(ENDLESS))
    older = launched.log.with_name("pipeline-1.log.1")
    with logs.rotating_logs(home.path, most):
        eventually(older.exists)
        first = older.read_bytes()
        eventually(lambda: older.exists() and older.read_bytes() != first)
    assert launched.child.poll() is None
    assert older.stat().st_size > most
    assert b"\0" not in older.read_bytes()  # they go on at the new end, not where they were
    assert {b"parent", b"child"} <= set(older.read_bytes().split())
    assert stat.S_IMODE(older.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "scratch_of", [lambda home: home / "scratch", lambda home: ready_mark(home, "pipeline-1", 4711).parent]
)
def test_the_log_of_a_living_spark_stays_small(tmp_path: Path, scratch_of):
    """Spark appends, as here, in `kopi serve` and in each pipeline of a fleet."""
    log = scratch_of(tmp_path) / SPARK_LOG
    log.parent.mkdir(parents=True)
    with logs.rotating_logs(tmp_path, 1_000), log.open("ab", buffering=0) as spark:
        spark.write(b"first " * 200)
        eventually(lambda: log.stat().st_size == 0)
        spark.write(b"then\n")
        assert log.read_bytes() == b"then\n"
    assert log.with_name("spark.log.1").read_bytes() == b"first " * 200


def test_a_log_that_is_kept_is_not_cut_though_it_is_longer_than_those_of_nodes(tmp_path: Path):
    folder, node = tmp_path / "logs", tmp_path / "logs" / "pipeline-1.log"
    (tmp_path / SPARK_LOG).write_bytes(b"x" * 5_000)
    kept = KeptLogs(folder, "pipeline-1").keep(tmp_path)
    assert kept is not None
    node.write_bytes(b"x" * 5_000)
    with logs.rotating_logs(tmp_path, 1_000):
        eventually(lambda: node.stat().st_size == 0)
    assert kept.stat().st_size == 5_000


def test_last_words_are_found_after_a_log_was_cut(tmp_path):
    log = tmp_path / "node.log"
    log.write_text("kopi: this is why\n")
    assert logs.last_lines(log, since=10_000).strip() == "kopi: this is why"
