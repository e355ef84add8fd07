"""Opens the storage of the settings, and gives Spark the same settings."""

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from kopitiam.contracts.config import Settings, StorageSection
from kopitiam.contracts.errors import ConfigError
from kopitiam.storage.arrow import ArrowStorage
from kopitiam.storage.local import LocalStorage, TemporaryStorage
from kopitiam.storage.port import Key, StoragePort
from kopitiam.storage.probe import checked

HOME = "file"
_DEFAULT_REGION = "us-east-1"  # which S3-compatible stores expect, if any


def open_storage(settings: Settings) -> StoragePort:
    """Open storage and check that it works. Raises `Unavailable`, with the failed step, within seconds."""
    section = settings.storage
    if section.url == HOME:
        return checked(lambda: LocalStorage(settings.home), f"file ({settings.home})")
    return checked(functools.partial(_shared, section), section.url)


@contextlib.contextmanager
def temporary_storage(settings: Settings) -> Iterator[StoragePort]:
    """Open storage whose files are removed after the block. (Those in a home are removed with the home.)

    A mounted folder is made for this user alone, whatever the umask.
    """
    place = urlsplit(settings.storage.url)
    if settings.storage.url == HOME:
        yield checked(lambda: TemporaryStorage(settings.home), f"file ({settings.home})")
        return
    if place.scheme == "file":
        with contextlib.suppress(OSError):  # open_storage raises the reason
            Path(unquote(place.path)).mkdir(mode=0o700, parents=True, exist_ok=True)
    storage = open_storage(settings)
    try:
        yield storage
    finally:
        storage.remove(Key())


def hadoop_conf(settings: Settings) -> dict[str, str]:
    """Hadoop settings for Spark's file systems, except those that `spark.conf` sets with `spark.hadoop.`."""
    section = settings.storage
    if not section.url.startswith("s3://"):
        return {}
    conf = {
        # Which Hadoop fills in on each machine; its default is /tmp.
        "fs.s3a.buffer.dir": "${java.io.tmpdir}/s3a",
        "fs.s3a.access.key": section.access_key.get_secret_value(),
        "fs.s3a.secret.key": section.secret_key.get_secret_value(),
        "fs.s3a.endpoint": section.endpoint,
        "fs.s3a.endpoint.region": section.region or (_DEFAULT_REGION if section.endpoint else ""),
    }
    if section.endpoint:
        is_encrypted = section.endpoint.startswith("https://")
        conf |= {
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": str(is_encrypted).lower(),
        }
    own = settings.spark.conf
    return {key: value for key, value in conf.items() if value and f"spark.hadoop.{key}" not in own}


def _shared(section: StorageSection) -> StoragePort:
    place = urlsplit(section.url)
    if place.scheme == "s3":
        root = f"{place.netloc}{place.path}".rstrip("/")
        return ArrowStorage(fs.S3FileSystem(**_s3_options(section)), root, f"s3a://{root}")
    try:
        filesystem, root = fs.FileSystem.from_uri(section.url)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConfigError(f"storage.url {section.url}: {str(error).partition(chr(10))[0]}") from None
    return ArrowStorage(filesystem, root, f"{place.scheme}://{place.netloc}{unquote(place.path)}")


def _s3_options(section: StorageSection) -> dict[str, Any]:
    """Without keys, pyarrow uses those of the environment, the AWS files or the machine's role."""
    endpoint = urlsplit(section.endpoint)
    options = {
        "access_key": section.access_key.get_secret_value(),
        "secret_key": section.secret_key.get_secret_value(),
        "region": section.region or (_DEFAULT_REGION if section.endpoint else ""),
        "scheme": endpoint.scheme,
        "endpoint_override": endpoint.netloc,
    }
    chosen = {name: value for name, value in options.items() if value}
    return {**chosen, "allow_delayed_open": True}  # one request for a small object
