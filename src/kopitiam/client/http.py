"""HTTP requests to the gateways of a fleet, retried with backoff while the failure is temporary.

A gateway that does not answer is left for the next one; any gateway serves any run. Exceptions of the HTTP
library and refusals of the gateway become Kopitiam's own errors here and nowhere else. The calls themselves
are in `calls`.
"""

import copy
import logging
import math
import os
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import NoReturn, TypeVar
from urllib.request import getproxies_environment

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
_ELSEWHERE = frozenset({502, 503, 504})  # another gateway may be able to answer
_GONE_SECONDS = 6  # a peer that acknowledges nothing for this long is gone
_log = logging.getLogger(__name__)
Result = TypeVar("Result")


class _TemporaryError(Exception):
    """A failure that may be over soon; the call is retried after at least `wait_seconds`."""

    def __init__(self, what: str, wait_seconds: float = 0.0, *, is_gateway: bool = True) -> None:
        """`is_gateway`: the gateway is the cause, and another one may answer."""
        super().__init__(what)
        self.wait_seconds = wait_seconds
        self.is_gateway = is_gateway


class Servers:
    """The gateways of a fleet, and the one in use, which all threads share."""

    def __init__(self, addresses: str | Sequence[str]) -> None:
        """Raises ConfigError unless they are one or more URLs, in a list or separated by commas."""
        given = addresses.split(",") if isinstance(addresses, str) else addresses
        self.urls = tuple(dict.fromkeys(_checked_server(address.strip()) for address in given))
        if not self.urls:
            _refuse_server("")
        self._position = 0

    def __len__(self) -> int:
        return len(self.urls)

    def __str__(self) -> str:
        return ", ".join(self.urls)

    @property
    def current(self) -> str:
        return self.urls[self._position]

    def leave(self, url: str) -> None:
        """Use the next one, unless another thread has left this one already."""
        if url == self.current:
            self._position = (self._position + 1) % len(self.urls)


class Transport:
    """Sends requests from any thread over shared, kept-alive connections.

    A temporary failure is retried for `patience_seconds`; then Unavailable is raised. `server` may be several
    addresses: if one does not answer, the next is called at once. `on_retry` is called with each temporary
    failure. Tests replace `sleep` and `clock`.
    """

    def __init__(
        self,
        server: str | Sequence[str],
        token: str | None = None,
        *,
        connections: int = CONNECTIONS,
        patience_seconds: float = PATIENCE_SECONDS,
        verify: bool | str | Path = True,
        sleep: Callable[[float], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_retry: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.servers = Servers(server)
        self.connections = connections
        self.clock = clock
        self._token = _checked_token(token)
        self._patience_seconds = patience_seconds
        self._sleep = sleep
        self._on_retry = on_retry
        self._abandoned = threading.Event()
        is_encrypted = any(url.startswith("https:") for url in self.servers.urls)
        trust = _trust(verify) if is_encrypted else False  # costly to set up
        limits = httpx.Limits(max_keepalive_connections=connections + 2, keepalive_expiry=_KEEP_ALIVE_SECONDS)
        own = httpx.HTTPTransport(verify=trust, limits=limits, socket_options=_socket_options())
        self._http = httpx.Client(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            verify=trust,
            limits=limits,
            transport=None if getproxies_environment() else own,  # httpx would use no proxy with it
        )

    @property
    def server(self) -> str:
        """The gateway in use."""
        return self.servers.current

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

        def attempt(server: str, timeout: httpx.Timeout) -> httpx.Response:
            url = _url(server, path)
            response = self._http.request(method, url, content=content, headers=headers, timeout=timeout)
            self._raise_for_status(response)
            return response

        return self._retry(attempt)

    def fetch(self, path: str, target: Path) -> None:
        """Download to the file `target`, which appears only when it is complete."""
        temporary = target.with_name(f".{target.name}.{os.getpid()}.partial")

        def attempt(server: str, timeout: httpx.Timeout) -> None:
            with self._http.stream("GET", _url(server, path), timeout=timeout) as response:
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

        def attempt(server: str, timeout: httpx.Timeout) -> httpx.Response:
            request = self._http.build_request("GET", _url(server, path), timeout=timeout)
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

    def _retry(self, attempt: Callable[[str, httpx.Timeout], Result]) -> Result:
        started = self.clock()
        remaining = self._patience_seconds
        pauses = _pauses()
        others = len(self.servers) - 1  # to call before the next pause
        for tries in count(1):
            server = self.server
            if self._abandoned.is_set():
                raise Unavailable(f"{server}: the call was abandoned")
            try:
                with _translated():
                    return attempt(server, _timeout(remaining))
            except _TemporaryError as error:
                has_other = error.is_gateway and others > 0
                pause = 0.0 if has_other else max(next(pauses), error.wait_seconds)
                others = others - 1 if has_other else len(self.servers) - 1
                if error.is_gateway:
                    self.servers.leave(server)
                remaining = started + self._patience_seconds - self.clock() - pause
                if remaining <= 0:
                    raise Unavailable(
                        f"{self.servers} is not available: {error}"
                        f" (tried {tries} time{'s' if tries > 1 else ''} in {self.clock() - started:.0f} s)"
                    ) from None
                _log.info("%s: %s; trying again in %.1f s", server, error, pause)
                self._on_retry(str(error))
            if pause:
                self.sleep(pause)
        raise AssertionError("unreachable")

    def _raise_for_status(self, response: httpx.Response) -> None:
        if response.is_success:
            return
        if response.status_code in _TEMPORARY:
            message = problem_message(response.content, self._token)
            text = f"{response.status_code}{message and ': '}{message}"
            is_gateway = response.status_code in _ELSEWHERE
            raise _TemporaryError(text, _retry_after(response), is_gateway=is_gateway)
        raise_refusal(self.server, response.status_code, response.content, self._token)


def _url(server: str, path: str) -> str:
    return f"{server}/api/v1{path}"


def _socket_options() -> list[tuple[int, int, int]]:
    """Options by which the system notices within seconds that the other machine is gone, while a slow answer
    may take longer. Systems without them notice it by the timeout of the answer."""
    keeping = {"TCP_KEEPIDLE": 2, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 2}
    options = {**keeping, "TCP_USER_TIMEOUT": 1000 * _GONE_SECONDS}
    known = [(getattr(socket, name, None), value) for name, value in options.items()]
    return [
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        *((socket.IPPROTO_TCP, number, value) for number, value in known if number is not None),
    ]


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
    raise ConfigError(f"server {server!r}: expected an address such as http://127.0.0.1:8440")


def _checked_token(token: str | None) -> str | None:
    """Reject a token that cannot be sent: the HTTP library would print it in its error."""
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise ConfigError(
            "the token has characters that cannot be sent; expected letters, digits and signs only"
        )
    return token


def _trust(verify: bool | str | Path) -> bool | ssl.SSLContext:
    if isinstance(verify, bool):
        return verify
    try:
        return ssl.create_default_context(cafile=verify)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{verify}: not a file of certificates: {error.strerror or error}") from None
