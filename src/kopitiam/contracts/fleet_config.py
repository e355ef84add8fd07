"""The settings of a fleet: its machines, nodes, services and monitors."""

import re
from typing import Annotated

from pydantic import Field, SecretStr, field_validator, model_validator

from kopitiam.contracts.addresses import HostName, check_host, is_address, is_loopback
from kopitiam.contracts.errors import ConfigError
from kopitiam.contracts.messages import NodeKind
from kopitiam.contracts.sections import Section

NodeName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
_LEAST_SECRET = 16  # characters
_SERVICE_PORTS = {"postgresql": 8450, "rabbitmq": 8451, "spark-master": 8452}
_WORKER_PORTS = 8460  # spark-worker-1 listens on 8462, spark-worker-2 on 8464, …
_WORKER = re.compile(r"spark-worker-([1-9][0-9]*)")
_MOST_PORT = 65534  # the next one is that of a web page


class NodeSection(Section):
    """This machine. All other sections are the same on all machines of a fleet."""

    host: str = ""  # under which the others reach this machine; not given: its host name

    @field_validator("host")
    @classmethod
    def _is_a_host(cls, host: str) -> str:
        return host and check_host(host)


class MonitorSection(Section):
    heartbeat_seconds: float = Field(2, gt=0)
    timeout_seconds: float = Field(20, gt=0)  # without a heartbeat: dead
    revive: str = "kopi node start {node} --config {config}"
    revive_limit: int = Field(5, ge=0)  # attempts in a row, then an alarm

    @model_validator(mode="after")
    def _timeout_covers_heartbeats(self) -> "MonitorSection":
        if self.timeout_seconds < 2 * self.heartbeat_seconds:
            raise ValueError("timeout_seconds: expected at least two heartbeats")
        return self


class NodesSection(Section):
    """The nodes of the fleet. Ids of monitors grow in the order of this list: the last one alive leads."""

    gateways: tuple[NodeName, ...] = ("gateway-1",)
    pipelines: dict[NodeName, tuple[int, ...]] = Field({"pipeline-1": (0,)})  # not given: all shards
    monitors: tuple[NodeName, ...] = ("monitor-1", "monitor-2", "monitor-3")
    services: tuple[NodeName, ...] = ()  # run by `kopi cluster`
    hosts: dict[NodeName, HostName] = Field({})  # the machine of each node; none given: all run here

    @model_validator(mode="after")
    def _names_are_unique(self) -> "NodesSection":
        names = [*self.gateways, *self.pipelines, *self.monitors, *self.services]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{', '.join(twice)}: a name may be used for one node only")
        if unknown := sorted(self.hosts.keys() - set(names)):
            raise ValueError(f"hosts: {', '.join(unknown)}: no such node; there are {', '.join(names)}")
        return self

    @property
    def machines(self) -> tuple[str, ...]:
        """The machines that `hosts` names, each once."""
        return tuple(dict.fromkeys(self.hosts.values()))

    @property
    def kinds(self) -> dict[str, NodeKind]:
        """The kind of every watched node, by name."""
        return {
            **dict.fromkeys(self.gateways, "gateway"),
            **dict.fromkeys(self.pipelines, "pipeline"),
            **dict.fromkeys(self.monitors, "monitor"),
            **dict.fromkeys(self.services, "service"),
        }


class ServicesSection(Section):
    """How the machines of a fleet find the services that `kopi cluster` runs. Without a secret, ports and
    passwords are random, and only nodes on the same machine know them."""

    listen: str = "127.0.0.1"
    secret: SecretStr = SecretStr("")  # all passwords are derived from it
    ports: dict[NodeName, Annotated[int, Field(ge=1, le=_MOST_PORT)]] = Field({}, validate_default=True)

    @field_validator("ports")
    @classmethod
    def _with_defaults(cls, ports: dict[str, int]) -> dict[str, int]:
        return _SERVICE_PORTS | ports

    @field_validator("listen")
    @classmethod
    def _is_an_address(cls, listen: str) -> str:
        if not is_address(listen):
            raise ValueError("expected an address of this machine, such as 0.0.0.0 for all")
        return listen

    @field_validator("secret")
    @classmethod
    def _is_long(cls, secret: SecretStr) -> SecretStr:
        if 0 < len(secret.get_secret_value()) < _LEAST_SECRET:
            raise ValueError(f"expected at least {_LEAST_SECRET} characters, such as 32 random ones")
        return secret

    @model_validator(mode="after")
    def _has_a_secret_for_others(self) -> "ServicesSection":
        if not is_loopback(self.listen) and not self.secret.get_secret_value():
            raise ValueError(
                f"listen {self.listen}: other machines need services.secret to find the services"
            )
        return self

    def port(self, name: str) -> int:
        """The port of a service. Spark's daemons use the next one too, for their web page."""
        worker = _WORKER.fullmatch(name)
        port = self.ports.get(name, _WORKER_PORTS + 2 * int(worker[1]) if worker else 0)
        if not 0 < port <= _MOST_PORT:
            raise ConfigError(f"services.ports: {name} has no port; set one")
        return port
