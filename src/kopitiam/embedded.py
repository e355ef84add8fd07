"""A private service: on a loopback port of its own, for whoever knows its token, gone when it is left."""

import contextlib
import secrets
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from kopitiam.client.client import Client
from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import KopitiamError
from kopitiam.contracts.runs import RunState
from kopitiam.registry.port import RegistryPort
from kopitiam.service import service
from kopitiam.storage.open import passing_storage

if TYPE_CHECKING:
    from kopitiam.pipeline.session import SparkEngine


@contextlib.contextmanager
def private_service(settings: Settings, engine: "SparkEngine", home: Path, scratch: Path) -> Iterator[Client]:
    token = secrets.token_urlsafe()
    private = settings.privately(home, token)
    with (
        passing_storage(private),
        service(private, engine, scratch, is_patient=False) as served,
        Client(served.url, token) as client,
    ):
        served.trouble.add_done_callback(lambda trouble: _give_up(served.registry, trouble))
        yield client


def _give_up(registry: RegistryPort, trouble: Future[None]) -> None:
    """There is no next life that could take the work up: whoever waits is told."""
    for run in registry.runs_in(RunState.OPEN, RunState.SEALED, RunState.FINAL):
        with contextlib.suppress(KopitiamError):
            registry.move(run.run, RunState.FAILED, str(trouble.exception()))
