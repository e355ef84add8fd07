"""HTTP requests to a gateway, retried with backoff while the failure is temporary.

Exceptions of the HTTP library and refusals of the gateway become Kopitiam's own errors here and nowhere else.
The calls themselves are in `calls`.
"""

import copy
import logging
import math
import os
import random
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import NoReturn, TypeVar

import httpx

from kopitiam.client.refusals import problem_message, raise_refusal
from kopitiam.contracts.errors import ConfigError, InputError, ServiceError, Unavailable

PATIENCE_SECONDS = 120.0
CONNECTIONS = 4
_CONNECT_SECONDS = 5.0
_LEAST_SECONDS = 1.0
_ANSWER_SECONDS = 60.0
_KEEP_ALIVE_SECONDS = 4.0  # common servers close idle connections after 5 s
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_PIECE = 1 << 20
_TEMPORARY = frozenset({408, 429, 502, 503, 504})
_log = logging.getLogger(__name__)
Result = TypeVar("Result")


class _TemporaryError(Exception):
    """A failure that may be over soon; the call is retried after at least `wait_seconds`."""

    def __init__(self, what: str, wait_seconds: float = 0.0) -> None:
        super().__init__(what)
        self.wait_seconds = wait_seconds


class Transport:
    """Sends requests from any thread over shared, kept-alive connections.

    A temporary failure is retried for `patience_seconds`; then Unavailable is raised. `on_trouble` is called
    with each temporary failure. Tests replace `sleep` and `clock`.
    """

    def __init__(
        self,
        server: str,
        token: str | None = None,
        *,
        connections: int = CONNECTIONS,
        patience_seconds: float = PATIENCE_SECONDS,
        verify: bool | str | Path = True,
        sleep: Callable[[float], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_trouble: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.server = _checked_server(server)
        self.connections = connections
        self.clock = clock
        self._token = _checked_token(token)
        self._patience_seconds = patience_seconds
        self._sleep = sleep
        self._on_trouble = on_trouble
        self._abandoned = threading.Event()
        self._http = httpx.Client(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            verify=_trust(verify) if self.server.startswith("https:") else False,  # costly to set up
            limits=httpx.Limits(
                max_keepalive_connections=connections + 2, keepalive_expiry=_KEEP_ALIVE_SECONDS
            ),
        )

    def branch(self) -> "Transport":
        """Return a transport that shares the connections and can be abandoned separately."""
        branch = copy.copy(self)
        branch._abandoned = threading.Event()
        return branch

    def abandon(self) -> None:
        """Make all calls that wait for a retry raise Unavailable now."""
        self._abandoned.set()

    def close(self) -> None:
        self.abandon()
        self._http.close()

    def call(
        self, method: str, path: str, content: bytes | None = None, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        """Return the successful response of an idempotent call."""

        def attempt(timeout: httpx.Timeout) -> httpx.Response:
            url = self._url(path)
            response = self._http.request(method, url, content=content, headers=headers, timeout=timeout)
            self._raise_for_status(response)
            return response

        return self._retry(attempt)

    def fetch(self, path: str, target: Path) -> None:
        """Download to the file `target`, which appears only when it is complete."""
        temporary = target.with_name(f".{target.name}.{os.getpid()}.partial")

        def attempt(timeout: httpx.Timeout) -> None:
            with self._http.stream("GET", self._url(path), timeout=timeout) as response:
                if not response.is_success:
                    response.read()
                self._raise_for_status(response)
                with temporary.open("wb") as file:
                    for piece in response.iter_bytes(_PIECE):
                        file.write(piece)

        try:
            self._retry(attempt)
            temporary.replace(target)
        except OSError as error:
            raise InputError(f"{target}: cannot be written: {error.strerror}") from None
        finally:
            temporary.unlink(missing_ok=True)

    def lines(self, path: str) -> Iterator[str]:
        """Yield the lines of a streamed response as they arrive; ends early if the connection breaks."""

        def attempt(timeout: httpx.Timeout) -> httpx.Response:
            request = self._http.build_request("GET", self._url(path), timeout=timeout)
            response = self._http.send(request, stream=True)
            if not response.is_success:
                response.read()
            self._raise_for_status(response)
            return response

        response = self._retry(attempt)
        try:
            yield from response.iter_lines()
        except httpx.TransportError:
            return
        finally:
            response.close()

    def sleep(self, seconds: float) -> None:
        """Wait, but no longer than until the transport is abandoned."""
        if self._sleep is None:
            self._abandoned.wait(seconds)
        else:
            self._sleep(seconds)

    def _retry(self, attempt: Callable[[httpx.Timeout], Result]) -> Result:
        started = self.clock()
        remaining = self._patience_seconds
        pauses = _pauses()
        for tries in count(1):
            if self._abandoned.is_set():
                raise Unavailable(f"{self.server}: the call was abandoned")
            try:
                with _translated():
                    return attempt(_timeout(remaining))
            except _TemporaryError as trouble:
                pause = max(next(pauses), trouble.wait_seconds)
                remaining = started + self._patience_seconds - self.clock() - pause
                if remaining <= 0:
                    raise Unavailable(
                        f"{self.server} is not available: {trouble}"
                        f" (tried {tries} time{'s' if tries > 1 else ''} in {self.clock() - started:.0f} s)"
                    ) from None
                _log.info("%s: %s; trying again in %.1f s", self.server, trouble, pause)
                self._on_trouble(str(trouble))
            self.sleep(pause)
        raise AssertionError("unreachable")

    def _raise_for_status(self, response: httpx.Response) -> None:
        if response.is_success:
            return
        if response.status_code in _TEMPORARY:
            message = problem_message(response.content, self._token)
            text = f"{response.status_code}{message and ': '}{message}"
            raise _TemporaryError(text, _retry_after(response))
        raise_refusal(self.server, response.status_code, response.content, self._token)

    def _url(self, path: str) -> str:
        return f"{self.server}/api/v1{path}"


@contextmanager
def _translated() -> Iterator[None]:
    """Translate exceptions of the HTTP library into temporary and permanent failures."""
    try:
        yield
    except (httpx.UnsupportedProtocol, httpx.LocalProtocolError, httpx.DecodingError) as error:
        raise ServiceError(f"the call failed: {type(error).__name__}") from None
    except httpx.TransportError as error:
        _raise_if_untrusted(error)
        raise _TemporaryError(str(error) or type(error).__name__) from None


def _raise_if_untrusted(error: httpx.TransportError) -> None:
    """Raise ConfigError for an untrusted certificate: a retry would fail in the same way."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise ConfigError(f"the server's certificate is not trusted: {cause.verify_message}") from None
        cause = cause.__cause__ or cause.__context__


def _pauses() -> Iterator[float]:
    """Exponential backoff with jitter, so that many clients do not retry at the same moment."""
    for power in count():
        longest = min(_FIRST_PAUSE * 2 ** min(power, 20), _LONGEST_PAUSE)
        yield random.uniform(longest / 2, longest)  # noqa: S311 - no secret


def _timeout(remaining: float) -> httpx.Timeout:
    """Return the timeout of one attempt, which is never too short to succeed."""
    seconds = max(remaining, _LEAST_SECONDS)
    return httpx.Timeout(min(_ANSWER_SECONDS, seconds), connect=min(_CONNECT_SECONDS, seconds), pool=None)


def _retry_after(response: httpx.Response) -> float:
    try:
        seconds = float(response.headers.get("Retry-After", 0))
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0


def _checked_server(server: str) -> str:
    try:
        url = httpx.URL(server)
    except httpx.InvalidURL:
        _refuse_server(server)
    if url.userinfo:
        raise ConfigError("server: a user or password in the address is not used; give a token")
    if url.scheme not in {"http", "https"} or not url.host or url.query or url.fragment:
        _refuse_server(server)
    return str(url).rstrip("/")


def _refuse_server(server: str) -> NoReturn:
    raise ConfigError(f"server {server!r}: want an address such as http://127.0.0.1:8440")


def _checked_token(token: str | None) -> str | None:
    """Reject a token that cannot be sent: the HTTP library would print it in its error."""
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise ConfigError("the token has characters that cannot be sent; want letters, digits and signs only")
    return token


def _trust(verify: bool | str | Path) -> bool | ssl.SSLContext:
    if isinstance(verify, bool):
        return verify
    try:
        return ssl.create_default_context(cafile=verify)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{verify}: not a file of certificates: {error.strerror or error}") from None
