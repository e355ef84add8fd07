"""Refusals of a gateway, translated into the errors that callers handle."""

from typing import NoReturn

from pydantic import ValidationError

from kopitiam.contracts.api import Problem
from kopitiam.contracts.errors import (
    ConfigError,
    DataMissing,
    DataSetNotFound,
    InputError,
    KopitiamError,
    RunError,
    RunNotFound,
    RunOver,
    ServiceError,
    TableSealed,
    VersionConflict,
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
_BY_CODE: dict[str, type[KopitiamError]] = {"no_data_set": DataSetNotFound, "data_missing": DataMissing}
_WRONG_ADDRESS = frozenset({"host", "origin"})  # the gateway or its proxy does not accept this host name


class ConflictError(RunError):
    """The gateway already stores other content under this number."""


class IncompleteError(RunError):
    """The gateway lacks chunks that END announced; `missing` are the ranges of their numbers."""

    def __init__(self, message: str, missing: tuple[Span, ...]) -> None:
        super().__init__(message)
        self.missing = missing


def problem_message(body: bytes, secret: str | None) -> str:
    """Return the gateway's message without the secret, or an empty text if the body has no message."""
    problem = _problem(body)
    return _without(secret, problem.message) if problem else ""


def raise_refusal(server: str, status: int, body: bytes, secret: str | None) -> NoReturn:
    """Raise the error that stands for this response; the secret is masked in its message."""
    problem = _problem(body)
    if problem is None:
        raise ServiceError(f"{server} answers {status}: the response is not that of a Kopitiam gateway")
    message = _without(secret, problem.message)
    if status == 409:
        raise _conflict(problem, message)
    if problem.error in _WRONG_ADDRESS:
        raise ConfigError(f"{server}: {message}")
    kind = _BY_CODE.get(problem.error) or _BY_STATUS.get(status)
    if kind is ConfigError:
        raise ConfigError(f"{server} refuses the token: {message}")
    if kind is not None:
        raise kind(message)
    raise ServiceError(f"{server} answers {status}: {message}")


def _conflict(problem: Problem, message: str) -> KopitiamError:
    if problem.error == "incomplete":
        spans = (problem.model_extra or {}).get("missing")
        try:
            missing = tuple((int(first), int(last)) for first, last in spans or ())
        except (TypeError, ValueError):
            missing = ()
        return IncompleteError(message, missing)
    if problem.error == "sealed":
        return TableSealed(message)
    if problem.error == "version":
        newest = (problem.model_extra or {}).get("newest")
        return VersionConflict(message, newest if isinstance(newest, int) else 0)
    return ConflictError(message)


def _problem(body: bytes) -> Problem | None:
    try:
        return Problem.model_validate_json(body)
    except ValidationError:
        return None


def _without(secret: str | None, text: str) -> str:
    return text.replace(secret, "***") if secret else text
