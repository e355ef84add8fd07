"""The address of a service: chosen once, kept beside its data, readable by its owner only."""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import psutil

from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import ServiceError
from kopitiam.fleet.home import write_atomically


class Service(Protocol):
    """A server that the fleet brings along: private, on the loopback interface, in a folder of its own."""

    name: str

    def start(self) -> bool:
        """Returns when it answers, on the same port, data and credentials as ever. False if it ran."""

    def stop(self) -> bool:
        """Leaves no process; data, address and log stay. False if there was nothing to stop."""

    def probe(self) -> bool:
        """Whether it answers in its own protocol, within two seconds."""

    def url(self) -> str | None:
        """Where clients find it, credentials included; None before its first start."""

    def with_address(self, settings: Settings) -> Settings:
        """The settings with its address, if they keep the default there."""

    def processes(self) -> list[psutil.Process]:
        """All processes that it consists of."""


ADDRESS_FILE = "address.json"


def read_or_choose_url(folder: Path, choose: Callable[[], str]) -> str:
    """The one that was chosen the first time."""
    if (known := read_url(folder)) is not None:
        return known
    write_url(folder, choose())
    return require_url(folder)


def write_url(folder: Path, url: str) -> None:
    write_atomically(folder / ADDRESS_FILE, json.dumps({"url": url}))


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


def first_reply(url: str, greeting: bytes, seconds: float = 2.0) -> bytes:
    """What the server says to a greeting; nothing if it is silent or not there."""
    try:
        with socket.create_connection(("127.0.0.1", port_of(url)), timeout=seconds) as client:
            client.sendall(greeting)
            return client.recv(4096)
    except OSError:
        return b""
