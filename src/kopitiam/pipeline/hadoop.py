"""Spark's own file systems, told where the storage is."""

import uuid
from collections.abc import Mapping

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from kopitiam.contracts.errors import ConfigError
from kopitiam.spark.failures import why
from kopitiam.storage.port import Key, StoragePort


def show_storage(spark: SparkSession, storage: StoragePort, conf: Mapping[str, str]) -> None:
    """Told to the live session, so that keys stand on no command line and in no list of settings.

    A small file is written and deleted: Spark has other libraries, and perhaps other rights, than we have.
    """
    if not storage.is_shared:
        return
    context, url = spark.sparkContext, storage.url(Key())
    assert context._jsc is not None and context._jvm is not None
    hadoop = context._jsc.hadoopConfiguration()
    for name, value in conf.items():
        hadoop.set(name, value)
    try:
        probe = context._jvm.org.apache.hadoop.fs.Path(storage.url(Key(f".probe-{uuid.uuid4().hex}")))
        files = probe.getFileSystem(hadoop)
        files.create(probe).close()
        files.delete(probe, False)
    except Py4JJavaError as error:
        reason = why(error)
        is_missing = url.startswith("s3a:") and "S3AFileSystem not found" in reason
        hint = "; hadoop-aws is missing: name it in spark.jars.packages" if is_missing else ""
        raise ConfigError(f"storage.url: Spark cannot use {url}: {reason}{hint}") from None
