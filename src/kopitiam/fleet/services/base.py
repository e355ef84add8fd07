"""The port of a service, and how nodes find it.

Without a secret, its port and password are random; its address file, written at the first start and readable
by the owner only, tells them to nodes on the same machine. With a secret, every machine of the fleet derives
them from the settings.
"""

import hmac
import json
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import psutil

from kopitiam.bus.private_broker import free_port
from kopitiam.contracts.addresses import bracketed, is_loopback, reachable
from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import ConfigError, ServiceError
from kopitiam.fleet.home import FleetHome
from kopitiam.system.files import replace_file

ADDRESS_FILE = "address.json"


class Service(Protocol):
    """A private server of the fleet, with its own folder on its machine."""

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


@dataclass(frozen=True)
class Site:
    """Where a service runs, where it listens there, and how this machine reaches it."""

    name: str
    home: FleetHome
    machine: str
    is_here: bool
    listen: str
    host: str  # to connect to, from this machine
    port: int | None  # None, like the password: random, and recorded in the address file
    password: str | None

    @classmethod
    def of(cls, settings: Settings, name: str) -> "Site":
        section, machine = settings.services, settings.host_of(name)
        secret = section.secret.get_secret_value()
        is_local = is_loopback(section.listen) or not settings.nodes.hosts
        return cls(
            name=name,
            home=FleetHome.of(settings),
            machine=machine,
            is_here=settings.is_here(name),
            listen=section.listen,
            host=reachable(section.listen) if is_local else machine,
            port=section.port(name) if secret else None,
            password=derived_password(secret, name) if secret else None,
        )

    @property
    def folder(self) -> Path:
        return self.home.service(self.name)

    def url(self, spell: Callable[[int, str], str]) -> str | None:
        """The address with credentials, as `spell` writes port and password; None before the first start."""
        if self.port is not None and self.password is not None:
            return spell(self.port, self.password)
        return read_url(self.folder) if self.is_here else None

    def require_url(self, spell: Callable[[int, str], str]) -> str:
        if (url := self.url(spell)) is not None:
            return url
        if not self.is_here:
            raise ConfigError(
                f"{self.name} runs on {self.machine}: set services.secret, by which it is found"
            )
        raise ServiceError(f"{self.name}: not started yet; start it with: kopi node start {self.name}")

    def record_url(
        self, spell: Callable[[int, str], str], change_password: Callable[[str], None] = lambda _: None
    ) -> str:
        """Record the address before a start, and return it. The first is chosen at random unless there is a
        secret. If its password is another one than before, `change_password` is called first: the data of the
        service still have the old one."""
        before = read_url(self.folder)
        url = self.url(spell) or spell(free_port(), secrets.token_hex(32))
        if url != before:
            password = urlsplit(url).password or ""
            if before and password != urlsplit(before).password:
                change_password(password)
            write_url(self.folder, url)
        return url


def derived_password(secret: str, name: str) -> str:
    return hmac.new(secret.encode(), f"kopitiam {name}".encode(), "sha256").hexdigest()


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


def without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{bracketed(parts.hostname or '')}:{parts.port}"


def port_of(url: str) -> int:
    return int(urlsplit(url).port or 0)


def address_of(url: str) -> tuple[str, int]:
    return urlsplit(url).hostname or "", port_of(url)


def first_reply(url: str, request: bytes, seconds: float = 2.0) -> bytes:
    """The first bytes that the server replies; empty if it does not."""
    try:
        with socket.create_connection(address_of(url), timeout=seconds) as client:
            client.sendall(request)
            return client.recv(4096)
    except OSError:
        return b""
