"""The services that `kopi cluster` can run: their order, addresses and probes.

A new service is a module with a `Service` class here, and an entry in `_SERVICES`.
"""

from collections.abc import Callable, Iterable
from functools import partial

from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import ConfigError
from kopitiam.fleet.home import FleetHome
from kopitiam.fleet.services.base import Service
from kopitiam.fleet.services.postgresql import PostgreSQL
from kopitiam.fleet.services.rabbitmq import RabbitMQ
from kopitiam.fleet.services.spark import SPARK_MASTER, WORKER, SparkMaster, SparkWorker

__all__ = [
    "Service",
    "find_service",
    "in_start_order",
    "probes",
    "recorded_probes",
    "service_settings",
    "services_of",
]

_SERVICES: dict[str, Callable[[Settings], Service]] = {  # in start order
    "postgresql": PostgreSQL,
    "rabbitmq": RabbitMQ,
    SPARK_MASTER: SparkMaster,
}  # then any number of Spark workers


def services_of(settings: Settings) -> list[Service]:
    """The services of the fleet, in start order."""
    return [find_service(name, settings) for name in in_start_order(settings.nodes.services)]


def in_start_order(names: Iterable[str]) -> list[str]:
    return sorted(names, key=_rank)


def find_service(name: str, settings: Settings) -> Service:
    if WORKER.fullmatch(name):
        return SparkWorker(name, settings)
    if name not in _SERVICES:
        raise ConfigError(f"nodes.services: {name} is not one of {', '.join(_SERVICES)}, spark-worker-1, …")
    return _SERVICES[name](settings)


def service_settings(settings: Settings) -> Settings:
    """The settings, with the addresses of the fleet's own services in place of defaults."""
    for service in services_of(settings):
        settings = service.with_address(settings)
    return settings


def probes(settings: Settings) -> dict[str, Callable[[], bool]]:
    """A probe for each service of the settings: whether it answers in its own protocol within two seconds."""
    return {service.name: service.probe for service in services_of(settings)}


def recorded_probes(settings: Settings) -> dict[str, Callable[[], bool]]:
    """As `probes`, but a service of this machine without a process record, which was stopped on purpose,
    passes."""
    home = FleetHome.of(settings)

    def is_stopped_or_answers(service: Service) -> bool:
        is_stopped = settings.is_here(service.name) and not home.record(service.name).exists()
        return is_stopped or service.probe()

    return {service.name: partial(is_stopped_or_answers, service) for service in services_of(settings)}


def _rank(name: str) -> tuple[int, int]:
    if worker := WORKER.fullmatch(name):
        return len(_SERVICES), int(worker[1])
    return list(_SERVICES).index(name) if name in _SERVICES else -1, 0
