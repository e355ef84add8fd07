"""How much is taken on at once, and the door when it closes."""

import asyncio
from contextlib import ExitStack
from typing import Any

import pytest
from starlette.exceptions import HTTPException

from kopitiam.gateway.admission import MOST_MESSAGE_BYTES, Admission, Door
from kopitiam.gateway.problems import Refusal

IDLE_SECONDS = 30.0


def call(door: Door, method: str = "GET", pieces: tuple[bytes, ...] = (b"",)) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    coming = iter(pieces)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": next(coming), "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(door({"type": "http", "method": method}, receive, send))
    return sent


def test_no_more_bodies_than_allowed_are_under_way() -> None:
    admission = Admission(2)
    with admission.body():
        with admission.body():
            with pytest.raises(Refusal) as refused, admission.body():
                pytest.fail("a third one was let in")
            assert refused.value.status == 429
        with admission.body():
            assert admission.bodies == 2
    assert admission.bodies == 0


def test_a_body_that_fails_makes_room() -> None:
    admission = Admission(1)
    with pytest.raises(OSError, match="full"), admission.body():
        raise OSError("full")
    with admission.body():
        assert admission.bodies == 1


def test_requests_are_counted_while_they_are_inside() -> None:
    admission, seen = Admission(1), []

    async def app(*_: Any) -> None:
        seen.append(admission.requests)
        raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        call(Door(app, admission, IDLE_SECONDS))
    assert (seen, admission.requests) == ([1], 0)


def test_a_closing_door_tells_to_try_again() -> None:
    async def app(*_: Any) -> None:
        pytest.fail("it was let in")

    admission = Admission(1)
    admission.is_closing = True
    start, body = call(Door(app, admission, IDLE_SECONDS))
    assert start["status"] == 503
    assert dict(start["headers"])[b"retry-after"]
    assert b'"closing"' in body["body"]


@pytest.mark.parametrize(("method", "is_bounded"), [("POST", True), ("PUT", False)])
def test_messages_are_bounded_and_bodies_are_not(method: str, is_bounded: bool) -> None:
    async def app(_: Any, receive: Any, __: Any) -> None:
        for _ in range(3):
            await receive()

    pieces = (b"x" * (MOST_MESSAGE_BYTES // 2),) * 3
    door = Door(app, Admission(1), IDLE_SECONDS)
    if is_bounded:
        with pytest.raises(HTTPException) as refused:
            call(door, method, pieces)
        assert refused.value.status_code == 413
    else:
        call(door, method, pieces)


def headers_seen(method: str, *headers: tuple[bytes, bytes]) -> dict[bytes, bytes]:
    """By the application, once it has read what was posted."""
    seen: dict[bytes, bytes] = {}

    async def app(scope: Any, receive: Any, _: Any) -> None:
        await receive()
        seen.update(scope["headers"])

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(_: Any) -> None: ...

    door = Door(app, Admission(1), IDLE_SECONDS)
    asyncio.run(door({"type": "http", "method": method, "headers": headers}, receive, send))
    return seen


@pytest.mark.parametrize("said", [(), ((b"content-type", b"application/x-www-form-urlencoded; charset=x"),)])
def test_what_is_posted_by_hand_is_json(said) -> None:
    assert headers_seen("POST", (b"host", b"here"), *said) == {
        b"host": b"here",
        b"content-type": b"application/json",
    }
    assert headers_seen("PUT", *said) == dict(said)


def test_what_says_what_it_is_stays_as_it_is() -> None:
    for media_type in (b"application/json; charset=utf-8", b"text/csv"):
        assert headers_seen("POST", (b"content-type", media_type)) == {b"content-type": media_type}


@pytest.mark.parametrize("media_type", [None, b"application/x-www-form-urlencoded", b"text/plain"])
def test_a_page_of_another_site_cannot_post_a_form(media_type: bytes | None) -> None:
    said = [] if media_type is None else [(b"content-type", media_type)]
    with pytest.raises(HTTPException) as refused:
        headers_seen("POST", (b"origin", b"https://elsewhere"), *said)
    assert refused.value.status_code == 415
    json = (b"content-type", b"application/json")
    assert headers_seen("POST", (b"origin", b"http://127.0.0.1:8440"), json)[json[0]] == json[1]


def test_a_message_that_stalls_is_given_up_and_one_that_is_whole_is_not() -> None:
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

    scope = {"type": "http", "method": "POST"}
    with pytest.raises(HTTPException) as refused:
        asyncio.run(Door(read_on, Admission(1), 0.01)(scope, receive, send))
    assert refused.value.status_code == 408

    async def read_and_wait_for_the_caller_to_leave(_: Any, receive: Any, __: Any) -> None:
        await receive()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(receive(), 0.05)

    pieces.append({"type": "http.request", "body": b"{}", "more_body": False})
    asyncio.run(Door(read_and_wait_for_the_caller_to_leave, Admission(1), 0.01)(scope, receive, send))


def test_no_more_than_a_few_wait_on_threads() -> None:
    admission = Admission(1)
    with ExitStack() as places:
        with pytest.raises(Refusal) as refused:
            for _ in range(1000):
                places.enter_context(admission.waiting())
        assert (refused.value.status, refused.value.body["error"]) == (503, "not_ready")
    with admission.waiting():
        pass
