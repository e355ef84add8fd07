"""Runs one command as a process of its own; measures its time, its CPU and the memory of its process tree."""

import resource
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

SAMPLE_SECONDS = 0.1
TAIL_LINES = 20


class CommandError(Exception):
    """The command failed; the text has its exit code and the tail of its stderr."""


@dataclass(frozen=True)
class Measurement:
    seconds: float
    peak_bytes: int  # largest sum of resident sizes over the tree; shared pages count in each process
    cpu_seconds: float  # of all processes of the tree


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
        sampler = _TreeSampler(process.pid)
        try:
            exit_code = process.wait()
            seconds = time.perf_counter() - started
        finally:
            sampler.stop()
            if process.poll() is None:
                _end_tree(process)
        if exit_code != 0:
            stderr.seek(0)
            tail = stderr.read().decode(errors="replace").splitlines()[-TAIL_LINES:]
            raise CommandError("\n".join([f"{' '.join(argv)}: exit code {exit_code}", *tail]))
    return Measurement(seconds, sampler.peak_bytes, sampler.cpu_seconds)


def children_cpu_seconds() -> float:
    """CPU seconds of all processes that this process started and that have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def cpu_by_part(service: psutil.Process) -> dict[str, float]:
    """CPU seconds of a service since its start: of its own process, of its examiners and other helpers, of
    Java, and of the Python processes that Spark starts."""
    parts = dict.fromkeys(("service", "examiners", "Java", "Spark's Python"), 0.0)
    for process in _tree(service.pid):
        try:
            spent = sum(process.cpu_times()[:4])  # of the process and of its children that have ended
            name, command = process.name(), " ".join(process.cmdline())
        except psutil.NoSuchProcess:
            continue
        if process.pid == service.pid:
            parts["service"] += spent
        elif "java" in name:
            parts["Java"] += spent
        else:
            parts["Spark's Python" if "pyspark" in command else "examiners"] += spent
    return parts


class _TreeSampler:
    """Samples the memory and CPU of a process tree in a thread until `stop`.

    CPU is summed over all processes that were ever seen. `getrusage` would miss Spark's JVM, which no process
    waits for; a process that ends loses at most the CPU since its last sample.
    """

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        self._pid = pid
        self._cpu_seconds: dict[int, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    @property
    def cpu_seconds(self) -> float:
        return sum(self._cpu_seconds.values())

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.is_set():
            resident = 0
            for process in _tree(self._pid):
                try:
                    resident += process.memory_info().rss
                    self._cpu_seconds[process.pid] = sum(process.cpu_times()[:2])
                except psutil.NoSuchProcess:
                    continue
            self.peak_bytes = max(self.peak_bytes, resident)
            self._over.wait(SAMPLE_SECONDS)


def _tree(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _end_tree(process: subprocess.Popen[bytes]) -> None:
    for member in _tree(process.pid):
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue
    process.wait()
