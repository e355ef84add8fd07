"""Every error leaves as JSON with an error code, a message without paths, and the right status."""

import asyncio
import errno
import json
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from kopitiam.contracts import errors
from kopitiam.gateway.app import install_error_handlers
from kopitiam.gateway.problems import Refusal, without_paths

RESPONSES = {
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
    Refusal(429, "busy", "much to do"): (429, "busy"),
    Refusal(409, "incomplete", "missing", missing=[[1, 2]]): (409, "incomplete"),
    OSError(28, "No space left on device", "/secret/path"): (503, "unavailable"),
    ZeroDivisionError("secret text"): (500, "internal"),
}
TEXTS = {
    "reading file file:///srv/my%20home/landing/run=x/chunk-00000.parquet. SQLSTATE: KD001": (
        "reading file …/chunk-00000.parquet. SQLSTATE: KD001"
    ),
    "[Errno 2] No such file or directory: '/srv/my home/x.parquet'": (
        "[Errno 2] No such file or directory: '…/x.parquet'"
    ),
    "Failed to open s3a://bucket/landing/x.parquet: denied": "Failed to open …/x.parquet: denied",
    "storage: /srv/kopitiam/landing/: read-only": "storage: …/landing: read-only",
    "(/srv/a/b,c)": "(…/b,c)",
}
UNCHANGED = [
    "Content-Type text/csv: expected application/vnd.apache.parquet or text/csv",
    "ask /api/v1/runs, with and/or without 10/12 at 5 /s",
    "transactions/transactions_202401.csv, line 3: not UTF-8 text",
    "see https://spark.apache.org/docs/latest/",
    "final_amount 'RM 5' is not an amount",
]


def raised(error: Exception) -> httpx.Response:
    app = FastAPI()
    install_error_handlers(app)

    @app.get("/")
    def fail() -> None:
        raise error

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            return await client.get("/")

    return asyncio.run(ask())


@pytest.mark.parametrize("error", RESPONSES, ids=lambda error: type(error).__name__)
def test_an_error_has_its_status_and_code(error: Exception) -> None:
    response = raised(error)
    body: dict[str, Any] = json.loads(response.content)
    assert (response.status_code, body["error"]) == RESPONSES[error]
    assert body["message"]
    assert "secret" not in response.text
    assert ("Retry-After" in response.headers) is (response.status_code in (429, 503))


def test_a_refusal_carries_its_fields() -> None:
    assert raised(Refusal(409, "incomplete", "m", missing=[[1, 2]])).json()["missing"] == [[1, 2]]


def test_a_401_names_the_scheme() -> None:
    assert raised(Refusal(401, "unauthorized", "m")).headers["WWW-Authenticate"] == "Bearer"


def test_only_a_full_disk_comes_with_advice() -> None:
    full = raised(OSError(errno.ENOSPC, "No space left on device")).json()["message"]
    assert full.startswith("storage: No space left on device; free disk space for the gateway's storage")
    assert raised(OSError(errno.EIO, "Input/output error")).json()["message"] == "storage: Input/output error"


@pytest.mark.parametrize("text", TEXTS)
def test_a_path_becomes_its_last_part(text: str) -> None:
    assert without_paths(text) == TEXTS[text]


@pytest.mark.parametrize("text", UNCHANGED)
def test_other_texts_stay(text: str) -> None:
    assert without_paths(text) == text
