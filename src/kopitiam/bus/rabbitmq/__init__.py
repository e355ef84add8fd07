"""The bus on RabbitMQ. Only this package knows pika, and nothing that pika raises leaves it."""

from kopitiam.bus.rabbitmq.bus import RabbitBus

__all__ = ["RabbitBus"]
