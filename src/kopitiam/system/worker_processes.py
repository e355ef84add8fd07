"""Worker processes for work that may crash, or take too much memory or time: a parser, a drawing engine.

Requests and replies are lines of JSON on the pipes of a process. A worker that dies is replaced, and the
request is retried once, since the crash may have had another cause.
"""

import contextlib
import json
import os
import queue
import resource
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kopitiam.contracts.errors import Unavailable

Message = dict[str, Any]
_TRIES = 2


class WorkersDied(Exception):
    """Two workers died over the same request."""


class WorkerProcesses:
    """A pool of processes of one command. They start with the first request, or at once if `is_eager`."""

    def __init__(self, command: Callable[[], Sequence[str]], count: int, *, is_eager: bool = False) -> None:
        self._command = command
        self._idle: queue.LifoQueue[subprocess.Popen[str] | None] = queue.LifoQueue()
        self._all: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._is_closed = False
        for _ in range(count):
            self._idle.put(self._started() if is_eager else None)

    def ask(self, request: Message) -> Message:
        """Return a worker's reply, once one is idle. Raises `WorkersDied`, or `Unavailable` when closed."""
        worker = self._idle.get()
        try:
            for _ in range(_TRIES):
                if worker is None or worker.poll() is not None:
                    worker = self._replaced(worker)
                try:
                    return _ask(worker, request)
                except (OSError, ValueError):
                    worker = self._replaced(worker)
            raise WorkersDied
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            for worker in self._all:
                worker.kill()
            for worker in self._all:
                worker.wait()

    @property
    def pids(self) -> set[int]:
        return {worker.pid for worker in self._all if worker.poll() is None}

    def _started(self) -> subprocess.Popen[str]:
        worker = subprocess.Popen(
            self._command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            env=os.environ
            | {"MALLOC_ARENA_MAX": "1"},  # more arenas would reserve address space, which is limited
        )
        self._all.add(worker)
        return worker

    def _replaced(self, worker: subprocess.Popen[str] | None) -> subprocess.Popen[str]:
        with self._lock:
            if self._is_closed:
                raise Unavailable("this gateway is shutting down; try again")
            if worker is not None:
                self._all.discard(worker)
                _dismiss(worker)
            return self._started()


def _dismiss(worker: subprocess.Popen[str]) -> None:
    worker.kill()
    worker.wait()
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _ask(worker: subprocess.Popen[str], request: Message) -> Message:
    """Raises `OSError` or `ValueError` if the worker died."""
    if worker.stdin is None or worker.stdout is None:
        raise ValueError("a worker without pipes")
    worker.stdin.write(json.dumps(request) + "\n")
    worker.stdin.flush()
    reply: Message = json.loads(worker.stdout.readline())
    return reply


def serve_requests(
    handle: Callable[[Message], Message],
    *,
    seconds: int,
    limit: int,
    memory_bytes: int,
    idle_seconds: float | None = None,
) -> None:
    """The main loop of a worker. Returns when its input closes, or after `idle_seconds` without a request.

    `limit` is the resource (`RLIMIT_AS`, `RLIMIT_DATA`) that may grow by `memory_bytes` from now on. A
    request that takes longer than `seconds` ends the process.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to handle
    _bound_memory(limit, memory_bytes)
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # keeps the output of libraries out of the replies
    requests = os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0)
    for line in _lines(requests.fileno(), idle_seconds):
        signal.alarm(seconds)  # unhandled, it ends the process at once
        reply = handle(json.loads(line))
        signal.alarm(0)
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def _lines(source: int, idle_seconds: float | None) -> Iterator[bytes]:
    held = b""
    while True:
        while b"\n" not in held:
            readable, _, _ = select.select([source], [], [], idle_seconds)
            piece = os.read(source, 1 << 16) if readable else b""
            if not piece:
                return
            held += piece
        line, _, held = held.partition(b"\n")
        yield line


def _bound_memory(limit: int, allowed: int) -> None:
    """Limit the memory. Only Linux reports what is in use; elsewhere there is only the time limit."""
    status = Path("/proc/self/status")
    if status.exists():
        name = "VmSize" if limit == resource.RLIMIT_AS else "VmData"
        in_use = int(status.read_text().partition(f"{name}:")[2].split()[0]) * 1024
        resource.setrlimit(limit, (in_use + allowed, in_use + allowed))
