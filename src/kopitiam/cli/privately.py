"""A private service for commands that do everything in this process."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from kopitiam.contracts.config import Settings
from kopitiam.fleet.logs import small_logs
from kopitiam.landing.kept_logs import KeptLogs
from kopitiam.landing.ownership import owned

if TYPE_CHECKING:
    from kopitiam.client.client import Client
    from kopitiam.pipeline.session import SparkEngine, SparkOptions


@contextlib.contextmanager
def private_client(settings: Settings, options: "SparkOptions") -> "Iterator[tuple[Client, SparkEngine]]":
    """A client, and the engine behind it. Spark takes longest to start: it starts before all else loads.

    What an engine that died has said is kept in the home of the settings, and the terminal is told where.
    """
    from kopitiam.pipeline.session import spark_engine

    with (
        tempfile.TemporaryDirectory(prefix="kopitiam-", ignore_cleanup_errors=True) as home,
        owned(Path(home)) as scratch,
        small_logs(Path(home), settings.log_bytes),
        spark_engine(options, scratch, KeptLogs(settings.home / "logs", "analyze")) as engine,
    ):
        from kopitiam.embedded import private_service

        try:
            with private_service(settings, engine, Path(home), scratch) as client:
                yield client, engine
        finally:
            if engine.kept_log is not None:
                typer.echo(f"kopi: what Spark said is kept in {engine.kept_log}", err=True)
