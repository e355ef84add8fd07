"""Connections to PostgreSQL whose waits end at the deadline of the call, whatever the network or server does.

A frozen server still acknowledges packets, so neither TCP nor the server's own time limits end such a wait:
the client checks its clock while it waits, and closes the connection at the deadline.
"""

import threading
import time
from collections.abc import Generator
from typing import Any, TypeVar

import psycopg

from kopitiam.registry.transactions import seconds_left

CONNECT_SECONDS = 6.0  # for a new connection, including the lookup of the server's name
T = TypeVar("T")


class BoundedConnection(psycopg.Connection[Any]):
    """Every wait for the server ends at the deadline of the call. psycopg polls ten times a second."""

    def wait(self, gen: Generator[Any, Any, T], *options: Any, **more: Any) -> T:
        return super().wait(self._bounded(gen), *options, **more)

    def _bounded(self, steps: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        deadline = time.monotonic() + seconds_left()
        try:
            awaited = next(steps)
            while True:
                ready = yield awaited
                if not ready and time.monotonic() >= deadline:
                    self.pgconn.finish()  # the state of the server is unknown: the connection is not reused
                    raise psycopg.OperationalError("no answer from PostgreSQL in time")
                awaited = steps.send(ready)
        except StopIteration as done:
            outcome: T = done.value
            return outcome


def connect(*arguments: Any, **parameters: Any) -> BoundedConnection:
    """Connect on a thread of its own: a name lookup cannot be interrupted, only abandoned."""
    connections: list[BoundedConnection] = []
    errors: list[Exception] = []
    is_done, is_late, lock = threading.Event(), threading.Event(), threading.Lock()

    def attempt() -> None:
        try:
            connection = BoundedConnection.connect(*arguments, **parameters)
        except Exception as error:
            errors.append(error)
        else:
            with lock:
                if is_late.is_set():
                    connection.close()
                else:
                    connections.append(connection)
        is_done.set()

    threading.Thread(target=attempt, name="registry-connect", daemon=True).start()
    is_done.wait(min(CONNECT_SECONDS, seconds_left()))
    with lock:
        if connections:
            return connections[0]
        is_late.set()
    if errors:
        raise errors[0]
    raise psycopg.OperationalError("no connection to PostgreSQL in time")
