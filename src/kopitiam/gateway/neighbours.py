"""The other gateways of the fleet, to which a page in a browser turns when its own gateway is gone.

A browser lets a page call another site only if that site allows it: so a gateway answers pages of the fleet's
gateways, and no others. The registry says which gateways there are.
"""

import re
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.types import Message, Scope, Send

from kopitiam.contracts.api import ATTEMPT_HEADER
from kopitiam.contracts.errors import Unavailable

if TYPE_CHECKING:
    from kopitiam.registry.registry import Registry

_KNOWN_SECONDS = 5.0
_ORIGIN = re.compile(r"https?://(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_PREFLIGHT = (
    (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, DELETE"),
    (b"access-control-allow-headers", b"authorization, content-type, content-digest"),
    (b"access-control-max-age", b"600"),
)
_SHOWN_HEADERS = f"date, retry-after, content-disposition, {ATTEMPT_HEADER.lower()}".encode()


class Neighbours:
    """The origins of the fleet's gateways, read from the registry at most every few seconds."""

    def __init__(self, registry: "Registry", now: Callable[[], float] = time.monotonic) -> None:
        self._registry, self._now = registry, now
        self._origins: frozenset[str] = frozenset()
        self._read_at: float | None = None
        self._lock = threading.Lock()

    def origins(self) -> frozenset[str]:
        """Blocks while the registry is read. The last known ones if it is unavailable."""
        with self._lock:
            if self._read_at is None or self._now() - self._read_at > _KNOWN_SECONDS:
                self._read_at = self._now()
                try:
                    urls = [node.url for node in self._registry.nodes() if node.kind == "gateway"]
                except Unavailable:
                    return self._origins
                origins = (_ORIGIN.match(url) for url in urls if url)
                self._origins = frozenset(origin[0].lower() for origin in origins if origin)
            return self._origins


def foreign_origin(scope: Scope) -> str | None:
    """The origin of the page that makes the request, if it is another one than that of its Host."""
    headers = dict(scope.get("headers", ()))
    origin = headers.get(b"origin", b"").decode("latin-1").lower()
    is_same = origin.partition("://")[2] == headers.get(b"host", b"").decode("latin-1").lower()
    return origin if origin and not is_same else None


def is_preflight(scope: Scope) -> bool:
    return scope["method"] == "OPTIONS" and b"access-control-request-method" in dict(scope["headers"])


async def send_preflight(send: Send) -> None:
    """Tell the browser what a page of a neighbour may send."""
    await send({"type": "http.response.start", "status": 204, "headers": list(_PREFLIGHT)})
    await send({"type": "http.response.body", "body": b""})


def allowing(send: Send, origin: str) -> Send:
    """Add the headers by which the browser lets a page of this origin read the response."""
    added = (
        (b"access-control-allow-origin", origin.encode()),
        (b"access-control-expose-headers", _SHOWN_HEADERS),
        (b"vary", b"Origin"),
    )

    async def allow(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        await send(message)

    return allow
