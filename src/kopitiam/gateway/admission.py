"""Limits of concurrent work: places for bodies and for waiting threads, and the ASGI middleware that admits
or refuses requests.
"""

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kopitiam.contracts.config import GatewaySection
from kopitiam.gateway.access import HostCheck
from kopitiam.gateway.neighbours import allowing, foreign_origin, is_preflight, send_preflight
from kopitiam.gateway.problems import RETRY_SECONDS, Refusal
from kopitiam.gateway.rates import BodyPace

MOST_MESSAGE_BYTES = 64 << 10
_PLACE_SECONDS = 5.0  # a body waits this long for a place, then 429
_POLL_SECONDS = 0.1  # between two searches for a slow body while a body waits
_MOST_WAITING = 8  # threads; all calls share one pool of them
_JSON, _FORM = b"application/json", b"application/x-www-form-urlencoded"


class Admission:
    """Bounds the bodies under way, and counts requests so that closing can wait for them.

    One owner has at most half of the places for bodies. A body that finds no free place waits, and evicts a
    body that comes too slowly.
    """

    def __init__(self, limits: GatewaySection) -> None:
        self._limits = limits
        self._most_per_owner = max(1, limits.max_bodies // 2)
        self._under_way: dict[BodyPace, str] = {}  # body -> owner
        self._freed = asyncio.Event()
        self._waiting_places = threading.BoundedSemaphore(_MOST_WAITING)
        self.requests = 0
        self.is_closing = False

    @property
    def bodies(self) -> int:
        return len(self._under_way)

    @asynccontextmanager
    async def body(self, owner: str) -> AsyncIterator[BodyPace]:
        """Hold a place for a body. Raises Refusal (429) if none becomes free in time."""
        await self._wait_for_place(owner)
        pace = BodyPace(self._limits)
        self._under_way[pace] = owner
        try:
            yield pace
        finally:
            del self._under_way[pace]
            self._freed.set()
            self._freed = asyncio.Event()

    async def _wait_for_place(self, owner: str) -> None:
        now = asyncio.get_running_loop().time
        until = now() + _PLACE_SECONDS
        while others := self._blocking(owner):
            if now() >= until:
                raise Refusal(429, "busy", f"{len(others)} chunks are under way already")
            if slow := next((pace for pace in others if pace.is_slow), None):
                slow.evict()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS):
                    await self._freed.wait()

    def _blocking(self, owner: str) -> list[BodyPace]:
        """Return the bodies of which one must end before this owner gets a place; empty if one is free."""
        own = [pace for pace, body_owner in self._under_way.items() if body_owner == owner]
        if len(own) >= self._most_per_owner:
            return own
        return list(self._under_way) if self.bodies >= self._limits.max_bodies else []

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Hold one of few places for a call that blocks its thread for long. Raises Refusal (503)."""
        if not self._waiting_places.acquire(blocking=False):
            raise Refusal(
                503, "not_ready", f"{_MOST_WAITING} calls wait for provisional answers already; try again"
            )
        try:
            yield
        finally:
            self._waiting_places.release()


class AdmissionMiddleware:
    """The outermost ASGI layer. It refuses requests for other hosts and changes from other sites. Once the
    gateway is closing, new requests get 503 while those under way finish. Bodies of POST are JSON, bounded in
    size and time."""

    def __init__(
        self,
        app: ASGIApp,
        admission: Admission,
        limits: GatewaySection,
        host_names: frozenset[str] | None = None,
        neighbours: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        """`host_names` replaces the names in `limits` to which the gateway answers; `neighbours` gives the
        origins whose pages may call it."""
        self._app = app
        self._admission = admission
        self._limits = limits
        self._hosts = HostCheck(limits.host_names if host_names is None else host_names)
        self._neighbours = neighbours

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        origin = foreign_origin(scope)
        neighbour = origin if origin and origin in await run_in_threadpool(self._neighbours) else None
        if neighbour:
            send = allowing(send, neighbour)
        if refusal := self._hosts.refusal(scope, neighbour):
            return await _send(send, refusal)
        if neighbour and is_preflight(scope):
            return await send_preflight(send)
        if self._admission.is_closing:
            return await _send(send, Refusal(503, "closing", "this gateway is shutting down; try again"))
        self._admission.requests += 1
        try:
            if scope["method"] == "POST":  # PUT streams to a file, with limits of its own
                bounded = _require_json_from_pages(scope, _bounded(receive, self._limits))
                await self._app(_as_json(scope), bounded, send)
            else:
                await self._app(scope, receive, send)
        finally:
            self._admission.requests -= 1
        return None


def _bounded(receive: Receive, limits: GatewaySection) -> Receive:
    """Limit the size and the time of a body that is read into memory."""
    received, is_whole = 0, False
    pace: BodyPace | None = None

    async def bounded() -> Message:
        nonlocal received, is_whole, pace
        pace = pace or BodyPace(limits)  # starts at the first read: a client does not cause the time before
        if is_whole:  # the next message is the disconnect
            return await receive()
        try:
            async with pace.enforced():
                message = await receive()
        except Refusal as late:
            raise HTTPException(late.status, str(late)) from None
        size = len(message.get("body", b""))
        pace.add(size)
        is_whole = not message.get("more_body", False)
        received += size
        if received > MOST_MESSAGE_BYTES:
            raise HTTPException(413, f"more than {MOST_MESSAGE_BYTES:,} bytes in one message")
        return message

    return bounded


def _as_json(scope: Scope) -> Scope:
    """Read a body without a Content-Type, or with that of a form, as JSON: curl sends the latter."""
    if _media_type(scope) not in {b"", _FORM}:
        return scope
    headers = [(name, value) for name, value in scope.get("headers", ()) if name != b"content-type"]
    return {**scope, "headers": [*headers, (b"content-type", _JSON)]}


def _require_json_from_pages(scope: Scope, receive: Receive) -> Receive:
    """Refuse the body of a web page that is not declared as JSON. Browsers let a page of any site send a form
    to a gateway on the reader's machine, but send JSON only after a CORS preflight."""
    is_from_page = any(name == b"origin" for name, _ in scope.get("headers", ()))
    if not is_from_page or _media_type(scope) == _JSON:
        return receive

    async def refuse() -> Message:
        raise HTTPException(415, f"from a page, expected Content-Type: {_JSON.decode()}")

    return refuse


def _media_type(scope: Scope) -> bytes:
    header: bytes = dict(scope.get("headers", ())).get(b"content-type", b"")
    return header.partition(b";")[0].strip().lower()


async def _send(send: Send, refusal: Refusal) -> None:
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    if refusal.status == 503:
        headers.append((b"retry-after", str(RETRY_SECONDS).encode()))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(refusal.body).encode()})
