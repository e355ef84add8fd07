"""Every error leaves as JSON with a word and a sentence, and the right status."""

import asyncio
import errno
import json
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from kopitiam.contracts import errors
from kopitiam.gateway import problems

KNOWN = {
    errors.RunNotFound("no run x"): (404, "not_found"),
    errors.RunOver("run x is ended"): (410, "over"),
    errors.TableSealed("sealed"): (409, "sealed"),
    errors.IllegalTransition("no way"): (409, "conflict"),
    errors.IdempotencyConflict("other"): (409, "conflict"),
    errors.TooManyRuns("many"): (429, "too_many_runs"),
    errors.ConfigError("top 0"): (422, "invalid"),
    errors.InputError("no column"): (422, "invalid"),
    errors.RegistryUnavailable("away"): (503, "unavailable"),
    errors.Unavailable("storage: '/secret/home/landing' is read-only"): (503, "unavailable"),
    errors.KopitiamError("else"): (500, "internal"),
    problems.busy("much to do"): (429, "busy"),
    problems.Refusal(409, "incomplete", "missing", missing=[[1, 2]]): (409, "incomplete"),
    OSError(28, "No space left on device", "/secret/path"): (503, "unavailable"),
    ZeroDivisionError("secret text"): (500, "internal"),
}


def raised(error: Exception) -> httpx.Response:
    app = FastAPI()
    problems.install(app)

    @app.get("/")
    def fail() -> None:
        raise error

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            return await client.get("/")

    return asyncio.run(ask())


@pytest.mark.parametrize("error", KNOWN, ids=lambda error: type(error).__name__)
def test_an_error_has_its_status_and_word(error: Exception) -> None:
    response = raised(error)
    body: dict[str, Any] = json.loads(response.content)
    assert (response.status_code, body["error"]) == KNOWN[error]
    assert body["message"]
    assert "secret" not in response.text
    assert ("Retry-After" in response.headers) is (response.status_code in (429, 503))


def test_a_refusal_carries_its_figures() -> None:
    assert raised(problems.Refusal(409, "incomplete", "m", missing=[[1, 2]])).json()["missing"] == [[1, 2]]


def test_a_missing_token_names_the_scheme() -> None:
    assert raised(problems.Refusal(401, "unauthorized", "m")).headers["WWW-Authenticate"] == "Bearer"


def test_a_full_disk_says_what_to_do_and_other_trouble_does_not() -> None:
    full = raised(OSError(errno.ENOSPC, "No space left on device")).json()["message"]
    assert full.startswith("storage: No space left on device; make room where the gateway stores")
    assert raised(OSError(errno.EIO, "Input/output error")).json()["message"] == "storage: Input/output error"
