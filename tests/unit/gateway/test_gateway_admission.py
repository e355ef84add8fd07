"""Places for bodies and waiting calls, and the admission middleware."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import pytest
from starlette.exceptions import HTTPException

from kopitiam.contracts.config import GatewaySection
from kopitiam.gateway import admission as admitting
from kopitiam.gateway.admission import MOST_MESSAGE_BYTES, Admission, AdmissionMiddleware
from kopitiam.gateway.problems import Refusal

LIMITS = GatewaySection()
HOST = (b"host", b"127.0.0.1:8440")


def call(
    middleware: AdmissionMiddleware, method: str = "GET", pieces: tuple[bytes, ...] = (b"",)
) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    coming = iter(pieces)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": next(coming), "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(middleware({"type": "http", "method": method, "headers": [HOST]}, receive, send))
    return sent


def is_full(admission: Admission, owner: str) -> Callable[[], Awaitable[bool]]:
    async def tried() -> bool:
        try:
            async with admission.body(owner):
                return False
        except Refusal as refused:
            assert refused.status == 429
            return True

    return tried


@pytest.fixture
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admitting, "_PLACE_SECONDS", 0.0)


@pytest.mark.usefixtures("without_waiting")
def test_no_more_bodies_than_allowed_are_under_way_and_one_owner_has_half() -> None:
    async def scenario() -> None:
        admission = Admission(GatewaySection(max_bodies=4))
        async with AsyncExitStack() as bodies:
            for _ in range(2):
                await bodies.enter_async_context(admission.body("anna"))
            assert await is_full(admission, "anna")()
            for owner in ("ben", "clara"):
                await bodies.enter_async_context(admission.body(owner))
            assert admission.bodies == 4
            assert await is_full(admission, "dora")()
        assert admission.bodies == 0
        assert not await is_full(admission, "dora")()

    asyncio.run(scenario())


def test_a_body_waits_for_a_place_to_become_free() -> None:
    async def scenario() -> None:
        admission = Admission(GatewaySection(max_bodies=1))
        async with AsyncExitStack() as first:
            await first.enter_async_context(admission.body("anna"))
            second = asyncio.create_task(is_full(admission, "ben")())
            await asyncio.sleep(0)
            assert not second.done()
        assert await second is False

    asyncio.run(scenario())


def test_a_waiting_body_evicts_one_that_is_too_slow() -> None:
    async def scenario() -> None:
        admission = Admission(GatewaySection(max_bodies=1))

        async def dribble() -> None:
            async with admission.body("anna") as pace, pace.enforced():
                while True:
                    pace.add(1)
                    await asyncio.sleep(0.01)

        dribbling = asyncio.create_task(dribble())
        await asyncio.sleep(0)
        assert not await is_full(admission, "ben")()
        with pytest.raises(Refusal) as refused:
            await dribbling
        assert (refused.value.status, refused.value.body["error"]) == (408, "slow")

    asyncio.run(scenario())


def test_a_body_that_fails_frees_its_place() -> None:
    async def scenario() -> None:
        admission = Admission(GatewaySection(max_bodies=1))
        with pytest.raises(OSError, match="full"):
            async with admission.body("anna"):
                raise OSError("full")
        async with admission.body("anna"):
            assert admission.bodies == 1

    asyncio.run(scenario())


def test_requests_under_way_are_counted() -> None:
    admission, seen = Admission(LIMITS), []

    async def app(*_: Any) -> None:
        seen.append(admission.requests)
        raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        call(AdmissionMiddleware(app, admission, LIMITS))
    assert (seen, admission.requests) == ([1], 0)


def test_a_closing_gateway_answers_503() -> None:
    async def app(*_: Any) -> None:
        pytest.fail("the request was admitted")

    admission = Admission(LIMITS)
    admission.is_closing = True
    start, body = call(AdmissionMiddleware(app, admission, LIMITS))
    assert start["status"] == 503
    assert dict(start["headers"])[b"retry-after"]
    assert b'"closing"' in body["body"]


@pytest.mark.parametrize(("method", "is_bounded"), [("POST", True), ("PUT", False)])
def test_bodies_of_post_are_bounded_and_those_of_put_are_not(method: str, is_bounded: bool) -> None:
    async def app(_: Any, receive: Any, __: Any) -> None:
        for _ in range(3):
            await receive()

    pieces = (b"x" * (MOST_MESSAGE_BYTES // 2),) * 3
    middleware = AdmissionMiddleware(app, Admission(LIMITS), LIMITS)
    if is_bounded:
        with pytest.raises(HTTPException) as refused:
            call(middleware, method, pieces)
        assert refused.value.status_code == 413
    else:
        call(middleware, method, pieces)


def headers_seen(method: str, *headers: tuple[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the headers that the application sees, once it has read the body."""
    seen: dict[bytes, bytes] = {}

    async def app(scope: Any, receive: Any, _: Any) -> None:
        await receive()
        seen.update(scope["headers"])

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(_: Any) -> None: ...

    middleware = AdmissionMiddleware(app, Admission(LIMITS), LIMITS)
    asyncio.run(middleware({"type": "http", "method": method, "headers": [HOST, *headers]}, receive, send))
    return seen


@pytest.mark.parametrize(
    "declared", [(), ((b"content-type", b"application/x-www-form-urlencoded; charset=x"),)]
)
def test_a_post_without_a_media_type_or_as_a_form_is_read_as_json(declared) -> None:
    assert headers_seen("POST", *declared) == dict([HOST, (b"content-type", b"application/json")])
    assert headers_seen("PUT", *declared) == dict([HOST, *declared])


def test_other_media_types_stay() -> None:
    for media_type in (b"application/json; charset=utf-8", b"text/csv"):
        assert headers_seen("POST", (b"content-type", media_type))[b"content-type"] == media_type


@pytest.mark.parametrize("media_type", [None, b"application/x-www-form-urlencoded", b"text/plain"])
def test_a_page_cannot_post_a_form(media_type: bytes | None) -> None:
    declared = [] if media_type is None else [(b"content-type", media_type)]
    with pytest.raises(HTTPException) as refused:
        headers_seen("POST", (b"origin", b"http://127.0.0.1:8440"), *declared)
    assert refused.value.status_code == 415
    json = (b"content-type", b"application/json")
    assert headers_seen("POST", (b"origin", b"http://127.0.0.1:8440"), json)[json[0]] == json[1]


def test_a_post_that_stalls_gets_408_and_a_complete_one_does_not() -> None:
    pieces: list[dict[str, Any]] = [{"type": "http.request", "body": b"{", "more_body": True}]

    async def receive() -> dict[str, Any]:
        if pieces:
            return pieces.pop(0)
        await asyncio.Event().wait()
        raise AssertionError

    async def read_on(_: Any, receive: Any, __: Any) -> None:
        while True:
            await receive()

    async def send(_: Any) -> None: ...

    quick = GatewaySection(idle_seconds=0.01)
    scope = {"type": "http", "method": "POST", "headers": [HOST]}
    with pytest.raises(HTTPException) as refused:
        asyncio.run(AdmissionMiddleware(read_on, Admission(quick), quick)(scope, receive, send))
    assert refused.value.status_code == 408

    async def read_and_wait_for_disconnect(_: Any, receive: Any, __: Any) -> None:
        await receive()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(receive(), 0.05)

    pieces.append({"type": "http.request", "body": b"{}", "more_body": False})
    asyncio.run(
        AdmissionMiddleware(read_and_wait_for_disconnect, Admission(quick), quick)(scope, receive, send)
    )


def test_only_a_few_calls_may_block_their_threads() -> None:
    admission = Admission(LIMITS)
    with ExitStack() as places:
        with pytest.raises(Refusal) as refused:
            for _ in range(1000):
                places.enter_context(admission.waiting())
        assert (refused.value.status, refused.value.body["error"]) == (503, "not_ready")
    with admission.waiting():
        pass
