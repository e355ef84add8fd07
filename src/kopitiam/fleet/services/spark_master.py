"""A Spark master of the fleet's own: it knows its workers and applications again after whatever ended it."""

import re
import secrets

import httpx

from kopitiam.contracts.config import Settings, SparkSection
from kopitiam.fleet.services.spark import LOOPBACK, Address, SparkDaemon, protection

NAME = "spark-master"
WORKER = re.compile(r"spark-worker-([1-9][0-9]*)")
_ANSWER_SECONDS = 2.0
_RECOVERY_SECONDS = 5  # for workers and applications to say that they are still there


class SparkMaster(SparkDaemon):
    main_class = "org.apache.spark.deploy.master.Master"

    def __init__(self, settings: Settings) -> None:
        super().__init__(NAME, settings)

    def fill(self, settings: Settings) -> Settings:
        if settings.spark.master != SparkSection().master:
            return settings
        address = self.address()
        conf = {
            **protection(address.secret),
            **shares(settings),
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            **settings.spark.conf,
        }
        filled = settings.spark.model_copy(update={"master": address.master, "conf": conf})
        return settings.model_copy(update={"spark": filled})

    def free_cores(self) -> int:
        """Of all its workers; none as long as it does not say."""
        try:
            page = httpx.get(f"{self.address().webui}/json/", timeout=_ANSWER_SECONDS, trust_env=False)
            workers = page.json()["workers"]
            return sum(int(worker["coresfree"]) for worker in workers if worker["state"] == "ALIVE")
        except (httpx.TransportError, ValueError, LookupError, TypeError):
            return 0

    def _choose(self) -> Address:
        return Address.free(secrets.token_hex(32))

    def _properties(self) -> dict[str, str]:
        return {
            **protection(self.address().secret),
            "spark.master.rest.enabled": "false",
            "spark.master.ui.decommission.allow.mode": "DENY",
            "spark.ui.killEnabled": "false",
            "spark.deploy.recoveryMode": "FILESYSTEM",
            "spark.deploy.recoveryDirectory": str(self._folder / "recovery"),
            "spark.deploy.recoveryTimeout": f"{_RECOVERY_SECONDS}s",
            "spark.deploy.retainedApplications": "20",
        }


def shares(settings: Settings) -> dict[str, str]:
    """What one pipeline may take: the first application would have all cores, and the second wait for ever.
    A worker has at most one executor of each, so that its memory is divided by their number."""
    pipelines, cores = pipelines_and_cores(settings)
    return {
        "spark.cores.max": str(max(1, cores // pipelines)),
        "spark.executor.memory": f"{settings.spark.worker_megabytes // pipelines}m",
    }


def pipelines_and_cores(settings: Settings) -> tuple[int, int]:
    workers = sum(1 for name in settings.nodes.services if WORKER.fullmatch(name))
    return max(1, len(settings.nodes.pipelines)), workers * settings.spark.worker_cores
