"""The bus on RabbitMQ. Only this package imports pika, and no pika exception leaves it."""

from kopitiam.bus.rabbitmq.bus import RabbitBus

__all__ = ["RabbitBus"]
