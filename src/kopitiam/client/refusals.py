"""What a gateway refuses, as the errors that a caller can tell apart."""

from typing import NoReturn

from pydantic import ValidationError

from kopitiam.contracts.api import Problem
from kopitiam.contracts.errors import (
    ConfigError,
    InputError,
    KopitiamError,
    RunError,
    RunNotFound,
    RunOver,
    ServiceError,
    TableSealed,
)
from kopitiam.contracts.runs import Span

_BY_STATUS: dict[int, type[KopitiamError]] = {
    401: ConfigError,
    403: ConfigError,
    404: RunNotFound,
    410: RunOver,
    413: InputError,
    415: InputError,
    422: InputError,
}
_WRONG_ADDRESS = frozenset({"host", "origin"})  # the gateway, or a proxy before it, has another name


class ConflictError(RunError):
    """Something else is already there."""


class IncompleteError(RunError):
    """END came before everything else did."""

    def __init__(self, message: str, missing: tuple[Span, ...]) -> None:
        super().__init__(message)
        self.missing = missing


def said(body: bytes, secret: str | None) -> str:
    """The gateway's own sentence, if the body has one."""
    problem = _problem(body)
    return _without(secret, problem.message) if problem else ""


def refuse(server: str, status: int, body: bytes, secret: str | None) -> NoReturn:
    problem = _problem(body)
    if problem is None:
        raise ServiceError(f"{server} answers {status}, not as a Kopitiam gateway does")
    message = _without(secret, problem.message)
    if status == 409:
        raise _clash(problem, message)
    if problem.error in _WRONG_ADDRESS:
        raise ConfigError(f"{server}: {message}")
    kind = _BY_STATUS.get(status)
    if kind is ConfigError:
        raise ConfigError(f"{server} refuses the token: {message}")
    if kind is not None:
        raise kind(message)
    raise ServiceError(f"{server} answers {status}: {message}")


def _clash(problem: Problem, message: str) -> KopitiamError:
    if problem.error == "incomplete":
        found = (problem.model_extra or {}).get("missing")
        try:
            missing = tuple((int(first), int(last)) for first, last in found or ())
        except (TypeError, ValueError):
            missing = ()
        return IncompleteError(message, missing)
    if problem.error == "sealed":
        return TableSealed(message)
    return ConflictError(message)


def _problem(body: bytes) -> Problem | None:
    try:
        return Problem.model_validate_json(body)
    except ValidationError:
        return None


def _without(secret: str | None, text: str) -> str:
    return text.replace(secret, "***") if secret else text
