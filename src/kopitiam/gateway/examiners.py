"""A few examiner processes, each with bounded memory. One that dies over a body is replaced; the body is refused."""

import json
import queue
import subprocess
import sys
from dataclasses import asdict

from kopitiam.gateway.examination import Finding, Order

_CRASHED = Finding(refusal="it crashes the reader")


class Examiners:
    def __init__(self, count: int) -> None:
        self._idle: queue.LifoQueue[subprocess.Popen[str]] = queue.LifoQueue()
        self._all: set[subprocess.Popen[str]] = set()
        for _ in range(count):
            self._idle.put(self._hire())

    def examine(self, order: Order) -> Finding:
        """Blocks while all examiners are busy."""
        examiner = self._idle.get()
        try:
            finding = _ask(examiner, order)
        except (OSError, ValueError):
            self._dismiss(examiner)
            examiner, finding = self._hire(), _CRASHED
        self._idle.put(examiner)
        return finding

    def close(self) -> None:
        for examiner in list(self._all):
            self._dismiss(examiner)

    def _hire(self) -> subprocess.Popen[str]:
        examiner = subprocess.Popen(
            [sys.executable, "-m", "kopitiam.gateway.examiner"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._all.add(examiner)
        return examiner

    def _dismiss(self, examiner: subprocess.Popen[str]) -> None:
        self._all.discard(examiner)
        examiner.kill()
        examiner.communicate()


def _ask(examiner: subprocess.Popen[str], order: Order) -> Finding:
    """Raises OSError or ValueError if the examiner died over it."""
    if examiner.stdin is None or examiner.stdout is None:
        raise ValueError("an examiner without pipes")
    examiner.stdin.write(json.dumps(asdict(order)) + "\n")
    examiner.stdin.flush()
    return Finding(**json.loads(examiner.stdout.readline()))
