"""Connections to PostgreSQL that wait no longer than the call may, whatever the network or the server does.

A server that is frozen still acknowledges packets, so neither TCP nor the server's own time limits end such a
wait: the client looks at its clock while it waits, and closes the connection when the time is up.
"""

import threading
import time
from collections.abc import Generator
from typing import Any, TypeVar

import psycopg

from kopitiam.registry.deadlines import seconds_left

CONNECT_SECONDS = 6.0  # for a new connection, looking up the server's name included
T = TypeVar("T")


class BoundedConnection(psycopg.Connection[Any]):
    """Every wait for the server ends with the call's time. psycopg itself looks up ten times a second."""

    def wait(self, gen: Generator[Any, Any, T], *options: Any, **more: Any) -> T:
        return super().wait(self._bounded(gen), *options, **more)

    def _bounded(self, steps: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        moment = time.monotonic() + seconds_left()
        try:
            wanted = next(steps)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() >= moment:
                    self.pgconn.finish()  # nobody knows what the server still does: it is not used again
                    raise psycopg.OperationalError("no answer from PostgreSQL in time")
                wanted = steps.send(ready)
        except StopIteration as done:
            outcome: T = done.value
            return outcome


def connect(*arguments: Any, **parameters: Any) -> BoundedConnection:
    """On a thread of its own: to look up a name cannot be interrupted, only left behind."""
    made: list[BoundedConnection] = []
    trouble: list[Exception] = []
    is_done, is_late, lock = threading.Event(), threading.Event(), threading.Lock()

    def attempt() -> None:
        try:
            connection = BoundedConnection.connect(*arguments, **parameters)
        except Exception as error:
            trouble.append(error)
        else:
            with lock:
                if is_late.is_set():
                    connection.close()
                else:
                    made.append(connection)
        is_done.set()

    threading.Thread(target=attempt, name="registry-connect", daemon=True).start()
    is_done.wait(min(CONNECT_SECONDS, seconds_left()))
    with lock:
        if made:
            return made[0]
        is_late.set()
    if trouble:
        raise trouble[0]
    raise psycopg.OperationalError("no connection to PostgreSQL in time")
