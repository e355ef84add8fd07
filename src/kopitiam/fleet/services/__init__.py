"""The services that a fleet can bring along, and where they are found."""

from collections.abc import Callable, Iterable
from functools import partial

from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import ConfigError
from kopitiam.fleet.home import FleetHome
from kopitiam.fleet.services.base import Service
from kopitiam.fleet.services.postgresql import PostgreSQL
from kopitiam.fleet.services.rabbitmq import RabbitMQ
from kopitiam.fleet.services.spark import NAME as SPARK_MASTER
from kopitiam.fleet.services.spark import WORKER, SparkMaster, SparkWorker

__all__ = [
    "Service",
    "find_service",
    "in_start_order",
    "probes",
    "recorded_probes",
    "service_settings",
    "services_of",
]

_SERVICES: dict[str, Callable[[Settings], Service]] = {  # in the order in which they are started
    "postgresql": PostgreSQL,
    "rabbitmq": RabbitMQ,
    SPARK_MASTER: SparkMaster,
}  # and then Spark's workers, of which there may be many


def services_of(settings: Settings) -> list[Service]:
    """Those that the settings name, in the order in which they are started."""
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
    """With the addresses of the fleet's own services where the settings keep their default."""
    for service in services_of(settings):
        settings = service.with_address(settings)
    return settings


def probes(settings: Settings) -> dict[str, Callable[[], bool]]:
    """For each service of the settings, whether it answers in its own protocol, within two seconds."""
    return {service.name: service.probe for service in services_of(settings)}


def recorded_probes(settings: Settings) -> dict[str, Callable[[], bool]]:
    """As `probes`, but one that was stopped on purpose, and so has no record, is not missed."""
    home = FleetHome(settings.home)

    def is_not_missed(service: Service) -> bool:
        return not home.record(service.name).exists() or service.probe()

    return {service.name: partial(is_not_missed, service) for service in services_of(settings)}


def _rank(name: str) -> tuple[int, int]:
    if worker := WORKER.fullmatch(name):
        return len(_SERVICES), int(worker[1])
    return list(_SERVICES).index(name) if name in _SERVICES else -1, 0
