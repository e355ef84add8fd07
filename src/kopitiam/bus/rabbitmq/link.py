"""The connection to the broker, and the one thread that touches it.

pika is not thread-safe, and its heartbeats stop while it is kept waiting: so handlers run elsewhere, and
other threads post what they want done here. After a loss the link connects again, until it is closed.
"""

import contextlib
import logging
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import pika
from pika.adapters.select_connection import IOLoop, SelectConnection
from pika.exceptions import AMQPError

from kopitiam.bus.rabbitmq.address import Address
from kopitiam.bus.rabbitmq.inlet import Inlet
from kopitiam.bus.rabbitmq.outlet import Outlet
from kopitiam.bus.rabbitmq.receipt import Receipt
from kopitiam.bus.rabbitmq.troubles import is_refusal, reason

CLOSED = "bus: it is closed"
_ATTEMPT_SECONDS = 5.0  # for TCP, TLS and AMQP of one attempt; as long again to look up the host
_BLOCKED_SECONDS = 60.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 2.0
_FAREWELL_SECONDS = 2.0  # the broker may no longer answer
_log = logging.getLogger(__name__)
logging.getLogger("pika").setLevel(logging.CRITICAL)  # it tells in pages what is told here in a line


class Link:
    def __init__(self, address: Address) -> None:
        self.first_connection = Receipt()
        self.is_connected = False
        self.is_over = False
        self.trouble = f"bus: {address}: no answer"  # while there is no connection
        self.address = address
        self._parameters = _parameters(address)
        self._loop = IOLoop()
        self._calls: deque[Callable[[], object]] = deque()
        self._connection: Any = None
        self._failures = 0
        self._is_closing = False
        self._lines: dict[Inlet | Outlet, None] = {}
        self._thread = threading.Thread(target=self._run, name="bus i/o", daemon=True)

    def start(self) -> None:
        self.post(self._connect)
        self._thread.start()

    def close(self) -> None:
        """What was posted before is still done."""
        self.post(self._begin_closing)
        self._thread.join(2 * _FAREWELL_SECONDS)

    def post(self, call: Callable[[], object]) -> None:
        """From any thread; calls are made in their order."""
        self._calls.append(call)
        self._loop.add_callback_threadsafe(self._make_calls)

    # -- from here on, all is for the I/O thread

    def call_later(self, seconds: float, call: Callable[[], object]) -> None:
        self._loop.call_later(seconds, partial(_guarded, call))

    def add(self, line: Inlet | Outlet) -> None:
        self._lines[line] = None
        if self.is_connected:
            line.connected(self._connection)

    def remove(self, inlet: Inlet) -> None:
        self._lines.pop(inlet, None)
        inlet.close()

    def _run(self) -> None:
        while not self._is_closing:
            try:
                self._loop.start()
            except Exception as error:
                self._start_over(error)
        self.is_over = True
        self._make_calls()
        for line in self._lines:
            line.give_up(CLOSED)
        self._loop.close()

    def _start_over(self, error: Exception) -> None:
        """pika was thrown out of the middle of something, and what it holds cannot be trusted any more."""
        _log.exception("bus: trouble on the I/O thread")
        time.sleep(_FIRST_PAUSE_SECONDS)
        try:
            if self._connection is not None and not self._connection.is_closing:
                self._connection.close()  # `_on_lost` follows
        except Exception:
            self._loop.close()
            self._loop = IOLoop()
            self._on_lost(self._connection, error)
        self.call_later(_FIRST_PAUSE_SECONDS, self._make_calls)  # its wake-up may be lost, as the timer
        self.call_later(_LONGEST_PAUSE_SECONDS, self._connect)  # for this may be

    def _make_calls(self) -> None:
        for _ in range(len(self._calls)):
            _guarded(self._calls.popleft())

    def _connect(self) -> None:
        if self._is_closing or self._connection is not None:
            return
        connection = self._connection = SelectConnection(
            self._parameters,
            on_open_callback=self._on_connected,
            on_open_error_callback=self._on_lost,
            on_close_callback=self._on_lost,
            custom_ioloop=self._loop,
        )
        self.call_later(2 * _ATTEMPT_SECONDS, partial(self._give_up_attempt, connection))

    def _give_up_attempt(self, connection: Any) -> None:
        """pika waits without end for a name server."""
        if connection is self._connection and not self.is_connected:
            self._on_lost(connection, TimeoutError())
            with contextlib.suppress(AMQPError):
                connection.close()

    def _on_connected(self, connection: Any) -> None:
        if connection is not self._connection:
            connection.close()  # it was given up
            return
        if self.first_connection.is_settled:
            _log.info("bus: %s: connected again", self.address)
        self._failures = 0
        self.is_connected = True
        self.first_connection.settle()
        for line in list(self._lines):
            _guarded(partial(line.connected, connection))

    def _on_lost(self, connection: Any, error: Exception) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        for line in self._lines:
            line.disconnected()
        if self._is_closing:
            self._loop.stop()
            return
        self.trouble = f"bus: {self.address}: {reason(error)}"
        if is_refusal(error):
            self.first_connection.settle(self.trouble)
        if self.is_connected:
            _log.warning("%s; connecting again", self.trouble)
        self.is_connected = False
        pause = min(_FIRST_PAUSE_SECONDS * 2**self._failures, _LONGEST_PAUSE_SECONDS)
        self._failures = min(self._failures + 1, 10)
        self.call_later(pause * random.uniform(0.5, 1.0), self._connect)  # noqa: S311

    def _begin_closing(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self.is_connected = False
        for line in self._lines:
            line.wind_down()
        self._loop.call_later(_FAREWELL_SECONDS if self._connection else 0, self._loop.stop)
        if self._connection is not None:
            with contextlib.suppress(AMQPError):
                self._connection.close()


def _guarded(call: Callable[[], object]) -> None:
    """A mistake of ours must not end the I/O thread."""
    try:
        call()
    except Exception:
        _log.exception("bus: trouble on the I/O thread")


def _parameters(address: Address) -> pika.ConnectionParameters:
    return pika.ConnectionParameters(
        host=address.host,
        port=address.port,
        virtual_host=address.vhost,
        credentials=pika.PlainCredentials(address.user, address.password),
        heartbeat=address.heartbeat_seconds,
        blocked_connection_timeout=_BLOCKED_SECONDS,
        socket_timeout=_ATTEMPT_SECONDS,
        stack_timeout=_ATTEMPT_SECONDS,
        ssl_options=pika.SSLOptions(address.tls, address.host) if address.tls else None,
        client_properties={"connection_name": f"kopitiam {os.getpid()}"},
    )
