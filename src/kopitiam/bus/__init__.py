"""Messages between nodes: the port, an in-memory bus for one process, and RabbitMQ for a fleet."""

from kopitiam.bus.memory import MemoryBus
from kopitiam.bus.port import BusPort
from kopitiam.contracts.errors import ConfigError

_FLEET_CHARACTERS = 16


def open_bus(url: str, fleet: str) -> BusPort:
    """Open the bus at `url`: `memory`, or `amqp(s)://user:password@host:port/vhost`.

    `fleet` is the identity of the registry: fleets with different registries can share a broker.

    Raises `BusUnavailable` if the broker cannot be reached, `ConfigError` if the URL has another form.
    """
    if url == "memory":
        return MemoryBus()
    if url.startswith(("amqp://", "amqps://")):
        from kopitiam.bus.rabbitmq import RabbitBus  # noqa: PLC0415 - pika takes a tenth of a second to load

        return RabbitBus(url, prefix=f"kopitiam.{fleet[:_FLEET_CHARACTERS]}")
    raise ConfigError("bus.url: expected memory or amqp(s)://user:password@host:port/vhost")
