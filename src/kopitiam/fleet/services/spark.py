"""What the daemons of Spark standalone share: where they are, how they are run, protected and asked."""

import contextlib
import shutil
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psutil

from kopitiam.bus.private_broker import free_port
from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import ConfigError
from kopitiam.fleet.home import FleetHome
from kopitiam.fleet.processes import Program, family_of, launch, stop
from kopitiam.fleet.records import write_whole
from kopitiam.fleet.services.addresses import answer_of, kept_url, read_url, require_url
from kopitiam.spark.installation import use_options
from kopitiam.spark.java import find_java
from kopitiam.spark.session import as_properties

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


def protection(secret: str) -> dict[str, str]:
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
        launched.settle_when(self.probe, START_SECONDS)
        return launched.child is not None

    def stop(self) -> bool:
        return stop(self._home, self.name)

    def probe(self) -> bool:
        """Its page is written by the part of it that speaks with the others."""
        url = self.url()
        return url is not None and answer_of(Address.of(url).webui, _ASK).startswith(b"HTTP/1.1 200 ")

    def url(self) -> str | None:
        return read_url(self._folder)

    def family(self) -> list[psutil.Process]:
        """A worker's executors carry its mark too."""
        return family_of(self._home, self.name)

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
        address = Address.of(kept_url(self._folder, lambda: self._choose().url))
        scratch, properties = self._folder / "scratch", self._folder / "spark.properties"
        shutil.rmtree(scratch, ignore_errors=True)  # of a life that was cut short
        scratch.mkdir()
        # Another port than its own would be no use.
        write_whole(properties, as_properties({"spark.port.maxRetries": "0", **self._properties()}))
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
