"""The port of a service, and its address file: written at the first start, readable by the owner only."""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import psutil

from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import ServiceError
from kopitiam.system.files import replace_file

ADDRESS_FILE = "address.json"


class Service(Protocol):
    """A private server of the fleet, on the loopback interface, with its own folder."""

    name: str

    def start(self) -> bool:
        """Start it with its recorded port, data and credentials; returns when it answers.

        Returns False if it was running already. Raises `ConfigError` or `ServiceError`.
        """

    def stop(self) -> bool:
        """End all its processes; data, address and log stay. Returns whether it was running."""

    def probe(self) -> bool:
        """Whether it answers in its own protocol within two seconds."""

    def url(self) -> str | None:
        """Its address with credentials; None before the first start."""

    def with_address(self, settings: Settings) -> Settings:
        """The settings with its address in place of the default."""

    def processes(self) -> list[psutil.Process]:
        """All its processes."""


def read_or_choose_url(folder: Path, choose: Callable[[], str]) -> str:
    """The recorded URL; the first call records the one that `choose` returns."""
    if (known := read_url(folder)) is not None:
        return known
    write_url(folder, choose())
    return require_url(folder)


def write_url(folder: Path, url: str) -> None:
    replace_file(folder / ADDRESS_FILE, json.dumps({"url": url}).encode(), mode=0o600)


def read_url(folder: Path) -> str | None:
    path = folder / ADDRESS_FILE
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["url"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ServiceError(f"{path}: cannot be read: {error}") from None


def require_url(folder: Path) -> str:
    if (url := read_url(folder)) is None:
        raise ServiceError(f"{folder.name}: not started yet; start it with: kopi node start {folder.name}")
    return url


def without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}:{parts.port}"


def port_of(url: str) -> int:
    return int(urlsplit(url).port or 0)


def first_reply(url: str, request: bytes, seconds: float = 2.0) -> bytes:
    """The first bytes that the server replies; empty if it does not."""
    try:
        with socket.create_connection(("127.0.0.1", port_of(url)), timeout=seconds) as client:
            client.sendall(request)
            return client.recv(4096)
    except OSError:
        return b""
