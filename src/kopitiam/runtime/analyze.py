"""A private service: on a loopback port of its own, for whoever knows its token, gone when it is left."""

import contextlib
import secrets
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import KopitiamError
from kopitiam.contracts.runs import RunState
from kopitiam.runtime.home import owned
from kopitiam.system.logs import KeptLogs, small_logs

if TYPE_CHECKING:
    from kopitiam.client.client import Client
    from kopitiam.registry.port import RegistryPort
    from kopitiam.spark.session import SparkEngine, SparkOptions


@contextlib.contextmanager
def private_client(settings: Settings, options: "SparkOptions") -> "Iterator[tuple[Client, SparkEngine]]":
    """A client, and the engine behind it. Spark takes longest to start: it starts before all else loads.

    What an engine that died has said is kept in the home of the settings, and the terminal is told where.
    """
    from kopitiam.spark.session import spark_engine  # noqa: PLC0415

    with (
        tempfile.TemporaryDirectory(prefix="kopitiam-", ignore_cleanup_errors=True) as home,
        owned(Path(home)) as scratch,
        small_logs(Path(home), settings.log_bytes),
        spark_engine(options, scratch, KeptLogs(settings.home / "logs", "analyze")) as engine,
    ):
        try:
            with private_service(settings, engine, Path(home), scratch) as client:
                yield client, engine
        finally:
            if engine.kept_log is not None:
                sys.stderr.write(f"kopi: what Spark said is kept in {engine.kept_log}\n")


@contextlib.contextmanager
def private_service(
    settings: Settings, engine: "SparkEngine", home: Path, scratch: Path
) -> "Iterator[Client]":
    # Loaded while Spark starts, which takes longer.
    from kopitiam.client.client import Client  # noqa: PLC0415
    from kopitiam.runtime.serve import service  # noqa: PLC0415
    from kopitiam.storage.open import passing_storage  # noqa: PLC0415

    token = secrets.token_urlsafe()
    private = settings.privately(home, token)
    with (
        passing_storage(private),
        service(private, engine, scratch, is_patient=False) as served,
        Client(served.url, token) as client,
    ):
        served.trouble.add_done_callback(lambda trouble: _give_up(served.registry, trouble))
        yield client


def _give_up(registry: "RegistryPort", trouble: Future[None]) -> None:
    """There is no next life that could take the work up: whoever waits is told."""
    for run in registry.runs_in(RunState.OPEN, RunState.SEALED, RunState.FINAL):
        with contextlib.suppress(KopitiamError):
            registry.move(run.run, RunState.FAILED, str(trouble.exception()))
