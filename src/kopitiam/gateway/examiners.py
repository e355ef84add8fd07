"""Examiner processes, each with bounded memory and time. A body that two of them die over is refused."""

import sys
from dataclasses import asdict

from kopitiam.gateway.examination import Finding, Order
from kopitiam.system.worker_processes import Deadly, WorkerProcesses

COMMAND = (sys.executable, "-m", "kopitiam.gateway.examiner")
_DEADLY = Finding(refusal="it crashes the reader, or takes it more memory or time than a chunk may")


class Examiners:
    def __init__(self, count: int) -> None:
        self._workers = WorkerProcesses(lambda: COMMAND, count, is_eager=True)

    def examine(self, order: Order) -> Finding:
        """Blocks while all examiners are busy."""
        try:
            return Finding(**self._workers.ask(asdict(order)))
        except Deadly:
            return _DEADLY

    def close(self) -> None:
        self._workers.close()
