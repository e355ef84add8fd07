"""How much the gateway takes on at once, and whether it takes anything at all."""

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kopitiam.contracts.config import GatewaySection
from kopitiam.gateway.hosts import HostCheck
from kopitiam.gateway.pace import Pace
from kopitiam.gateway.problems import RETRY_SECONDS, Refusal, busy

MOST_MESSAGE_BYTES = 64 << 10
_PLACE_SECONDS = 5.0  # a body waits for a place, before 429
_LOOK_SECONDS = 0.1  # for bodies that have become slow meanwhile
_MOST_WAITING = 8  # of the threads that all calls share
_JSON, _FORM = b"application/json", b"application/x-www-form-urlencoded"


class Admission:
    """Bodies under way are counted and bounded; requests under way are counted, to wait for when closing.

    One owner has at most half of the places for bodies. A body that finds none free waits for one for a
    while, and takes that of a body which comes too slowly.
    """

    def __init__(self, limits: GatewaySection) -> None:
        self._limits = limits
        self._of_one_owner = max(1, limits.max_bodies // 2)
        self._under_way: dict[Pace, str] = {}  # with the owner of each
        self._freed = asyncio.Event()
        self._places = threading.BoundedSemaphore(_MOST_WAITING)
        self.requests = 0
        self.is_closing = False

    @property
    def bodies(self) -> int:
        return len(self._under_way)

    @asynccontextmanager
    async def body(self, owner: str) -> AsyncIterator[Pace]:
        """A place for a body. Raises Refusal (429) if none gets free in time."""
        await self._free_place(owner)
        pace = Pace(self._limits)
        self._under_way[pace] = owner
        try:
            yield pace
        finally:
            del self._under_way[pace]
            self._freed.set()
            self._freed = asyncio.Event()

    async def _free_place(self, owner: str) -> None:
        now = asyncio.get_running_loop().time
        until = now() + _PLACE_SECONDS
        while others := self._in_the_way(owner):
            if now() >= until:
                raise busy(f"{len(others)} chunks are under way already")
            if slow := next((pace for pace in others if pace.is_slow), None):
                slow.give_way()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._freed.wait()

    def _in_the_way(self, owner: str) -> list[Pace]:
        """Bodies of which one has to end before this owner has a place; none if there is one."""
        own = [pace for pace, of in self._under_way.items() if of == owner]
        if len(own) >= self._of_one_owner:
            return own
        return list(self._under_way) if self.bodies >= self._limits.max_bodies else []

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
    """Outermost: requests for other hosts and from other sites are refused. Once closing, new requests get
    503 while those inside finish. What is posted is JSON, bounded in size and in time."""

    def __init__(self, app: ASGIApp, admission: Admission, limits: GatewaySection) -> None:
        self._app = app
        self._admission = admission
        self._limits = limits
        self._hosts = HostCheck(limits.host_names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        if trespass := self._hosts.trespass(scope):
            return await _refuse(send, trespass.status, trespass.error, trespass.message)
        if self._admission.is_closing:
            return await _refuse(send, 503, "closing", "this gateway is shutting down; try again")
        self._admission.requests += 1
        try:
            if scope["method"] == "POST":  # what is PUT goes to a file, and has bounds of its own
                posted = _from_page(scope, _bounded(receive, self._limits))
                await self._app(_as_json(scope), posted, send)
            else:
                await self._app(scope, receive, send)
        finally:
            self._admission.requests -= 1
        return None


def _bounded(receive: Receive, limits: GatewaySection) -> Receive:
    received, is_whole = 0, False
    pace: Pace | None = None

    async def bounded() -> Message:
        nonlocal received, is_whole, pace
        pace = pace or Pace(limits)  # the time before the first read is the gateway's own
        if is_whole:  # what comes now is that the caller leaves
            return await receive()
        try:
            async with pace.kept():
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


async def _refuse(send: Send, status: int, error: str, message: str) -> None:
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    if status == 503:
        headers.append((b"retry-after", str(RETRY_SECONDS).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    body = json.dumps({"error": error, "message": message}).encode()
    await send({"type": "http.response.body", "body": body})
