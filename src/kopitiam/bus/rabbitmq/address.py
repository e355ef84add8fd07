"""Where the broker is, from its URL; of RabbitMQ's own query parameters those that are of use here."""

import ssl
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from kopitiam.contracts.errors import ConfigError

_FORM = "want amqp(s)://user:password@host:port/vhost"
_PORTS = {"amqp": 5672, "amqps": 5671}
_PARAMETERS = ("heartbeat", "cacertfile", "certfile", "keyfile")
HEARTBEAT_SECONDS = 10


@dataclass(frozen=True)
class Address:
    host: str
    port: int
    user: str
    password: str
    vhost: str
    heartbeat_seconds: int
    tls: ssl.SSLContext | None

    def __str__(self) -> str:
        """For people, and so without the password."""
        scheme = "amqps" if self.tls else "amqp"
        host = f"[{self.host}]" if ":" in self.host else self.host
        vhost = "" if self.vhost == "/" else f"/{self.vhost}"
        return f"{scheme}://{self.user}@{host}:{self.port}{vhost}"


def parse_address(url: str) -> Address:
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        raise ConfigError(f"bus.url: {_FORM}") from None
    if not parts.hostname:
        raise ConfigError(f"bus.url: no host: {_FORM}")
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    if strange := [name for name in given if name not in _PARAMETERS]:
        raise ConfigError(f"bus.url: unknown parameter {strange[0]!r}; known are {', '.join(_PARAMETERS)}")
    return Address(
        host=parts.hostname,
        port=port,
        user="guest" if parts.username is None else unquote(parts.username),
        password="guest" if parts.password is None else unquote(parts.password),
        vhost=unquote(parts.path[1:]) or "/",
        heartbeat_seconds=_heartbeat(given.get("heartbeat")),
        tls=_tls(given) if parts.scheme == "amqps" else None,
    )


def _heartbeat(given: str | None) -> int:
    if given is None:
        return HEARTBEAT_SECONDS
    if not given.isdecimal() or not 1 <= int(given) <= 600:
        raise ConfigError("bus.url: heartbeat: want 1 to 600 seconds")
    return int(given)


def _tls(given: dict[str, str]) -> ssl.SSLContext:
    """The broker's certificate has to be good for its host, by the system's authorities or `cacertfile`."""
    try:
        context = ssl.create_default_context(cafile=given.get("cacertfile"))
        if "certfile" in given:
            context.load_cert_chain(given["certfile"], given.get("keyfile"))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"bus.url: certificates: {error.strerror or error}") from None
    return context
