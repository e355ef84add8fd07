"""How much the gateway takes on at once, and whether it takes anything at all."""

from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import ASGIApp, Receive, Scope, Send

from kopitiam.gateway.problems import RETRY_SECONDS, busy


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
    """Outermost: once closing, new requests get 503 while those inside finish."""

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
            await self._app(scope, receive, send)
        finally:
            self._admission.requests -= 1
        return None


async def _refuse(send: Send) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"retry-after", str(RETRY_SECONDS).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    body = b'{"error": "closing", "message": "this gateway is shutting down; try again"}'
    await send({"type": "http.response.body", "body": body})
