"""Which `Host` and `Origin` a request may have.

A web page can give its own name an address of this machine (DNS rebinding), and then call the gateway as if
the gateway were its own site. The browser still sends the page's name as `Host`. So a name counts only if the
settings say that the gateway has it; an IP address and `localhost` cannot be rebound.
"""

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.types import Scope

_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::([0-9]{1,5}))?")
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_DEFAULT_PORTS = frozenset({None, 80, 443})


@dataclass(frozen=True)
class Trespass:
    """Why a request is refused."""

    status: int
    error: str
    message: str


@dataclass(frozen=True)
class HostCheck:
    """`names`: what the gateway is called, in lower case."""

    names: frozenset[str]

    def trespass(self, scope: Scope) -> Trespass | None:
        """None if the request may come in."""
        headers = scope.get("headers", ())
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1 or (place := _authority(hosts[0])) is None:
            return Trespass(400, "host", "want one Host header with a host and perhaps a port")
        host, port = place
        if not (_is_address(host) or host == "localhost" or host in self.names):
            return Trespass(
                421, "host", f"this gateway is not called {host}; gateway.allowed_hosts lists its names"
            )
        if scope["method"] in _READING:
            return None
        for name, origin in headers:
            if name == b"origin" and not _is_same(origin, host, port):
                return Trespass(403, "origin", "pages of other sites may not change anything here")
        return None


def _is_same(origin: bytes, host: str, port: int | None) -> bool:
    """Behind a proxy that speaks TLS the schemes differ, and so the ports that go without saying."""
    try:
        page = urlsplit(origin.decode("ascii"))
    except ValueError:
        return False
    place = _authority(page.netloc.encode())
    if page.scheme not in {"http", "https"} or place is None or place[0] != host:
        return False
    return place[1] == port or {place[1], port} <= _DEFAULT_PORTS


def _authority(value: bytes) -> tuple[str, int | None] | None:
    found = _AUTHORITY.fullmatch(value.decode("latin-1").strip())
    if found is None:
        return None
    host, port = found[1].lower(), int(found[2]) if found[2] else None
    if port is not None and port > 65535:
        return None
    if host.startswith("["):
        return (host, port) if _is_address(host) else None
    return host.removesuffix("."), port


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host[1:-1] if host.startswith("[") else host)
    except ValueError:
        return False
    return True


def machine_of(address: str) -> str:
    """What limits count as one machine: an IPv4 address, or a /64 of IPv6, which one may use whole."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address) or found.is_loopback:
        return str(found)
    if found.ipv4_mapped:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))
