"""The settings of gateways: addresses, tokens and limits."""

import ipaddress
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from kopitiam.contracts.addresses import HOST_NAME, bracketed, is_loopback, reachable
from kopitiam.contracts.errors import ConfigError
from kopitiam.contracts.sections import Section
from kopitiam.contracts.sql_queries import MOST_SQL_ROWS, MOST_SQL_SECONDS


class GatewaySection(Section):
    listen: str = "127.0.0.1:8440"
    advertise: str = ""  # the URL under which clients reach it; not given: the machine's name and the port
    allowed_hosts: tuple[str, ...] = ()  # further names that a request may have as its Host
    proxies: tuple[str, ...] = ()  # addresses or networks whose X-Forwarded-For is trusted
    insecure: bool = False  # allows to listen beyond loopback without tokens
    tokens: dict[str, SecretStr] = Field({})
    admin_token: SecretStr = SecretStr("")
    tls_cert: str = ""
    tls_key: str = ""
    lease_seconds: float = Field(60, gt=0)
    max_chunk_bytes: int = Field(64 << 20, gt=0)
    max_chunk_rows: int = Field(1 << 20, gt=0)
    max_bodies: int = Field(16, gt=0)  # chunks received or checked at once; of one owner at most half
    max_connections: int = Field(1024, gt=0)  # of one address at most half
    max_open_runs: int = Field(1000, gt=0)  # of one owner
    max_requests_per_second: int = Field(1000, ge=0)  # likewise, after a burst of five times that; 0: any
    max_failures_per_second: int = Field(10, ge=0)  # wrong tokens from one address; likewise
    head_seconds: float = Field(10, gt=0)  # for the head of a request
    body_seconds: float = Field(600, gt=0)  # for the whole body of a request
    idle_seconds: float = Field(30, gt=0)  # a body, or the reader of an answer, may pause this long
    min_bytes_per_second: int = Field(4096, ge=0)  # of a body, on average once the grace is over; 0: any
    grace_seconds: float = Field(10, gt=0)
    keep_results_hours: float = Field(24, gt=0)
    max_data_sets: int = Field(100, gt=0)  # of one owner
    keep_versions: int = Field(12, gt=0)  # of a data set
    keep_plans: int = Field(32, gt=0)  # of which partials are kept, for each file of a data set
    sql_seconds: int = Field(60, ge=1, le=MOST_SQL_SECONDS)  # for one query over a data set
    sql_rows: int = Field(10_000, ge=1, le=MOST_SQL_ROWS)  # that are kept of its result
    orphan_hours: float = Field(24, ge=0)  # files that the registry does not know are kept for this long

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def url(self) -> str:
        """The URL for clients on this machine; of several gateways, the first."""
        return self.url_at(reachable(self.address[0]), self.address[1])

    def url_at(self, host: str, port: int) -> str:
        scheme = "https" if self.tls_cert else "http"
        return f"{scheme}://{bracketed(host)}:{port}"

    @property
    def needs_token(self) -> bool:
        return bool(self.tokens or self.admin_token.get_secret_value())

    @property
    def host_names(self) -> frozenset[str]:
        """Names that a request may have as its Host, besides IP addresses and localhost."""
        advertised = urlsplit(self.advertise).hostname or ""
        names = (self.address[0], advertised, *self.allowed_hosts)
        return frozenset(name.lower().rstrip(".") for name in names if name)

    def require_guarded(self) -> None:
        """Raises ConfigError if other machines could call this gateway without a token."""
        if self.insecure or self.needs_token or is_loopback(self.address[0]):
            return
        raise ConfigError(
            f"gateway.listen {self.listen}: other machines could call it without a token; "
            "set gateway.tokens, listen on 127.0.0.1, or accept that with --insecure or gateway.insecure"
        )

    @field_validator("advertise")
    @classmethod
    def _is_a_url(cls, advertise: str) -> str:
        place = urlsplit(advertise)
        if advertise and (place.scheme not in {"http", "https"} or not place.hostname):
            raise ValueError("expected an address such as https://kopitiam.example")
        return advertise.rstrip("/")

    @field_validator("allowed_hosts")
    @classmethod
    def _are_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not HOST_NAME.fullmatch(name.lower().rstrip(".")):
                raise ValueError(f"{name!r}: expected names such as kopitiam.example, without port or *")
        return names

    @field_validator("proxies")
    @classmethod
    def _are_networks(cls, proxies: tuple[str, ...]) -> tuple[str, ...]:
        for proxy in proxies:
            try:
                ipaddress.ip_network(proxy)
            except ValueError:
                raise ValueError(f"{proxy!r}: expected addresses such as 10.0.0.5 or 10.0.0.0/24") from None
        return proxies

    @field_validator("listen")
    @classmethod
    def _is_an_address(cls, listen: str) -> str:
        host, _, port = listen.rpartition(":")
        if not host or not port.isdigit() or int(port) > 65535:
            raise ValueError("expected host:port, such as 127.0.0.1:8440")
        return listen

    @model_validator(mode="after")
    def _certificate_has_its_key(self) -> "GatewaySection":
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ValueError("tls_cert and tls_key: set both or neither")
        return self
