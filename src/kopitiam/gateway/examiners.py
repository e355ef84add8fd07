"""A few examiner processes, each with bounded memory and time. One that dies over a body is replaced.

It may have died of something else, so the body gets a second one; if that dies too, the body is refused.
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from dataclasses import asdict

from kopitiam.contracts.errors import Unavailable
from kopitiam.gateway.examination import Finding, Order

COMMAND = (sys.executable, "-m", "kopitiam.gateway.examiner")
_DEADLY = Finding(refusal="it crashes the reader, or takes it more memory or time than a chunk may")


class Examiners:
    def __init__(self, count: int) -> None:
        self._idle: queue.LifoQueue[subprocess.Popen[str]] = queue.LifoQueue()
        self._all: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._is_closed = False
        for _ in range(count):
            self._idle.put(self._hire())

    def examine(self, order: Order) -> Finding:
        """Blocks while all examiners are busy."""
        examiner = self._idle.get()
        try:
            for _ in range(2):
                try:
                    return _ask(examiner, order)
                except (OSError, ValueError):
                    examiner = self._replaced(examiner)
            return _DEADLY
        finally:
            self._idle.put(examiner)  # a dead one is replaced when next asked

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            for examiner in self._all:
                examiner.kill()
            for examiner in self._all:
                examiner.wait()

    def _hire(self) -> subprocess.Popen[str]:
        examiner = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"MALLOC_ARENA_MAX": "1"},  # others reserve address space, which is bounded
        )
        self._all.add(examiner)
        return examiner

    def _replaced(self, examiner: subprocess.Popen[str]) -> subprocess.Popen[str]:
        with self._lock:
            if self._is_closed:
                raise Unavailable("this gateway is shutting down; try again")
            self._all.discard(examiner)
            _dismiss(examiner)
            return self._hire()


def _dismiss(examiner: subprocess.Popen[str]) -> None:
    examiner.kill()
    examiner.wait()
    for pipe in (examiner.stdin, examiner.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _ask(examiner: subprocess.Popen[str], order: Order) -> Finding:
    """Raises OSError or ValueError if the examiner died over it."""
    if examiner.stdin is None or examiner.stdout is None:
        raise ValueError("an examiner without pipes")
    examiner.stdin.write(json.dumps(asdict(order)) + "\n")
    examiner.stdin.flush()
    return Finding(**json.loads(examiner.stdout.readline()))
