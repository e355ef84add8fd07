"""The settings, section by section, with their defaults and checks. No I/O: `system.settings` reads them."""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from kopitiam.contracts.batches import MOST_SHARDS
from kopitiam.contracts.errors import ConfigError
from kopitiam.contracts.messages import NodeKind
from kopitiam.contracts.parameters import Parameters

NodeName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
_A_YEAR = 365 * 86400.0
_HOST_NAME = re.compile(r"(?!-)[a-z0-9-]{1,63}(\.(?!-)[a-z0-9-]{1,63})*")
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - an address that is read, not listened on


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RegistrySection(_Section):
    url: str = "sqlite"


class BusSection(_Section):
    url: str = "memory"


class StorageSection(_Section):
    """Storage of landing, partials, results and rejected rows. Without keys, S3 uses those of the
    environment, the AWS files or the machine's role."""

    url: str = "file"  # below home; or file:///mounted/folder, s3://bucket/prefix, hdfs://host:port/folder
    endpoint: str = ""  # of an S3-compatible store: http(s)://host:port
    region: str = ""
    access_key: SecretStr = SecretStr("")
    secret_key: SecretStr = SecretStr("")

    @field_validator("url")
    @classmethod
    def _is_a_place(cls, url: str) -> str:
        if url == "file":
            return url
        try:
            place = urlsplit(url)
        except ValueError:
            place = urlsplit("")
        if not place.scheme or "://" not in url or place.query or place.fragment:
            raise ValueError("want file, or an address such as s3://bucket/prefix, without ? and #")
        if place.scheme == "file" and (place.netloc or not place.path.strip("/")):
            raise ValueError("want file:///folder, with three slashes")
        if place.scheme == "s3" and (not place.netloc or "@" in place.netloc):
            raise ValueError("want s3://bucket/prefix; keys go to access_key and secret_key")
        return url.rstrip("/")

    @field_validator("endpoint")
    @classmethod
    def _is_an_endpoint(cls, endpoint: str) -> str:
        place = urlsplit(endpoint)
        if endpoint and (place.scheme not in {"http", "https"} or not place.netloc or place.path.strip("/")):
            raise ValueError("want http://host:port or https://host:port")
        return endpoint.rstrip("/")

    @model_validator(mode="after")
    def _keys_come_in_pairs(self) -> "StorageSection":
        if bool(self.access_key.get_secret_value()) != bool(self.secret_key.get_secret_value()):
            raise ValueError("access_key and secret_key: want both or none")
        if self.access_key.get_secret_value() and not self.url.startswith("s3://"):
            raise ValueError("access_key and secret_key: only s3:// uses them")
        return self

    def beside(self, name: str) -> "StorageSection":
        """A separate folder below this one. A home is not shared, and is returned unchanged."""
        return self if self.url == "file" else self.model_copy(update={"url": f"{self.url}/{name}"})


class GatewaySection(_Section):
    listen: str = "127.0.0.1:8440"
    advertise: str = ""  # the URL under which clients reach it, if it is another one
    allowed_hosts: tuple[str, ...] = ()  # further names that a request may have as its Host
    proxies: tuple[str, ...] = ()  # addresses or networks whose X-Forwarded-For is trusted
    insecure: bool = False  # allows to listen beyond loopback without tokens
    tokens: dict[str, SecretStr] = {}
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
    orphan_hours: float = Field(24, ge=0)  # files that the registry does not know are kept for this long

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def url(self) -> str:
        """The URL for clients on this machine; of several gateways, the first."""
        host, port = reachable(self.address[0]), self.address[1]
        scheme = "https" if self.tls_cert else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

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
        if self.insecure or self.needs_token or _is_loopback(self.address[0]):
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
            raise ValueError("want an address such as https://kopitiam.example")
        return advertise.rstrip("/")

    @field_validator("allowed_hosts")
    @classmethod
    def _are_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not _HOST_NAME.fullmatch(name.lower().rstrip(".")):
                raise ValueError(f"{name!r}: want names such as kopitiam.example, without port or *")
        return names

    @field_validator("proxies")
    @classmethod
    def _are_networks(cls, proxies: tuple[str, ...]) -> tuple[str, ...]:
        for proxy in proxies:
            try:
                ipaddress.ip_network(proxy)
            except ValueError:
                raise ValueError(f"{proxy!r}: want addresses such as 10.0.0.5 or 10.0.0.0/24") from None
        return proxies

    @field_validator("listen")
    @classmethod
    def _is_an_address(cls, listen: str) -> str:
        host, _, port = listen.rpartition(":")
        if not host or not port.isdigit() or int(port) > 65535:
            raise ValueError("want host:port, such as 127.0.0.1:8440")
        return listen

    @model_validator(mode="after")
    def _certificate_has_its_key(self) -> "GatewaySection":
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ValueError("tls_cert and tls_key: want both or none")
        return self


class PipelineSection(_Section):
    shards: int = Field(1, ge=1, le=MOST_SHARDS)  # of new runs
    max_chunks_per_batch: int = Field(128, ge=1)
    max_bytes_per_batch: int = Field(1 << 30, ge=1)


class SparkSection(_Section):
    master: str = "local[*]"
    conf: dict[str, str] = {}
    patience_seconds: float | None = Field(None, gt=0)  # to wait for the first executor of a cluster
    worker_cores: int = Field(2, ge=1)  # of each spark-worker-N among nodes.services
    worker_memory: str = Field("2g", pattern=r"^[1-9][0-9]*[mg]$")

    @property
    def worker_megabytes(self) -> int:
        return int(self.worker_memory[:-1]) * (1024 if self.worker_memory.endswith("g") else 1)


class MonitorSection(_Section):
    heartbeat_seconds: float = Field(2, gt=0)
    timeout_seconds: float = Field(20, gt=0)  # without a heartbeat: dead
    revive: str = "kopi node start {node} --config {config}"
    revive_limit: int = Field(5, ge=0)  # attempts in a row, then an alarm

    @model_validator(mode="after")
    def _timeout_covers_heartbeats(self) -> "MonitorSection":
        if self.timeout_seconds < 2 * self.heartbeat_seconds:
            raise ValueError("timeout_seconds: want at least two heartbeats")
        return self


class NodesSection(_Section):
    """The nodes of the fleet. Ids of monitors grow in the order of this list: the last one alive leads."""

    gateways: tuple[NodeName, ...] = ("gateway-1",)
    pipelines: dict[NodeName, tuple[int, ...]] = {"pipeline-1": (0,)}  # not given: all shards
    monitors: tuple[NodeName, ...] = ("monitor-1", "monitor-2", "monitor-3")
    services: tuple[NodeName, ...] = ()  # run by `kopi cluster` on this machine

    @model_validator(mode="after")
    def _names_are_unique(self) -> "NodesSection":
        names = [*self.gateways, *self.pipelines, *self.monitors, *self.services]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{', '.join(twice)}: a name may be used for one node only")
        return self

    @property
    def kinds(self) -> dict[str, NodeKind]:
        """The kind of every watched node, by name."""
        return {
            **dict.fromkeys(self.gateways, "gateway"),
            **dict.fromkeys(self.pipelines, "pipeline"),
            **dict.fromkeys(self.monitors, "monitor"),
            **dict.fromkeys(self.services, "service"),
        }


class QuestionsSection(_Section):
    years: tuple[int, int] = (2024, 2025)
    hours: tuple[str, str] = ("06:00:00", "23:00:00")
    min_amount: str = "75"
    top: int = 3
    max_groups: int = Field(10_000_000, ge=1)  # that the keys of one question may make

    def parameters(self) -> Parameters:
        return Parameters(*self.years, *self.hours, self.min_amount, self.top)


class Settings(_Section):
    """All settings. `system.settings.load_settings` reads them from the file and the environment."""

    home: Path = Field(Path("~/.kopitiam"), validate_default=True)
    umask: str = Field("077", pattern="^0?[0-7]{3}$")  # of the files of services; 027 lets a group read them
    log_bytes: int = Field(16 << 20, gt=0)  # of a node's log, and of the one before it
    registry: RegistrySection = RegistrySection()
    bus: BusSection = BusSection()
    storage: StorageSection = StorageSection()
    gateway: GatewaySection = GatewaySection()
    pipeline: PipelineSection = PipelineSection()
    spark: SparkSection = SparkSection()
    monitor: MonitorSection = MonitorSection()
    nodes: NodesSection = NodesSection()
    questions: QuestionsSection = QuestionsSection()

    def changed(
        self,
        home: Path | None = None,
        host: str | None = None,
        port: int | None = None,
        *,
        insecure: bool = False,
    ) -> "Settings":
        """Return the settings with the values of command-line flags, which override file and environment."""
        old_host, old_port = self.gateway.address
        listen = f"{host or old_host}:{old_port if port is None else port}"
        of_gateway = {"listen": listen, "insecure": insecure or self.gateway.insecure}
        gateway = self.gateway.model_copy(update=of_gateway)
        update: dict[str, Any] = {"gateway": gateway}
        if home is not None:
            update["home"] = home.expanduser().absolute()
        return self.model_copy(update=update)

    def privately(self, home: Path, token: str) -> "Settings":
        """Return settings of a private service with the same pipeline, for one client on this machine."""
        return self.model_copy(
            update={
                "home": home,
                "registry": RegistrySection(),
                "bus": BusSection(),
                "storage": self.storage.beside(f"private-{home.name}"),
                "gateway": GatewaySection(
                    listen="127.0.0.1:0",
                    tokens={"analyst": SecretStr(token)},
                    lease_seconds=_A_YEAR,  # client and service are suspended together, as on a laptop
                ),
            }
        )

    @model_validator(mode="after")
    def _one_pipeline_has_all_shards(self) -> "Settings":
        """Give every pipeline all shards, unless the settings assign them."""
        if "pipelines" not in self.nodes.model_fields_set:
            every = {name: tuple(range(self.pipeline.shards)) for name in self.nodes.pipelines}
            object.__setattr__(self, "nodes", self.nodes.model_copy(update={"pipelines": every}))
        return self

    @field_validator("home")
    @classmethod
    def _absolute(cls, home: Path) -> Path:
        return home.expanduser().absolute()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


def reachable(host: str) -> str:
    """Replace the wildcard address, which cannot be called, by the loopback address."""
    return _WILDCARDS.get(host, host)
