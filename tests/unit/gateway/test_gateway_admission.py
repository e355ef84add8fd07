"""How much is taken on at once, and the door when it closes."""

import asyncio
from typing import Any

import pytest
from starlette.exceptions import HTTPException

from kopitiam.gateway.admission import MOST_MESSAGE_BYTES, Admission, Door
from kopitiam.gateway.problems import Refusal


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
        call(Door(app, admission))
    assert (seen, admission.requests) == ([1], 0)


def test_a_closing_door_tells_to_try_again() -> None:
    async def app(*_: Any) -> None:
        pytest.fail("it was let in")

    admission = Admission(1)
    admission.is_closing = True
    start, body = call(Door(app, admission))
    assert start["status"] == 503
    assert dict(start["headers"])[b"retry-after"]
    assert b'"closing"' in body["body"]


@pytest.mark.parametrize(("method", "is_bounded"), [("POST", True), ("PUT", False)])
def test_messages_are_bounded_and_bodies_are_not(method: str, is_bounded: bool) -> None:
    async def app(_: Any, receive: Any, __: Any) -> None:
        for _ in range(3):
            await receive()

    pieces = (b"x" * (MOST_MESSAGE_BYTES // 2),) * 3
    door = Door(app, Admission(1))
    if is_bounded:
        with pytest.raises(HTTPException) as refused:
            call(door, method, pieces)
        assert refused.value.status_code == 413
    else:
        call(door, method, pieces)
