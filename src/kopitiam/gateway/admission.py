"""How much the gateway takes on at once, and whether it takes anything at all."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kopitiam.gateway.problems import RETRY_SECONDS, Refusal, busy, idle

MOST_MESSAGE_BYTES = 64 << 10
_MOST_WAITING = 8  # of the threads that all calls share
_JSON, _FORM = b"application/json", b"application/x-www-form-urlencoded"


class Admission:
    """Bodies under way are counted and bounded; requests under way are counted, to wait for when closing."""

    def __init__(self, max_bodies: int) -> None:
        self._max_bodies = max_bodies
        self._places = threading.BoundedSemaphore(_MOST_WAITING)
        self.bodies = 0
        self.requests = 0
        self.is_closing = False

    @contextmanager
    def body(self) -> Iterator[None]:
        if self.bodies >= self._max_bodies:
            raise busy(f"{self.bodies} chunks are under way already")
        self.bodies += 1
        try:
            yield
        finally:
            self.bodies -= 1

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """For whoever waits on a thread for something that takes its time: others need threads too."""
        if not self._places.acquire(blocking=False):
            raise Refusal(503, "not_ready", f"{_MOST_WAITING} others wait for such answers; try again")
        try:
            yield
        finally:
            self._places.release()


class Door:
    """Outermost: once closing, new requests get 503 while those inside finish. What is posted is JSON,
    bounded in size and in patience."""

    def __init__(self, app: ASGIApp, admission: Admission, idle_seconds: float) -> None:
        self._app = app
        self._admission = admission
        self._idle_seconds = idle_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        if self._admission.is_closing:
            return await _refuse(send)
        self._admission.requests += 1
        try:
            if scope["method"] == "POST":  # what is PUT goes to a file, and has bounds of its own
                message = _from_page(scope, _bounded(receive, self._idle_seconds))
                await self._app(_as_json(scope), message, send)
            else:
                await self._app(scope, receive, send)
        finally:
            self._admission.requests -= 1
        return None


def _bounded(receive: Receive, idle_seconds: float) -> Receive:
    received, is_whole = 0, False

    async def bounded() -> Message:
        nonlocal received, is_whole
        try:
            async with asyncio.timeout(None if is_whole else idle_seconds):
                message = await receive()
        except TimeoutError:
            raise HTTPException(408, idle(idle_seconds)) from None
        is_whole = not message.get("more_body", False)
        received += len(message.get("body", b""))
        if received > MOST_MESSAGE_BYTES:
            raise HTTPException(413, f"more than {MOST_MESSAGE_BYTES:,} bytes in one message")
        return message

    return bounded


def _as_json(scope: Scope) -> Scope:
    """Who posts by hand seldom says that it is JSON, and curl says that it is a form."""
    if _media_type(scope) not in {b"", _FORM}:
        return scope
    headers = [(name, value) for name, value in scope.get("headers", ()) if name != b"content-type"]
    return {**scope, "headers": [*headers, (b"content-type", _JSON)]}


def _from_page(scope: Scope, receive: Receive) -> Receive:
    """A page of any site may send a form to a gateway on its reader's machine, but no JSON unless asked."""
    by_page = any(name == b"origin" for name, _ in scope.get("headers", ()))
    if not by_page or _media_type(scope) == _JSON:
        return receive

    async def refuse() -> Message:
        raise HTTPException(415, f"from a page, want Content-Type: {_JSON.decode()}")

    return refuse


def _media_type(scope: Scope) -> bytes:
    named: bytes = dict(scope.get("headers", ())).get(b"content-type", b"")
    return named.partition(b";")[0].strip().lower()


async def _refuse(send: Send) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"retry-after", str(RETRY_SECONDS).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    body = b'{"error": "closing", "message": "this gateway is shutting down; try again"}'
    await send({"type": "http.response.body", "body": body})
