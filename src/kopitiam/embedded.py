"""A private service: on a loopback port of its own, for whoever knows its token, gone when it is left."""

import contextlib
import secrets
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

from pyspark.sql import SparkSession

from kopitiam.client.client import Client
from kopitiam.contracts.config import Settings
from kopitiam.pipeline.worker import UNWATCHED, Watch
from kopitiam.service import service


@contextlib.contextmanager
def private_service(
    settings: Settings, session: Future[SparkSession], home: Path, scratch: Path, watch: Watch = UNWATCHED
) -> Iterator[Client]:
    token = secrets.token_urlsafe()
    with (
        service(settings.privately(home, token), session, scratch, watch) as served,
        Client(served.url, token) as client,
    ):
        yield client
