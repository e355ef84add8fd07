"""The address of a service: chosen once, kept beside its data, readable by its owner only."""

import contextlib
import json
import os
import secrets
import socket
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from kopitiam.contracts.errors import ServiceError
from kopitiam.fleet.records import write_whole

ADDRESS_FILE = "address.json"


def kept_url(folder: Path, choose: Callable[[], str]) -> str:
    """Of two that choose at the same time one is heard."""
    if (known := read_url(folder)) is not None:
        return known
    proposal = folder / f"proposal-{secrets.token_hex(8)}.json"
    write_url(folder, choose(), proposal.name)
    with contextlib.suppress(FileExistsError):
        os.link(proposal, folder / ADDRESS_FILE)
    proposal.unlink()
    return require_url(folder)


def write_url(folder: Path, url: str, name: str = ADDRESS_FILE) -> None:
    write_whole(folder / name, json.dumps({"url": url}))


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
