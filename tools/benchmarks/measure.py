"""Runs one command as a process of its own and measures its time and the memory of its process tree."""

import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

SAMPLE_SECONDS = 0.2
TAIL_LINES = 20


class CommandError(Exception):
    """The command failed; the text has its exit code and the tail of its stderr."""


@dataclass(frozen=True)
class Measurement:
    seconds: float
    peak_bytes: int  # largest sum of resident sizes over the tree; shared pages count in each process
    exit_code: int


def measure(argv: list[str], cwd: Path | None = None) -> Measurement:
    """Runs the command to its end. Raises CommandError if it fails; an interrupt ends its whole tree."""
    with tempfile.TemporaryFile() as stderr:
        started = time.perf_counter()
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )
        memory = _PeakMemory(process.pid)
        try:
            exit_code = process.wait()
            seconds = time.perf_counter() - started
        finally:
            peak_bytes = memory.stop()
            if process.poll() is None:
                _end_tree(process)
        if exit_code != 0:
            stderr.seek(0)
            tail = stderr.read().decode(errors="replace").splitlines()[-TAIL_LINES:]
            raise CommandError("\n".join([f"{' '.join(argv)}: exit code {exit_code}", *tail]))
    return Measurement(seconds, peak_bytes, exit_code)


class _PeakMemory:
    """Samples the memory of a process tree in a thread until `stop`, which returns the peak."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peak = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        self._over.set()
        self._thread.join()
        return self._peak

    def _sample(self) -> None:
        while not self._over.is_set():
            self._peak = max(self._peak, sum(map(_resident_bytes, _tree(self._pid))))
            self._over.wait(SAMPLE_SECONDS)


def _tree(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _resident_bytes(process: psutil.Process) -> int:
    try:
        resident: int = process.memory_info().rss
    except psutil.NoSuchProcess:
        return 0
    return resident


def _end_tree(process: subprocess.Popen[bytes]) -> None:
    for member in _tree(process.pid):
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue
    process.wait()
