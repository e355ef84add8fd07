"""A signal ends `kopi analyze` at once, and leaves no process, no file, no stack trace."""

import fnmatch
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from processes import is_alive, restore_sigint
from sampling import IS_FULL
from waiting import eventually

KOPI = Path(sys.executable).with_name("kopi")
START_SECONDS = 120
END_SECONDS = 60
only_in_full = pytest.mark.skipif(not IS_FULL, reason="only with KOPI_TEST_FULL")


class Analysis:
    """A running `kopi analyze`; its processes are recognized by their own folder for temporary files."""

    def __init__(self, data, environment, temporary):
        self.temporary = temporary
        self._process = subprocess.Popen(
            [KOPI, "analyze", data, "--out", temporary.with_name("answers")],
            env=environment | {"TMPDIR": str(temporary)},
            cwd=temporary.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=restore_sigint,  # noqa: PLW1509
        )

    def wait_until(self, is_there):
        eventually(lambda: is_there(self) or self._process.poll() is not None, START_SECONDS)
        assert self._process.poll() is None, self._process.communicate()[1]

    def send(self, number, to_group):
        (os.killpg if to_group else os.kill)(self._process.pid, number)

    def end(self):
        """Return exit code, stdout and stderr; fail if the process does not end in time."""
        stdout, stderr = self._process.communicate(timeout=END_SECONDS)
        return self._process.returncode, stdout, stderr

    def processes(self):
        """Return all processes that it started, reparented ones included."""
        return [process for process in psutil.process_iter() if self._is_mine(process)]

    def _is_mine(self, process):
        try:
            return process.environ().get("TMPDIR") == str(self.temporary)
        except psutil.Error:
            return False

    def kill(self):
        for process in self.processes():
            process.kill()
        self._process.communicate()


@pytest.fixture
def analysis(tiny_folder, environment, tmp_path):
    (tmp_path / "temporary").mkdir()
    running = Analysis(tiny_folder, environment, tmp_path / "temporary")
    yield running
    running.kill()


def has_workspace(analysis):
    return any(analysis.temporary.iterdir())


def has_java(analysis):
    return any("java" in process.name() for process in analysis.processes() if process.is_running())


def has_taken_a_step(analysis):
    """Return whether Spark has written shuffle files."""
    folders = os.walk(analysis.temporary)  # unlike a glob, at ease with folders that vanish meanwhile
    return any(fnmatch.filter(files, "shuffle_*.data") for _, _, files in folders)


@pytest.mark.parametrize(
    ("number", "to_group", "moment", "code"),
    [
        (signal.SIGINT, False, has_workspace, 130),
        (signal.SIGINT, True, has_java, 130),
        (signal.SIGINT, False, has_taken_a_step, 130),
        (signal.SIGTERM, False, has_java, 143),
        pytest.param(signal.SIGTERM, True, has_taken_a_step, 143, marks=only_in_full),
    ],
    ids=[
        "interrupted-before-java",
        "group-interrupted-while-spark-starts",
        "interrupted-after-a-step",
        "terminated-while-spark-starts",
        "group-terminated-after-a-step",
    ],
)
@pytest.mark.long
def test_a_signal_ends_everything(analysis, number, to_group, moment, code):
    analysis.wait_until(moment)
    started = analysis.processes()

    analysis.send(number, to_group)

    found, stdout, stderr = analysis.end()
    eventually(lambda: not any(map(is_alive, started)), END_SECONDS)
    eventually(lambda: analysis.processes() == [], END_SECONDS)
    assert list(analysis.temporary.iterdir()) == []
    assert (found, stdout) == (code, "")
    assert "Traceback" not in stderr
    assert len(stderr.splitlines()) <= 1
