"""A Spark home that starts sooner than the one in pyspark's package, of links to what is in there.

It has no zipped sources of pyspark: Python processes that Spark starts would read those, and compile all of
them each time. It has no MLlib, whose functions every session would begin with, by a second of reflection.
"""

import os
import shutil
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from kopitiam.spark.java import Java


def cache_folder() -> Path:
    return Path(os.environ.get("KOPI_CACHE", Path(sys.prefix) / "share" / "kopitiam"))


_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def archive_path(java: Java) -> Path:
    return cache_folder() / f"spark-{version('pyspark')}-java-{java.version}.jsa"


def use_options(java: Java) -> tuple[str, ...]:
    """The JVM options that use the archive, or none if there is none yet."""
    path = archive_path(java)
    return (f"-XX:SharedArchiveFile={path}", *_QUIET) if path.is_file() else ()


def record_option(target: Path) -> str:
    return " ".join((f"-XX:ArchiveClassesAtExit={target}", *_QUIET))


_NOT_WANTED = "spark-mllib_"


def spark_home() -> Path | None:
    """The home that was made here; none if there is none, or if the environment names another."""
    made = _place()
    is_there = (made / "bin" / "spark-submit").is_file()
    return made if is_there and "SPARK_HOME" not in os.environ else None


def make_spark_home() -> None:
    target, package = _place(), _package()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kopitiam-", dir=target.parent) as folder:
        made = Path(folder) / target.name
        (made / "jars").mkdir(parents=True)
        (made / "bin").symlink_to(package / "bin")
        for jar in (package / "jars").iterdir():
            if not jar.name.startswith(_NOT_WANTED):
                (made / "jars" / jar.name).symlink_to(jar)
        shutil.rmtree(target, ignore_errors=True)
        made.replace(target)


def _place() -> Path:
    return cache_folder() / f"spark-{version('pyspark')}"


def _package() -> Path:
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent
