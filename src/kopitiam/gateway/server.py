"""The HTTP server of a gateway: listening, serving on a thread, and closing gracefully."""

import asyncio
import contextlib
import functools
import logging
import resource
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType

import uvicorn

from kopitiam.contracts.addresses import reachable
from kopitiam.contracts.config import GatewaySection
from kopitiam.contracts.errors import ConfigError, RunFailed
from kopitiam.gateway.app import build_app
from kopitiam.gateway.connections import Connections, Listener, bounded_protocol
from kopitiam.gateway.context import Gateway

CLOSING_SECONDS = 5.0  # for requests under way; the node has ten seconds in all
_POLL_SECONDS = 0.05
_CONNECT_SECONDS = 5.0
_FILES_PER_CONNECTION = 4


class GatewayServer(uvicorn.Server):
    """A uvicorn server that closes gracefully: requests under way finish, new ones get 503, then it ends."""

    def __init__(self, gateway: Gateway) -> None:
        settings = gateway.settings.gateway
        self._connections = Connections(settings)
        super().__init__(
            uvicorn.Config(
                build_app(gateway),
                log_config=None,
                access_log=False,
                lifespan="off",
                http=bounded_protocol(settings, None if settings.tls_cert else self._connections),
                loop="asyncio",  # uvloop would bypass `Listener.accept`
                ws="none",
                limit_concurrency=None,  # the protocol or the listener bounds connections
                proxy_headers=bool(settings.proxies),  # by default uvicorn trusts every proxy on this machine
                forwarded_allow_ips=list(settings.proxies),
                timeout_keep_alive=75,
                timeout_graceful_shutdown=1,
                ssl_certfile=settings.tls_cert or None,
                ssl_keyfile=settings.tls_key or None,
            )
        )
        logging.getLogger("uvicorn").setLevel(logging.ERROR)
        self._gateway = gateway
        _allow_open_files(_FILES_PER_CONNECTION * settings.max_connections)
        self.loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        if self.config.is_ssl:
            self._bound_handshakes(self.loop, sockets or [])
        await super().startup(sockets)

    def _bound_handshakes(self, loop: asyncio.AbstractEventLoop, sockets: list[socket.socket]) -> None:
        """Limit the time of TLS handshakes to `head_seconds`, and count connections meanwhile. uvicorn has no
        setting for the time, but calls `create_server` of the loop, which only this server uses."""
        seconds = self._gateway.settings.gateway.head_seconds
        loop.create_server = functools.partial(  # type: ignore[method-assign]
            loop.create_server, ssl_handshake_timeout=seconds, ssl_shutdown_timeout=seconds
        )
        for bound in sockets:
            if isinstance(bound, Listener):
                bound.connections = self._connections

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._gateway.admission.is_closing:
            self.force_exit = True  # the second signal
            return super().handle_exit(sig, frame)
        self.close()
        return None

    def close(self) -> None:
        """Begin to close; safe on any thread."""
        self._gateway.admission.is_closing = True

    async def on_tick(self, counter: int) -> bool:
        if self._gateway.admission.is_closing and not self.should_exit:
            await self._drain()
        return await super().on_tick(counter)

    async def _drain(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_SECONDS):
                await asyncio.sleep(_POLL_SECONDS)
                while self._gateway.admission.requests and not self.should_exit:
                    await asyncio.sleep(_POLL_SECONDS)
        self.should_exit = True


def listen(settings: GatewaySection) -> Listener:
    """Bind the port without serving it yet. Raises ConfigError if the settings cannot work."""
    settings.require_guarded()
    _check_certificate(settings)
    host, port = settings.address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = Listener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # else asyncio leaves Nagle on
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    return bound


def address(gateway: Gateway, bound: socket.socket) -> str:
    """Return the URL under which clients reach a bound gateway."""
    port: int = bound.getsockname()[1]
    return gateway.settings.advertised_url(port)


@contextlib.contextmanager
def serving(
    gateway: Gateway,
    port: socket.socket | None = None,
    *,
    on_ended: Callable[[], None] = lambda: None,
    pulse: Callable[[Callable[[], None]], AbstractContextManager[object]] | None = None,
) -> Iterator[str]:
    """Serve the gateway on a thread inside the block; gives its address once it answers.

    `on_ended` is called if the server ends inside the block. `pulse` gets a probe of the server that
    returns when the event loop has run a task and the port has accepted a connection. Raises RunFailed if the
    server does not start.
    """
    bound = port or listen(gateway.settings.gateway)
    server, is_closing = GatewayServer(gateway), threading.Event()

    def serve() -> None:
        try:
            server.run([bound])
        finally:
            if not is_closing.is_set():
                on_ended()

    thread = threading.Thread(target=serve, name="gateway", daemon=True)
    thread.start()
    try:
        while not server.started:
            thread.join(0.01)
            if not thread.is_alive():
                raise RunFailed("the gateway did not start")
        probe = functools.partial(_probe, server, bound)
        with pulse(probe) if pulse else contextlib.nullcontext():
            yield address(gateway, bound)
    finally:
        is_closing.set()
        server.close()
        thread.join()
        bound.close()


def _probe(server: GatewayServer, bound: socket.socket) -> None:
    """Return if the server responds; raise or block if it does not."""
    loop = server.loop
    if loop is None or server.should_exit:
        raise RunFailed("the gateway's server has ended")
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result()
    host, port = bound.getsockname()[:2]
    socket.create_connection((reachable(host), port), _CONNECT_SECONDS).close()


def _allow_open_files(count: int) -> None:
    """Raise the soft limit of open files, often 1,024, as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _check_certificate(settings: GatewaySection) -> None:
    """Raise ConfigError if the certificate cannot be loaded. uvicorn would fail later, on its thread."""
    if not settings.tls_cert:
        return
    for key in ("tls_cert", "tls_key"):
        try:
            Path(getattr(settings, key)).open("rb").close()
        except OSError as error:
            raise ConfigError(
                f"gateway.{key}: {getattr(settings, key)}: cannot be read: {error.strerror}"
            ) from None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            settings.tls_cert,
            settings.tls_key,
            password=lambda: "",  # else OpenSSL asks on the terminal
        )
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise ConfigError(
            f"gateway.tls_cert, gateway.tls_key: not a certificate in PEM with its key, "
            f"without a password: {reason}"
        ) from None
