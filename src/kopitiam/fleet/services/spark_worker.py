"""A Spark worker of the fleet's own: it runs executors, within limits, for whoever its master lets in."""

from kopitiam.contracts.config import Settings
from kopitiam.fleet.services.spark import Address, SparkDaemon, protection
from kopitiam.fleet.services.spark_master import SparkMaster

_TIDY_EVERY_SECONDS, _KEEP_SECONDS = 600, 3600  # what is left of applications that have ended
_MOST_LOG_BYTES = 4 << 20


class SparkWorker(SparkDaemon):
    main_class = "org.apache.spark.deploy.worker.Worker"

    def fill(self, settings: Settings) -> Settings:
        """Nobody but the master need know where it is."""
        return settings

    def _properties(self) -> dict[str, str]:
        return {
            **protection(self._master().secret),
            "spark.worker.cleanup.enabled": "true",
            "spark.worker.cleanup.interval": str(_TIDY_EVERY_SECONDS),
            "spark.worker.cleanup.appDataTtl": str(_KEEP_SECONDS),
            "spark.executor.logs.rolling.strategy": "size",
            "spark.executor.logs.rolling.maxSize": str(_MOST_LOG_BYTES),
            "spark.executor.logs.rolling.maxRetainedFiles": "2",
            "spark.ui.killEnabled": "false",
        }

    def _arguments(self) -> tuple[str, ...]:
        limits = self._settings.spark
        return (
            *("--cores", str(limits.worker_cores), "--memory", f"{limits.worker_megabytes}m"),
            *("--work-dir", str(self._folder / "work")),
            self._master().master,
        )

    def _master(self) -> Address:
        return SparkMaster(self._settings).address()
