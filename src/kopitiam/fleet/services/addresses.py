"""The address of a service: chosen once, kept beside its data, readable by its owner only."""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from kopitiam.contracts.errors import ServiceError
from kopitiam.fleet.records import write_whole

ADDRESS_FILE = "address.json"


def kept_url(folder: Path, choose: Callable[[], str]) -> str:
    """The one that was chosen the first time."""
    if (known := read_url(folder)) is not None:
        return known
    write_url(folder, choose())
    return require_url(folder)


def write_url(folder: Path, url: str) -> None:
    write_whole(folder / ADDRESS_FILE, json.dumps({"url": url}))


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


def answer_of(url: str, greeting: bytes, seconds: float = 2.0) -> bytes:
    """What the server says to a greeting; nothing if it is silent or not there."""
    try:
        with socket.create_connection(("127.0.0.1", port_of(url)), timeout=seconds) as client:
            client.sendall(greeting)
            return client.recv(4096)
    except OSError:
        return b""
