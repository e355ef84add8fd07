"""Access control: bearer tokens and their owners, and the `Host` and `Origin` that a request may have.

`rates` limits how often a caller may call; `admission` limits concurrent work.
"""

import hashlib
import hmac
import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.types import Scope

from kopitiam.contracts.config import GatewaySection
from kopitiam.contracts.errors import ConfigError
from kopitiam.gateway.problems import Refusal

ANYBODY = "anybody"
ADMIN = "admin"
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::([0-9]{1,5}))?")
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_DEFAULT_PORTS = frozenset({None, 80, 443})


@dataclass(frozen=True)
class Caller:
    """The owner of the token of a request, or ANYBODY if the gateway has no tokens."""

    owner: str
    is_admin: bool

    @property
    def visible_owner(self) -> str | None:
        """The owner whose runs the caller may see; None for all owners."""
        return None if self.is_admin else self.owner

    def may_see(self, owner: str) -> bool:
        return self.is_admin or owner == self.owner


class Access:
    """The tokens of a gateway. Raises ConfigError if they are empty, not unique, or use the name `admin`."""

    def __init__(self, settings: GatewaySection) -> None:
        tokens = [(name, token.get_secret_value(), False) for name, token in settings.tokens.items()]
        if admin := settings.admin_token.get_secret_value():
            tokens.append((ADMIN, admin, True))
        secrets = [token for _, token, _ in tokens]
        if not all(secrets) or len(set(secrets)) < len(secrets) or ADMIN in settings.tokens:
            raise ConfigError(
                f"gateway.tokens: tokens must be unique and not empty, and no owner may be named {ADMIN!r}"
            )
        self._tokens = [(name, _digest(token), is_admin) for name, token, is_admin in tokens]

    def caller(self, token: str | None) -> Caller:
        """Return the caller who sent this bearer token, None if there was none. Raises Refusal (401)."""
        if not self._tokens:
            return Caller(ANYBODY, is_admin=True)
        caller, presented = None, _digest(token or "")
        for name, known, is_admin in self._tokens:  # compare with all tokens, in constant time
            if hmac.compare_digest(known, presented):
                caller = Caller(name, is_admin)
        if caller is None:
            raise Refusal(401, "unauthorized", "a valid token is needed: Authorization: Bearer <token>")
        return caller


def _digest(token: str) -> bytes:
    """Digests have the same length, so the time of a comparison does not depend on the token's length."""
    return hashlib.sha256(token.encode()).digest()


@dataclass(frozen=True)
class HostCheck:
    """Refuses requests for other hosts, and changes from pages of other sites.

    A web page can give its own name an address of this machine (DNS rebinding), and then call the gateway as
    its own site. The browser still sends the page's name as `Host`. So the gateway accepts its configured
    `names` (in lower case), IP addresses and `localhost`; the latter two cannot be rebound.
    """

    names: frozenset[str]

    def refusal(self, scope: Scope, neighbour: str | None = None) -> Refusal | None:
        """Return why the request is refused; None if it is not. A page of `neighbour`, the origin of another
        gateway of the fleet, may change things here."""
        headers = scope.get("headers", ())
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1 or (authority := _authority(hosts[0])) is None:
            return Refusal(400, "host", "expected one Host header with a host and perhaps a port")
        host, port = authority
        if not (_is_address(host) or host == "localhost" or host in self.names):
            return Refusal(
                421, "host", f"this gateway is not called {host}; gateway.allowed_hosts lists its names"
            )
        if scope["method"] in _SAFE_METHODS:
            return None
        for name, origin in headers:
            is_neighbour = origin.decode("latin-1").lower() == neighbour
            if name == b"origin" and not (is_neighbour or _is_same(origin, host, port)):
                return Refusal(403, "origin", "pages of other sites may not change anything here")
        return None


def _is_same(origin: bytes, host: str, port: int | None) -> bool:
    """Whether the page has this host and port. Behind a proxy that terminates TLS, schemes and default ports
    differ."""
    try:
        page = urlsplit(origin.decode("ascii"))
    except ValueError:
        return False
    authority = _authority(page.netloc.encode())
    if page.scheme not in {"http", "https"} or authority is None or authority[0] != host:
        return False
    return authority[1] == port or {authority[1], port} <= _DEFAULT_PORTS


def _authority(value: bytes) -> tuple[str, int | None] | None:
    """Parse a host and an optional port; None if malformed."""
    match = _AUTHORITY.fullmatch(value.decode("latin-1").strip())
    if match is None:
        return None
    host, port = match[1].lower(), int(match[2]) if match[2] else None
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
    """Return the unit that limits count as one machine: an IPv4 address, or the /64 network of an IPv6
    address, since one machine may use all of its /64."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv4Address) or ip.is_loopback:
        return str(ip)
    if ip.ipv4_mapped:
        return str(ip.ipv4_mapped)
    return str(ipaddress.ip_network((ip, 64), strict=False))
