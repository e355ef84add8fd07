"""`kopi analyze`: a service in this process for one client, on a loopback port with a secret token.

Spark takes longest to start: client, gateway and registry are imported after its JVM was launched.
"""

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
from kopitiam.runtime.home import exclusive_home
from kopitiam.spark.session import SparkEngine, spark_engine
from kopitiam.spark.settings import SparkOptions
from kopitiam.system.logs import KeptLogs, rotating_logs

if TYPE_CHECKING:
    from kopitiam.client.client import Client
    from kopitiam.registry.registry import Registry
    from kopitiam.spark.installation import Java

_BRIEF_BYTES = 1 << 30  # smaller inputs are answered before the JVM's optimizing compiler pays off
_ARCHIVE_SECONDS = 120  # the JVM writes the class archive when it stops


@contextlib.contextmanager
def analysis_client(
    settings: Settings, input_bytes: int, *, is_verbose: bool = False
) -> "Iterator[tuple[Client, SparkEngine]]":
    """A client of a service that ends with the block, and the service's Spark engine."""
    options = SparkOptions(
        settings.spark.master,
        settings.spark.conf,
        is_brief=input_bytes < _BRIEF_BYTES,
        is_verbose=is_verbose,
    )
    with _embedded_client(settings, options) as (client, engine):
        yield client, engine


def warm_up(settings: Settings) -> "tuple[Java, Path | None]":
    """Makes a lean Spark home, runs one small analysis, and records the classes that Java loaded for it.

    Returns the Java and its class archive; None if this Java makes none.
    """
    from kopitiam.spark.installation import (  # noqa: PLC0415
        archive_path,
        find_java,
        make_lean_spark_home,
        record_option,
    )
    from kopitiam.synthetic import generate  # noqa: PLC0415

    java = find_java()
    archive = archive_path(java)
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.unlink(missing_ok=True)
    make_lean_spark_home()
    with tempfile.TemporaryDirectory(prefix="kopitiam-", dir=archive.parent) as folder:
        recorded = Path(folder) / archive.name
        generate(Path(folder) / "data", scale=0.001, seed=1)
        options = SparkOptions(
            java_options=record_option(recorded), is_brief=True, stop_seconds=_ARCHIVE_SECONDS
        )
        with _embedded_client(settings, options) as (client, _):
            client.submit(Path(folder) / "data").wait()
        if recorded.is_file():
            recorded.replace(archive)
    return java, archive if archive.is_file() else None


@contextlib.contextmanager
def _embedded_client(settings: Settings, options: SparkOptions) -> "Iterator[tuple[Client, SparkEngine]]":
    """If Spark dies, its log is kept in the home of the settings, and stderr says where."""
    with (
        tempfile.TemporaryDirectory(prefix="kopitiam-", ignore_cleanup_errors=True) as home,
        exclusive_home(Path(home)) as scratch,
        rotating_logs(Path(home), settings.log_bytes),
        spark_engine(options, scratch, KeptLogs(settings.home / "logs", "analyze")) as engine,
    ):
        try:
            with _client(settings, engine, Path(home), scratch) as client:
                yield client, engine
        finally:
            if engine.kept_log is not None:
                sys.stderr.write(f"kopi: Spark's log is kept in {engine.kept_log}\n")


@contextlib.contextmanager
def _client(settings: Settings, engine: SparkEngine, home: Path, scratch: Path) -> "Iterator[Client]":
    from kopitiam.client.client import Client  # noqa: PLC0415
    from kopitiam.runtime.serve import open_service  # noqa: PLC0415
    from kopitiam.storage.open import temporary_storage  # noqa: PLC0415

    token = secrets.token_urlsafe()
    private = settings.privately(home, token)
    with (
        temporary_storage(private),
        open_service(private, engine, scratch, is_patient=False) as service,
        Client(service.url, token) as client,
    ):
        service.trouble.add_done_callback(lambda trouble: _fail_runs(service.registry, trouble))
        yield client


def _fail_runs(registry: "Registry", trouble: Future[None]) -> None:
    """Fails all runs when the service fails: no later process will continue them, and the client waits."""
    for run in registry.runs_in(RunState.OPEN, RunState.SEALED, RunState.FINAL):
        with contextlib.suppress(KopitiamError):
            registry.move(run.run, RunState.FAILED, str(trouble.exception()))
