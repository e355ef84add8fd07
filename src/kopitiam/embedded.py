"""A private service: on a loopback port of its own, for whoever knows its token, gone when it is left."""

import contextlib
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kopitiam.client.client import Client
from kopitiam.contracts.config import Settings
from kopitiam.pipeline.session import SparkOptions
from kopitiam.pipeline.worker import UNWATCHED, Watch
from kopitiam.service import service


@contextlib.contextmanager
def private_service(settings: Settings, options: SparkOptions, watch: Watch = UNWATCHED) -> Iterator[Client]:
    """Spark starts in the background, so that uploading may begin at once."""
    with tempfile.TemporaryDirectory(prefix="kopitiam-", ignore_cleanup_errors=True) as home:
        token = secrets.token_urlsafe()
        with (
            service(settings.privately(Path(home), token), options, watch) as served,
            Client(served.url, token) as client,
        ):
            yield client
