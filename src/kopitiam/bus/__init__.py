"""Which bus a configuration asks for."""

from kopitiam.bus.memory import MemoryBus
from kopitiam.bus.port import BusPort
from kopitiam.contracts.errors import ConfigError


def open_bus(url: str) -> BusPort:
    """`memory`, or `amqp(s)://user:password@host:port/vhost`: then `BusUnavailable` if it is not there."""
    if url == "memory":
        return MemoryBus()
    if url.startswith(("amqp://", "amqps://")):
        from kopitiam.bus.rabbitmq import RabbitBus  # noqa: PLC0415 - pika takes a tenth of a second to load

        return RabbitBus(url)
    raise ConfigError("bus.url: want memory or amqp(s)://user:password@host:port/vhost")
