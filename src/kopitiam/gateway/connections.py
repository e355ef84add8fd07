"""Limits on connections: their number, and the time and size of request heads and responses.

uvicorn limits neither the time nor the size of the head of a request, nor the time that a client takes to
read a response. A connection over a limit is closed; others are not affected. The protocol counts connections
and answers any above the limit with 503. With TLS the listener counts them, since the protocol only sees a
connection after its handshake.
"""

import asyncio
import ipaddress
import json
import socket
import weakref
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kopitiam.contracts.config import GatewaySection
from kopitiam.gateway.access import machine_of
from kopitiam.gateway.problems import RETRY_SECONDS

MOST_HEAD_BYTES = 64 << 10


class Connections:
    """Counts open connections. One machine may have at most half of them, unless it is a proxy."""

    def __init__(self, limits: GatewaySection) -> None:
        self._most = limits.max_connections
        self._most_of_one = max(1, limits.max_connections // 2)
        self._proxies = [ipaddress.ip_network(proxy) for proxy in limits.proxies]
        self._by_machine: Counter[str] = Counter()

    def add(self, machine: str) -> bool:
        """Count a connection; False if that would exceed a limit."""
        is_over = self._by_machine.total() >= self._most
        if is_over or (self._by_machine[machine] >= self._most_of_one and not self._is_proxy(machine)):
            return False
        self._by_machine[machine] += 1
        return True

    def remove(self, machine: str) -> None:
        self._by_machine[machine] -= 1
        if not self._by_machine[machine]:
            del self._by_machine[machine]

    def _is_proxy(self, machine: str) -> bool:
        try:
            address = ipaddress.ip_network(machine)
        except ValueError:
            return False
        return any(proxy.version == address.version and proxy.overlaps(address) for proxy in self._proxies)


class Listener(socket.socket):
    """The listening socket of a gateway. If `connections` is set it counts connections as they are accepted,
    and closes any above the limit without a response."""

    connections: Connections | None = None

    def accept(self) -> tuple[socket.socket, Any]:
        accepted, address = super().accept()
        if self.connections is None:
            return accepted, address
        machine = machine_of(address[0])
        if not self.connections.add(machine):
            accepted.close()
            raise ConnectionAbortedError  # the event loop accepts the next one
        counted = _CountedSocket(self.family, self.type, self.proto, fileno=accepted.detach())
        counted.uncount = weakref.finalize(counted, self.connections.remove, machine)
        return counted, address


class _CountedSocket(socket.socket):
    uncount: Callable[[], object]  # idempotent

    def close(self) -> None:
        super().close()
        self.uncount()


def bounded_protocol(limits: GatewaySection, connections: Connections | None) -> type[asyncio.Protocol]:
    """Return the protocol class for uvicorn. `connections` counts them; None if the listener does."""

    class Bounded(_BoundedProtocol):
        def __init__(self, *parts: Any, **named: Any) -> None:
            super().__init__(limits, connections, *parts, **named)

    return Bounded


class _BoundedProtocol(HttpToolsProtocol):
    def __init__(
        self, limits: GatewaySection, connections: Connections | None, *parts: Any, **named: Any
    ) -> None:
        super().__init__(*parts, **named)
        self._limits = limits
        self._counted = connections
        self._machine: str | None = None  # set once the connection is counted
        self._head_bytes = 0
        self._has_head_begun = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._rest_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._counted is not None:
            machine = machine_of(self.client[0]) if self.client else ""
            if not self._counted.add(machine):
                self._close_with(503, "busy", "too many connections; try again")
                return
            self._machine = machine
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self._head_timer, self._write_timer, self._rest_timer):
            _cancel(timer)
        if self._counted is not None and self._machine is not None:
            self._counted.remove(self._machine)
            self._machine = None

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._head_timer is not None and self._has_head_begun:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self._close_with(431, "too_large", f"more than {MOST_HEAD_BYTES:,} bytes before the body")
        self._keep_alive()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._has_head_begun, self._head_bytes = True, 0
        if self._head_timer is None:  # after an earlier request of the same connection
            self._await_head()

    def on_headers_complete(self) -> None:
        self._has_head_begun = False
        _cancel(self._head_timer)
        self._head_timer = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        _cancel(self._rest_timer)
        self._rest_timer = None
        super().on_message_complete()

    def _keep_alive(self) -> None:
        """Restart the keep-alive timer. uvicorn stops it at any byte, even if that begins no request."""
        is_waiting = self._head_timer or self._rest_timer or self.timeout_keep_alive_task
        is_answering = self.cycle is None or not self.cycle.response_complete
        if not (is_waiting or is_answering or self.transport.is_closing()):
            self.timeout_keep_alive_task = self._after(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def on_response_complete(self) -> None:
        """Read and drop the rest of the body of a refused request for a while: a client that is still sending
        would not see the response if the connection were closed at once."""
        super().on_response_complete()
        if self.cycle.more_body and self.cycle.response_complete and not self.transport.is_closing():
            self._rest_timer = self._after(self._limits.head_seconds, self.transport.close)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self._after(self._limits.idle_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        _cancel(self._write_timer)
        self._write_timer = None

    def _await_head(self) -> None:
        self._head_timer = self._after(self._limits.head_seconds, self._head_is_late)

    def _head_is_late(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._await_head()  # of the next request; this one is being answered
        elif self._has_head_begun:
            self._close_with(408, "idle", f"no whole request within {self._limits.head_seconds:g} s")
        elif not self.transport.is_closing():
            self.transport.close()

    def _after(self, seconds: float, act: Callable[[], None]) -> asyncio.TimerHandle:
        return self.loop.call_later(seconds, act)

    def _close_with(self, status: int, error: str, message: str) -> None:
        if self.transport.is_closing():
            return
        body = json.dumps({"error": error, "message": message}).encode()
        retry = f"Retry-After: {RETRY_SECONDS}\r\n" if status == 503 else ""
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n{retry}Connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
