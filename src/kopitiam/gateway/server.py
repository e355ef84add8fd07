"""The gateway on its port: how it starts, in the foreground or beside other work, and how it closes."""

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import uvicorn

from kopitiam.contracts.config import GatewaySection
from kopitiam.contracts.errors import ConfigError, RunFailed
from kopitiam.gateway.app import build_app
from kopitiam.gateway.context import Gateway

CLOSING_SECONDS = 5.0  # for requests under way; the node has ten in all
_LOOK_SECONDS = 0.05


class GatewayServer(uvicorn.Server):
    """Closing: requests inside finish, new ones are told to try again, then the port goes."""

    def __init__(self, gateway: Gateway) -> None:
        settings = gateway.settings.gateway
        super().__init__(
            uvicorn.Config(
                build_app(gateway),
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_keep_alive=75,
                timeout_graceful_shutdown=1,
                ssl_certfile=settings.tls_cert or None,
                ssl_keyfile=settings.tls_key or None,
            )
        )
        logging.getLogger("uvicorn").setLevel(logging.ERROR)
        self._gateway = gateway

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._gateway.admission.is_closing:
            self.force_exit = True  # a second signal: at once
            return super().handle_exit(sig, frame)
        self.close()
        return None

    def close(self) -> None:
        self._gateway.admission.is_closing = True

    async def on_tick(self, counter: int) -> bool:
        if self._gateway.admission.is_closing and not self.should_exit:
            await self._drain()
        return await super().on_tick(counter)

    async def _drain(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_SECONDS):
                await asyncio.sleep(_LOOK_SECONDS)
                while self._gateway.admission.requests and not self.should_exit:
                    await asyncio.sleep(_LOOK_SECONDS)
        self.should_exit = True


def listen(settings: GatewaySection) -> socket.socket:
    """The port, held but not served yet; whatever of the settings cannot be is found here."""
    _check_certificate(settings)
    host, port = settings.address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # else asyncio leaves Nagle on
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    return bound


def address(gateway: Gateway, bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    scheme = "https" if gateway.settings.gateway.tls_cert else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


@contextlib.contextmanager
def serving(gateway: Gateway, port: socket.socket | None = None) -> Iterator[str]:
    """The gateway beside other work of this process; gives its address once it answers."""
    bound = port or listen(gateway.settings.gateway)
    server = GatewayServer(gateway)
    thread = threading.Thread(target=server.run, args=([bound],), name="gateway", daemon=True)
    thread.start()
    try:
        while not server.started:
            thread.join(0.01)
            if not thread.is_alive():
                raise RunFailed("the gateway did not start")
        yield address(gateway, bound)
    finally:
        server.close()
        thread.join()
        bound.close()


def _check_certificate(settings: GatewaySection) -> None:
    """The server would find out on a thread of its own, and tell nobody."""
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
            password=lambda: "",  # or OpenSSL asks the terminal for it
        )
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise ConfigError(
            f"gateway.tls_cert, gateway.tls_key: not a certificate in PEM with its key, "
            f"without a password: {reason}"
        ) from None
