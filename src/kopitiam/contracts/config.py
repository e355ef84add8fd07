"""All settings, with their defaults and checks. No I/O: `system.settings` reads them.

The sections are in `sections`, `gateway_config` and `fleet_config`."""

import socket
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator, model_validator

from kopitiam.contracts.addresses import WILDCARDS, is_loopback
from kopitiam.contracts.fleet_config import MonitorSection, NodeSection, NodesSection, ServicesSection
from kopitiam.contracts.gateway_config import GatewaySection
from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.sections import (
    BusSection,
    PipelineSection,
    RegistrySection,
    Section,
    SparkSection,
    StorageSection,
)

__all__ = [
    "BusSection",
    "GatewaySection",
    "MonitorSection",
    "NodeSection",
    "NodesSection",
    "PipelineSection",
    "QuestionsSection",
    "RegistrySection",
    "ServicesSection",
    "Settings",
    "SparkSection",
    "StorageSection",
]

_A_YEAR = 365 * 86400.0


class QuestionsSection(Section):
    years: tuple[int, int] = (2024, 2025)
    hours: tuple[str, str] = ("06:00:00", "23:00:00")
    min_amount: str = "75"
    top: int = 3
    max_groups: int = Field(10_000_000, ge=1)  # that the keys of one question may make

    def parameters(self) -> Parameters:
        return Parameters(*self.years, *self.hours, self.min_amount, self.top)


class Settings(Section):
    """All settings. `system.settings.load_settings` reads them from the file and the environment."""

    home: Path = Field(Path("~/.kopitiam"), validate_default=True)
    umask: str = Field("077", pattern="^0?[0-7]{3}$")  # of the files of services; 027 lets a group read them
    log_bytes: int = Field(16 << 20, gt=0)  # of a node's log, and of the one before it
    node: NodeSection = NodeSection()
    registry: RegistrySection = RegistrySection()
    bus: BusSection = BusSection()
    storage: StorageSection = StorageSection()
    gateway: GatewaySection = GatewaySection()
    pipeline: PipelineSection = PipelineSection()
    services: ServicesSection = ServicesSection()
    spark: SparkSection = SparkSection()
    monitor: MonitorSection = MonitorSection()
    nodes: NodesSection = NodesSection()
    questions: QuestionsSection = QuestionsSection()

    @property
    def host(self) -> str:
        """The name of this machine for the others."""
        return self.node.host or socket.gethostname().lower()

    def host_of(self, name: str) -> str:
        """The machine that runs this node."""
        return self.nodes.hosts.get(name, self.host)

    def is_here(self, name: str) -> bool:
        """Whether this machine runs the node."""
        return self.host_of(name) == self.host

    @property
    def spans_machines(self) -> bool:
        return len(self.nodes.machines) > 1

    @property
    def spark_conf(self) -> dict[str, str]:
        """Spark's settings, with the name under which executors of a cluster reach a driver on this machine.
        Without one, Spark uses the machine's address."""
        host = self.spark.driver_host or self.node.host
        if not host or self.spark.master.startswith("local"):
            return self.spark.conf
        return {"spark.driver.host": host, "spark.driver.bindAddress": "0.0.0.0", **self.spark.conf}  # noqa: S104

    def gateway_port(self, name: str) -> int:
        """The port of a gateway: that of `gateway.listen` for the first on its machine, the next ones for the
        others there."""
        port = self.gateway.address[1]
        if not port or name not in self.nodes.gateways:
            return port
        beside = [other for other in self.nodes.gateways if self.host_of(other) == self.host_of(name)]
        return port + beside.index(name)

    def advertised_url(self, port: int, host: str | None = None) -> str:
        """The URL under which clients reach a gateway on this port of this machine, or of `host`."""
        listened = self.gateway.address[0]
        if self.gateway.advertise:
            return self.gateway.advertise
        has_name = listened in WILDCARDS or bool(host or self.node.host)
        is_named = has_name and not is_loopback(listened)
        return self.gateway.url_at(host or self.host if is_named else listened, port)

    @property
    def gateway_urls(self) -> tuple[str, ...]:
        """The URLs of all gateways for a client with these settings, each once."""
        hosts, names = self.nodes.hosts, self.nodes.gateways
        urls = [self.advertised_url(self.gateway_port(name), hosts[name]) for name in names if name in hosts]
        return tuple(dict.fromkeys(urls)) or (self.gateway.url,)

    @property
    def host_names(self) -> frozenset[str]:
        """Names that a request to a gateway on this machine may have as its Host."""
        is_reached_by_name = bool(self.node.host) or not is_loopback(self.gateway.address[0])
        return self.gateway.host_names | (frozenset({self.host}) if is_reached_by_name else frozenset())

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

    def privately(self, home: Path) -> "Settings":
        """Return settings of the same pipeline for one run of this process, in a home of its own."""
        return self.model_copy(
            update={
                "home": home,
                "registry": RegistrySection(),
                "bus": BusSection(),
                "storage": self.storage.beside(f"private-{home.name}"),
                # Reader and pipeline are suspended together, as on a laptop.
                "gateway": GatewaySection(lease_seconds=_A_YEAR),
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
