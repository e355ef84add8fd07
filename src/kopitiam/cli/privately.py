"""A private service for commands that do everything in this process."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kopitiam.contracts.config import Settings
from kopitiam.landing.ownership import owned

if TYPE_CHECKING:
    from concurrent.futures import Future

    from pyspark.sql import SparkSession

    from kopitiam.client.client import Client
    from kopitiam.pipeline.session import SparkOptions


@contextlib.contextmanager
def private_client(
    settings: Settings, options: "SparkOptions"
) -> "Iterator[tuple[Client, Future[SparkSession]]]":
    """A client, and the session behind it. Spark takes longest to start: it starts before all else loads."""
    from kopitiam.pipeline.session import spark_session

    with (
        tempfile.TemporaryDirectory(prefix="kopitiam-", ignore_cleanup_errors=True) as home,
        owned(Path(home)) as scratch,
        spark_session(options, scratch) as session,
    ):
        from kopitiam.embedded import private_service

        with private_service(settings, session, Path(home), scratch) as client:
            yield client, session
