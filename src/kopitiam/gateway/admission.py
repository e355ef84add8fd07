"""How much the gateway takes on at once, and whether it takes anything at all."""

from collections.abc import Iterator
from contextlib import contextmanager

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kopitiam.gateway.problems import RETRY_SECONDS, busy

MOST_MESSAGE_BYTES = 64 << 10


class Admission:
    """Bodies under way are counted and bounded; requests under way are counted, to wait for when closing."""

    def __init__(self, max_bodies: int) -> None:
        self._max_bodies = max_bodies
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


class Door:
    """Outermost: once closing, new requests get 503 while those inside finish. Bounds JSON messages."""

    def __init__(self, app: ASGIApp, admission: Admission) -> None:
        self._app = app
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        if self._admission.is_closing:
            return await _refuse(send)
        self._admission.requests += 1
        try:
            is_message = scope["method"] == "POST"  # what is PUT goes to a file, and has bounds of its own
            await self._app(scope, _bounded(receive) if is_message else receive, send)
        finally:
            self._admission.requests -= 1
        return None


def _bounded(receive: Receive) -> Receive:
    received = 0

    async def bounded() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > MOST_MESSAGE_BYTES:
            raise HTTPException(413, f"more than {MOST_MESSAGE_BYTES:,} bytes in one message")
        return message

    return bounded


async def _refuse(send: Send) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"retry-after", str(RETRY_SECONDS).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    body = b'{"error": "closing", "message": "this gateway is shutting down; try again"}'
    await send({"type": "http.response.body", "body": body})
