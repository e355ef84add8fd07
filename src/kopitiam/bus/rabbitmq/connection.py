"""The connection to the broker, its address, and the I/O thread that owns it.

pika is not thread-safe, and a blocked I/O thread sends no heartbeats: handlers run on other threads, which
post calls here. After a loss the connection is reopened with backoff, until `close`.
"""

import contextlib
import logging
import os
import random
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pika
from pika.adapters.select_connection import IOLoop, SelectConnection
from pika.exceptions import AMQPError

from kopitiam.bus.rabbitmq.consumer import Consumer
from kopitiam.bus.rabbitmq.errors import Completion, describe, is_refusal
from kopitiam.bus.rabbitmq.publisher import Publisher
from kopitiam.contracts.errors import ConfigError

_FORM = "expected amqp(s)://user:password@host:port/vhost"
_PORTS = {"amqp": 5672, "amqps": 5671}
_PARAMETERS = ("heartbeat", "cacertfile", "certfile", "keyfile")
HEARTBEAT_SECONDS = 10
CLOSED = "bus: it is closed"
_ATTEMPT_SECONDS = 5.0  # for TCP, TLS and AMQP; the same again for DNS
_BLOCKED_SECONDS = 60.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 2.0
_CLOSE_SECONDS = 2.0  # for a clean close, which a dead broker does not answer
_log = logging.getLogger(__name__)
logging.getLogger("pika").setLevel(logging.CRITICAL)  # logs pages of traceback for what is one line here


@dataclass(frozen=True)
class Address:
    host: str
    port: int
    user: str
    password: str
    vhost: str
    heartbeat_seconds: int
    tls: ssl.SSLContext | None

    def __str__(self) -> str:
        """Without the password, for messages."""
        scheme = "amqps" if self.tls else "amqp"
        host = f"[{self.host}]" if ":" in self.host else self.host
        vhost = "" if self.vhost == "/" else f"/{self.vhost}"
        return f"{scheme}://{self.user}@{host}:{self.port}{vhost}"


def parse_address(url: str) -> Address:
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        raise ConfigError(f"bus.url: {_FORM}") from None
    if not parts.hostname:
        raise ConfigError(f"bus.url: no host: {_FORM}")
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := [name for name in parameters if name not in _PARAMETERS]:
        raise ConfigError(f"bus.url: unknown parameter {unknown[0]!r}; known are {', '.join(_PARAMETERS)}")
    return Address(
        host=parts.hostname,
        port=port,
        user="guest" if parts.username is None else unquote(parts.username),
        password="guest" if parts.password is None else unquote(parts.password),
        vhost=unquote(parts.path[1:]) or "/",
        heartbeat_seconds=_heartbeat(parameters.get("heartbeat")),
        tls=_tls(parameters) if parts.scheme == "amqps" else None,
    )


def _heartbeat(text: str | None) -> int:
    if text is None:
        return HEARTBEAT_SECONDS
    if not text.isdecimal() or not 1 <= int(text) <= 600:
        raise ConfigError("bus.url: heartbeat: expected 1 to 600 seconds")
    return int(text)


def _tls(parameters: dict[str, str]) -> ssl.SSLContext:
    """Verifies the broker's certificate and host name against the system's authorities or `cacertfile`."""
    try:
        context = ssl.create_default_context(cafile=parameters.get("cacertfile"))
        if "certfile" in parameters:
            context.load_cert_chain(parameters["certfile"], parameters.get("keyfile"))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"bus.url: certificates: {error.strerror or error}") from None
    return context


class BrokerConnection:
    """A connection that reopens itself, and the consumers and publishers on it."""

    def __init__(self, address: Address) -> None:
        self.first_connection = Completion()
        self.is_connected = False
        self.is_closed = False
        self.failure = f"bus: {address}: no answer"  # while there is no connection
        self.address = address
        self._parameters = _parameters(address)
        self._loop = IOLoop()
        self._calls: deque[Callable[[], object]] = deque()
        self._connection: Any = None
        self._failures = 0
        self._is_closing = False
        self._endpoints: dict[Consumer | Publisher, None] = {}
        self._thread = threading.Thread(target=self._run, name="bus i/o", daemon=True)

    def start(self) -> None:
        self.post(self._connect)
        self._thread.start()

    def close(self) -> None:
        """Run the calls posted so far, then close."""
        self.post(self._begin_closing)
        self._thread.join(2 * _CLOSE_SECONDS)

    def post(self, call: Callable[[], object]) -> None:
        """Run `call` on the I/O thread, in order. Callable from any thread."""
        self._calls.append(call)
        self._loop.add_callback_threadsafe(self._run_posted_calls)

    # -- everything below runs on the I/O thread

    def call_later(self, seconds: float, call: Callable[[], object]) -> None:
        self._loop.call_later(seconds, partial(_call_safely, call))

    def add(self, endpoint: Consumer | Publisher) -> None:
        self._endpoints[endpoint] = None
        if self.is_connected:
            endpoint.on_connected(self._connection)

    def remove(self, consumer: Consumer) -> None:
        self._endpoints.pop(consumer, None)
        consumer.close()

    def _run(self) -> None:
        while not self._is_closing:
            try:
                self._loop.start()
            except Exception as error:
                self._recover(error)
        self.is_closed = True
        self._run_posted_calls()
        for endpoint in self._endpoints:
            endpoint.fail(CLOSED)
        self._loop.close()

    def _recover(self, error: Exception) -> None:
        """An exception left pika in an unknown state: close and reconnect."""
        _log.exception("bus: error on the I/O thread")
        time.sleep(_FIRST_PAUSE_SECONDS)
        try:
            if self._connection is not None and not self._connection.is_closing:
                self._connection.close()  # `_on_lost` follows
        except Exception:
            self._loop.close()
            self._loop = IOLoop()
            self._on_lost(self._connection, error)
        self.call_later(_FIRST_PAUSE_SECONDS, self._run_posted_calls)  # its wake-up, or the timer
        self.call_later(_LONGEST_PAUSE_SECONDS, self._connect)  # for this, may be lost

    def _run_posted_calls(self) -> None:
        for _ in range(len(self._calls)):
            _call_safely(self._calls.popleft())

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
        self.call_later(2 * _ATTEMPT_SECONDS, partial(self._abort_attempt, connection))

    def _abort_attempt(self, connection: Any) -> None:
        """pika has no timeout for DNS."""
        if connection is self._connection and not self.is_connected:
            self._on_lost(connection, TimeoutError())
            with contextlib.suppress(AMQPError):
                connection.close()

    def _on_connected(self, connection: Any) -> None:
        if connection is not self._connection:
            connection.close()  # the attempt had been aborted
            return
        if self.first_connection.is_settled:
            _log.info("bus: %s: connected again", self.address)
        self._failures = 0
        self.is_connected = True
        self.first_connection.settle()
        for endpoint in list(self._endpoints):
            _call_safely(partial(endpoint.on_connected, connection))

    def _on_lost(self, connection: Any, error: Exception) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        for endpoint in self._endpoints:
            endpoint.on_disconnected()
        if self._is_closing:
            self._loop.stop()
            return
        self.failure = f"bus: {self.address}: {describe(error)}"
        if is_refusal(error):
            self.first_connection.settle(self.failure)
        if self.is_connected:
            _log.warning("%s; connecting again", self.failure)
        self.is_connected = False
        pause = min(_FIRST_PAUSE_SECONDS * 2**self._failures, _LONGEST_PAUSE_SECONDS)
        self._failures = min(self._failures + 1, 10)
        self.call_later(pause * random.uniform(0.5, 1.0), self._connect)  # noqa: S311

    def _begin_closing(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self.is_connected = False
        for endpoint in self._endpoints:
            endpoint.on_closing()
        self._loop.call_later(_CLOSE_SECONDS if self._connection else 0, self._loop.stop)
        if self._connection is not None:
            with contextlib.suppress(AMQPError):
                self._connection.close()


def _call_safely(call: Callable[[], object]) -> None:
    """An exception in a call must not end the I/O thread."""
    try:
        call()
    except Exception:
        _log.exception("bus: error on the I/O thread")


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
