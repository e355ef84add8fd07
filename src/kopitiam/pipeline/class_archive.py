"""A Java class archive of Spark, so that a session starts in half the time.

The JVM dumps the classes that a rehearsal loaded; later sessions map them instead of reading jars. An
archive belongs to one JVM and one set of jars: the JVM ignores one that does not fit.
"""

from importlib.metadata import version
from pathlib import Path

from kopitiam.pipeline.cache import cache_folder
from kopitiam.pipeline.java import Java

_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def archive_path(java: Java) -> Path:
    return cache_folder() / f"spark-{version('pyspark')}-java-{java.version}.jsa"


def use_options(java: Java) -> tuple[str, ...]:
    """The JVM options that use the archive, or none if there is none yet."""
    path = archive_path(java)
    return (f"-XX:SharedArchiveFile={path}", *_QUIET) if path.is_file() else ()


def record_option(target: Path) -> str:
    return " ".join((f"-XX:ArchiveClassesAtExit={target}", *_QUIET))
