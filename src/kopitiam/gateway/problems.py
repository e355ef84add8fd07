"""Refusals: every error leaves the gateway as JSON with a word for programs and a sentence for people."""

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from kopitiam.contracts import errors
from kopitiam.contracts.api import Problem
from kopitiam.contracts.public_text import without_paths
from kopitiam.gateway.troubles import storage_trouble

_STATUS = {
    errors.RunNotFound: (404, "not_found"),
    errors.RunOver: (410, "over"),
    errors.TableSealed: (409, "sealed"),
    errors.IllegalTransition: (409, "conflict"),
    errors.IdempotencyConflict: (409, "conflict"),
    errors.TooManyRuns: (429, "too_many_runs"),
    errors.ConfigError: (422, "invalid"),
    errors.InputError: (422, "invalid"),
    errors.QuestionError: (422, "invalid"),
    errors.Unavailable: (503, "unavailable"),
}
_WORDS = {
    401: "unauthorized",
    404: "not_found",
    405: "method_not_allowed",
    408: "idle",
    413: "too_large",
    415: "media_type",
}
RETRY_SECONDS = 1
_log = logging.getLogger(__name__)


class Refusal(Exception):
    def __init__(self, status: int, error: str, message: str, **figures: Any) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": error, "message": message, **figures}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """As the OpenAPI document tells of them."""
    return {status: {"model": Problem} for status in statuses}


def busy(message: str) -> Refusal:
    return Refusal(429, "busy", message)


def idle(seconds: float) -> str:
    return f"nothing came for {seconds:g} s"


def install(app: FastAPI) -> None:
    @app.exception_handler(Refusal)
    async def refused(_: Request, refusal: Refusal) -> JSONResponse:
        return _answer(refusal.status, refusal.body)

    @app.exception_handler(errors.KopitiamError)
    async def failed(_: Request, error: errors.KopitiamError) -> JSONResponse:
        for kind, (status, word) in _STATUS.items():
            if isinstance(error, kind):
                if status >= 500:
                    _log.error("%s", error)
                return _answer(status, {"error": word, "message": str(error)})
        _log.error("%s", error)
        return _answer(500, {"error": "internal", "message": str(error)})

    @app.exception_handler(OSError)
    async def stuck(_: Request, error: OSError) -> JSONResponse:
        _log.error("storage: %s", error)
        return _answer(503, {"error": "unavailable", "message": storage_trouble(error)})

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> JSONResponse:
        del error  # the server logs it; the caller has no use for its text
        return _answer(500, {"error": "internal", "message": "the gateway failed at this; its log says why"})

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        flaw = error.errors()[0]
        where = ".".join(str(part) for part in flaw["loc"])
        # A table or number that cannot be is a place that is not there.
        status = 404 if flaw["loc"][:1] == ("path",) else 422
        return _answer(status, {"error": _WORDS.get(status, "invalid"), "message": f"{where}: {flaw['msg']}"})

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        body = {"error": _WORDS.get(error.status_code, "refused"), "message": str(error.detail)}
        return JSONResponse(body, error.status_code, headers=error.headers)


def _answer(status: int, body: dict[str, Any]) -> JSONResponse:
    headers = {"Retry-After": str(RETRY_SECONDS)} if status in {429, 503} else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    body = body | {"message": without_paths(body["message"])}
    return JSONResponse(body, status, headers=headers)
