"""Spark on S3: the jars that it needs, and where they come from.

    python -m kopitiam.spark.s3a [--settings IVYSETTINGS.XML]

fetches them once for this installation; from then on every session whose storage is on S3 has them. They are
hadoop-aws of the version of Spark's Hadoop, and the parts of the AWS SDK that it uses: 14 MB instead of the
687 MB of `spark.jars.packages`, which every executor would load from its driver.
"""

import argparse
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import ConfigError, KopitiamError
from kopitiam.spark.installation import pyspark_package
from kopitiam.spark.jars import fetch_jars, read_lock
from kopitiam.system.files import cache_folder

_LOCK = Path(__file__).with_name("s3a.lock")
_OWN_CLASSES = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")  # which may have them


def hadoop_version() -> str:
    """Of the Hadoop in Spark's package."""
    names = [path.name for path in (pyspark_package() / "jars").glob("hadoop-client-api-*.jar")]
    versions = [match[1] for name in names if (match := re.fullmatch(r"hadoop-client-api-(.+)\.jar", name))]
    if not versions:
        raise ConfigError(f"{pyspark_package()}: has no hadoop-client-api-….jar")
    return versions[0]


def s3a_folder() -> Path:
    """The folder of the fetched jars, whether it exists or not."""
    return cache_folder() / f"s3a-{hadoop_version()}"


def spark_conf(settings: Settings) -> dict[str, str]:
    """Spark's settings, with the jars for storage on S3. Raises `ConfigError` if it is there, and they are
    not."""
    conf = dict(settings.spark_conf)
    if settings.storage.url.startswith("s3://") and not _has_classes(conf):
        conf["spark.jars"] = ",".join(map(str, _fetched(settings.storage.url)))
    return conf


def _has_classes(conf: Mapping[str, str]) -> bool:
    """Whether hadoop-aws is in Spark's home, or the settings name jars of their own."""
    home = Path(os.environ.get("SPARK_HOME") or pyspark_package())
    return any(map(conf.get, _OWN_CLASSES)) or any((home / "jars").glob("hadoop-aws-*.jar"))


def _fetched(url: str) -> list[Path]:
    jars = sorted(s3a_folder().glob("*.jar"))
    if not jars:
        raise ConfigError(
            f"storage.url {url}: Spark needs hadoop-aws {hadoop_version()}: fetch it once with "
            f'"{sys.executable} -m kopitiam.spark.s3a", or set spark.jars or spark.jars.packages'
        )
    return jars


def fetch_s3a(ivy_settings: Path | None = None) -> Path:
    """Fetch the jars unless they are there; returns their folder. Raises `ServiceError`."""
    fetch_jars(read_lock(_LOCK.read_text(encoding="utf-8")), s3a_folder(), ivy_settings)
    return s3a_folder()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kopitiam.spark.s3a")
    parser.add_argument(
        "--settings", type=Path, metavar="FILE", help="settings of Ivy, for a mirror of Maven Central"
    )
    try:
        sys.stdout.write(f"{fetch_s3a(parser.parse_args().settings)}\n")
    except KopitiamError as error:
        sys.stderr.write(f"kopi: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
