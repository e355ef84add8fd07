"""The fleet's own Spark standalone cluster: one master and any number of workers.

After a crash they restart on their ports, and the master recovers its workers and applications.
"""

import contextlib
import re
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import psutil

from kopitiam.bus.private_broker import free_port
from kopitiam.contracts.addresses import bracketed, is_loopback, reachable
from kopitiam.contracts.config import Settings, SparkSection
from kopitiam.contracts.errors import ConfigError
from kopitiam.fleet.processes import Program, launch, processes_of, stop
from kopitiam.fleet.services.base import Site, first_reply
from kopitiam.spark.installation import find_java, use_options
from kopitiam.spark.settings import as_properties
from kopitiam.system.files import replace_file

START_SECONDS = 40.0
_JVM_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_STATUS_REQUEST = b"GET /json/ HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n"
SPARK_MASTER = "spark-master"
WORKER = re.compile(r"spark-worker-([1-9][0-9]*)")
_ANSWER_SECONDS = 2.0
_RECOVERY_SECONDS = 5  # for workers and applications to register again
_CLEANUP_SECONDS, _KEEP_SECONDS = 600, 3600  # files of ended applications
_MAX_LOG_BYTES = 4 << 20


@dataclass(frozen=True)
class Address:
    """The ports of a daemon, for Spark's protocol and the web page, and the shared secret."""

    port: int
    webui_port: int
    secret: str = ""
    host: str = "127.0.0.1"

    @classmethod
    def of(cls, url: str) -> "Address":
        parts = urlsplit(url)
        webui_port = int(parse_qs(parts.query)["webui"][0])
        return cls(int(parts.port or 0), webui_port, parts.password or "", parts.hostname or "")

    @property
    def url(self) -> str:
        credentials = f"kopitiam:{self.secret}@" if self.secret else ""
        return f"spark://{credentials}{bracketed(self.host)}:{self.port}?webui={self.webui_port}"

    @property
    def master(self) -> str:
        return f"spark://{bracketed(self.host)}:{self.port}"

    @property
    def webui(self) -> str:
        return f"http://{bracketed(self.host)}:{self.webui_port}"


def encryption_properties(secret: str) -> dict[str, str]:
    """Authentication and encryption, which must be the same for daemons and applications."""
    return {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secret,
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.authEngineVersion": "2",
        "spark.network.crypto.cipher": "AES/GCM/NoPadding",
        "spark.network.crypto.saslFallback": "false",
    }


class SparkDaemon(ABC):
    """A JVM of Spark standalone as a service. It restarts on its recorded ports."""

    main_class: str
    has_secret = False  # only the master has one, which all share

    def __init__(self, name: str, settings: Settings) -> None:
        self.name = name
        self._settings = settings
        self._site = Site.of(settings, name)
        self._home, self._folder = self._site.home, self._site.folder

    def start(self) -> bool:
        launched = launch(self._home, Program(self.name, "service", self._command))
        launched.wait_until_ready(self.probe, START_SECONDS)
        return launched.child is not None

    def stop(self) -> bool:
        return stop(self._home, self.name)

    def probe(self) -> bool:
        """Fetch the status page: it is rendered by the component that handles Spark's protocol."""
        url = self.url()
        return url is not None and first_reply(Address.of(url).webui, _STATUS_REQUEST).startswith(
            b"HTTP/1.1 200 "
        )

    def url(self) -> str | None:
        return self._site.url(self._spelled)

    def processes(self) -> list[psutil.Process]:
        """A worker's executors inherit its environment variable."""
        return processes_of(self._home, self.name)

    def address(self) -> Address:
        return Address.of(self._site.require_url(self._spelled))

    def _spelled(self, port: int, password: str) -> str:
        webui_port = free_port() if self._site.port is None else port + 1
        return Address(port, webui_port, password if self.has_secret else "", self._site.host).url

    @abstractmethod
    def _properties(self) -> dict[str, str]: ...

    def _arguments(self) -> tuple[str, ...]:
        return ()

    def _command(self) -> tuple[str, ...]:
        """Run with `env`: a worker's executors need the location and Scala version of Spark."""
        java, spark = find_java(), spark_home()
        address = Address.of(self._site.record_url(self._spelled))
        scratch, properties = self._folder / "scratch", self._folder / "spark.properties"
        shutil.rmtree(scratch, ignore_errors=True)  # left by a crash
        scratch.mkdir()
        # Clients only know the recorded port.
        content = as_properties({"spark.port.maxRetries": "0", **self._properties()})
        replace_file(properties, content.encode(), mode=0o600)
        environment = {
            **java.environment,
            "SPARK_HOME": str(spark),
            "SPARK_SCALA_VERSION": scala_version(spark),
            "SPARK_LOCAL_IP": address.host,
            "SPARK_LOCAL_DIRS": str(scratch),
        }
        return (
            "env",
            *(f"{name}={value}" for name, value in environment.items()),
            str(java.home / "bin" / "java"),
            *_JVM_OPTIONS,
            f"-Djava.io.tmpdir={scratch}",
            *use_options(java),
            *("-cp", class_path(spark)),
            self.main_class,
            *("--host", address.host, "--port", str(address.port), "--webui-port", str(address.webui_port)),
            *("--properties-file", str(properties)),
            *self._arguments(),
        )


def spark_home() -> Path:
    """Home of the Spark that applications use. The package is located, not imported, which is slow."""
    with contextlib.suppress(ImportError):
        package = find_spec("pyspark")
        for folder in (package.submodule_search_locations or ()) if package else ():
            if (Path(folder) / "jars").is_dir():
                return Path(folder)
    raise ConfigError(f"spark: pyspark is not installed in {sys.prefix}")


def scala_version(spark: Path) -> str:
    """From the names of its jars; Spark's scripts set it otherwise."""
    core = next((spark / "jars").glob("spark-core_*.jar"))
    return core.name.removeprefix("spark-core_").partition("-")[0]


def class_path(spark: Path) -> str:
    """The same as in Spark's scripts: a class archive only matches an equal class path."""
    jars = spark / "jars"
    return ":".join((f"{spark}/conf", *map(str, jars.glob("slf4j-api-*.jar")), f"{jars}/*"))


class SparkMaster(SparkDaemon):
    main_class = "org.apache.spark.deploy.master.Master"
    has_secret = True

    def __init__(self, settings: Settings) -> None:
        super().__init__(SPARK_MASTER, settings)

    def with_address(self, settings: Settings) -> Settings:
        if settings.spark.master != SparkSection().master:
            return settings
        address = self.address()
        conf = {
            **encryption_properties(address.secret),
            **resources_per_pipeline(settings),
            **self._driver_address(settings),
            **settings.spark.conf,
        }
        filled = settings.spark.model_copy(update={"master": address.master, "conf": conf})
        return settings.model_copy(update={"spark": filled})

    def _driver_address(self, settings: Settings) -> dict[str, str]:
        """Where executors reach the driver: on this machine's loopback interface if they are here too."""
        host, section = settings.spark.driver_host, settings.services
        if is_loopback(section.listen) or not settings.nodes.hosts:
            local = reachable(section.listen)
            return {"spark.driver.host": host or local, "spark.driver.bindAddress": local}
        return {"spark.driver.host": host or settings.host, "spark.driver.bindAddress": "0.0.0.0"}  # noqa: S104

    def free_cores(self) -> int:
        """Of all its workers; 0 if it does not answer."""
        with contextlib.suppress(httpx.TransportError, ValueError, LookupError, TypeError):
            workers = self._status()["workers"]
            return sum(int(worker["coresfree"]) for worker in workers if worker["state"] == "ALIVE")
        return 0

    def has_forgotten(self, application: str) -> bool:
        """Whether it answers and does not run this application, such as a master with an empty disk. Its
        executors have been killed, and it gives the application no others."""
        with contextlib.suppress(httpx.TransportError, ValueError, LookupError, TypeError):
            status = self._status()
            names = {active["id"] for active in status["activeapps"]}
            return status["status"] == "ALIVE" and application not in names
        return False

    def _status(self) -> Any:
        page = httpx.get(f"{self.address().webui}/json/", timeout=_ANSWER_SECONDS, trust_env=False)
        return page.json()

    def _properties(self) -> dict[str, str]:
        return {
            **encryption_properties(self.address().secret),
            "spark.master.rest.enabled": "false",
            "spark.master.ui.decommission.allow.mode": "DENY",
            "spark.ui.killEnabled": "false",
            "spark.deploy.recoveryMode": "FILESYSTEM",
            "spark.deploy.recoveryDirectory": str(self._folder / "recovery"),
            "spark.deploy.recoveryTimeout": f"{_RECOVERY_SECONDS}s",
            "spark.deploy.retainedApplications": "20",
        }


def forgotten_by_master(settings: Settings) -> Callable[[str], bool]:
    """Tells of an application whether the fleet's own master has forgotten it; of any other master nothing is
    known. `settings` must contain the addresses of the services."""
    if SPARK_MASTER not in settings.nodes.services:
        return lambda _: False
    master = SparkMaster(settings)
    is_own = settings.spark.master == master.address().master
    return master.has_forgotten if is_own else lambda _: False


def resources_per_pipeline(settings: Settings) -> dict[str, str]:
    """Limits of one of several pipelines: otherwise the first would take all cores, and the second would wait
    for ever. A single one has no limit, so that it uses workers that are added while it runs. A worker runs
    at most one executor per pipeline, so its memory is divided by their number."""
    pipelines, cores = pipelines_and_cores(settings)
    memory = {"spark.executor.memory": f"{settings.spark.worker_megabytes // pipelines}m"}
    return memory if pipelines == 1 else {"spark.cores.max": str(max(1, cores // pipelines)), **memory}


def pipelines_and_cores(settings: Settings) -> tuple[int, int]:
    workers = sum(1 for name in settings.nodes.services if WORKER.fullmatch(name))
    return max(1, len(settings.nodes.pipelines)), workers * settings.spark.worker_cores


class SparkWorker(SparkDaemon):
    main_class = "org.apache.spark.deploy.worker.Worker"

    def with_address(self, settings: Settings) -> Settings:
        """Only the master needs its address."""
        return settings

    def _properties(self) -> dict[str, str]:
        return {
            **encryption_properties(self._master().secret),
            "spark.worker.cleanup.enabled": "true",
            "spark.worker.cleanup.interval": str(_CLEANUP_SECONDS),
            "spark.worker.cleanup.appDataTtl": str(_KEEP_SECONDS),
            "spark.executor.logs.rolling.strategy": "size",
            "spark.executor.logs.rolling.maxSize": str(_MAX_LOG_BYTES),
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
