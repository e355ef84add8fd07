"""What the daemons of Spark standalone share: where they are, how they are run, protected and asked."""

import contextlib
import re
import secrets
import shutil
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import psutil

from kopitiam.bus.private_broker import free_port
from kopitiam.contracts.config import Settings, SparkSection
from kopitiam.contracts.errors import ConfigError
from kopitiam.fleet.home import FleetHome, write_atomically
from kopitiam.fleet.processes import Program, launch, processes_of, stop
from kopitiam.fleet.services.base import first_reply, read_or_choose_url, read_url, require_url
from kopitiam.spark.installation import find_java, use_options
from kopitiam.spark.settings import as_properties

START_SECONDS = 40.0
LOOPBACK = "127.0.0.1"
_SMALL_AND_QUICK = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_ASK = b"GET /json/ HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n"


@dataclass(frozen=True)
class Address:
    """Of a daemon: the port that Spark speaks on, that of its web page, and what it takes to be let in."""

    port: int
    webui_port: int
    secret: str = ""

    @classmethod
    def free(cls, secret: str = "") -> "Address":
        return cls(free_port(), free_port(), secret)

    @classmethod
    def of(cls, url: str) -> "Address":
        parts = urlsplit(url)
        return cls(int(parts.port or 0), int(parse_qs(parts.query)["webui"][0]), parts.password or "")

    @property
    def url(self) -> str:
        credentials = f"kopitiam:{self.secret}@" if self.secret else ""
        return f"spark://{credentials}{LOOPBACK}:{self.port}?webui={self.webui_port}"

    @property
    def master(self) -> str:
        return f"spark://{LOOPBACK}:{self.port}"

    @property
    def webui(self) -> str:
        return f"http://{LOOPBACK}:{self.webui_port}"


def encryption_properties(secret: str) -> dict[str, str]:
    """The same for daemons and applications, or they do not understand each other."""
    return {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secret,
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.authEngineVersion": "2",
        "spark.network.crypto.cipher": "AES/GCM/NoPadding",
        "spark.network.crypto.saslFallback": "false",
    }


class SparkDaemon(ABC):
    """A JVM of Spark standalone as a service: it comes back on the ports that it had."""

    main_class: str

    def __init__(self, name: str, settings: Settings) -> None:
        self.name = name
        self._settings = settings
        self._home = FleetHome(settings.home)
        self._folder = self._home.service(name)

    def start(self) -> bool:
        launched = launch(self._home, Program(self.name, "service", self._command))
        launched.wait_until_ready(self.probe, START_SECONDS)
        return launched.child is not None

    def stop(self) -> bool:
        return stop(self._home, self.name)

    def probe(self) -> bool:
        """Its page is written by the part of it that speaks with the others."""
        url = self.url()
        return url is not None and first_reply(Address.of(url).webui, _ASK).startswith(b"HTTP/1.1 200 ")

    def url(self) -> str | None:
        return read_url(self._folder)

    def processes(self) -> list[psutil.Process]:
        """A worker's executors carry its mark too."""
        return processes_of(self._home, self.name)

    def address(self) -> Address:
        return Address.of(require_url(self._folder))

    def _choose(self) -> Address:
        return Address.free()

    @abstractmethod
    def _properties(self) -> dict[str, str]: ...

    def _arguments(self) -> tuple[str, ...]:
        return ()

    def _command(self) -> tuple[str, ...]:
        """Through `env`, since a worker's executors need to know where Spark is, and which."""
        java, spark = find_java(), spark_home()
        address = Address.of(read_or_choose_url(self._folder, lambda: self._choose().url))
        scratch, properties = self._folder / "scratch", self._folder / "spark.properties"
        shutil.rmtree(scratch, ignore_errors=True)  # of a life that was cut short
        scratch.mkdir()
        # Another port than its own would be no use.
        write_atomically(properties, as_properties({"spark.port.maxRetries": "0", **self._properties()}))
        environment = {
            **java.environment,
            "SPARK_HOME": str(spark),
            "SPARK_SCALA_VERSION": scala_version(spark),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_LOCAL_DIRS": str(scratch),
        }
        return (
            "env",
            *(f"{name}={value}" for name, value in environment.items()),
            str(java.home / "bin" / "java"),
            *_SMALL_AND_QUICK,
            f"-Djava.io.tmpdir={scratch}",
            *use_options(java),
            *("-cp", class_path(spark)),
            self.main_class,
            *("--host", LOOPBACK, "--port", str(address.port), "--webui-port", str(address.webui_port)),
            *("--properties-file", str(properties)),
            *self._arguments(),
        )


def spark_home() -> Path:
    """Of the Spark that applications use; looked up and not loaded, which would take a while."""
    with contextlib.suppress(ImportError):
        package = find_spec("pyspark")
        for folder in (package.submodule_search_locations or ()) if package else ():
            if (Path(folder) / "jars").is_dir():
                return Path(folder)
    raise ConfigError(f"spark: there is no pyspark in {sys.prefix}")


def scala_version(spark: Path) -> str:
    """As the names of its jars say; Spark's scripts would tell it."""
    core = next((spark / "jars").glob("spark-core_*.jar"))
    return core.name.removeprefix("spark-core_").partition("-")[0]


def class_path(spark: Path) -> str:
    """As Spark's scripts make it: a class archive fits no other."""
    jars = spark / "jars"
    return ":".join((f"{spark}/conf", *map(str, jars.glob("slf4j-api-*.jar")), f"{jars}/*"))


NAME = "spark-master"
WORKER = re.compile(r"spark-worker-([1-9][0-9]*)")
_ANSWER_SECONDS = 2.0
_RECOVERY_SECONDS = 5  # for workers and applications to say that they are still there


class SparkMaster(SparkDaemon):
    main_class = "org.apache.spark.deploy.master.Master"

    def __init__(self, settings: Settings) -> None:
        super().__init__(NAME, settings)

    def with_address(self, settings: Settings) -> Settings:
        if settings.spark.master != SparkSection().master:
            return settings
        address = self.address()
        conf = {
            **encryption_properties(address.secret),
            **resources_per_pipeline(settings),
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
            **encryption_properties(self.address().secret),
            "spark.master.rest.enabled": "false",
            "spark.master.ui.decommission.allow.mode": "DENY",
            "spark.ui.killEnabled": "false",
            "spark.deploy.recoveryMode": "FILESYSTEM",
            "spark.deploy.recoveryDirectory": str(self._folder / "recovery"),
            "spark.deploy.recoveryTimeout": f"{_RECOVERY_SECONDS}s",
            "spark.deploy.retainedApplications": "20",
        }


def resources_per_pipeline(settings: Settings) -> dict[str, str]:
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


_TIDY_EVERY_SECONDS, _KEEP_SECONDS = 600, 3600  # what is left of applications that have ended
_MOST_LOG_BYTES = 4 << 20


class SparkWorker(SparkDaemon):
    main_class = "org.apache.spark.deploy.worker.Worker"

    def with_address(self, settings: Settings) -> Settings:
        """Nobody but the master need know where it is."""
        return settings

    def _properties(self) -> dict[str, str]:
        return {
            **encryption_properties(self._master().secret),
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
