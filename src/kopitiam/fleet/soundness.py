"""What is wrong with the settings of a fleet that no single node can see."""

import fcntl
from pathlib import Path

from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import ConfigError
from kopitiam.fleet.services import services_of


def require_sound(settings: Settings) -> None:
    services = [service.name for service in services_of(settings)]
    if settings.bus.url == "memory" and "rabbitmq" not in services:
        raise ConfigError("bus.url: a fleet wants amqp://…, or rabbitmq among nodes.services")
    _require_every_shard_once(settings)
    if _is_served(settings.home):
        raise ConfigError(f"{settings.home}: a kopi serve uses this home; choose another")


def _require_every_shard_once(settings: Settings) -> None:
    every = range(settings.pipeline.shards)
    given = sorted(shard for shards in settings.nodes.pipelines.values() for shard in shards)
    if settings.nodes.pipelines and given != list(every):
        raise ConfigError(
            f"nodes.pipelines: want each of the {len(every)} shards (pipeline.shards) once, "
            f"got {', '.join(map(str, given))}"
        )


def _is_served(home: Path) -> bool:
    """Whether somebody has the home for himself, as the embedded service does."""
    try:
        with (home / "serve.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
